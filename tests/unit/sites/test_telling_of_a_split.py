"""A split is told, though the coordinator's answer is lost (M1)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from halog.core import events as ev
from halog.core.table import PartitionTable
from halog.ports import UnknownResult, Versioned
from halog.runtime.outside import Remote
from halog.runtime.splits import Watching, parted, tell

pytestmark = pytest.mark.feature("M1")


class Znodes:
    """As much of a coordinator as is asked."""

    def __init__(self, table: PartitionTable, unanswered: int) -> None:
        self.at = {"partitions/p": table.to_bytes()}
        self.unanswered = unanswered
        """So many creations fail, and nobody knows."""

    def get(self, path: str) -> Versioned | None:
        return Versioned(self.at[path], 0) if path in self.at else None

    def children(self, path: str) -> list[str]:
        return [name.removeprefix(f"{path}/") for name in self.at if name.startswith(f"{path}/")]

    def create(self, path: str, data: bytes) -> bool:
        if self.unanswered:
            self.unanswered -= 1
            raise UnknownResult
        return self.at.setdefault(path, data) is data

    def close(self) -> None: ...


def test_a_split_is_told_though_it_was_said_to_be_over_at_this_moment() -> None:
    """Whoever was quicker than this node has taken it back before this node could look at it."""

    class Forgotten(Znodes):
        def create(self, path: str, data: bytes) -> bool:
            made = super().create(path, data)
            if not made:
                del self.at[path]
            return made

    table = PartitionTable("p", bytes(16).hex(), "t", 0, "policy", ("A",), 0)
    here: Any = Forgotten(table, unanswered=0)
    here.at["parted/p"] = b"{}"
    assert tell(here, "p", "east", "A")
    assert {name: (one.site, one.by) for name, one in parted(here, [table]).items()} == {"p": ("east", "A")}


def test_a_split_is_told_again_until_it_stands_in_the_coordinator() -> None:
    table = PartitionTable("p", bytes(16).hex(), "t", 0, "policy", ("A",), 0)
    here: Any = Znodes(table, unanswered=2)
    there: Any = Znodes(table, unanswered=0)
    told: list[ev.Tell] = []
    core = SimpleNamespace(table=table, chain=SimpleNamespace(state=table.beginning("west")))
    copy = SimpleNamespace(name="p", serving=True, core=core)
    host: Any = SimpleNamespace(
        site="west", copies={"p": copy}, coordinator=here, me=SimpleNamespace(node="A"), pause=lambda seconds: False,
        telling=SimpleNamespace(told=lambda copy, e: told.append(e)),
    )  # fmt: skip
    watching = Watching(host, lambda site: Remote(site, there, there), ("east",), {"policy"})
    for _ in range(4):
        watching.turn()
    assert {name: one.site for name, one in parted(here, [table]).items()} == {"p": "east"}
    assert len(told) == 1
