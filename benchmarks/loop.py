"""Closed loops: n threads of this process, each waiting for its own answer before it asks again."""

from __future__ import annotations

import asyncio
import threading
import time
from array import array
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.figures import percentile

Op = Callable[[int], object]
AsyncOp = Callable[[int], Awaitable[object]]
WARM_S = 0.3
"""Before the clock counts: connections, caches and the broker's JIT have seen this very load."""


def closed_loop(make_op: Callable[[int], Op], clients: int, seconds: float) -> dict[str, Any]:
    """`make_op(i)` gives caller i its operation, called with a growing count. Figures in µs."""
    loop = _Loop(make_op, clients, seconds)
    threads = [threading.Thread(target=loop.run, args=(i,), name=f"bench-{i}") for i in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if loop.errors:
        raise loop.errors[0]
    return summary(sorted(x for a in loop.latencies for x in a), seconds)


def closed_loop_of_tasks(make_op: Callable[[int], AsyncOp], clients: int, seconds: float) -> dict[str, Any]:
    """The same with n tasks of one event loop."""
    latencies: list[array[int]] = []

    async def run(op: AsyncOp) -> None:
        clock, taken, k = time.perf_counter_ns, array("q"), 0
        now, end = clock(), warm + int(seconds * 1e9)
        while now < end:
            await op(k)
            k += 1
            later = clock()
            if now >= warm:
                taken.append(later - now)
            now = later
        latencies.append(taken)

    async def all_of_them() -> None:
        await asyncio.gather(*(run(make_op(i)) for i in range(clients)))

    warm = time.perf_counter_ns() + int(WARM_S * 1e9)
    asyncio.run(all_of_them())
    return summary(sorted(x for a in latencies for x in a), seconds)


class _Loop:
    def __init__(self, make_op: Callable[[int], Op], clients: int, seconds: float) -> None:
        self.make_op = make_op
        self.seconds = seconds
        self.begin = threading.Barrier(clients)
        self.latencies: list[array[int]] = []
        self.errors: list[Exception] = []

    def run(self, i: int) -> None:
        try:
            self._run(self.make_op(i))
        except Exception as e:
            self.errors.append(e)
            self.begin.abort()

    def _run(self, op: Op) -> None:
        clock, taken, k = time.perf_counter_ns, array("q"), 0
        self.begin.wait(10)
        warm = clock() + int(WARM_S * 1e9)
        while clock() < warm:
            op(k)
            k += 1
        end = warm + int(self.seconds * 1e9)
        now = clock()
        while now < end:
            op(k)
            k += 1
            later = clock()
            taken.append(later - now)
            now = later
        self.latencies.append(taken)


def summary(ordered_ns: list[int], seconds: float) -> dict[str, Any]:
    """Figures of one run."""
    return {
        "n": len(ordered_ns),
        "per_s": len(ordered_ns) / seconds,
        "p50_us": percentile(ordered_ns, 0.5) / 1000,
        "p99_us": percentile(ordered_ns, 0.99) / 1000,
        "max_us": ordered_ns[-1] / 1000,
    }
