"""This room has every port in memory: the readable reference of what an adapter owes, and what applications' tests run
on.

Several nodes of one process share a `MemoryBroker`, a `MemoryTree` and, as their disks, `MemoryDisk`s; each has its own
`MemoryLog`, `MemoryCoordinator` and `MemoryStore` on them. The channel between nodes is the real one, on loopback.
Nothing here touches a file.

A test that needs a server to fail or to be slow says so at the server: `MemoryBroker.hold`, `lose_reply`, `trim`,
`truncate`; `MemoryCoordinator.suspend`, `expire`, `lose_reply`; `MemoryDisk.fill_up`, `hold`; and for single operations
the `faults` of a tree, a session, a broker, a channel or a disk (`halog.adapters.memory.faults`).
"""

from __future__ import annotations

from halog.adapters.memory.broker import MemoryBroker
from halog.adapters.memory.channel import MemoryChannel, SentFrame
from halog.adapters.memory.coordinator import MemoryCoordinator, MemoryTree
from halog.adapters.memory.faults import Attempt, Fault, Faults
from halog.adapters.memory.log import MemoryLog
from halog.adapters.memory.store import MemoryDisk, MemoryStore

__all__ = [
    "Attempt",
    "Fault",
    "Faults",
    "MemoryBroker",
    "MemoryChannel",
    "MemoryCoordinator",
    "MemoryDisk",
    "MemoryLog",
    "MemoryStore",
    "MemoryTree",
    "SentFrame",
]
