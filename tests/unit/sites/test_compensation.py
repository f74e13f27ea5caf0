"""What the application says where both sites changed an object: asked once per merge, heard, and survived (M3)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

import halog
import halog.aio
from halog.core.log.chain import ChainState
from halog.core.log.records import Merged
from halog.errors import RefusedError
from halog.metadata.restore_requests import DONE, NOTHING, RestoreRequest
from halog.runtime.merge import restore_driver as restoring
from halog.runtime.merge.epoch_reopening import EpochLost
from halog.runtime.node.paces import Paces
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.context import changes_nothing
from halog.transactions.kind import Read
from restore.branch import Side
from restore.branches import BranchComparison
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
)
from restore.replay import Opening, merge_records
from restore.undoing import report_of
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_restoring import drop, mend, note, noted, restore, split
from tests.unit.sites.test_restoring_undone import undo
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
        "Flight",
        {"number": 1, "note": ""},
        {"number": 1, "note": "east"},
        {"number": 1, "note": "west"},
    )
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
        lambda c: KeepInitiating(also=({"number": 99},)),
        lambda c: Delete(also=({"number": 99, "note": 5},)),
        lambda c: Replace(dict(c.source or {}), also=({"number": 99, "note": "x" * 6_000_000},)),
        lambda c: KeepSource(also=(c.source or {},)),
        lambda c: KeepSource(also=5),  # type: ignore[arg-type]
        lambda c: sys.exit("enough"),
        lambda c: Defer(""),
        lambda c: Defer(None),  # type: ignore[arg-type]
        lambda c: Defer("who knows: \udcff"),
        lambda c: Defer("x" * 3_000_000),
        lambda c: raised("\udcff"),
        lambda c: raised(Unspeakable()),
        lambda c: Defer(Unspeakable()),  # type: ignore[arg-type]
        lambda c: raised(asyncio.CancelledError()),
        lambda c: raised(KeyboardInterrupt()),
        lambda c: raised(GivenUp("it took too long")),
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


def test_a_trigger_changes_nothing_itself(parted: tuple[Cluster, Cluster], declare: Declare) -> None:
    """It would do so as often as the merge is begun, and wait for the partition whose epoch has ended for it."""
    west, east = parted
    node, aside = east.node(east.names[0]), list[str]()
    acts: dict[int, Callable[[], object]] = {
        0: lambda: creates(node, 100, "active"),
        1: lambda: creates(node, 101, "barrier"),
        2: lambda: creates(node, 102, "local"),
        3: lambda: note_locally(node, 6),
        4: node.transactional(lambda: node.create(Flight(104, ""))),
        5: lambda: node.load([Flight(105, "")]),
        10: lambda: aside.append(noted(east)[6]),
        20: lambda: asyncio.run(creates_there(node, 106)),
    }

    def trigger(conflict: Conflict) -> Verdict:
        acts[conflict.key["number"]]()
        return KeepInitiating()

    declare(trigger)
    found = restore(west, east)
    assert {r.phase for r in found.values()} == {DONE}, found
    assert set(aside) == {""}, "as often as the merge was begun"
    assert are_alike(west, east) == dict.fromkeys(range(6), "east") | {6: "", 10: "", 21: ""}
    told = whys(east, found)
    assert len(told) == 7
    assert sum("a compensation trigger changes nothing itself" in why for why in told) == 5, told
    with changes_nothing(), pytest.raises(RefusedError, match="a compensation trigger"):
        asyncio.run(loads_there(node, 107))
    note(east, 6, "and others do")


def creates(node: halog.Node, number: int, read: Read) -> None:
    with node.transaction(read=read) as tx:
        tx.create(Flight(number, ""))


def note_locally(node: halog.Node, number: int) -> None:
    with node.transaction(read="local") as tx:
        tx.get(Flight, number).renamed("changed")


async def creates_there(node: halog.Node, number: int) -> None:
    async with halog.aio.Node(node).transaction() as tx:
        await tx.create(Flight(number, ""))


async def loads_there(node: halog.Node, number: int) -> None:
    await halog.aio.Node(node).load([Flight(number, "")])


def raised(what: str | BaseException) -> Verdict:
    raise RuntimeError(what) if isinstance(what, str) else what


class Unspeakable(Exception):
    """Whose text asks for what was never set."""

    def __str__(self) -> str:
        return f"code {self.code}"  # type: ignore[attr-defined]


class GivenUp(BaseException):
    """As other loops than asyncio's end a task."""


def whys(source: Cluster, found: Mapping[str, RestoreRequest]) -> list[str]:
    """What an operator reads of the conflicts that wait for him."""
    node, told = source.node(source.names[0]).runtime, list[str]()
    for name, one in found.items():
        copy = node.copies[name]
        state, log = copy.core.state.chain.state, node.adapters.log
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


@pytest.fixture
def unkept(paces: Paces) -> Iterator[tuple[Cluster, Cluster]]:
    """Two sites whose policy keeps no before-images."""
    west = Cluster(2, partitions=3, registry=registry, site="west", others=("east",), paces=paces)
    east = Cluster(2, partitions=3, registry=registry, site="east", home=west, paces=paces)
    for cluster in (west, east):
        policy = replace(cluster.config.policies["test"], before_images=False)
        cluster.config = replace(cluster.config, policies={"test": policy})
    with west, east:
        yield west, east


def test_a_base_that_no_log_has_is_told_apart_from_none(unkept: tuple[Cluster, Cluster], declare: Declare) -> None:
    """A policy without before-images: what both changed was there, and nobody knows what it was."""
    seen: dict[int, Conflict] = {}

    def trigger(conflict: Conflict) -> Verdict:
        seen[conflict.key["number"]] = conflict
        return merged_fields()(conflict)

    west, east = unkept
    declare(trigger)
    fly(west, 1)
    split(west, east)
    note(west, 1, "west"), note(east, 1, "east"), fly(west, 2), fly(east, 2)
    mend(west, east)
    found = restore(west, east)
    assert [(seen[n].base, seen[n].base_known) for n in (1, 2)] == [(None, False), (None, True)]
    assert ["before_images" in why for why in whys(east, found)] == [True]


