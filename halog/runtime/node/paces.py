"""Says how often a node looks at what it does by itself, and how long it waits, where its configuration does not say
it."""

from __future__ import annotations

from typing import Final, NamedTuple

from halog.runtime.merge.merge_paces import MergePaces
from halog.runtime.rpc.remote_sites import RemotePaces
from halog.runtime.sites.site_paces import SitePaces


class Paces(NamedTuple):
    """Holds the paces of one node."""

    sites: SitePaces = SitePaces()
    merges: MergePaces = MergePaces()
    remote: RemotePaces = RemotePaces()
    again_s: float = 0.2
    """Pause before a start that got no answer is tried again."""


PACES: Final = Paces()
