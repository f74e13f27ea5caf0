"""Mutants of leases (R5): who may read without asking, and who waits for that to end."""

from __future__ import annotations

from halog.core import events as ev, partition as partition_module, results as res
from halog.core.active.lease import Lease, Predecessor
from halog.core.commit.writer import Writer
from halog.core.state.copy_state import CopyState
from tests.mutants.registry import mutant, patch
from tests.sim import leases

SEEDS = leases.SEEDS[:2_000]
"""Histories with leases."""


@mutant("lease", SEEDS)
def no_wait_after_an_election() -> None:
    """Whoever has opened its epoch serves."""
    patch(Predecessor, "over", lambda self: True)


@mutant("lease", SEEDS)
def a_lease_counted_from_the_reply() -> None:
    """As long as it may have been under way, so much too long it lasts."""

    def renewed(self: Lease, e: ev.Renewed) -> None:
        if e.round == self._round:
            self._sent = self._copy.now
        real(self, e)

    real = patch(Lease, "_renewed", renewed)


@mutant("H2", SEEDS)
def a_lease_kept_after_handed_over() -> None:
    """The successor serves as soon as it has read it."""
    patch(Lease, "give_up", lambda self: None)


@mutant("lease", SEEDS)
def a_suspicion_is_proof() -> None:
    """A member that is not up here is taken for dead."""

    def over(self: Predecessor) -> bool:
        active = self._table.active
        return real(self) or (active is not None and active not in self._copy.alive)

    real = patch(Predecessor, "over", over)


@mutant("lease", SEEDS)
def a_lease_without_the_version() -> None:
    """Any answer of the coordinator is as good as one about this epoch."""

    def renewed(self: Lease, e: ev.Renewed) -> None:
        real(self, ev.Renewed(e.round, ev.Cas.OK))

    real = patch(Lease, "_renewed", renewed)


@mutant("lease", SEEDS)
def the_wait_counts_from_the_claim_being_sent() -> None:
    """The one that is replaced may renew until the set goes through."""

    def claiming(self: Predecessor, table: object) -> None:
        real(self, table)  # type: ignore[operator]
        self._until = self._copy.now + self._copy.settings.lease_wait_ms

    real = patch(Predecessor, "claiming", claiming)
    patch(Predecessor, "claimed", lambda self: None)


@mutant("R4", SEEDS)
def anybody_says_that_it_happened() -> None:
    """A replica has read it; who holds the lease has not heard yet that the log took it."""

    def became_of(copy: CopyState, writer: Writer | None, e: ev.Asked) -> res.Result:
        lsn = copy.outcomes.get(e.tx)
        return real(copy, writer, e) if lsn is None else res.Success(lsn)

    real = patch(partition_module, "became_of", became_of)


@mutant("lease", SEEDS)
def proof_of_the_last_ones_death_is_enough() -> None:
    """It may have waited itself for one that lives."""

    def gone(self: Predecessor) -> bool:
        self._known = -1_000_000
        return real(self)

    real = patch(Predecessor, "_gone", gone)
