"""Mutants of whole moments (R5): what a transaction that reads one copy sees of it, while it changes."""

from __future__ import annotations

from halog.core.replica.moments import Moment, MomentReader, Moments
from tests.mutants.registry import mutant, patch
from tests.sim import stills

SEEDS = stills.SEEDS[:1_000]
"""Histories with such readers."""


@mutant("R5", SEEDS)
def what_objects_were_is_not_written_down() -> None:
    """Readers see each object as it is."""
    patch(Moments, "note", lambda self, key, was, size: None)


@mutant("R5", SEEDS)
def written_down_by_the_last_change() -> None:
    """Of an object that changed twice since, a reader is shown what it was in between."""

    def of(self: MomentReader[object], key: bytes, now: object) -> object:
        at = self._at
        while at.next is not None:
            now = at.was.get(key, now)
            at = at.next
        return at.was.get(key, now)

    patch(MomentReader, "of", of)


@mutant("R5", SEEDS)
def a_change_that_is_under_way_is_not_looked_at() -> None:
    """A reader looks only at what moments that are over have written down."""

    def of(self: MomentReader[object], key: bytes, now: object) -> object:
        self._go_on()
        return (self._was or {}).get(key, now)

    patch(MomentReader, "of", of)


@mutant("R5", SEEDS)
def a_moment_can_be_taken_up_while_nothing_is_written_down() -> None:
    """Nobody read when the change began; who comes while it is under way takes up the moment that ends."""

    def begin(self: Moments[object]) -> None:
        real(self)
        if self.now is None:
            self.now = Moment()

    real = patch(Moments, "begin", begin)


@mutant("R5", SEEDS)
def what_is_too_much_is_dropped_without_a_word() -> None:
    """A reader of a moment that was given up is shown what is."""

    def of(self: MomentReader[object], key: bytes, now: object) -> object:
        lost, self._at.lost = self._at.lost, False
        try:
            return real(self, key, now)
        finally:
            self._at.lost = lost

    real = patch(MomentReader, "of", of)
