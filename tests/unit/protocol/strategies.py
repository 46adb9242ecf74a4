"""Values JSON can carry, as hypothesis makes them up."""

from typing import Any

from hypothesis import strategies as st

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
payloads: st.SearchStrategy[dict[str, Any]] = st.dictionaries(text, values, max_size=5)
