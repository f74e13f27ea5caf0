"""Executors that follow two logs find what `restore.branches` finds: the fork, what is common, every key (S1, M3)."""

from __future__ import annotations

from collections.abc import Mapping
from unittest import mock

import pytest
from hypothesis import given, strategies as st

from halog.core.log.chain import ChainState
from halog.core.log.records import decode
from halog.errors import DivergedError, LogError
from restore.branch import side
from restore.branches import BranchComparison, compared
from restore.divergence import BEGINNING
from spark_jobs import branching
from spark_jobs.branching import (
    INITIATING,
    SIDES,
    SOURCE,
    Branch,
    FoldBranch,
    Trace,
)
from spark_jobs.history import HistoryState
from spark_jobs.snapshot import Place
from spark_jobs.waypoints import WAYPOINTS, thinned
from tests.unit.spark_jobs.following import Job, rows
from tests.unit.spark_jobs.forked import CASES, EAST, LOG_ID, TP, WEST, Case, Writer, forked, read
from tests.unit.spark_jobs.test_classifying import as_row, classified, plainly

pytestmark = pytest.mark.feature("S1", "M3")

SITES = ("east", "west")
BEGIN: dict[int, ChainState] = {SOURCE: EAST, INITIATING: WEST}


def place(of: int) -> Place:
    state = BEGIN[of]
    return Place("p-0", 0, TP.topic, "", LOG_ID.hex(), state.site, state.owner)


def job_of(logs: Mapping[int, Writer], size: int) -> Job:
    return Job({s: read(logs[s].values) for s in SIDES}, {s: place(s) for s in SIDES}, size)


def plain(logs: Mapping[int, Writer], *, three_way: bool = True) -> BranchComparison:
    sides = [side(BEGIN[s].site, logs[s], TP, BEGIN[s]) for s in SIDES]  # type: ignore[arg-type]
    return compared(*sides, three_way=three_way)


@given(CASES, st.integers(1, 12), st.integers(1, 4), st.booleans())
def test_it_finds_what_is_found_in_one_process(case: Case, size: int, piece: int, three: bool) -> None:
    """Whatever was recovered, prepared in front of the fork, or came too late; however the logs are cut."""
    west, east = forked(case)
    logs = {SOURCE: east, INITIATING: west}
    expected = plain(logs, three_way=three)
    with mock.patch.object(branching, "PIECE", piece):
        job = job_of(logs, size)
        found, folded = job.run()
    assert (found.forked, found.histories) == (expected.forked, expected.said(*SITES))
    assert found.lsn == expected.fork_lsn
    assert not found.forked or (job.before[SOURCE] == job.before[INITIATING] and len(job.before[SOURCE]) == 1)
    keys = sorted(map(plainly, classified(folded, [size], job.gone, three_way=three)), key=lambda row: row["key"])
    assert keys == [as_row(d) for d in expected.keys]


def test_the_cases_are_forks_with_common_transactions() -> None:
    """Or they would prove little."""
    steps = [(b"x", False, b"1"), (b"y", False, b"2"), (b"x", True, b"")]
    west, east = forked(Case(steps, steps, steps, 2, 2, (True, False), spans=True, late=True))
    found, folded = job_of({SOURCE: east, INITIATING: west}, 3).run()
    assert found.forked
    assert [len(lsns) for lsns in found.both] == [4, 4]
    assert {row[2] for row in folded} == {b"x", b"y", b"in doubt"}


def test_who_is_behind_or_level_has_no_keys() -> None:
    west, east = forked(Case([(b"x", False, b"1")], [], [], 0, 0, None, spans=False, late=False))
    found, folded = job_of({SOURCE: east, INITIATING: west}, 3).run()
    assert (found.forked, found.histories, folded) == (False, "site west is behind", [])


def test_a_log_that_does_not_go_on_where_it_was_left_is_told() -> None:
    west, _ = forked(Case([(b"x", False, b"1")], [], [], 0, 0, None, spans=False, late=False))
    branch = Branch(place(INITIATING), INITIATING, 9, HistoryState(0, place(INITIATING).empty).pack())
    with pytest.raises(LogError, match=r"site west is to be read on at offset 0, and what comes is 1"):
        list(Trace({1: branch})(rows(INITIATING, read(west.values)[1:])))


def test_what_comes_later_than_the_first_look_is_not_looked_at() -> None:
    """By neither pass; a log grows while it is read."""
    steps = [(b"x", False, b"1"), (b"y", False, b"2")]
    west, _ = forked(Case([], steps, steps, 0, 0, None, spans=False, late=False))
    begin, end = HistoryState(0, place(INITIATING).empty).pack(), len(west.values) - 1
    branch = Branch(place(INITIATING), INITIATING, end, begin)
    (told,) = Trace({1: branch})(rows(INITIATING, read(west.values)))
    assert HistoryState.unpack(told.to_pylist()[0]["carried"]).next_offset == end
    keys = [
        row["key"]
        for batch in FoldBranch({1: branch})(rows(INITIATING, read(west.values)))
        for row in batch.to_pylist()
    ]
    assert keys == [b"x", None]


def test_what_was_recovered_from_the_other_branch_must_be_there() -> None:
    west, east = forked(Case([], [(b"x", False, b"1")], [], 1, 0, None, spans=False, late=False))
    job = job_of({SOURCE: east, INITIATING: west}, 99)
    found, _ = job.run()
    ((lsn, tx),) = found.expected[INITIATING].items()
    assert tx == b"wt1".ljust(16, b".")
    begin = HistoryState(0, place(INITIATING).empty).pack()
    branch = Branch(place(INITIATING), INITIATING, 99, begin, lsn, found.fork, frozenset(), {lsn: b"another"})
    with pytest.raises(DivergedError, match=f"lsn {lsn} at site west is not"):
        list(FoldBranch({1: branch})(rows(INITIATING, read(west.values))))


def test_waypoints_are_few_and_begin_at_the_beginning() -> None:
    places = [b"first"]
    for n in range(1_000):
        places = [*thinned(places), b"%d" % n]
        assert places[0] == b"first"
        assert len(places) <= WAYPOINTS + 1
    assert [int(p) for p in places[1:]] == sorted(int(p) for p in places[1:])


def test_what_was_recovered_is_folded_apart_unless_the_other_branch_is_known_to_have_it() -> None:
    """A merge in that one may have brought it: of a key, the rows tell which transaction it is."""
    steps = [(b"x", False, b"1"), (b"x", False, b"2")]
    _, east = forked(Case([], steps, steps, 1, 0, None, spans=False, late=False))
    recovered = next(e.offset for e in read(east.values) if getattr(decode(e.value), "origin", None) is not None)
    lsn = decode(east.values[recovered]).header.lsn
    begin = HistoryState(0, place(SOURCE).empty).pack()
    told = []
    for both in (frozenset[int](), frozenset([lsn])):
        branch = Branch(place(SOURCE), SOURCE, 99, begin, lsn, BEGINNING, both)
        found = [row for b in FoldBranch({0: branch})(rows(SOURCE, read(east.values))) for row in b.to_pylist()]
        told.append([(row["first"] == lsn, row["txs"], row["tx"]) for row in found if row["key"] is not None])
    assert told == [[(True, 1, b"wt1".ljust(16, b".")), (False, 2, None)], [(True, 0, None), (False, 2, None)]]
