"""Tables and facts show whatever an application stores in one line each, and let it do nothing to the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from halog.cli.shared.messages import echo_facts
from halog.cli.shared.output import table_lines

pytestmark = pytest.mark.feature("O1")

ODD = "a\nb\r\x1b[31mred\x00\x85\u2028\u202e\ud800"
SHOWN = r"a\nb\r\x1b[31mred\x00\x85\u2028\u202e\ud800"


def test_what_would_move_the_cursor_is_shown_as_python_writes_it() -> None:
    """In a table and among facts; text of any language, spaces and backslashes stay as they are."""
    assert [*table_lines(("key",), [(ODD,), ("Grüße, 世界 \\ x",)])] == ["key", SHOWN, "Grüße, 世界 \\ x"]


def test_facts_too(capsys: pytest.CaptureFixture[str]) -> None:
    """What `halog get` shows."""
    echo_facts([("  v", ODD), ("n", 1)])
    assert capsys.readouterr().out == f"  v  {SHOWN}\nn    1\n"


@given(st.lists(st.text(st.characters(), max_size=6), min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_a_row_is_a_line(cells: list[str]) -> None:
    """Of whatever text."""
    lines = [*table_lines([str(i) for i in range(len(cells))], [cells])]
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
