"""What must hold within each of two sites while it runs: as in histories of one site, but that another site's epochs
are mirrored, whose numbers are not compared with its own, and that a merge goes beyond the longer branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core import effects as fx, results as res
from halog.core.log.chain import ChainState
from halog.core.log.merge_parts import AppliedMerge
from halog.core.log.transactions import Applied
from halog.core.table.table import PartitionTable
from tests.sim.checks import Checks
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.abroad.site import SiteWorld
    from tests.sim.node import Process


class SiteChecks(Checks):
    """Of one site."""

    world: SiteWorld

    def replied(self, p: Process, e: fx.Reply) -> None:
        super().replied(p, e)
        pair, request = self.world.pair, self.world.requests.get(e.token)
        if request is None or not isinstance(e.result, res.Success):
            return
        if pair.takeover is not None:
            pair.takeover.acknowledged(p, request.tx)
        if pair.waiting is not None:
            pair.waiting.acknowledged(self.world, request.tx)

    def applied(self, p: Process, record: Applied, state: ChainState) -> None:
        before = self.last[p.me]
        if not isinstance(record, AppliedMerge):
            super().applied(p, record, state)
            return
        demand(state.lsn > before.lsn, f"F5: {p.me.node} applied a merge as lsn {state.lsn} behind {before.lsn}")
        self.kept(p, state)
        self.held.holds(p.me, state.lsn)
        self._same_state(p, state, "applying a merge")

    def kept(self, p: Process, state: ChainState) -> None:
        before = self.last[p.me]
        if state.owner or before.owner or state.epoch.site != before.epoch.site:
            if state.epoch != before.epoch or state.void:
                self.held.epoch_over(p.me)
            self.last[p.me] = state
        else:
            super().kept(p, state)

    def stepped(self, p: Process) -> None:
        super().stepped(p)
        if self.world.pair.waiting is not None:
            self.world.pair.waiting.silence.stepped(p)

    def sets(self, p: Process, e: fx.SetTable) -> None:
        if self.world.pair.waiting is not None:
            self.world.pair.waiting.silence.sets(p, e)

    def table_set(self, old: PartitionTable, new: PartitionTable) -> None:
        if self.world.pair.waiting is not None:
            self.world.pair.waiting.table_set(self.world, old, new)
        if new.epoch != old.epoch and new.active is None:
            demand(new.epoch.number > old.epoch.number, f"F3: the fence {new.epoch} is not above {old.epoch}")
            self.epoch = new.epoch
            self.sync_set = new.sync_set
            return
        if new.epoch != old.epoch:
            demand(not old.owner, f"F1: {new.active} took epoch {new.epoch}, and site {old.owner} is to serve")
        super().table_set(old, new)
