"""Commits that wait for the log of the other site (`sync_sites`, M5, R6), in some histories of two sites.

The judge asks the other site's log, as the dumb reader of `tests.sim.abroad.twin` has it, at each acknowledgement: what
is told while that site is waited for must be there. So it is there whenever that site takes over, whatever becomes of
this one; in some histories a whole site is lost for good, with its log and its coordinator, and the other one goes on.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Set
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from halog.core.settings import Sites
from halog.core.table.table import PartitionTable
from halog.metadata.sync_waits import SyncWait, awaited
from halog.ports import Coordinator
from halog.runtime.sites.switchover import SwitchResult
from tests.sim.abroad import takeover
from tests.sim.abroad.silence import Silence
from tests.sim.abroad.tasks import SPEED, Task
from tests.sim.abroad.twin import Reader
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.abroad.pair import Pair
    from tests.sim.abroad.site import SiteWorld
    from tests.sim.client import Transaction

SEEDS = range((6 << 20) + 1, 7 << 20, 4)
"""Every fourth history of two sites: the others are as they were before there were such policies."""

BOTH = ("west", "east")


class Said(NamedTuple):
    """A takeover without the other site that said to lack nothing."""

    site: str
    of: str
    known: SyncWait
    told: frozenset[bytes]
    """The transactions that `of` had acknowledged by then."""


class Waiting:
    """What one pair promises, and has promised."""

    def __init__(self, pair: Pair, chance: random.Random) -> None:
        self._pair = pair
        self.strict = chance.random() < 0.6
        """Are commits refused while the other site is away? Else they go on without it."""
        self.names = chance.choice((BOTH, BOTH, BOTH, BOTH, BOTH, BOTH, BOTH[:1], BOTH[1:]))
        away_ms = chance.choice((100, 150, 400))
        self.sites = {s: Sites(tuple(n for n in self.names if n != s), self.strict, away_ms) for s in BOTH}
        self.told: dict[str, set[bytes]] = {site: set() for site in BOTH}
        """By site, the transactions that somebody there was told to have happened."""
        self.promised: dict[str, dict[bytes, str]] = {site: {} for site in BOTH}
        """By the site that waits, those that must be at the other one, and their names."""
        self.silence = Silence()
        self._let_go: list[tuple[float, str]] = []
        """When a site has let go of the other one, at its coordinator."""
        self._known: dict[tuple[Task | None, str], SyncWait | None] = {}
        """By command and site, what was last known of it."""
        self._said: list[Said] = []
        self._readers = {site: Reader(site) for site in BOTH}
        self._read = dict.fromkeys(BOTH, 0)

    def config(self, site: str) -> Any:
        """As much of a configuration as says who tells whom what."""
        away = "refuse" if self.strict else "drop"
        return SimpleNamespace(
            cluster=SimpleNamespace(name="sim"),
            site=SimpleNamespace(name=site),
            policies={"policy": SimpleNamespace(sync_sites=self.names, sync_site_away=away)},
            other_sites=(self._pair.worlds[site].other,),
        )

    # --- while it runs ---

    def acknowledged(self, world: SiteWorld, tx: Transaction) -> None:
        """Somebody is told that it happened. What the coordinator says now is what whoever takes over may know."""
        cover = self._pair.cover
        self.told[world.site].add(tx.id)
        for site in self.sites[world.site].names:
            table = world.coordinator.table
            if not (site not in table.let_go if self.strict else site in table.synced):
                cover.hit("told without the other site")
                continue
            there = tx.id in self._happened(site)
            demand(there, f"M5: {tx.name} was acknowledged at {world.site}, and the log of {site} has not got it")
            self.promised[world.site][tx.id] = tx.name
            cover.hit("told, and the other site has it")

    def table_set(self, world: SiteWorld, old: PartitionTable, new: PartitionTable) -> None:
        if new.let_go and new.let_go != old.let_go:
            self._let_go.append((self._pair.engine.now, world.site))
        if old.synced != new.synced:
            self._pair.cover.hit("waited for" if new.synced else "not waited for any more")
        self.silence.table_set(world.site, old, new)
        for site in set(new.synced) - set(old.synced):
            lacks = self.told[world.site] - self._happened(site)
            demand(not lacks, f"S3: {world.site} names {site} as having everything, and it lacks {len(lacks)} commits")

    def _happened(self, site: str) -> Set[bytes]:
        """What the log of a site, read up to now, says has happened. `accounts` judges what merges say of it."""
        reader, entries = self._readers[site], self._pair.worlds[site].log.entries
        for entry in entries[self._read[site] :]:
            reader.entry(entry.data)
        self._read[site] = len(entries)
        return reader.read.happened.keys()

    # --- takeovers ---

    def awaited(self, coordinator: Coordinator, partition: str, site: str) -> SyncWait | None:
        """As `halog.runtime.sites.acknowledgements` has it; noted."""
        found = self._known[self._pair.tasks.current, site] = awaited(coordinator, partition, site)
        return found

    def promoted(self, site: str, switches: Iterable[SwitchResult]) -> None:
        """What an operator was told."""
        for switch in switches:
            of = switch.taken_over_from
            if of and switch.may_fork:
                self._pair.cover.hit("taken over, and something may be lacking" if switch.lacks else "lacks nothing")
                known = self._known.get((self._pair.tasks.current, of))
                if not switch.lacks:
                    demand(known is not None, f"M5: {site} says that it lacks nothing, and knows nothing of {of}")
                    assert known is not None
                    self._said.append(Said(site, of, known, frozenset(self.told[of])))

    # --- the end ---

    def unwell(self, world: SiteWorld) -> str:
        """Of the site that serves, with the other one there: does it wait for that one again?"""
        table, wanted = world.coordinator.table, self.sites[world.site].names
        if set(table.synced) == set(wanted) and not table.let_go:
            return ""
        return f"{world.site} waits for {table.synced} and has let go of {table.let_go}, though {wanted} is there"

    def finish(self) -> None:
        """What was promised is there, and so is what a takeover said to have."""
        for site in self.told:
            other = self._pair.worlds[site].other
            lacks = [name for tx, name in self.promised[site].items() if tx not in self._happened(other)]
            demand(not lacks, f"M5: acknowledged at {site}, and not at {other}: {lacks}")
        for said in self._said:
            if any(site == said.of and _ms(at) >= said.known.at_ms for at, site in self._let_go):
                continue  # an operator let go of it since it was seen last
            lacks = [tx.hex() for tx in said.told if tx not in self._happened(said.site)]
            demand(not lacks, f"M5: {said.site} said to lack nothing of {said.of}, and lacks {lacks}")


def _ms(at: float) -> int:
    """A moment of the simulation, as its clock tells nodes."""
    return int(at * SPEED) + 1_700_000_000_000


def choose(pair: Pair, seed: int) -> Waiting | None:
    """For this seed; drawn from chances of its own."""
    given = seed in SEEDS or (seed in takeover.SEEDS and seed // 4 % 5 < 2)
    return Waiting(pair, random.Random(seed * 7919 + 13)) if given else None
