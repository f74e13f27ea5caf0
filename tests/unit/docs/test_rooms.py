"""docs/architecture.md lists every room with what its own docstring says, and no room is a hall."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools.rooms import PATH, document, reduced

pytestmark = pytest.mark.feature("O1")

ROOT = Path(__file__).resolve().parents[3]
HALLS = ("halog/core", "halog/runtime", "halog/adapters", "halog/cli")
MOST = 40
"""Modules of one folder."""


def rooms() -> list[str]:
    found = [p.parent for hall in HALLS for p in (ROOT / hall).glob("*/__init__.py")]
    return sorted(str(p.relative_to(ROOT)) for p in [*found, ROOT / "halog/certs", ROOT / "halog/metadata"])


def test_every_room_is_listed_once_and_nothing_else() -> None:
    section = (ROOT / "docs/architecture.md").read_text().partition("\n## Rooms\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"(?m)^\| `(halog/[a-z/_]+)` \|", section)) == rooms()


@pytest.mark.parametrize("room", rooms())
def test_a_room_says_what_it_is_for(room: str) -> None:
    said = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text()))
    assert said
    assert said.partition(".")[0].count(" ") > 3


def test_no_folder_is_a_hall() -> None:
    folders = {p.parent for p in (ROOT / "halog").rglob("*.py")}
    assert {str(f): n for f in folders if (n := len([*f.glob("*.py")])) > MOST} == {}


def test_the_picture_is_what_the_imports_say() -> None:
    assert PATH.read_text() == document(), "run `python -m tools.rooms`"


def test_an_arrow_that_follows_from_others_is_left_out() -> None:
    assert reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}
