"""Load from several threads of this process, each transaction remembered with what its caller was told."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from halog.core.durability import Durability
from halog.runtime.node.open import RunningNode
from tests.integration.cluster.fleet import Aircraft, Flight
from tests.integration.cluster.processes import LIMIT_S, wait
from tests.integration.cluster.waits import Wait

KEEP = 12
"""Flights of an aircraft that are kept; older ones are deleted."""


def tails(node: RunningNode, prefix: str, each: int = 1) -> dict[str, list[str]]:
    """`each` tails in every partition, by partition."""
    found: dict[str, list[str]] = {p: [] for p in node.backend.partitions_of("Aircraft")}
    n = 0
    while any(len(t) < each for t in found.values()):
        tail = f"{prefix}{n}"
        partition = partition_of(node, tail)
        if len(found[partition]) < each:
            found[partition].append(tail)
        n += 1
    return found


def partition_of(node: RunningNode, tail: str) -> str:
    return node.space.route(Aircraft, (tail,)).partition


class Load:
    """Each thread lands its own aircraft, one in every partition, and an aircraft all threads share."""

    def __init__(
        self,
        node: RunningNode,
        prefix: str,
        threads: int = 3,
        pause_s: float = 0.002,
        durability: Durability | None = None,
    ) -> None:
        self.node = node
        self.prefix = prefix
        self.pause_s = pause_s
        self.durability = durability
        self.acked: dict[bytes, tuple[str, int]] = {}
        """Transaction id → (partition, lsn), as told."""
        self.landings: Counter[str] = Counter()
        """Acknowledged landings by tail."""
        self.unknown: Counter[str] = Counter()
        """Landings nobody could tell the outcome of, by tail."""
        self.errors: list[BaseException] = []
        self.doing: dict[int, tuple[str, str, float]] = {}
        """What each thread is at: (tail, partition, since)."""
        self.waits: list[Wait] = []
        """How long each of them took that began when all partitions had answered once. Those before it find connections
        and classes not used yet: on a busy machine 0.5 s, and a control that has long been running notices nothing."""
        self._warm = False
        self.shared = f"{prefix}shared"
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(t,), daemon=True) for t in range(threads)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        self.flows()
        self._warm = True
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(t.is_alive() for t in self._threads), "a caller never got an answer"

    @property
    def longest_s(self) -> float:
        """That any of them took."""
        with self._lock:
            return max((w.seconds for w in self.waits), default=0.0)

    @property
    def shortest_s(self) -> float:
        """For which each thread has been at what it is at now."""
        return time.monotonic() - max(since for _, _, since in self.doing.values())

    # --- what it does ---

    def _run(self, number: int) -> None:
        mine = [t for (t,) in tails(self.node, f"{self.prefix}{number}-").values()]
        turn = 0
        while not self._stop.is_set():
            tail = self.shared if turn % 7 == 6 else mine[turn % len(mine)]
            began, counts = time.monotonic(), self._warm
            self.doing[number] = (tail, partition_of(self.node, tail), began)
            try:
                self._land(tail)
            except BaseException as e:
                with self._lock:
                    self.errors.append(e)
                    self.unknown[tail] += 1
            with self._lock:
                self.waits += [Wait(began, time.monotonic(), tail)] if counts else []
            turn += 1
            self._stop.wait(self.pause_s)

    def _land(self, tail: str) -> None:
        def once() -> Any:
            node = self.node
            aircraft = node.find(Aircraft, tail) or node.create(Aircraft(tail=tail))
            landing = aircraft.land(10)
            node.create(Flight(tail=tail, number=landing, of=self.prefix))
            if old := node.find(Flight, tail, landing - KEEP):  # gone, if this transaction is about to conflict
                node.delete(old)
            return node.current()

        tx = self.node.transactional(retries=200, durability=self.durability)(once)()
        with self._lock:
            self.acked[tx.id] = (partition_of(self.node, tail), tx.lsn)
            self.landings[tail] += 1

    # --- what it waits for ---

    def flows(self, limit_s: float = LIMIT_S) -> None:
        """Every partition acknowledges a transaction that began after now."""
        before = self._by_partition()
        need = len(self._threads) + 1
        wait(lambda: all(n >= before[p] + need for p, n in self._by_partition().items()), self._stuck, limit_s)

    def _stuck(self) -> str:
        now = time.monotonic()
        at = ", ".join(f"{t} in {p} for {now - since:.1f} s" for t, p, since in self.doing.values())
        return f"commits in every partition; callers wait with {at}; errors: {self.errors[:3]}"

    def _by_partition(self) -> Counter[str]:
        with self._lock:
            counts = Counter(p for p, _ in self.acked.values())
        return Counter({p: counts[p] for p in self.node.backend.partitions_of("Aircraft")})

    def check_objects(self, node: RunningNode) -> None:
        """The application's view: each aircraft has landed as often as its callers were told (what nobody could tell
        may have happened), and has its last flights only."""
        with node.transaction(read="active"):
            for tail, told in self.landings.items():
                aircraft = node.get(Aircraft, tail)
                assert told <= aircraft.landings <= told + self.unknown[tail], tail
                assert aircraft.miles == 10 * aircraft.landings, tail
        with node.transaction():
            flights = Counter(f.tail for f in node.extent(Flight) if f.of == self.prefix)
        assert flights == {t: min(n, KEEP) for t, n in self.landings.items()} or self.errors
