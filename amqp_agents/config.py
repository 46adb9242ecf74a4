"""Settings: read once from the environment (prefix AMQP_AGENTS_), then passed down."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from amqp_agents.errors import ConfigurationError


class RetryPolicy(BaseModel):
    """How often, and how far apart, a failing delivery is tried again.

    Units:  seconds between attempts; attempts counted from 1, the first included.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_attempts: int = Field(default=5, ge=1, le=1000)
    base_seconds: float = Field(default=1.0, ge=0, le=3600)
    cap_seconds: float = Field(default=60.0, ge=1, le=129_600)


class Settings(BaseSettings):
    """What a process needs to know before it connects.

    Every field is an environment variable: `url` is `AMQP_AGENTS_URL`, and so on. A URL may
    name several hosts, separated by commas; they are tried in random order.
    """

    model_config = SettingsConfigDict(env_prefix="AMQP_AGENTS_", frozen=True, extra="ignore")

    url: SecretStr = SecretStr("amqp://guest:guest@127.0.0.1:5672/")
    management_url: SecretStr | None = None
    heartbeat_seconds: int = Field(default=10, ge=1, le=600)
    connect_timeout_seconds: float = Field(default=5.0, gt=0)
    publish_timeout_seconds: float = Field(default=30.0, gt=0)
    publish_window: int = Field(default=500, ge=1)
    max_body_bytes: int = Field(default=1_048_576, ge=1024)
    grace_seconds: float = Field(default=30.0, ge=0)
    stack_traces: bool = False


def load_settings(**given: Any) -> Settings:
    """Read the settings from the environment; what is given (and not None) wins.

    Raises: ConfigurationError naming every variable that is wrong, without its value.
    """
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        wrong = "; ".join(
            f"AMQP_AGENTS_{'_'.join(str(part) for part in item['loc']).upper()}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False)
        )
        raise ConfigurationError(f"settings are wrong: {wrong}") from None
