"""This module makes what a node does for its application: where keys belong, reads, commits, and objects that are
moved."""

from __future__ import annotations

from collections.abc import Mapping

from halog.backend import Execute
from halog.config import Config
from halog.runtime.client.caller import Asker, limits_of
from halog.runtime.client.commits import Commits
from halog.runtime.client.outcomes import OutcomeQuery
from halog.runtime.client.reads import Reads
from halog.runtime.client.two_phase import TwoPhaseCommits
from halog.runtime.client.vote_calls import Ballots
from halog.runtime.keys.key_owners import Places
from halog.runtime.keys.loads import PartitionLoads
from halog.runtime.keys.routing import Routing
from halog.runtime.node.knowledge import Knowledge
from halog.runtime.node.live_config import PartitionRules
from halog.runtime.node.node_load import LoadCounter
from halog.runtime.node.node_run import NodeRun
from halog.runtime.remap.mover import Mover
from halog.runtime.replica.delivery_reports import DeliveryReports
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc.pages import room_in
from halog.runtime.rpc.router import Router


def make_asker(config: Config, run: NodeRun, router: Router, copies: Mapping[str, Copy]) -> Asker:
    """Return what reaches the active copy of a partition; `copies` are those hosted here."""
    call_s, doubt_s = config.timing.call_deadline_ms / 1000, config.timing.doubt_timeout_ms / 1000
    return Asker(run.name, router, copies, call_s, 2 * doubt_s, limits_of(config))


class ClientHalf:
    """A `ClientHalf` is what a node does for its application; a node that hosts nothing has it, too."""

    def __init__(
        self,
        config: Config,
        run: NodeRun,
        asker: Asker,
        ballots: Ballots,
        rules: PartitionRules,
        places: Places,
        known: Knowledge,
        counting: LoadCounter | None,
        deliveries: DeliveryReports | None,
        execute: Execute,
        abort_s: float,
    ) -> None:
        """Make the parts; `counting` and `deliveries` are of the copies hosted here, if any are. `abort_s`: see
        `halog.runtime.client.two_phase`."""
        loads = PartitionLoads(known.router, None if counting is None else counting.told)
        self.routing = Routing(
            places, known.mappings, known.router, loads, repr(run.member).encode(), lambda: asker.closed
        )
        waits, doubt_s = rules.waits_for_quorum, config.timing.doubt_timeout_ms / 1000
        self.commits = Commits(asker, run.location, waits, deliveries)
        self.spanning = TwoPhaseCommits(asker, ballots, waits, self.commits, doubt_s, abort_s)
        room = room_in(config.limits.max_frame_bytes)
        self.reads = Reads(asker, execute, waits, rules.lease_ms, room, deliveries)
        self.mover = Mover(asker, self.routing, self.reads.fetch, self.spanning.commit, self.commits.new_id)
        self.afterwards = OutcomeQuery(asker, ballots)

    def close(self) -> None:
        """Tell whoever still waits for votes, and let go of moments."""
        self.spanning.close()
        self.reads.letting_go.close()
