"""Mutants of what a copy owes to records of a later version of halog (U1).

`tests/scenarios/test_later_records.py` tells of a cluster of two versions, and must notice.
"""

from __future__ import annotations

from collections.abc import Sequence

from halog.core import effects as fx, events as ev
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.partition import Partition
from halog.core.replica.follower import Follower
from halog.core.roles import Role
from halog.core.state.tail import Tail
from halog.core.table.tell import Tell
from halog.errors import LaterRecordError
from halog.events import COPY_STOPS, LATER_RECORD, Kind
from tests.mutants.first_traces import ONCE
from tests.mutants.registry import mutant, patch
from tests.mutants.traces import failure
from tests.scenarios import test_later_records


def told(seed: int) -> str:
    """By its stories."""
    return failure(test_later_records)


@mutant("U1", ONCE, told)
def a_record_that_is_not_known_is_skipped() -> None:
    """As those of dead epochs are."""

    def entry_read(self: Partition, offset: int, data: bytes) -> None:
        try:
            real(self, offset, data)
        except LaterRecordError:
            self.state.next_offset = offset + 1

    real = patch(Partition, "_entry_read", entry_read)


@mutant("U1", ONCE, told)
def who_cannot_read_on_stays_a_candidate() -> None:
    """It stops reading, and goes on as a replica that lags."""

    def lost(self: Partition, why: str, kind: Kind = COPY_STOPS) -> None:
        if kind is not LATER_RECORD:
            real(self, why, kind)
        elif self.state.role in (Role.FOLLOWING, Role.LOADING):
            self.state.out += [Tell(kind, self.state.me.node, why), fx.StopReading()]
        else:
            self.step_down("deposed", why)

    real = patch(Partition, "lost", lost)


@mutant("U1", ONCE, told)
def who_meets_it_as_it_opens_an_epoch_keeps_the_partition() -> None:
    """Nobody else stands while the znode names it."""

    def lost(self: Partition, why: str, kind: Kind = COPY_STOPS) -> None:
        if kind is LATER_RECORD:
            self.campaign.release = lambda: None  # type: ignore[method-assign]
        real(self, why, kind)

    real = patch(Partition, "lost", lost)


@mutant("U1", ONCE, told)
def a_record_that_is_not_known_is_acknowledged() -> None:
    """Whoever has its bytes says that it has it."""

    def pushed(self: Follower, e: ev.Pushed) -> None:
        real(self, e)
        copy = self._copy
        for data in e.records:
            try:
                records.decode(data)
            except LaterRecordError:
                s = copy.chain.state
                copy.out.append(fx.SendAck(e.member.node, s.epoch, s.lsn + 1, applied=False))

    real = patch(Follower, "pushed", pushed)


@mutant("U1", ONCE, told)
def it_is_told_again_and_again() -> None:
    """The copy tries again at each tick."""

    def ticked(self: Partition, e: ev.Ticked) -> None:
        real(self, e)
        if self.state.role is Role.FAILED:
            self.state.out.append(Tell(LATER_RECORD, self.state.me.node, "it tried again"))

    real = patch(Partition, "_ticked", ticked)


@mutant("U1", ONCE, told)
def a_tail_that_is_not_known_is_none() -> None:
    """Who is elected goes on without what was acknowledged."""

    def adopt(self: Tail, datas: Sequence[bytes], state: ChainState) -> None:
        try:
            real(self, datas, state)
        except LaterRecordError:
            return

    real = patch(Tail, "adopt", adopt)
