"""Mutants of commits that do not wait for the log (R6: local NO_SYNC). Only the histories that play it can notice.

Two rules only tell in stories too long for chance: an older tail does not replace a newer one (its mutant stands in
`first_traces.py`), and a node that leads tells none. `tests/scenarios/test_unlogged_traces.py` tells them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from halog.core import effects as fx
from halog.core.active.epoch_renewal import EpochRenewal
from halog.core.active.leader import Leader
from halog.core.commit.sync_set import SyncSet
from halog.core.commit.writer import Writer
from halog.core.election import campaign as candidate
from halog.core.election.campaign import Campaign
from halog.core.election.opening import Opening
from halog.core.ids import EpochId, digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.partition import Partition
from halog.core.state.tail import Tail
from tests.mutants.registry import mutant, patch
from tests.sim.world import UNLOGGED_SEEDS

SEEDS = UNLOGGED_SEEDS[:2_000]


@mutant("E6", SEEDS)
def held_records_forgotten_when_another_epoch_starts() -> None:
    """Trace 12: the new active may die before it has appended them again."""
    patch(Partition, "_epoch_over", lambda self: self.state.held.clear())


@mutant("E6", SEEDS)
def in_flight_forgotten_by_who_gives_up() -> None:
    """An active that ends its epoch keeps nothing of what the log did not take."""

    def keep(self: Tail, run: Iterable[records.Record], state: ChainState) -> None:
        if sys._getframe(1).f_code.co_name != "step_down":
            real(self, run, state)

    real = patch(Tail, "keep", keep)


@mutant("E2", SEEDS)
def anybody_may_win() -> None:
    """Whether or not somebody answered who holds what was acknowledged."""
    patch(Campaign, "_whole", lambda self: True)


@mutant("E2", SEEDS)
def the_dead_leave_with_the_claim() -> None:
    """The sync set of a claim is who is up; if the claimant dies too, nobody misses the holders."""
    patch(candidate, "with_holders", lambda replicas, table, claimant: replicas)


@mutant("E2", SEEDS)
def whoever_gives_up_is_no_holder() -> None:
    """An active that releases its epoch does not name itself: it may be the last one that lives."""
    patch(Campaign, "_holds", lambda self: False)


@mutant("S2", SEEDS)
def a_holder_is_dropped_before_the_log_has_it_all() -> None:
    """The sync set shrinks as if commits waited for the log."""
    patch(Leader, "_drops_one", lambda self, replicas: False)


@mutant("E2", SEEDS)
def acknowledged_while_the_znode_names_nobody() -> None:
    """Those who join are waited for; but no election would miss them."""
    patch(SyncSet, "backed", property(lambda self: bool(self.wait_set())))


@mutant("E3", SEEDS)
def the_tails_of_others_are_not_taken() -> None:
    """The winner goes by its own memory."""
    patch(Tail, "adopt", lambda self, datas, state: None)


@mutant("E5", SEEDS)
def opened_without_the_tail() -> None:
    """`EpochOpened` follows `EpochStarted`, as where commits wait for the log."""

    def started(self: Opening) -> None:
        self._copy.tail.run.clear()
        real(self)

    real = patch(Opening, "_started", started)


@mutant("E5", SEEDS)
def opened_before_the_log_shows_the_tail() -> None:
    """`EpochOpened` is sent right behind what is appended again, and may land without it."""

    def started(self: Opening) -> None:
        copy, s, epoch = self._copy, self._copy.chain.state, self._campaign.epoch
        copy.become("started")
        lsn, prev = s.lsn, s.hash
        for data in copy.tail.again(s, epoch):
            lsn, prev = lsn + 1, digest(data)
            self._append(data)
        self._append(records.encode(records.EpochOpened(records.Header(s.log_id, epoch, lsn + 1, prev), ())))

    patch(Opening, "_started", started)
    patch(Opening, "_open", lambda self: None)


@mutant("E5", SEEDS)
def appended_again_though_the_log_has_it() -> None:
    """Nobody looks whether it came by itself."""

    def started(self: Opening) -> None:
        self._copy.become("started")
        datas = self._copy.tail.again(self._copy.chain.state, self._campaign.epoch)
        self._open_at = self._copy.chain.state.lsn + len(datas)
        for data in datas:
            self._append(data)
        self._open()

    patch(Opening, "_started", started)
    patch(Tail, "accepted", lambda self, record: None)


@mutant("E5", SEEDS)
def appended_again_as_another_transaction() -> None:
    """A recovered commit gets an id of its own, so a repeated one is not known."""

    def again(self: Tail, state: ChainState, epoch: EpochId) -> list[bytes]:
        datas, lsn, prev = [], state.lsn, state.hash
        for data in real(self, state, epoch):
            commit = records.decode(data)
            assert isinstance(commit, records.Commit)
            lsn += 1
            header = records.Header(state.log_id, epoch, lsn, prev, bytes(8) + commit.header.tx[8:])
            datas.append(records.encode(records.Commit(header, commit.changes, commit.origin)))
            prev = digest(datas[-1])
        return datas

    real = patch(Tail, "again", again)


@mutant("W7", SEEDS)
def answered_before_it_is_shown() -> None:
    """The client knows that it happened, and does not see it."""

    def settle_early(self: Writer, upto: int, out: list[fx.Effect]) -> None:
        real(self, upto, out)
        out[:] = [e for e in out if not isinstance(e, fx.Show)]

    real = patch(Writer, "_settle_early", settle_early)


@mutant("R6", SEEDS)
def an_epoch_that_replicas_hold_nothing_of_goes_on() -> None:
    """Its commits wait for the log from then on."""
    patch(EpochRenewal, "due", lambda self, waited_for: "")


@mutant("R6", SEEDS)
def a_replica_does_not_say_that_it_holds_nothing_more() -> None:
    """It told a candidate its position, and the active node goes on pushing."""
    patch(EpochRenewal, "heard", lambda self, e: None)
