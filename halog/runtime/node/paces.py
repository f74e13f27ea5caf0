"""Says how often a node looks at what it does by itself, and how long it waits, where its configuration does not say
it."""

from __future__ import annotations

from typing import Final, NamedTuple

from halog.runtime.client.two_phase import ABORT_S
from halog.runtime.host.snapshotter import SnapshotSizes
from halog.runtime.merge.merge_paces import MergePaces
from halog.runtime.placement.auto_rebalance import RebalancePaces
from halog.runtime.rpc.remote_sites import RemotePaces
from halog.runtime.sites.site_paces import SitePaces


class Paces(NamedTuple):
    """Holds the paces of one node. Those that end with `_s` are in seconds."""

    sites: SitePaces = SitePaces()
    merges: MergePaces = MergePaces()
    remote: RemotePaces = RemotePaces()
    rebalance: RebalancePaces = RebalancePaces()
    snapshots: SnapshotSizes = SnapshotSizes()
    abort_s: float = ABORT_S
    """The abort of a transaction over several partitions is offered to the first of them for so long."""
    again_s: float = 0.2
    """Pause before a start that got no answer is tried again."""


PACES: Final = Paces()
