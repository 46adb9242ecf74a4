import pytest

from amqp_agents.protocol.versions import accepts, accepts_payload_schema, parse_version


@pytest.mark.parametrize("text", ["", "v1", "1.", ".1", "1.0.0.0", "-1", "1.x", "١", "9" * 10])
def test_what_is_not_major_minor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not Major\.Minor"):
        parse_version(text)
    assert not accepts(text, ["1.0"])


def test_versions_compare_by_number() -> None:
    assert parse_version("1.10") > parse_version("1.9") > parse_version("1")


@pytest.mark.parametrize(
    ("have", "compatible", "accepted", "readable"),
    [
        ("review.v1", [], ["review.v1"], True),
        ("review", [], ["review.v1"], True),
        ("review.v2", ["review.v1"], ["review.v1"], True),
        ("review.v2", [], ["review.v1"], False),
        ("review.v1", [], ["review.v2"], False),
        ("review.v1", [], ["review.v2", "review.v1"], True),
        ("other.v1", [], ["review.v1"], False),
        ("review.v01", [], ["review.v1"], True),
        ("review.v1", [], [], False),
    ],
)
def test_a_payload_is_readable_where_its_schema_or_its_writer_says_so(
    have: str, compatible: list[str], accepted: list[str], readable: bool
) -> None:
    assert accepts_payload_schema(have, compatible, accepted=accepted) is readable
