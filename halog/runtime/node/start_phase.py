"""This module names the steps in which a node becomes part of its cluster, and in which it leaves (N6).

STARTING     it opens its stores, and reaches the coordinator
DISCOVERY    it learns who else is registered
LISTENERS    it begins to listen, and answers whoever connects
KEEP_ALIVE   it is registered, so that others connect to it; it makes what the cluster lacks, and opens its copies
UP           it is part of the cluster
LEAVING      it gives away what it is active for, and ends

A node is registered only once it listens. In all phases from LISTENERS on it says in its status which one it is in.
"""

from __future__ import annotations

import enum


class StartPhase(enum.Enum):
    """A `StartPhase` is where a node is between its start and its end; the module lists the phases."""

    STARTING = "starting"
    DISCOVERY = "discovery"
    LISTENERS = "listeners"
    KEEP_ALIVE = "keep-alive"
    UP = "up"
    LEAVING = "leaving"
