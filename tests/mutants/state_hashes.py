"""Mutants of the hash of a copy's objects (U1).

Its unit tests notice, played as they are: the simulation has a store of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from halog.core.log.records import Change
from halog.core.log.transactions import Applied
from halog.runtime.store.object_table import ObjectTable
from halog.runtime.store.state_hash import StateHash
from tests.mutants.first_traces import ONCE
from tests.mutants.registry import mutant, patch
from tests.mutants.traces import failure
from tests.unit.runtime.store import test_state_hash
from tests.unit.runtime.store.test_state_hash import Histories

PLAYED: Final = settings(
    max_examples=200, stateful_step_count=40, deadline=None, derandomize=True, database=None, phases=(Phase.generate,)
)


def tested(seed: int) -> str:
    """By histories of one copy, and by the tests beside them."""
    try:
        run_state_machine_as_test(Histories, settings=PLAYED)
    except AssertionError as error:
        return f"Histories: {error}"[:500] or "Histories"
    return failure(test_state_hash)


@mutant("U1", ONCE, tested)
def a_deletion_does_not_change_the_hash() -> None:
    """The term of what is deleted stays."""

    def follow(self: StateHash, changes: Sequence[Change]) -> bool:
        return real(self, [c for c in changes if c.value is not None])

    real = patch(StateHash, "follow", follow)


@mutant("U1", ONCE, tested)
def what_a_merge_replaces_stays_in_the_hash() -> None:
    """What is looked up is taken for nothing."""

    def change(self: StateHash, changes: Sequence[Change], terms: dict[bytes, int]) -> None:
        real(self, changes, dict.fromkeys(terms, 0))

    real = patch(StateHash, "change", change)


@mutant("U1", ONCE, tested)
def what_is_shown_early_is_taken_for_what_a_change_replaces() -> None:
    """The cache has it, the log does not."""

    def terms(self: ObjectTable, accepted: Sequence[Applied]) -> dict[bytes, int]:
        early, self._early = self._early, {}
        try:
            found: dict[bytes, int] = real(self, accepted)
            return found
        finally:
            self._early = early

    real = patch(ObjectTable, "_terms", terms)


@mutant("U1", ONCE, tested)
def a_copy_that_reads_what_it_missed_remembers_marks() -> None:
    """What it took from a state topic may be newer."""

    def begin(self: StateHash, stored: bytes, lsn: int) -> None:
        real(self, stored, lsn)
        self.settled = True

    real = patch(StateHash, "begin", begin)
