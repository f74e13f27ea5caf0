"""This module keeps whether commits at the site that serves wait for this site's log, in awaited/<partition> (M5).

awaited/<partition>    JSON: `SyncWait`, in the coordinator of the site that mirrors
"""

from __future__ import annotations

import logging

from halog.core import tolerant
from halog.core.tolerant import TolerantDecoder, TolerantStruct
from halog.metadata.cas import put
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator

logger = logging.getLogger("halog.mirror")

FRESH_S = 10.0
"""How old a note may be where nothing changes."""


class SyncWait(TolerantStruct, frozen=True):
    """Says whether commits at the site that serves wait for this one's log."""

    site: str
    """The site that serves."""
    waits: bool
    may_drop: bool
    """May its nodes go on without this one by themselves?"""
    at_ms: int
    """When it was so, in ms since 1970."""


_AWAITED = ZnodeFormat(TolerantDecoder(SyncWait).decode, "cannot be read")


def note(coordinator: Coordinator, partition: str, now: SyncWait) -> None:
    """Write it down; what another node says at the same moment is as true."""
    path = f"awaited/{partition}"

    def written(before: bytes | None) -> bytes:
        was = _AWAITED.decode_or_none(path, before, logger)
        return tolerant.encode(now if was is None or was.site != now.site else tolerant.carrying(now, was))

    put(coordinator, path, written)


def awaited(coordinator: Coordinator, partition: str, site: str) -> SyncWait | None:
    """Return what was last known of commits at `site`; None: nothing."""
    now = _AWAITED.read_or_none(coordinator, f"awaited/{partition}", logger)
    return now if now is not None and now.site == site else None
