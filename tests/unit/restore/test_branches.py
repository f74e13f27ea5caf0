"""What two logs have behind their fork, where transactions over several partitions lie across it (F4, T2)."""

from __future__ import annotations

import pytest

from halog.adapters.memory.log import MemoryLog
from halog.core.ids import ABSENT
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.log.records import CREATE, UPDATE, Change
from halog.ports import TopicPartition
from restore.branch import aborted, side
from restore.branches import BranchComparison, compared
from restore.merge import Difference, Instance, Kind
from tests.unit.restore.test_divergence import LOG_ID, Branch

pytestmark = pytest.mark.feature("M2", "M3", "X3")
TP = TopicPartition("t", 0)
KEY, REF = b"k" * 17, b"r" * 24


class Site(Branch):
    """A site's log of a partition; `before`: it has mirrored all of that one's."""

    def __init__(self, name: str, before: Site | None = None) -> None:
        super().__init__(before)
        self.name = name
        self.log = MemoryLog()
        self.log.ensure_topic(TP.topic, 1)
        self.data: list[bytes] = []
        for data in before.data if before else []:
            self._write(data)

    def _write(self, data: bytes) -> None:
        self.data.append(data)
        self.log.put(TP, b"", data)

    def add(self, made: records.Record) -> None:
        super().add(made)
        self._write(records.encode(made))

    def header(self, tx: int) -> records.Header:
        s = self.chain.state
        return records.Header(LOG_ID, s.epoch, s.lsn + 1, s.hash, tx.to_bytes(16, "big"))

    def change(self, tx: int, value: bytes, before: bytes | None) -> None:
        self.add(records.Commit(self.header(tx), (changed(value, before),)))

    def prepare(self, tx: int, value: bytes, before: bytes | None) -> None:
        change = changed(value, before)
        self.add(records.Prepare(self.header(tx), "p-0", ("p-0", "p-1"), 0, b"d" * 32, (change,)))

    def decide(self, tx: int, *, commit: bool) -> None:
        self.add(records.Outcome(self.header(tx), commit))


def changed(value: bytes, before: bytes | None) -> Change:
    if before is None:
        return Change(CREATE, REF, KEY, value, ABSENT)
    return Change(UPDATE, REF, KEY, value, 1, before)


def parted(before: bytes | None) -> tuple[Site, Site]:
    """Both sites know that transaction 7 was voted for, and part before it is decided."""
    west = Site("west")
    west.epoch(1)
    if before is not None:
        west.change(1, before, None)
    west.prepare(7, b"2", before)
    east = Site("east", west)
    east.epoch(2)
    return west, east


def found(source: Site, initiating: Site) -> BranchComparison:
    sides = [side(s.name, s.log, TP, ChainState(LOG_ID, "home")) for s in (source, initiating)]
    return compared(*sides, decide=aborted)


def test_what_both_sites_decided_alike_is_on_neither_branch() -> None:
    """A counter that it stepped would else have two steps, one by each site. It is a part of the merge all the same: it
    stands at two places, so that the object has another version at each site."""
    west, east = parted(b"1")
    west.decide(7, commit=True)
    east.decide(7, commit=True)
    there = Instance(REF, b"2")
    assert found(east, west).keys == (Difference(KEY, Kind.SAME, there, there, there, (), ()),)
    west.change(8, b"3", b"2")
    (key,) = found(east, west).keys
    assert (key.kind, key.base, key.source, key.initiating) == (
        Kind.TAKEN,
        Instance(REF, b"2"),
        Instance(REF, b"2"),
        Instance(REF, b"3"),
    )
    east.change(9, b"4", b"2")
    (key,) = found(east, west).keys
    assert (key.kind, key.base) == (Kind.STATE_CONFLICT, Instance(REF, b"2"))
    assert [[c.tx[-1] for c in by] for by in (key.source_by, key.initiating_by)] == [[9], [8]]


def test_what_one_accepted_and_the_other_recovered_gets_one_version() -> None:
    """It has another lsn at each site (trace 25)."""
    west = Site("west")
    west.epoch(1)
    west.change(1, b"1", None)
    east = Site("east", west)
    west.change(2, b"2", b"1")
    place = west.accepted[-1].place
    east.epoch(2)
    east.add(records.Commit(east.header(2), (changed(b"2", b"1"),), records.Origin(*place)))
    assert [(d.kind, d.source) for d in found(east, west).keys] == [(Kind.SAME, Instance(REF, b"2"))]


def test_an_object_that_both_made_by_the_same_transaction_is_one() -> None:
    west, east = parted(None)
    for site in (west, east):
        site.decide(7, commit=True)
    west.change(8, b"3", b"2")
    (key,) = found(east, west).keys
    assert (key.kind, key.base, key.by_default) == (Kind.TAKEN, Instance(REF, b"2"), Instance(REF, b"3"))


@pytest.mark.parametrize("committed_by", ["west", "east"])
def test_what_only_one_of_them_committed_is_that_ones(committed_by: str) -> None:
    west, east = parted(b"1")
    west.decide(7, commit=committed_by == "west")
    east.decide(7, commit=committed_by == "east")
    (key,) = found(east, west).keys
    assert key.kind is (Kind.TAKEN if committed_by == "west" else Kind.KEPT)
    assert key.base == Instance(REF, b"1")


def test_what_is_in_doubt_where_a_branch_ends_and_was_committed_is_on_neither_either() -> None:
    """The branch of its first partition says so."""
    west, east = parted(b"1")
    west.decide(99, commit=False)
    east.decide(7, commit=True)
    sides = [side(s.name, s.log, TP, ChainState(LOG_ID, "home")) for s in (east, west)]
    assert [d.kind for d in compared(*sides, decide=lambda side, undecided: True).keys] == [Kind.SAME]
    (key,) = compared(*sides, decide=aborted).keys
    assert key.kind is Kind.KEPT
