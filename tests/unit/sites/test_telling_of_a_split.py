"""A split is told, though the coordinator's answer is lost (M1)."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from halog.core.ids import EpochId
from halog.core.sites.mirror import Checkpoint
from halog.core.table.table import PartitionTable
from halog.core.table.tell import Tell
from halog.metadata.mirrors import COMPARES, MirrorStatus
from halog.ports import UnknownResult, Versioned
from halog.runtime.sites.split_watch import SplitWatch, parted, tell
from halog.runtime.support.adapters import SiteAccess

pytestmark = pytest.mark.feature("M1")


class Znodes:
    """As much of a coordinator as is asked."""

    def __init__(self, table: PartitionTable, unanswered: int) -> None:
        self.at = {"partitions/p": table.to_bytes()}
        self.unanswered = unanswered
        """So many times that it is told fails, and nobody knows."""

    def get(self, path: str) -> Versioned | None:
        return Versioned(self.at[path], 0) if path in self.at else None

    def children(self, path: str) -> list[str]:
        return [name.removeprefix(f"{path}/") for name in self.at if name.startswith(f"{path}/")]

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
        if self.unanswered and path.startswith("parted/"):
            self.unanswered -= 1
            raise UnknownResult
        return self.at.setdefault(path, data) is data

    def sync(self, path: str) -> None: ...

    def set(self, path: str, data: bytes, version: int) -> int:
        self.at[path] = data
        return 0

    def delete(self, path: str, version: int = -1) -> bool:
        return self.at.pop(path, None) is not None

    def close(self) -> None: ...


def test_a_split_is_told_though_it_was_said_to_be_over_at_this_moment() -> None:
    """Whoever was quicker than this node has taken it back before this node could look at it."""

    class Forgotten(Znodes):
        def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
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
    told: list[Tell] = []
    state = SimpleNamespace(table=table, chain=SimpleNamespace(state=table.beginning("west")))
    core = SimpleNamespace(state=state)
    copy = SimpleNamespace(name="p", serving=True, core=core)
    host: Any = SimpleNamespace(
        site="west",
        copies={"p": copy},
        coordinator=here,
        me=SimpleNamespace(node="A"),
        pause=lambda seconds: False,
        telling=SimpleNamespace(told=lambda copy, e: told.append(e)),
    )
    watching = SplitWatch(host, lambda site: SiteAccess(site, there, there), ("east",), {"policy"})
    for _ in range(4):
        watching.turn()
    assert {name: one.site for name, one in parted(here, [table]).items()} == {"p": "east"}
    assert len(told) == 1


# --- one of them has stopped ---

OURS = PartitionTable("p", bytes(16).hex(), "t", 0, "policy", ("A",), 0)
HOUR_MS = 3_600_000


def looked(now: MirrorStatus, *, epoch: int = 4, told: bool = True) -> str:
    """The site that this one, west, tells of as parted, when east has stopped, in that epoch, and stands so; `told`: it
    told so before."""
    table = msgspec.structs.replace(OURS, owner="west", epoch=EpochId(epoch, "east", 1))
    here: Any = Znodes(OURS, unanswered=0)
    there: Any = Znodes(table, unanswered=0)
    there.at |= {"mirrors/p": msgspec.json.encode(now), "parted/p": b"{}"}
    if told:
        tell(here, "p", "east", "A")
    state = SimpleNamespace(table=OURS, chain=SimpleNamespace(state=OURS.beginning("west")))
    core = SimpleNamespace(state=state)
    host: Any = SimpleNamespace(
        site="west",
        copies={"p": SimpleNamespace(name="p", serving=True, core=core)},
        coordinator=here,
        me=SimpleNamespace(node="A"),
        pause=lambda seconds: False,
        telling=SimpleNamespace(told=lambda copy, e: None),
    )
    SplitWatch(host, lambda site: SiteAccess(site, there, there), ("east",), {"policy"}).turn()
    found = parted(here, [OURS])
    return found["p"].site if found else ""


def stood(**more: Any) -> MirrorStatus:
    """As east's node has said it, by its own clock."""
    checkpoint = Checkpoint(0, OURS.beginning("west"))
    return MirrorStatus(**{"site": "west", "by": "E", "at_ms": _ms(), "checkpoint": checkpoint, **more})


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, 0, HOUR_MS])
@pytest.mark.parametrize("told", [False, True])
def test_a_site_that_has_stopped_and_parted_is_told_whatever_its_clock_says(ahead_ms: int, told: bool) -> None:
    assert looked(stood(error="parted", parted=True, at_ms=_ms() + ahead_ms), told=told) == "east"


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, 0, HOUR_MS])
def test_one_that_follows_has_not_parted_whatever_its_clock_says(ahead_ms: int) -> None:
    assert looked(stood(epoch=4, at_ms=_ms() + ahead_ms)) == ""


def test_what_it_said_before_it_served_last_says_nothing() -> None:
    """Its table has a later epoch by now: nobody of it has compared anything since."""
    assert looked(stood(epoch=3)) == "east"
    assert looked(stood(epoch=-1)) == "east"


def test_one_that_compares_has_not_said_anything_yet() -> None:
    assert looked(stood(error=COMPARES)) == "east"
    assert looked(stood(error=COMPARES), told=False) == ""


def _ms() -> int:
    return time.time_ns() // 1_000_000
