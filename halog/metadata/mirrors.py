"""This module keeps how far this site's mirror of a partition is (M5).

mirrors/<partition>    JSON: `MirrorStatus`, in the coordinator of the site that mirrors
"""

from __future__ import annotations

import logging

from halog.core import tolerant
from halog.core.sites.mirror import Checkpoint
from halog.core.table.table import PartitionTable
from halog.core.tolerant import TolerantDecoder, TolerantStruct
from halog.metadata.cas import put
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator

logger = logging.getLogger("halog.mirror")

HOLD_MS = 7 * 24 * 3_600_000
"""How long a log is held for another site that does not come back: what both did since then can be merged. While it is
told that both have gone on, the time begins anew. It is a week of working days; an operator who has no room for that
lets go of the log earlier (`halog log release`)."""

COMPARES = "this site's log is compared with the other one's, before it is given away"
"""What a status says as long as a node compares."""


class MirrorStatus(TolerantStruct, frozen=True, kw_only=True):
    """Says how a mirror stands, as the coordinator holds it."""

    site: str
    """The other site."""
    by: str
    """The node that mirrors."""
    at_ms: int
    """When it was written, in ms since 1970."""
    checkpoint: Checkpoint
    behind: int = 0
    """Entries of the other log that are not dealt with yet."""
    lag_ms: int = 0
    """The longest that a record took from there to here since the last time, or waits by now."""
    error: str = ""
    """Why nothing is mirrored."""
    parted: bool = False
    """Is that because both sites have gone on?"""
    epoch: int | None = None
    """The number of the epoch in this site's table as it was mirrored: what this site served later has a higher one,
    and so has the fence behind that. -1: it is not mirrored now; None: of a node that does not say it."""

    @property
    def level(self) -> bool:
        """Say whether everything of the other log was here when this was written."""
        return not self.error and not self.behind


def standing(coordinator: Coordinator, partition: str) -> MirrorStatus | None:
    """Return how the mirror of a partition stood last. None before the first status, and for what cannot be read, of
    another version perhaps: then it is begun anew, which does no harm."""
    return _STANDING.read_or_none(coordinator, f"mirrors/{partition}", logger)


def followed(coordinator: Coordinator, table: PartitionTable, site: str) -> MirrorStatus | None:
    """Return how this site stands with that one, if it mirrors it now: what was told before this site served by itself,
    or fenced its log, is over. `table` is as it is now."""
    now = standing(coordinator, table.name)
    if now is None or now.site != site or now.error or table.owner != site:
        return None
    return now if now.epoch in (None, table.epoch.number) else None


def write(coordinator: Coordinator, partition: str, now: MirrorStatus) -> None:
    """Write how the mirror stands; what another node writes at the same moment is as true."""
    path = f"mirrors/{partition}"

    def written(before: bytes | None) -> bytes:
        stood = _STANDING.decode_or_none(path, before, logger)
        return tolerant.encode(now if stood is None or stood.site != now.site else tolerant.carrying(now, stood))

    put(coordinator, path, written)


_STANDING = ZnodeFormat(TolerantDecoder(MirrorStatus).decode, "is no standing of a mirror")
