"""What `make test` leaves to `make integration`: never the only test of a feature, and all tests of a module only where
quicker ones beside it do the same without real servers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[2]


LEFT = {
    "integration/demo/test_split.py": "unit/demo/split/test_whole.py",
    "integration/embedded/test_first_use.py": "unit/embedded/test_archives.py",
    "integration/sites/test_going_on_alone.py": "unit/sites/test_takeover.py",
    "integration/sites/test_merging_by_spark.py": "unit/cli/merge/test_restore_by_spark.py",
    "integration/sites/test_one_file.py": "unit/sites/test_one_tree.py",
    "integration/sites/test_settling.py": "unit/cli/merge/test_settle.py",
    "integration/sites/test_snapshots.py": "unit/sites/test_snapshots.py",
    "integration/sites/test_sync_sites.py": "unit/sites/test_sync_sites.py",
    "integration/sites/test_two_data_centres.py": "unit/sites/test_takeover.py",
    "integration/spark/test_secured.py": "unit/adapters/test_kafka_access.py",
}
"""Modules that `make integration` alone runs, and beside each the one that does the same in memory."""


class Found(NamedTuple):
    """A test of the integration or contract suite: its module, whether it is long, and its features."""

    module: str
    long: bool
    features: frozenset[str]


def marks(nodes: list[ast.expr]) -> Iterator[tuple[str, list[str]]]:
    """(name, words) of each `pytest.mark.…`."""
    for node in nodes:
        called = node.func if isinstance(node, ast.Call) else node
        if isinstance(called, ast.Attribute) and ast.unparse(called.value) == "pytest.mark":
            words = node.args if isinstance(node, ast.Call) else []
            yield called.attr, [str(word.value) for word in words if isinstance(word, ast.Constant)]


def of_module(tree: ast.Module) -> list[ast.expr]:
    """What `pytestmark` says."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            return node.value.elts if isinstance(node.value, ast.List) else [node.value]
    return []


def found() -> list[Found]:
    tests = []
    for suite in ("contract", "integration"):
        for path in sorted((TESTS / suite).rglob("test_*.py")):
            tree = ast.parse(path.read_text())
            for node in tree.body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    said = [*marks(of_module(tree)), *marks(node.decorator_list)]
                    ids = frozenset(word for name, words in said if name == "feature" for word in words)
                    tests.append(Found(str(path.relative_to(TESTS)), "long" in dict(said), ids))
    return tests


def test_every_module_and_every_feature_keeps_a_test_that_is_not_long() -> None:
    tests = found()
    assert 10 < sum(test.long for test in tests) < len(tests) / 2
    quick = [test for test in tests if not test.long]
    assert {test.module for test in tests} - {test.module for test in quick} == set(LEFT)
    assert [twin for twin in LEFT.values() if not (TESTS / twin).exists()] == []
    assert {i for test in tests for i in test.features} == {i for test in quick for i in test.features}
