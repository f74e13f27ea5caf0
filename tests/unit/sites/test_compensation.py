"""What the application says where both sites changed an object: asked once per merge, heard, and survived (M3)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping

import pytest

import halog
from halog.runtime.restores import DONE, Restore
from halog.testing.cluster import Cluster, wait_until
from restore.branch import Side
from restore.compensation import (
    Conflict,
    Defer,
    Delete,
    KeepInitiating,
    KeepSource,
    Replace,
    Verdict,
    keep_initiating,
    latest,
    merged_fields,
)  # fmt: skip
from restore.undoing import report_of
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_restoring import drop, mend, note, noted, restore, split
from tests.unit.sites.two import east, fly, level, west

pytestmark = pytest.mark.feature("M3")
__all__ = ["east", "west"]
Declare = Callable[[Callable[[Conflict], Verdict]], None]


@pytest.fixture
def declare() -> Iterator[Declare]:
    yield lambda trigger: halog.on_conflict(Flight, registry=registry)(trigger) and None
    registry.triggers.clear()


@pytest.fixture
def parted(west: Cluster, east: Cluster) -> tuple[Cluster, Cluster]:
    """Both changed 0 to 5, east before west; each has created 10; west has 20, east 21."""
    fly(west, *range(7))
    split(west, east)
    for cluster, new in ((east, 21), (west, 20)):
        for number in range(6):
            note(cluster, number, cluster.site)
        fly(cluster, 10, new)
    mend(west, east)
    return west, east


def together(west: Cluster, east: Cluster) -> dict[int, str]:
    """What there is at both once west has been merged into east."""
    found = restore(west, east)
    assert {r.phase for r in found.values()} == {DONE}, found
    level(west, east)
    assert noted(west) == noted(east)
    return noted(east)


def test_each_verdict_is_what_stands(parted: tuple[Cluster, Cluster], declare: Declare) -> None:
    seen: dict[int, Conflict] = {}

    def trigger(conflict: Conflict) -> Verdict:
        number = conflict.key["number"]
        seen[number] = conflict
        said: dict[int, Verdict] = {
            0: KeepSource(),
            1: KeepInitiating(),
            2: Replace({"number": 2, "note": "both"}),
            3: Delete(),
            4: Defer("who knows"),
            20: KeepSource(),
        }
        return said.get(number, KeepInitiating())

    declare(trigger)
    west, east = parted
    now = together(west, east)
    expected = {0: "east", 1: "west", 2: "both", 4: "east", 5: "west", 6: "", 10: "", 21: ""}
    assert now == expected
    one = seen[1]
    assert (one.type_name, one.base, one.source, one.initiating) == (
        "Flight", {"number": 1, "note": ""}, {"number": 1, "note": "east"}, {"number": 1, "note": "west"},
    )  # fmt: skip
    assert 0 < one.source_ms <= one.initiating_ms
    assert seen[20].source is None


@pytest.mark.parametrize("trigger", [latest, keep_initiating])
def test_policies_that_come_with_it(
    parted: tuple[Cluster, Cluster], declare: Declare, trigger: Callable[[Conflict], Verdict]
) -> None:
    declare(trigger)
    now = together(*parted)
    assert {now[n] for n in range(6)} == {"west"}


def test_fields_are_merged_each_by_itself(parted: tuple[Cluster, Cluster], declare: Declare) -> None:
    declare(merged_fields(otherwise=lambda conflict: Defer("both")))
    west, east = parted
    found = restore(west, east)
    assert sum(r.result["deferred"] for r in found.values()) >= 6
    level(west, east)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda c: 1 / 0,
        lambda c: "source",
        lambda c: Replace({"number": 99, "note": ""}),
        lambda c: Replace({"number": c.key["number"]}),
        lambda c: Replace({"number": c.key["number"], "note": 5}),
        lambda c: Replace({"number": c.key["number"], "note": "x" * 6_000_000}),
        lambda c: sys.exit("enough"),
        lambda c: Defer(""),
        lambda c: Defer(None),  # type: ignore[arg-type]
        lambda c: Defer("who knows: \udcff"),
        lambda c: Defer("x" * 3_000_000),
        lambda c: raised("\udcff"),
    ],
)
def test_one_that_fails_stops_its_conflict_only(
    parted: tuple[Cluster, Cluster], declare: Declare, wrong: Callable[[Conflict], Verdict]
) -> None:
    declare(lambda c: wrong(c) if c.key["number"] == 2 else KeepInitiating())
    west, east = parted
    found = restore(west, east)
    assert {r.phase for r in found.values()} == {DONE}, found
    assert sum(r.result["deferred"] for r in found.values()) == 1
    level(west, east)
    assert noted(east)[2] == "east"
    assert noted(east)[3] == "west"
    assert [len(why) < 1_000 for why in whys(east, found)] == [True]


def raised(text: str) -> Verdict:
    raise RuntimeError(text)


def whys(source: Cluster, found: Mapping[str, Restore]) -> list[str]:
    """What an operator reads of the conflicts that wait for him."""
    node, told = source.node(source.names[0]).runtime, list[str]()
    for name, one in found.items():
        copy = node.copies[name]
        state, log = copy.core.chain.state, node.adapters.log
        entries = report_of(Side(source.site, log, copy.tp, state, log.bounds(copy.tp)[1]), bytes.fromhex(one.merge))
        told += [e.why for e in entries if e.why]
    return told


def test_what_both_deleted_or_one_changed_is_not_asked(west: Cluster, east: Cluster, declare: Declare) -> None:
    asked: list[int] = []

    def trigger(conflict: Conflict) -> Verdict:
        asked.append(conflict.key["number"])
        return KeepSource()

    declare(trigger)
    fly(west, *range(6))
    split(west, east)
    note(west, 1, "west"), note(east, 2, "east"), drop(west, 3), drop(east, 3), drop(west, 4), note(east, 4, "east")
    mend(west, east)
    now = together(west, east)
    assert set(asked) - {3} == {4}
    assert now == {0: "", 1: "west", 2: "east", 4: "east", 5: ""}
    wait_until(lambda: noted(west) == now, "west follows")
