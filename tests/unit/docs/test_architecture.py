"""docs/architecture.md names the code it describes; every name must resolve."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMES = re.findall(r"`((?:halog|spark_jobs)/[\w/]+\.py):([\w.]+)`", (ROOT / "docs/architecture.md").read_text())


def _defined(tree: ast.Module) -> set[str]:
    names = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{f.name}" for f in node.body if isinstance(f, ast.FunctionDef)}
    return names


def test_the_three_walks_name_enough_code() -> None:
    """A write, a failover and a restart are told step by step with their functions."""
    assert len(NAMES) >= 20


@pytest.mark.parametrize(("file", "name"), NAMES)
def test_every_name_in_the_architecture_resolves(file: str, name: str) -> None:
    """A function the document names exists in the file it names."""
    assert name in _defined(ast.parse((ROOT / file).read_text())), f"{file} has no {name}"
