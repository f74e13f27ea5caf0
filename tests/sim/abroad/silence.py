"""Who of the other sites has been silent for how long, as the active node that waits for them has heard it (M5).

It is told apart from the core: by the words that came to the node, on that node's clock. A policy that drops a site may
do so by itself once that has confirmed nothing new for `away_ms`, though there was something; a strict one never may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core import effects as fx, events as ev
from halog.core.ids import EpochId, Member
from halog.core.table.table import PartitionTable
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.node import Process


class Silence:
    """Of one pair."""

    def __init__(self) -> None:
        self._since: dict[tuple[Member, EpochId], int] = {}
        """When each node began to lead."""
        self._heard: dict[tuple[Member, EpochId, str], tuple[int, int]] = {}
        """By site: the last lsn that it confirmed to whoever leads, and when it last said something new, or all."""
        self._gone: set[tuple[str, str]] = set()
        """At which site which one was found silent by a node that asked the coordinator not to name it."""

    def stepped(self, p: Process) -> None:
        if p.partition.leading is not None:
            self._since.setdefault((p.me, p.partition.leading.epoch), p.clock())

    def heard(self, p: Process, e: ev.SiteAck) -> None:
        """This is about to be told to the core."""
        leading = p.partition.leading
        if leading is None or e.epoch != leading.epoch or e.lsn > leading.writer.last_lsn:
            return
        key = p.me, e.epoch, e.site
        known, at = self._heard.get(key, (-1, 0))
        if e.lsn > known or e.lsn >= p.partition.state.chain.state.lsn:
            at = p.clock()
        self._heard[key] = max(known, e.lsn), at

    def sets(self, p: Process, e: fx.SetTable) -> None:
        """A node asks for this table."""
        settings, leading = p.partition.state.settings, p.partition.leading
        for site in set(p.partition.state.table.synced) - set(e.table.synced):
            demand(not settings.sites.strict, f"M5: {p.me.node} drops {site}, and its policy is strict")
            assert leading is not None
            key = p.me, leading.epoch
            silent = p.clock() - max(self._since[key], self._heard.get((*key, site), (-1, 0))[1])
            least = settings.sites.away_ms - settings.ack_every_ms  # a node that was stopped heard nothing meanwhile
            demand(silent >= least, f"M5: {p.me.node} drops {site}, which was silent for {silent} ms only")
            self._gone.add((p.world.site, site))

    def table_set(self, at: str, old: PartitionTable, new: PartitionTable) -> None:
        """As the coordinator of `at` has it now."""
        for site in set(new.synced) - set(old.synced):
            self._gone.discard((at, site))
        for site in set(old.synced) - set(new.synced):
            may = site in new.let_go or old.owner or (at, site) in self._gone
            demand(bool(may), f"M5: {at} does not name {site} any more, which nobody found silent or let go of")