# --- what is created beside it ---


def home(cluster: Cluster, number: int) -> str:
    """The partition that a flight belongs to."""
    routing = cluster.node(cluster.names[0]).runtime.routing
    return routing.partition_of("Flight", registry.info(Flight).routing_key((number,)))


def beside(cluster: Cluster, number: int, first: int = 100, *, stays: bool = True) -> int:
    """The first free number that belongs to the partition of this flight; or to another one."""
    numbers = range(first, first + 100)
    return next(n for n in numbers if (home(cluster, n) == home(cluster, number)) is stays)


def everywhere(*clusters: Cluster) -> list[dict[int, tuple[str, bytes, int]]]:
    """What each copy of each node has: the note, the instance, the version."""
    found = []
    for cluster in clusters:
        for name in cluster.names:
            node = cluster.node(name)
            with node.transaction(read="local") as tx:
                notes = {f.number: f.note for f in tx.extent(Flight)}
            keys = {n: registry.info(Flight).index_key((n,)) for n in notes}
            held = {n: node.runtime.copies[home(cluster, n)].objects.find(key) for n, key in keys.items()}
            found.append({n: (notes[n], o.ref, o.version) for n, o in held.items() if o is not None})
    return found


def are_alike(west: Cluster, east: Cluster) -> dict[int, str]:
    """What all copies of both have."""
    level(west, east)
    wait_until(lambda: all(one == everywhere(east)[0] for one in everywhere(west, east)), "copies differ")
    return {n: note for n, (note, _, _) in everywhere(east)[0].items()}


def test_both_are_kept_one_under_a_key_of_its_own_and_undone(
    parted: tuple[Cluster, Cluster], declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each merge is begun twice: the first time it ends when everything is decided, and nothing of it is there."""
    west, east = parted
    before, asked, died = noted(east), list[int](), list[bytes]()
    new = {number: beside(east, number, 100 * (number + 1)) for number in range(4)}

    def trigger(conflict: Conflict) -> Verdict:
        number = conflict.key["number"]
        asked.append(number)
        if number not in new or conflict.initiating is None:
            return KeepSource()
        also = ({**conflict.initiating, "number": new[number]},)
        said: dict[int, Verdict] = {
            1: KeepInitiating(also),
            2: Replace({"number": 2, "note": "both"}, also),
            3: Delete(also),
        }
        return said.get(number, KeepSource(also))

    def die(
        opening: Opening, others: list[ChainState], found: BranchComparison, merged: list[Merged], name: bytes
    ) -> list[bytes]:
        if name not in died:
            died.append(name)
            raise EpochLost  # as if the process were no more
        return made(opening, others, found, merged, name)

    made = merge_records
    declare(trigger)
    for name in east.tables():  # what east's mirror had under way is passed over now, not in the middle of a hand-over
        east.client().backend.barrier(name)
    with monkeypatch.context() as patched:
        patched.setattr(restoring, "merge_records", die)
        found = restore(west, east)
    assert {(r.phase, r.tries) for r in found.values()} == {(DONE, 2)}, found
    assert {asked.count(number) for number in new} == {2}
    expected = dict.fromkeys((4, 5), "east") | {0: "east", 1: "west", 2: "both", 6: "", 10: "", 21: ""}
    assert are_alike(west, east) == expected | dict.fromkeys(new.values(), "west")
    with east.client().transaction() as tx:
        assert tx.get(Flight, new[0]).note == "west"
    assert whys(east, found) == []
    merges = {name: r.merge for name, r in found.items()}
    assert {r.phase for r in undo(east, merges).values()} <= {DONE, NOTHING}
    assert are_alike(west, east) == before


def test_what_cannot_be_there_is_not_created_and_the_operator_is_told(
    parted: tuple[Cluster, Cluster], declare: Declare
) -> None:
    """Another partition's, one that is there; of two that want the same key the first has it."""
    west, east = parted
    free, first, second = _three(east)
    far = beside(east, 0, stays=False)
    there = next(n for n in range(1, 6) if n not in (first, second))
    held = beside(east, there, 700)
    wanted = {0: far, first: free, second: free, there: held}

    def trigger(conflict: Conflict) -> Verdict:
        number = conflict.key["number"]
        if number in wanted:
            return KeepInitiating(also=({"number": wanted[number], "note": "new"},))
        return KeepSource()

    declare(trigger)
    fly(east, held)
    found = restore(west, east)
    assert {r.phase for r in found.values()} == {DONE}, found
    now = are_alike(west, east)
    assert (now[free], now[held], far in now) == ("new", "", False)
    assert (now[0], now[first], now[second], now[there]) == ("east", "west", "east", "east")
    by = f"{trigger.__module__}.{trigger.__qualname__}"
    assert set(whys(east, found)) == {
        f"{by}: Flight [{far}] belongs to {home(east, far)}, and is to be created in {home(east, 0)}",
        f"{by}: Flight [{held}] is to be created, and is there",
        f"{by}: Flight [{free}] is to be created, and {by} has created it beside another object",
    }


def _three(cluster: Cluster) -> tuple[int, int, int]:
    """A free number of a partition, and the first two flights there of those that both sites have changed."""
    for first in range(1, 5):
        for second in range(first + 1, 6):
            if home(cluster, first) == home(cluster, second):
                return beside(cluster, first), first, second
    raise AssertionError("no two of five are in the same of three partitions")
