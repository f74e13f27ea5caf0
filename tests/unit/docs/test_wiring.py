"""halog/runtime/node wires by constructor; tools/wiring.py looks for what it assigns into other objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.wiring import PARTS, PUTS_TOGETHER, ROOT, foreign_assignments, replaced_lambdas

pytestmark = pytest.mark.feature("O1")


def test_an_attribute_of_another_object_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "def f(a, self):\n    a.x = 1\n    self.y = 2\n    self.a.z, b = 3, 4\n    a.n += 1\n"
    )
    assert foreign_assignments(tmp_path) == ["a.py:2: a.x", "a.py:4: self.a.z", "a.py:5: a.n"]


def test_a_lambda_that_is_replaced_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "class A:\n    def __init__(self):\n        self.x = lambda: 1\n        self.y = lambda: 2\n"
    )
    (tmp_path / "b.py").write_text("def f(a, g):\n    a.x = g\n")
    assert replaced_lambdas(tmp_path) == ["a.py:3: x"]


def test_the_runtime_is_wired_by_constructors() -> None:
    found = foreign_assignments(ROOT / PUTS_TOGETHER) + replaced_lambdas(ROOT / PARTS)
    assert found == []
