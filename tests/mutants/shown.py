"""Mutants of what copies show before their log has it (R1, R5, W7), where commits do not wait for it: replicas show
what their active shows, no more, and nothing that an epoch opened without.
"""

from __future__ import annotations

from itertools import islice

from halog.core.commit.push import ReplicaPush
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.partition import Partition
from halog.core.state.held import HeldRun
from tests.mutants.first_traces import ONCE
from tests.mutants.registry import mutant, patch
from tests.mutants.traces import failure
from tests.mutants.unlogged import SEEDS
from tests.scenarios import test_shown_traces
from tests.sim.shown import Overlay


def told(seed: int) -> str:
    """By the scenarios: what a living copy showed is given up in stories too long for chance."""
    return failure(test_shown_traces)


@mutant("W7", SEEDS)
def the_index_is_what_was_pushed_last() -> None:
    """A replica shows what it holds, whoever else does."""

    def shown(self: ReplicaPush) -> int:
        self._told = self._writer.last_lsn
        return self._told

    patch(ReplicaPush, "_shown", shown)


@mutant("R5", ONCE, told)
def shown_behind_a_hole() -> None:
    """What was pushed before it was lost on the way, and the log has not brought it."""

    def due(self: HeldRun, shown: int, state: ChainState) -> list[records.Record]:
        return [held.record for held in islice(self.run, self.declared) if shown < held.lsn <= self.declared]

    patch(HeldRun, "due", due)


@mutant("R1", ONCE, told)
def what_an_epoch_opened_without_stays_shown() -> None:
    """A copy forgets nothing that was ever visible there."""
    patch(Overlay, "drop", lambda self: None)


@mutant("R5", ONCE, told)
def what_an_epoch_opened_without_still_counts_as_shown() -> None:
    """A session that wants to see what came in its place is served without it."""

    def entry_read(self: Partition, offset: int, data: bytes) -> None:
        shown = self.state.shown
        real(self, offset, data)
        self.state.shown = max(shown, self.state.shown)

    real = patch(Partition, "_entry_read", entry_read)


@mutant("R5", SEEDS)
def who_gives_up_says_that_it_shows_less() -> None:
    """What the log has: but whoever reads there sees all that was shown."""

    def step_down(self: Partition, happening: str, why: str) -> None:
        real(self, happening, why)
        self.state.shown = 0

    real = patch(Partition, "step_down", step_down)
