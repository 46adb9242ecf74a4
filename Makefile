# Needs Python 3.11 or later, git and make; everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SYNC := VIRTUAL_ENV=$(VENV) $(BIN)/uv sync --frozen --active --inexact --quiet

.DEFAULT_GOAL := help
.PHONY: help demo check test test-unit cases bench format clean

help: ## list these commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ —/' | sort

demo: $(VENV)/.runtime ## watch a team of agents handle a ticket (in memory; AMQP_AGENTS_URL: on RabbitMQ)
	@$(BIN)/amqp-agents demo

check: $(VENV)/.dev ## format, lint, types, layers, unit and architecture tests (no broker)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q amqp_agents tests/unit tests/architecture

test: $(VENV)/.dev ## every test but the field cases, on a real RabbitMQ (AMQP_AGENTS_TEST_URL, else Docker, else a private node)
	$(BIN)/pytest amqp_agents tests examples --ignore=tests/cases

test-unit: $(VENV)/.dev ## the tests that need no broker
	$(BIN)/pytest -q amqp_agents tests/unit

cases: $(VENV)/.dev ## real bug reports as tests, and their table (docs/field-cases.md); VERSIONS="3.10 4.0"
	$(BIN)/python -m tests.cases $(VERSIONS)

bench: $(VENV)/.dev ## publish, consume and request rates beside raw aio-pika
	$(BIN)/python -m tests.benchmarks

format: $(VENV)/.dev ## format the code and mend what can be mended
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

clean: ## remove what these commands made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "amqp_agents needs Python 3.11 or later as '$(PYTHON)'; name another one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "Python's venv module is missing; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/.runtime: $(BIN)/uv pyproject.toml uv.lock
	@$(SYNC) --no-dev
	@touch $@

$(VENV)/.dev: $(BIN)/uv pyproject.toml uv.lock
	@$(SYNC) --all-groups
	@touch $@ $(VENV)/.runtime
