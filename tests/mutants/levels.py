"""Mutants of the level in logs (U1). Histories of a cluster that is upgraded must notice (`tests.sim.upgrading`)."""

from __future__ import annotations

from typing import Any

import msgspec

from halog.core import effects as fx, events as ev
from halog.core.active.leader import Leader
from halog.core.commit.participant import Participant
from halog.core.commit.writer import Writer
from halog.core.log.chain import Chain
from halog.core.log.record_types import LevelStated, Record
from halog.core.partition import Partition
from tests.mutants.registry import mutant, patch
from tests.sim import later, upgrading

SEEDS = upgrading.SEEDS[:2_000]


@mutant("U1", SEEDS)
def a_level_is_written_before_the_log_states_it() -> None:
    """The coordinator says it, does it not?"""

    def state_level(self: Participant, level: int, now: int, out: list[fx.Effect]) -> None:
        self.writer.level = level

    patch(Participant, "state_level", state_level)


@mutant("U1", SEEDS)
def a_level_is_stated_behind_the_first_record_of_it() -> None:
    """It is on its way; what is written meanwhile is of it."""

    def state_level(self: Leader) -> None:
        if self.writer.queue:
            self.writer.level = max(self.writer.level, self._copy.level)
        else:
            real(self)

    real = patch(Leader, "state_level", state_level)


@mutant("U1", SEEDS)
def only_the_first_epoch_states_a_level() -> None:
    """The history says it already."""

    def init(self: Writer, chain: Chain, *args: Any) -> None:
        real(self, chain, *args)
        self.level = chain.state.level

    real = patch(Writer, "__init__", init)


@mutant("U1", SEEDS)
def a_level_that_is_not_known_is_read_on() -> None:
    """A record of a known kind, with a number."""

    def decode(self: later.Versions, data: bytes) -> Record:
        if data[:2] == upgrading.STATED:
            return self._decode(data)
        return real(self, data)  # type: ignore[no-any-return]

    real = patch(later.Versions, "decode", decode)


@mutant("U1", SEEDS)
def a_coordinator_that_was_put_back_lowers_the_level() -> None:
    """What it says holds."""

    def level_seen(self: Partition, e: ev.LevelSeen) -> None:
        self.state.level = e.level

    patch(Partition, "_level_seen", level_seen)


@mutant("U1", SEEDS)
def nobody_raises_the_level_to_that_of_the_logs() -> None:
    """The coordinator will hear of it from somebody else."""

    def step(self: Partition, event: ev.Event, now: int) -> list[fx.Effect]:
        return [e for e in real(self, event, now) if not isinstance(e, fx.LevelStands)]

    real = patch(Partition, "step", step)


@mutant("U1", SEEDS)
def the_history_forgets_its_level() -> None:
    """The record is accepted like any other."""

    def accept(self: Chain, record: Record, digest: bytes) -> None:
        real(self, record, digest)
        if type(record) is LevelStated:
            self.state = msgspec.structs.replace(self.state, level=1)

    real = patch(Chain, "accept", accept)
