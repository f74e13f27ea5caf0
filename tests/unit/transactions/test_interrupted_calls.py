"""A call that something interrupts, wherever it is by then: all of what it does is done, or nothing (R5)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from halog.schema import Registry, managed
from halog.testing.memory import MemoryCluster
from halog.testing.nodes import MemoryNode
from tests.unit.interrupts import interrupted_at

pytestmark = pytest.mark.feature("R5")

REGISTRY = Registry()
MOST = 2_000
"""Lines of one call."""


class Stop(BaseException):
    """As Ctrl-C is."""


class Late(Exception):
    """As a time limit is."""


@managed(key="name", registry=REGISTRY)
class Box:
    name: str
    items: list[int]
    rows: list[list[int]]
    named: dict[str, list[int]]

    def add(self) -> int:
        self.items.append(9)
        self.rows[0].append(9)
        self.named["a"].append(9)
        return 9


WAS = ([1], [[1], [2]], {"a": [1]})
IS = ([1, 9], [[1, 9], [2]], {"a": [1, 9]})


def has(box: Box) -> Any:
    return box.items, box.rows, box.named


@pytest.mark.parametrize("by", [Stop, Late])
@pytest.mark.parametrize("remote", [False, True])
def test_a_call_is_done_or_not_wherever_it_is_interrupted(remote: bool, by: type[BaseException]) -> None:
    """What its caller has taken out of the object is part of it; and so the transaction goes on and commits."""
    seen = set()
    for line in itertools.count():
        assert line < MOST
        with MemoryNode(MemoryCluster(1), REGISTRY, remote=remote) as node:
            with node.transaction() as tx:
                tx.create(Box("a", *_copies(WAS)))
            interrupted = True
            with node.transaction() as tx:
                box: Any = tx.get(Box, "a")
                box._mine = "kept"
                taken = has(box)
                try:
                    with interrupted_at(line, by, "halog.transactions", "halog.schema"):
                        box.add()
                        interrupted = False
                except BaseException:
                    assert interrupted
                done = has(box) == IS
                assert has(box) == (IS if done else WAS), line
                assert all(now is was for now, was in zip(has(box), taken, strict=True)), line
                assert box._mine == "kept", line
            with node.transaction() as tx:
                assert has(tx.get(Box, "a")) == (IS if done else WAS), line
        seen.add((interrupted, done))
        if not interrupted:
            break
    assert seen == {(True, False), (True, True), (False, True)}


def _copies(values: Any) -> Any:
    items, rows, named = values
    return [*items], [[*row] for row in rows], {name: [*row] for name, row in named.items()}
