"""Session tokens: text and back, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from halog import Token
from halog.errors import FieldTypeError

POSITIONS = st.dictionaries(st.text(max_size=20), st.integers(0, 2**63 - 1), max_size=8)
pytestmark = pytest.mark.feature("R5")


@given(POSITIONS)
def test_a_token_comes_back_from_its_text(positions: dict[str, int]) -> None:
    token = Token(positions)
    text = str(token)
    assert Token.parse(text) == token
    assert text.isascii()
    assert not set(text) & set(' ;,"\\'), "fit for a cookie"


@given(POSITIONS, POSITIONS)
def test_both_is_no_older_than_either(a: dict[str, int], b: dict[str, int]) -> None:
    both = (Token(a) | Token(b)).positions
    assert both == {p: max(a.get(p, 0), b.get(p, 0)) for p in a.keys() | b.keys()}
    assert Token(b) | Token(a) == Token(both)


@pytest.mark.parametrize(
    "text", ["", "h1", "h2.gA", "h1.!", "h1.gaFh", "h1.gaFhoWI", "h1.gaFh_w", "h1." + "A" * 70_000]
)
def test_anything_else_is_refused(text: str) -> None:
    """Truncated, of another form, not a map, a text instead of a number, a negative number, too long."""
    with pytest.raises(FieldTypeError, match="session token"):
        Token.parse(text)
