import pytest

from amqp_agents.protocol.versions import accepts, parse_version


@pytest.mark.parametrize("text", ["", "v1", "1.", ".1", "1.0.0.0", "-1", "1.x", "١", "9" * 10])
def test_what_is_not_major_minor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not Major\.Minor"):
        parse_version(text)
    assert not accepts(text, ["1.0"])


def test_versions_compare_by_number() -> None:
    assert parse_version("1.10") > parse_version("1.9") > parse_version("1")
