"""Figures, not checks: rates of the package beside raw aio-pika, in one run."""
