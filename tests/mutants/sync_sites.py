"""Mutants of commits that wait for the logs of other sites (M5). The play of `tests.unit.core.sites.sync_sites_model`
notices those of the active node. So does the simulation of two sites, which also notices those of who tells and takes
over. The one that waits for nobody is also noticed by two sites in this process, of which one is lost amid traffic.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from halog.core import events as ev, partition, results as res
from halog.core.commit.writer import Writer
from halog.core.ids import EpochId
from halog.core.sites.sync_sites import SyncSites, as_member
from halog.core.state.copy_state import CopyState
from halog.core.table.table import PartitionTable
from halog.metadata import site_ownership as claims
from halog.metadata.sync_waits import SyncWait
from halog.runtime.sites import acknowledgements as arrivals
from halog.runtime.sites.acknowledgements import AcknowledgementSender
from tests.mutants.registry import in_both, mutant, patch, simulated
from tests.sim.abroad import waiting
from tests.unit.core.sites.sync_sites_model import failure_of
from tests.unit.sites.losing import lost_with_the_site

SEEDS = range(2_000)
SIMULATED = waiting.SEEDS[:2_000]


both = functools.partial(in_both, models=SEEDS, play=failure_of, seeds=SIMULATED)
"""The play must notice, and the simulation."""


def no_wait() -> None:
    """Commits are acknowledged as soon as this site's log has them."""
    patch(SyncSites, "waited", lambda self: frozenset())


@both("S1")
def sites_not_waited_for() -> None:
    no_wait()


@mutant("S1", range(3), lambda seed: lost_with_the_site())
def sites_not_waited_for_and_one_is_lost() -> None:
    no_wait()


@both("S2")
def a_site_is_dropped_before_the_znode_says_so() -> None:
    """The active node stops waiting when it asks, not when the znode knows."""

    def proposed(self: SyncSites, table: PartitionTable) -> None:
        real(self, table)
        self._held = self._held[-1:]

    real = patch(SyncSites, "proposed", proposed)


@both("S3")
def a_site_is_named_before_it_has_all() -> None:
    """As soon as it is close behind."""

    def is_in(self: SyncSites, site: str) -> bool:
        return real(self, site) or site in self._joining

    real = patch(SyncSites, "_is_in", is_in)


@both("S3")
def a_site_is_named_before_it_is_waited_for() -> None:
    """It has everything now, and nobody waits for it until the znode names it."""

    def waited(self: SyncSites) -> frozenset[object]:
        joining = self._joining
        self._joining = {}
        held = self._held
        self._held = self._held[:1]
        try:
            found: frozenset[object] = real(self)
        finally:
            self._joining = joining
            self._held = held
        return found

    real = patch(SyncSites, "waited", waited)


@both("S4")
def a_set_that_may_have_landed_is_forgotten() -> None:
    """Of several sets on their way only the first one's sites are waited for."""

    def proposed(self: SyncSites, table: PartitionTable) -> None:
        real(self, table)
        self._held = self._held[:1]
        self._joining.clear()

    real = patch(SyncSites, "proposed", proposed)


@both("M5")
def a_strict_policy_waits_for_those_the_znode_names_only() -> None:
    """Commits before the site has caught up for the first time are acknowledged without it."""

    def waited(self: SyncSites) -> frozenset[object]:
        return frozenset(as_member(n) for n in set(self._joining).union(*self._held))

    patch(SyncSites, "waited", waited)


@both("R4")
def what_the_own_log_has_happened() -> None:
    """Whoever asks what became of a commit is told so before the other site has it."""

    def became_of(copy: CopyState, writer: Writer | None, e: ev.Asked) -> res.Result:
        lsn = copy.outcomes.get(e.tx)
        return res.Success(lsn) if lsn is not None else real(copy, writer, e)

    real = patch(partition, "became_of", became_of)


# --- who tells ---


@mutant("M5", SEEDS, failure_of)
def a_site_confirms_by_an_epoch_that_it_has_begun_itself() -> None:
    """And gave away again, unopened: at the site that serves nobody knows it."""

    def mine(self: AcknowledgementSender) -> list[tuple[str, tuple[EpochId, int]]]:
        epochs = {c.name: c.core.state.chain.state.epoch for c in self._host.copies.values()}
        return [(name, (epochs[name], lsn)) for name, (_, lsn) in real(self)]

    real = patch(AcknowledgementSender, "_mine", mine)


@mutant("M5", SIMULATED, simulated)
def a_site_confirms_what_it_has_read_at_the_other_one() -> None:
    """Before its own log has it."""

    def mine(self: AcknowledgementSender) -> list[tuple[str, tuple[EpochId, int]]]:
        line = self._assignments.lines.get(self._site)
        at = {one.copy.name: one.mirror.chain.state.head for one in line._running.values()} if line else {}
        return [(name, max(head, at.get(name, head), key=lambda h: h[1])) for name, head in real(self)]

    real = patch(AcknowledgementSender, "_mine", mine)


@mutant("M5", SIMULATED, simulated)
def whoever_is_mirrored_is_taken_to_wait() -> None:
    """Its operators may have let go of this site, or it has yet to catch up."""
    patch(arrivals, "_waits", lambda theirs, own, site: not theirs.owner)


@mutant("M5", SIMULATED, simulated)
def a_site_that_may_drop_this_one_is_taken_not_to() -> None:
    """What it has acknowledged since the line was cut is taken to be here."""

    def awaited(*args: Any) -> SyncWait | None:
        found: SyncWait | None = real(*args)
        return found and msgspec.structs.replace(found, may_drop=False)

    real = patch(waiting, "awaited", awaited)


# --- who takes over, and who lets go ---


@mutant("M5", SIMULATED, simulated)
def whoever_takes_over_waits_for_the_site_that_is_lost() -> None:
    """Nothing is committed any more."""

    def taken(now: PartitionTable, owner: str, *asked: Any) -> PartitionTable:
        return msgspec.structs.replace(real(now, owner, *asked), let_go=(), overruled=()) if now.owner else now

    real = patch(claims, "taken", taken)


@mutant("S2", SIMULATED, simulated)
def a_site_that_was_let_go_stays_in_the_table() -> None:
    """Commits wait for it on, as for all that the znode names."""

    def without(table: PartitionTable, site: str) -> PartitionTable:
        return msgspec.structs.replace(table, let_go=(*table.let_go, site))

    patch(claims, "without", without)


@mutant("M5", SIMULATED, simulated)
def a_site_that_was_let_go_is_never_waited_for_again() -> None:
    """Though it has caught up."""

    def is_in(self: SyncSites, site: str) -> bool:
        return site not in self._copy.table.let_go and real(self, site)

    real = patch(SyncSites, "_is_in", is_in)


@mutant("M5", SIMULATED, simulated)
def a_site_is_dropped_before_it_was_silent_for_long_enough() -> None:
    """It has confirmed a moment ago."""

    def away_before(self: SyncSites) -> int:
        return self._awake.ms - self._policy.away_ms // 3

    patch(SyncSites, "_away_before", property(away_before))


@mutant("M5", SIMULATED, simulated)
def a_strict_policy_drops_a_site_that_is_away() -> None:
    """As the other kind does."""

    def is_in(self: SyncSites, site: str) -> bool:
        return real(self, site) and site not in self._away

    real = patch(SyncSites, "_is_in", is_in)
