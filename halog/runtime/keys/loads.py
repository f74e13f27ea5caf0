"""This module knows how full partitions are and how busy their nodes, for mappers asked at create (P6).

Nodes are asked; nothing is broadcast. So clusters without such a mapper send nothing, and a client, which no node tells
anything, knows as much as a node does. Figures are old anyway when a create has happened, so only a process that has
none waits for them. While they are used, another thread asks for them anew each second.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from halog.errors import HalogError
from halog.runtime.rpc import frames
from halog.runtime.rpc.router import Router
from mappers import PartitionState, States

logger = logging.getLogger("halog.loads")

FRESH_S: Final = 1.0
"""Figures that are older are asked for anew."""
OLD_S: Final = 5.0
"""A process that has only older ones waits for new ones."""
FORGET_S: Final = 10.0
"""Figures of a node that has not answered for so long do not count any more."""
ASK_S: Final = 0.5
"""How long a node may take to answer."""
AGAIN_S: Final = 0.1
"""Pause before a node that was still counting is asked again."""
AT_ONCE: Final = 8
"""Nodes asked at the same time."""


class PartitionLoads:
    """Knows the loads of partitions and nodes, in one process. Thread-safe."""

    def __init__(
        self,
        router: Router,
        here: Callable[[], frames.LoadsReply] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        ask_s: float = ASK_S,
    ) -> None:
        """Ask through `router`. `here` returns what this very node says, if it hosts partitions. `clock` counts
        seconds; `ask_s`: see ASK_S."""
        self._clock = clock
        self._ask_s = ask_s
        self._router = router
        self._here = here
        self._told: dict[str, tuple[float, frames.LoadsReply]] = {}
        """By node: when it was asked, and what it said."""
        self._placed: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._began = self._ended = -math.inf
        """When all were last asked, and when they had answered."""
        self._done = threading.Event()
        self._done.set()

    def placed(self, partition: str) -> None:
        """Note that an object is to be created in a partition."""
        with self._lock:
            self._placed[partition] += 1

    def states(self, partitions: Sequence[str]) -> States:
        """Return what is known of these partitions; it is looked up once somebody looks into it."""
        return _LazyStates(lambda: self._states(partitions))

    def _states(self, partitions: Sequence[str]) -> dict[str, PartitionState]:
        now = self._clock()
        if now - self._began > FRESH_S:
            self._begin(now)
        if now - self._ended > OLD_S:
            self._done.wait(self._ask_s)
        now = self._clock()
        return {partition: self._state(partition, now) for partition in partitions}

    def _state(self, partition: str, now: float) -> PartitionState:
        known, node = self._router.tables.get(partition), self._router.active(partition)
        nodes = () if known is None else known[1].configured
        at, told = self._told.get(node or "", (-math.inf, None))
        placed = self._placed[partition]
        if told is None or now - at > FORGET_S:
            return PartitionState(partition, nodes, node, None, placed)
        return PartitionState(
            partition, nodes, node, told.objects.get(partition), placed, told.cpu, told.memory, max(0.0, now - at)
        )

    # --- asking ---

    def _begin(self, now: float) -> None:
        with self._lock:
            if not self._done.is_set() or now - self._began <= FRESH_S:
                return
            self._began = now
            self._done.clear()
        threading.Thread(target=self._ask_all, name="halog-loads", daemon=True).start()

    def _ask_all(self) -> None:
        try:
            tables = [table for _, table in list(self._router.tables.values())]
            nodes = sorted({table.active.node for table in tables if table.active is not None})
            with ThreadPoolExecutor(max(1, min(len(nodes), AT_ONCE)), thread_name_prefix="halog-loads") as pool:
                list(pool.map(self._ask, nodes))
        finally:
            self._ended = self._clock()
            self._done.set()

    def _ask(self, node: str) -> None:
        with self._lock:
            before = Counter(self._placed)
        at = self._clock()
        try:
            told = self._answer(node)
        except HalogError as error:
            logger.debug("node %s does not say how busy it is: %s", node, error)
            return
        with self._lock:
            self._told[node] = at, told
            for partition in told.objects:  # what was placed before it was asked is among them, or never will be
                self._placed[partition] -= before[partition]

    def _answer(self, node: str) -> frames.LoadsReply:
        if node == self._router.me and self._here is not None:
            return self._here()
        reply = self._router.request(node, frames.Loads(), self._ask_s)
        if not isinstance(reply, frames.LoadsReply):
            raise HalogError(f"{node} answered {type(reply).__name__}")
        return reply


def objects_of(router: Router, partitions: Collection[str], wait_s: float) -> dict[str, int]:
    """Return how many objects these partitions have, as their active nodes count them. A node that has not counted, or
    does not answer, within `wait_s` seconds is left out."""
    until, found = time.monotonic() + wait_s, dict[str, int]()
    while missing := {node for p in partitions if p not in found and (node := router.active(p))}:
        for node in sorted(missing):
            found |= _counted(router, node)
        if time.monotonic() >= until:
            break
        time.sleep(AGAIN_S)
    return {p: found[p] for p in partitions if p in found}


def _counted(router: Router, node: str) -> Mapping[str, int]:
    try:
        reply = router.request(node, frames.Loads(), ASK_S)
    except HalogError as error:
        logger.debug("node %s does not say how many objects it has: %s", node, error)
        return {}
    return reply.objects if isinstance(reply, frames.LoadsReply) else {}


class _LazyStates(Mapping[str, PartitionState]):
    """Makes its mapping when it is first looked into."""

    def __init__(self, make: Callable[[], dict[str, PartitionState]]) -> None:
        self._make = make
        self._made = dict[str, PartitionState]()

    def _all(self) -> dict[str, PartitionState]:
        if not self._made:
            self._made = self._make()
        return self._made

    def __getitem__(self, partition: str) -> PartitionState:
        return self._all()[partition]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
