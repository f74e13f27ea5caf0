"""Says which node this is, and which run of it."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from halog.config import Config
from halog.core.ids import Member, location_code
from halog.ports import Store
from halog.runtime.node import cluster_identity as belonging
from halog.runtime.store import replaced_mark as replaced

INSTALLATION: Final = b"halog:installation"
"""Under this key a store has the installation timestamp, in ns since 1970."""


class NodeRun(NamedTuple):
    """A `NodeRun` is one run of a node, from its start to its end."""

    member: Member
    installation: int
    """Of its data directory, whichever run opens it; a client has one for each run."""
    location: int

    @property
    def name(self) -> str:
        """Return the node's name."""
        return self.member.node


def begin_run(config: Config, name: str, store: Store | None) -> NodeRun:
    """Begin a run on this store; a client has none. RefusedError if the store is another cluster's or node's."""
    incarnation = time.time_ns() // 1_000_000
    belonging.check_name(store, config, name)
    belonging.check_node(store, config, name)
    installation = _installation(store)
    if store is not None:
        replaced.began(store, incarnation)
    return NodeRun(Member(name, incarnation), installation, location_code(name))


def _installation(store: Store | None) -> int:
    if store is None:
        return time.time_ns()
    kept = store.get(INSTALLATION)
    if kept is None:
        kept = time.time_ns().to_bytes(8, "big")
        store.write([(INSTALLATION, kept)], flush=True)
    return int.from_bytes(kept, "big")
