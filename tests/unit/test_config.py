import pytest
from pydantic import ValidationError

from amqp_agents.config import RetryPolicy, Settings, load_settings
from amqp_agents.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"AMQP_AGENTS_{name.upper()}", raising=False)


def test_without_an_environment_everything_has_a_default() -> None:
    settings = load_settings()
    assert settings.url.get_secret_value() == "amqp://guest:guest@127.0.0.1:5672/"
    assert settings.management_url is None


def test_every_setting_is_a_variable_with_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMQP_AGENTS_GRACE_SECONDS", "2.5")
    monkeypatch.setenv("AMQP_AGENTS_URL", "amqp://broker/")
    settings = load_settings()
    assert settings.grace_seconds == 2.5
    assert settings.url.get_secret_value() == "amqp://broker/"


def test_what_is_given_wins_and_none_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMQP_AGENTS_URL", "amqp://from-environment/")
    assert load_settings(url=None).url.get_secret_value() == "amqp://from-environment/"
    assert load_settings(url="amqp://given/").url.get_secret_value() == "amqp://given/"


def test_all_wrong_variables_are_named_and_none_of_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AMQP_AGENTS_HEARTBEAT_SECONDS", "hunter2")
    monkeypatch.setenv("AMQP_AGENTS_PUBLISH_WINDOW", "0")
    with pytest.raises(ConfigurationError) as raised:
        load_settings()
    sentence = str(raised.value)
    assert "AMQP_AGENTS_HEARTBEAT_SECONDS" in sentence
    assert "AMQP_AGENTS_PUBLISH_WINDOW" in sentence
    assert "hunter2" not in sentence
    assert raised.value.__cause__ is None


def test_passwords_do_not_show() -> None:
    settings = load_settings(url="amqp://me:hunter2@broker/", management_url="http://me:hunter2@b/")
    assert "hunter2" not in repr(settings) + str(settings)


def test_settings_do_not_change_once_read() -> None:
    with pytest.raises(ValidationError):
        load_settings().grace_seconds = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    "wrong",
    [{"max_attempts": 0}, {"base_seconds": -1}, {"cap_seconds": 0}, {"attempts": 3}],
)
def test_a_retry_policy_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        RetryPolicy(**wrong)
