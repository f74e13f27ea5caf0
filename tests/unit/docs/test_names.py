"""No two classes of halog have one name; tools/names.py looks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.names import ROOT, repeated

pytestmark = pytest.mark.feature("O1")


def test_a_name_that_stands_twice_is_found_with_its_places(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class One: ...\nclass Two: ...\n")
    (tmp_path / "b.py").write_text("class Two: ...\n")
    assert repeated(tmp_path) == {"Two": ["a.py:2", "b.py:1"]}


def test_a_twin_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "aio.py").write_text("class Node: ...\n")
    (tmp_path / "node.py").write_text("class Node: ...\n")
    assert repeated(tmp_path) == {}


def test_no_two_classes_have_one_name() -> None:
    assert repeated(ROOT / "halog") == {}
