"""What a copy keeps of commits the log may lack, and who may have some (E2, E5, E6)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from halog.core.ids import Member, digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.state.tail import Tail
from halog.core.table.holders import are_gone, holders, with_holders
from halog.core.table.table import ASYNC, SYNC, PartitionTable, Replica
from halog.errors import LaterRecordError
from tests.unit.core.kit import LOG_ID, SITE, A, B, C, create, epoch, table, tx

pytestmark = pytest.mark.feature("R6")


def commit(lsn: int, of: int = 1, id_: int | None = None) -> records.Commit:
    header = records.Header(LOG_ID, epoch(of), lsn, bytes(16), tx(lsn if id_ is None else id_))
    return records.Commit(header, (create(b"k%d" % lsn),))


def at(lsn: int) -> ChainState:
    return ChainState(LOG_ID, SITE, lsn=lsn, hash=bytes([lsn % 256]) * 16)


def lsns(tail: Tail) -> list[int]:
    return [r.header.lsn for r in tail.run]


def kept(first: int, last: int, *, of: int = 1, state: int = 0) -> Tail:
    tail = Tail()
    tail.keep([commit(n, of) for n in range(first, last + 1)], at(state))
    return tail


# --- keeping ---


def test_only_what_is_beyond_the_history_is_kept() -> None:
    assert lsns(kept(3, 6, state=4)) == [5, 6]
    assert kept(3, 4, state=4).tip == 0


def test_a_run_ends_where_something_else_than_a_commit_comes() -> None:
    """`HandedOver` in flight: nothing behind it can have been acknowledged."""
    tail = Tail()
    closing = records.HandedOver(records.Header(LOG_ID, epoch(1), 4), "B")
    tail.keep([commit(3), closing, commit(5)], at(2))
    assert lsns(tail) == [3]


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(0, 5)), max_size=6),
    st.integers(0, 4),
)
def test_the_latest_epoch_wins_then_the_longest(runs: Sequence[tuple[int, int, int]], known: int) -> None:
    """In whatever order they come (E3)."""
    tail = Tail()
    for of, first, more in runs:
        tail.keep([commit(n, of) for n in range(first, first + more)], at(known))
    best = max(((of, first + more - 1) for of, first, more in runs if more and first + more - 1 > known), default=None)
    assert (tail.run[-1].header.epoch.number, tail.tip) == best if best else not tail.run


# --- another copy's ---


def encoded(*commits: records.Commit) -> list[bytes]:
    return [records.encode(c) for c in commits]


def test_a_tail_travels() -> None:
    tail = Tail()
    tail.adopt(encoded(commit(3), commit(4)), at(2))
    assert tail.run == [commit(3), commit(4)]


@pytest.mark.parametrize(
    "datas",
    [
        [b"garbage"],
        [*encoded(commit(3)), b""],
        encoded(commit(3), commit(5)),
        encoded(commit(4), commit(3)),
        [records.encode(records.Commit(records.Header(bytes(16), epoch(1), 3, bytes(16), tx(3)), ()))],
        [],
    ],
    ids=["no record", "half", "a hole", "backwards", "another history", "empty"],
)
def test_what_cannot_be_a_tail_is_none(datas: list[bytes]) -> None:
    tail = kept(3, 3)
    tail.adopt(datas, at(2))
    assert tail.run == [commit(3)]


@pytest.mark.feature("U1")
def test_a_tail_of_a_later_version_is_not_ignored() -> None:
    """Whoever adopts tails is about to go on with all that was acknowledged."""
    tail = kept(3, 3)
    with pytest.raises(LaterRecordError, match="commits that the log may lack include: a record of version 2 and kind"):
        tail.adopt([*encoded(commit(3)), b"\x02\x03" + encoded(commit(4))[0][2:]], at(2))
    assert tail.run == [commit(3)]


# --- the log goes on ---


def test_what_the_log_has_is_let_go() -> None:
    tail = kept(3, 5)
    tail.accepted(commit(3, of=2))
    assert lsns(tail) == [4, 5]
    tail.accepted(commit(5, of=2))
    assert not tail.run


def test_another_transaction_in_its_place_ends_it() -> None:
    """What continued the one that did not come cannot come either."""
    tail = kept(3, 5)
    tail.accepted(commit(3, of=2, id_=99))
    assert not tail.run


def test_an_epoch_that_opens_ends_what_older_ones_left_and_nothing_else() -> None:
    tail = kept(3, 4, of=2)
    tail.opened(epoch(2))
    assert lsns(tail) == [3, 4]
    tail.opened(epoch(3))
    assert not tail.run


def test_a_tail_behind_a_hole_does_not_join() -> None:
    assert Tail().joins(at(7))
    assert kept(8, 9).joins(at(7))
    assert not kept(9, 9).joins(at(7))


# --- appended again ---


@given(st.integers(0, 50), st.integers(1, 8), st.integers(2, 9))
def test_what_is_appended_again_keeps_lsn_and_id_and_says_where_it_came_from(state: int, count: int, to: int) -> None:
    tail = kept(state + 1, state + count, state=state)
    prev = at(state).hash
    for data, was in zip(tail.again(at(state), epoch(to)), tail.run, strict=True):
        now = records.decode(data)
        assert isinstance(now, records.Commit)
        assert now.header == records.Header(LOG_ID, epoch(to), was.header.lsn, prev, was.header.tx)
        assert (now.changes, now.origin) == (was.changes, records.Origin(was.header.epoch, was.header.lsn))
        prev = digest(data)


def test_appended_again_twice_it_still_names_its_first_epoch() -> None:
    once = records.decode(kept(3, 3).again(at(2), epoch(2))[0])
    tail = Tail()
    tail.keep([once], at(2))
    twice = records.decode(tail.again(at(2), epoch(3))[0])
    assert isinstance(twice, records.Commit)
    assert twice.origin == records.Origin(epoch(1), 3)


# --- who has one ---


def sync(*members: Member) -> tuple[Replica, ...]:
    return tuple(Replica(m.node, m.incarnation, SYNC) for m in members)


def waiting(active: Member | None, *members: Member) -> PartitionTable:
    return table(epoch=epoch(1), active=active, replicas=sync(*members))


def test_holders_are_the_active_and_whom_it_waits_for() -> None:
    assert holders(waiting(A, B)) == {A, B}
    assert holders(waiting(None, B)) == {B}
    assert holders(table(active=A, replicas=(Replica("B", 2, ASYNC),))) == frozenset(), "the log has it all"


def test_they_are_gone_when_each_of_their_nodes_runs_again_without_its_memory() -> None:
    wanted = frozenset({A, B})
    a2, b2 = Member("A", 9), Member("B", 9)
    assert not are_gone(wanted, frozenset({C})), "down is not gone: a paused process comes back"
    assert not are_gone(wanted, frozenset({a2, C}))
    assert not are_gone(wanted, frozenset({a2, B}))
    assert are_gone(wanted, frozenset({a2, b2}))


def test_a_claim_keeps_the_dead_and_leaves_out_whoever_has_nothing() -> None:
    """A is dead, B claims, C was async: whoever comes after B needs A or B."""
    replicas = with_holders(sync(C), waiting(A, B), B)
    assert replicas == (Replica("C", 3, ASYNC), Replica("A", 1, SYNC))


def test_a_claim_where_the_log_has_it_all_is_as_it_was() -> None:
    assert with_holders(sync(C), table(active=A), B) == sync(C)


@given(
    st.sets(st.sampled_from([A, B, C, Member("D", 4)])),
    st.sampled_from([None, A, B]),
    st.sets(st.sampled_from([A, C, Member("D", 4), Member("A", 7)])),
)
def test_the_sync_set_of_a_claim_is_who_holds_it(before: set[Member], active: Member | None, up: set[Member]) -> None:
    t = waiting(active, *sorted(before - {active}))
    up = {m for m in up if m.node not in {w.node for w in holders(t)} or m in holders(t)}
    replicas = with_holders(sync(*sorted(up - {B})), t, B)
    if wanted := {m for m in holders(t) if m != B}:
        assert {r.member for r in replicas if r.kind == SYNC} == wanted
    nodes = [r.node for r in replicas]
    assert B.node not in nodes
    assert {m.node for m in up - {B}} <= set(nodes)
