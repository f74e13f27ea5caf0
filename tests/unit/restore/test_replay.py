"""A merge made into records: its parts, their sizes, and the one that makes them count (F5, M2)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, strategies as st

from halog.core.ids import EpochId, digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.core.log.records import Branch, EpochMerged, Merged, MergePart
from restore.branch import Branch as Read
from restore.branches import BranchComparison
from restore.divergence import Same
from restore.merge import BranchCommit, Difference, Instance, Kind, State
from restore.plan import Choice
from restore.replay import Opening, is_merged, merge_records, name_of
from restore.report import changes_of, entry, merged
from tests.unit.core.kit import LOG_ID

pytestmark = pytest.mark.feature("M2")

OURS, THEIRS, NEXT = EpochId(3, "west", 3), EpochId(4, "east", 4), EpochId(5, "west", 5)
S = ChainState(LOG_ID, "west", OURS, True, True, "west", 3, 12, b"s" * 16, ((EpochId(1, "west", 1), 1), (OURS, 11)))
T = ChainState(LOG_ID, "east", THEIRS, True, led=4, lsn=20, hash=b"i" * 16, lineage=((THEIRS, 11),))


def opening(**more: Any) -> Opening:
    return Opening(NEXT, S, 0, 2, {})._replace(**more)


def tx(stamp: int, number: int = 0) -> bytes:
    return stamp.to_bytes(8, "big") + number.to_bytes(8, "big")


def of(made: list[bytes]) -> tuple[list[MergePart], EpochMerged]:
    *parts, last = map(records.decode, made)
    assert isinstance(last, EpochMerged)
    assert all(isinstance(p, MergePart) for p in parts)
    return parts, last  # type: ignore[return-value]


def read(state: ChainState, made: list[bytes]) -> Chain:
    chain = Chain(state)
    verdicts = [chain.read(records.decode(data), digest(data)) for data in made]
    assert verdicts == [Verdict.HELD] * (len(made) - 1) + [Verdict.OPENED]
    return chain


def begun(number: int = 5) -> ChainState:
    chain = Chain(S)
    chain.read(records.EpochStarted(records.Header(LOG_ID, EpochId(number, "west", number)), OURS, 12), b"")
    return chain.state


def test_both_branches_end_with_the_same_history() -> None:
    made = merge_records(opening(), [T], None, [Merged(b"k", b"r" * 24, b"v")], b"name")
    mirror = ChainState(
        LOG_ID, "east", THEIRS, False, owner="west", fenced=4, lsn=20, hash=b"i" * 16, lineage=T.lineage
    )
    one, other = read(begun(), made).state, read(mirror, made).state
    for state in (one, other):
        assert (state.lsn, state.led, state.lineage) == (21, 5, (*S.lineage, (NEXT, 21)))
        assert is_merged(state, T)
        assert is_merged(state, Branch(OURS, 12, b"s" * 16, ()))
        assert not is_merged(state, Branch(OURS, 12, b"x" * 16, ()))
    assert one.joined == other.joined
    assert name_of(T) == b"i" * 16


def test_nothing_that_was_touched_is_a_merge_without_parts() -> None:
    made = merge_records(opening(), [T], None, [], b"name")
    assert len(made) == 1
    found = read(begun(), made).merged
    assert found is not None
    assert (found.merged, found.happened, found.decided) == ((), (), ())


@pytest.mark.parametrize("size", [0, 10, 900, 5_000])
def test_objects_are_cut_into_parts_of_about_the_same_size(size: int) -> None:
    objects = [Merged(b"%03d" % n, b"r" * 24, bytes(size), b"e") for n in range(50)]
    made = merge_records(opening(), [T], None, objects, b"name", part_bytes=2_000)
    parts, last = of(made)
    assert [m for p in parts for m in p.merged] == objects
    assert [p.index for p in parts] == [*range(last.parts)]
    assert all(p.merged for p in parts)
    assert max(map(len, made)) < 2_000 + size + 300
    assert len(parts) <= 50 * (size + 150) // 2_000 + 1
    assert read(begun(), made).merged is not None


def test_transactions_have_parts_of_their_own() -> None:
    happened = [tx(9, n) for n in range(7)]
    source = Read([], {tx(5, 1): False, tx(7): True}, 6, (), happened=happened[:4])
    other = Read([], {tx(5, 1): True, tx(8): True, tx(9): False}, 4, (), happened=happened[3:])
    found = BranchComparison(Same(), (), source, other)
    started = opening(horizon=2, decided={tx(9): False, tx(6): True})
    made = merge_records(started, [T], found, [], b"name", part_ids=3)
    parts, last = of(made)
    assert [t for p in parts for t in p.happened] == happened, "each is named once"
    assert {t: c for p in parts for t, c in p.decided} == {tx(7): True, tx(8): True, tx(9): False}
    assert (last.horizon, last.mapper_version) == (6, 2)
    assert all(len(p.happened) <= 3 and len(p.decided) <= 3 for p in parts)


def test_a_commit_of_either_branch_is_one() -> None:
    for ours, theirs in product([False, True], repeat=2):
        sides = (Read([], {tx(1): c}, 0, ()) for c in (ours, theirs))
        made = merge_records(opening(), [T], BranchComparison(Same(), (), *sides), [], b"name")
        assert of(made)[0][0].decided == ((tx(1), ours or theirs),)


def test_a_history_that_is_corrected_stays_one_branch() -> None:
    made = merge_records(opening(), [], None, [Merged(b"k", b"", None)], b"undo")
    state = read(begun(), made).state
    assert (state.lsn, state.joined) == (13, ())


def test_merges_before_are_remembered() -> None:
    before = read(begun(), merge_records(opening(), [T], None, [], b"1")).state
    again = opening(epoch=EpochId(7, "west", 7), state=before)
    later = ChainState(LOG_ID, "east", EpochId(6, "east", 6), led=6, lsn=30, hash=b"j" * 16, lineage=T.lineage)
    _, last = of(merge_records(again, [later], None, [], b"2"))
    assert [j.epoch for j in last.joined] == [NEXT]
    assert last.header.lsn == 31


# --- the report ---

STATES = st.one_of(st.none(), st.builds(Instance, st.binary(min_size=1), st.one_of(st.none(), st.binary())))
KNOWN = st.one_of(st.none(), st.builds(Instance, st.binary(min_size=1), st.binary()))
BY = st.lists(st.builds(BranchCommit, st.binary(), st.integers(0, 9), st.integers(0, 9), st.just(())), max_size=2).map(
    tuple
)


@given(st.sampled_from(Kind), STATES, KNOWN, KNOWN, BY, BY, KNOWN, st.text())
def test_what_is_told_of_a_key_is_read_back(
    kind: Kind,
    base: State,
    s: State,
    i: State,
    mine: tuple[BranchCommit, ...],
    yours: tuple[BranchCommit, ...],
    then: State,
    verdict: str,
) -> None:
    found = Difference(b"k", kind, base, s, i, mine, yours)
    one = merged(Choice(found, None, then), verdict)
    told = entry(one)
    assert (told.found, told.then, told.verdict, told.why) == (found, then, verdict, "")
    changes = [*changes_of([one])]
    assert bool(changes) == (s != then)
    assert bool([*changes_of([one], second=True)]) == (i != then)
