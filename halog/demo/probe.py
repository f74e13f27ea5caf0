"""How long a fault is felt: the time to the first write, begun after the fault, that each partition acknowledges.

One object per partition, one thread per partition, each blocked in an ordinary transaction until somebody serves it.
Runs in the demo's own process, which has little else to do. Its writes are noted in a journal like the client's.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection

from halog.demo.journal import ACKNOWLEDGED, Journal, Note
from halog.demo.model import Probe
from halog.errors import HalogError
from halog.transactions import Node, Transaction

GIVE_UP_S = 30.0
"""No answer by then is a partition that did not fail over; it is missing from the count."""


class Prober:
    """Knows one object per partition."""

    def __init__(self, node: Node, journal: Journal, partitions: Collection[str]) -> None:
        self.node, self.journal = node, journal
        self.names = self._names(set(partitions))
        self._began = 0.0
        self._again = node.transactional(self._write)

    def _names(self, wanted: set[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for number in itertools.count():
            if wanted <= found.keys():
                break
            name = f"probe-{number}"
            found.setdefault(self.node.space.route(Probe, (name,)).partition, name)
        return found

    def prepare(self) -> None:
        """Create the objects, and so see that every partition takes writes."""
        for partition, name in self.names.items():
            self._note(partition, self._again(name))

    def measure(self, partitions: Collection[str], fault: Callable[[], None]) -> dict[str, float]:
        """Cause the fault; partition → ms until its first new acknowledged write."""
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
        self.journal.write(Note(-1, "probe", partition, tx.id, ACKNOWLEDGED))
