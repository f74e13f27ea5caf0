"""Mutants of the traces of one site that no other file here takes up (5, 6, 11, 14, 15 and 18 of protocol.md): each is
the rule that the trace broke, taken out. What needs a story too long for chance the trace's own scenario notices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from hypothesis import settings

from halog.core import effects as fx, events as ev, results as res
from halog.core.active.leader import Leader
from halog.core.election import campaign as candidate
from halog.core.election.campaign import Campaign
from halog.core.ids import Member, Position
from halog.core.log import records
from halog.core.log.chain import Verdict
from halog.core.replica.follower import Follower
from halog.core.roles import Role
from halog.core.state.tail import Tail
from halog.core.table import preference as election
from halog.core.table.holders import holders
from halog.core.table.preference import Candidate
from halog.core.table.table import PartitionTable
from tests.mutants.registry import mutant, patch
from tests.mutants.traces import failure
from tests.scenarios import test_protocol_traces, test_unlogged_traces
from tests.sim import moves
from tests.sim.coordinator import CoordinatorSession, FakeCoordinator
from tests.sim.nature import Fate
from tests.sim.world import UNLOGGED_SEEDS, is_asking
from tests.unit.core.replica import test_tail
from tests.unit.core.table import test_preference as test_arithmetic

ONCE = range(1)
SURELY = settings(max_examples=2_000, derandomize=True, database=None, deadline=None)
"""Of a property: by chance a hundred examples miss what is rare."""
UNLOGGED = UNLOGGED_SEEDS[:2_000]
ASKING = range(next(n for n in moves.SEEDS if is_asking(n)), moves.SEEDS.stop, 13)[:2_000]
"""Histories in which a copy moves away and comes back, while commits wait for its disk."""


def told(seed: int) -> str:
    """By the traces of one site, where commits wait for the log."""
    return failure(test_protocol_traces)


def told_unlogged(seed: int) -> str:
    """By those where they do not."""
    return failure(test_unlogged_traces)


def picked(seed: int) -> str:
    """By what says who wins."""
    try:
        SURELY(test_arithmetic.test_the_pick_beats_every_other_able_candidate)()
    except AssertionError as error:
        return repr(error)
    return ""


# --- trace 5 ---


@mutant("S5", UNLOGGED)
def a_restarted_node_acknowledges_as_the_member_it_was() -> None:
    """A set names nodes, whichever of their runs."""

    def replica_ack(self: Leader, e: ev.ReplicaAck) -> None:
        real(self, e)
        for m in self.writer.wait_set:
            if m.node == e.member.node and m != e.member and e.epoch == self.epoch:
                self.writer.acks[m] = max(e.lsn, self.writer.acks.get(m, 0))
                self.writer.settle(self._copy.out)

    real = patch(Leader, "replica_ack", replica_ack)


@mutant("S5", ASKING)
def what_a_broken_channel_acknowledged_is_remembered() -> None:
    """Whoever comes back has what it had."""
    patch(Leader, "_forget", lambda self, m: None)


@mutant("E7", UNLOGGED)
def a_restarted_node_still_holds_what_its_last_run_acknowledged() -> None:
    """In an election it stands for the member it was."""

    def named(table: PartitionTable) -> frozenset[Member]:
        wanted = real(table)
        return wanted | {Member(m.node, m.incarnation + n) for m in wanted for n in range(9)}

    real = holders
    patch(candidate, "holders", named)


@mutant("E7", ONCE, told_unlogged)
def a_push_of_an_epoch_that_the_znode_has_left_is_held() -> None:
    """Whoever starts goes by what its log says, and never asks the coordinator."""

    def pushed(self: Follower, e: ev.Pushed) -> None:
        if self._copy.role is Role.FOLLOWING and e.epoch == self._copy.chain.state.epoch:
            for data in e.records:
                self._copy.held.offer(data, self._copy.chain.state)
            real(self, e)

    real = patch(Follower, "pushed", pushed)


# --- trace 6 ---


@mutant("E2", UNLOGGED)
def sync_set_and_epoch_are_two_znodes() -> None:
    """Each changes by a compare-and-set of its own: a change of the one does not make one of the other fail."""

    def arrive(self: FakeCoordinator, s: CoordinatorSession, number: int, e: fx.SetTable, fate: Fate) -> None:
        was, now = self.values[e.version], self.table
        claims = (e.table.epoch, e.table.active) != (was.epoch, was.active)
        if claims and (now.epoch, now.active) == (was.epoch, was.active):
            e = msgspec.structs.replace(e, version=self.version)
        elif not claims and now.replicas == was.replicas:
            replicas = tuple(r for r in e.table.replicas if r.member != now.active)
            table = msgspec.structs.replace(now, replicas=replicas)
            e = msgspec.structs.replace(e, version=self.version, table=table)
        real(self, s, number, e, fate)

    real = patch(FakeCoordinator, "_arrive", arrive)


def ranked(seed: int) -> str:
    """By what says which of two tails counts. On the cluster the shorter one is refused before they are compared."""
    try:
        SURELY(test_tail.test_the_latest_epoch_wins_then_the_longest)()
    except AssertionError as error:
        return repr(error)
    return ""


# --- trace 11 ---


@mutant("Q2", ONCE, picked)
def the_most_recent_by_lsn_alone() -> None:
    """Who has more wins, of whatever epoch it is."""

    def pick(candidates: Iterable[Candidate], configured: Sequence[str]) -> str | None:
        return real([c._replace(position=Position(0, c.position.lsn)) for c in candidates], configured)

    real = election.pick
    patch(candidate, "pick", pick)
    patch(test_arithmetic, "pick", pick)


@mutant("Q2", ONCE, told)
def a_candidate_counts_as_it_was_when_it_stood() -> None:
    """The others count as they are when they answer: two that read meanwhile stand back for each other."""
    patch(Campaign, "_answer_itself", lambda self: None)


@mutant("E3", ONCE, ranked)
def the_longest_tail_by_lsn_alone() -> None:
    """The same of what is appended again."""
    patch(Tail, "_rank", lambda self: (0, self.tip))


# --- trace 14 ---


@mutant("W3", ONCE, told)
def only_the_last_record_of_a_gap_is_read() -> None:
    """It is of a dead epoch, so all of them are."""

    def verify(self: Leader, offset: int) -> None:
        expected, self.writer.expected = self.writer.expected, offset - 1
        try:
            real(self, offset)
        finally:
            self.writer.expected = expected

    real = patch(Leader, "_verify", verify)


# --- trace 15 ---


@mutant("W5", ONCE, told_unlogged)
def what_a_fence_voids_did_not_happen() -> None:
    """Whether or not a replica holds it and will append it again."""

    def verified(self: Leader, record: records.Record, verdict: Verdict, offset: int) -> None:
        out = self._copy.out
        before = len(out)
        real(self, record, verdict, offset)
        if verdict is Verdict.STARTED:
            out[before:] = [fx.Reply(e.token, res.Abort()) if isinstance(e, fx.Reply) else e for e in out[before:]]

    real = patch(Leader, "verified", verified)


# --- trace 18 ---


@mutant("H5", ONCE, told_unlogged)
def a_hand_over_counts_whatever_the_znode_names() -> None:
    """Whoever has read one stands on it, though another epoch came behind."""
    patch(Campaign, "_closed", lambda self: bool(self._copy.chain.state.closed_for))
