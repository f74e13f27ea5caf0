"""This module limits what is sent to a coordinator.

ZooKeeper cuts the connection of whoever sends a request of 1 MB, and kazoo sends it again on the next one, which is cut
as well: nobody would have a session any more. So what is too large is never sent.
"""

from __future__ import annotations

from halog.errors import CoordinatorError
from halog.ports import MAX_ZNODE_BYTES


def check_size(path: str, data: bytes) -> None:
    """Raise CoordinatorError, which names the znode, for what is too large to be kept there."""
    if len(data) > MAX_ZNODE_BYTES:
        raise CoordinatorError(
            f"znode {path.strip('/')} would have {len(data):,} bytes, more than the {MAX_ZNODE_BYTES:,} that ZooKeeper "
            "keeps; nothing was changed",
            path=path,
            size=len(data),
            limit=MAX_ZNODE_BYTES,
        )
