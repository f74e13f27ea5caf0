"""docs/states.md is made from the code's tables; a stale one fails here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from halog.core.table.states import TRANSITIONS
from tools.diagrams import PATH, document


@pytest.mark.feature("P8")
def test_the_document_is_what_the_tables_say() -> None:
    assert PATH.read_text() == document(), "run `python -m tools.diagrams`"


@pytest.mark.feature("P8")
def test_each_row_is_an_arrow_of_the_diagram() -> None:
    diagram = Path(PATH).read_text().split("```mermaid")[1].split("```")[0]
    arrows = re.findall(r"(\S+) --> (\S+): (.*)", diagram)
    drawn = {(a, h, b) for a, b, said in arrows for h in said.split(" / ")}
    rows = {(s.value if s else "[*]", h, to.value) for s, ways in TRANSITIONS.items() for h, to in ways.items()}
    assert drawn == rows
