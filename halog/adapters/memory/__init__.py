"""This room has every port in memory: the readable reference of what an adapter owes, and what applications' tests run
on.

Several nodes of one process share a `MemoryBroker`, a `MemoryTree` and, as their disks, `MemoryDisk`s; each has its own
`MemoryLog`, `MemoryCoordinator` and `MemoryStore` on them. The channel between nodes is the real one, on loopback.
Nothing here touches a file. Disks fail, fill up and are slow when a test says so: see `MemoryDisk`.
"""

from __future__ import annotations

from halog.adapters.memory.broker import MemoryBroker
from halog.adapters.memory.coordinator import MemoryCoordinator, MemoryTree
from halog.adapters.memory.log import MemoryLog
from halog.adapters.memory.store import MemoryDisk, MemoryStore
from halog.adapters.tcp.channel import TcpChannel as MemoryChannel

__all__ = [
    "MemoryBroker",
    "MemoryChannel",
    "MemoryCoordinator",
    "MemoryDisk",
    "MemoryLog",
    "MemoryStore",
    "MemoryTree",
]
