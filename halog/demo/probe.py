"""This module measures how long a fault is felt: the time to the first write, begun after the fault, that each
partition acknowledges. It also measures how long a write takes at worst while something is changed on purpose.

There is one object and one thread per partition; each thread is blocked in an ordinary transaction until a node serves
it. The prober runs in the demo's own process, which has little else to do. Its writes are noted in a journal like the
client's.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection

from halog.demo.journal import ACKNOWLEDGED, PROBE, Journal, Note
from halog.demo.model import Probe
from halog.errors import HalogError
from halog.transactions import Node, Transaction

GIVE_UP_S = 30.0
"""A partition that has not answered by then did not fail over; it is missing from the count."""
EVERY_S = 0.1
"""Seconds between two writes to a partition while something is changed: more writes would be load of their own."""


class Prober:
    """A `Prober` writes to one object per partition."""

    def __init__(self, node: Node, journal: Journal, partitions: Collection[str]) -> None:
        self.node = node
        self.journal = journal
        self._partitions = set(partitions)
        self.names: dict[str, str] = {}
        self._began = 0.0
        self._again = node.transactional(self._write)

    def _names(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for number in itertools.count():
            if self._partitions <= found.keys():
                break
            name = f"probe-{number}"
            found.setdefault(self.node.space.route(Probe, (name,)).partition, name)
        return found

    def prepare(self) -> None:
        """Find a name for each partition and create its object; so every partition is seen to take writes."""
        self.names = self._names()
        for partition, name in self.names.items():
            self._note(partition, self._again(name))

    def measure(self, partitions: Collection[str], fault: Callable[[], None]) -> dict[str, float]:
        """Cause the fault; return partition → ms until its first new acknowledged write."""
        ready, done = threading.Event(), dict[str, float]()
        threads = [threading.Thread(target=self._wait, args=(p, ready, done), daemon=True) for p in partitions]
        for thread in threads:
            thread.start()
        self._began = time.monotonic()
        fault()
        ready.set()
        for thread in threads:
            thread.join(GIVE_UP_S + 1)
        return dict(done)

    def through(self, change: Callable[[], None]) -> dict[str, float]:
        """Write to every partition again and again while the change is made; return partition → ms of its slowest
        write."""
        done, slowest = threading.Event(), dict[str, float]()
        threads = [threading.Thread(target=self._go_on, args=(p, done, slowest), daemon=True) for p in self.names]
        for thread in threads:
            thread.start()
        try:
            change()
        finally:
            done.set()
            for thread in threads:
                thread.join(GIVE_UP_S + 1)
        return dict(slowest)

    def _go_on(self, partition: str, done: threading.Event, slowest: dict[str, float]) -> None:
        began = time.monotonic()
        while not done.is_set():
            try:
                tx = self._again(self.names[partition])
            except HalogError:  # it goes on being late
                continue
            slowest[partition] = max(slowest.get(partition, 0.0), (time.monotonic() - began) * 1000)
            self._note(partition, tx)
            done.wait(EVERY_S)
            began = time.monotonic()

    def _wait(self, partition: str, ready: threading.Event, done: dict[str, float]) -> None:
        ready.wait(GIVE_UP_S)
        while time.monotonic() - self._began < GIVE_UP_S:
            try:
                tx = self._again(self.names[partition])
            except HalogError:
                continue
            done[partition] = (time.monotonic() - self._began) * 1000
            self._note(partition, tx)
            return

    def _write(self, name: str) -> Transaction:
        probe = self.node.find(Probe, name) or self.node.create(Probe(name=name))
        probe.write()
        return self.node.current()

    def _note(self, partition: str, tx: Transaction) -> None:
        assert tx.id is not None
        self.journal.write(Note(PROBE, tx.id.hex(), ACKNOWLEDGED, partition))
