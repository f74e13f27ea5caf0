"""halog's side: an application process with a node in it. `worker` calls the methods of `App` by name.

The same class serves nodes that host partitions and client nodes: which one it is, the configuration says by its name.
"""

from __future__ import annotations

import importlib
import random
import sys
import threading
import time
from typing import Any

import halog
import halog.aio
from benchmarks.loop import AsyncOp, Op, closed_loop, closed_loop_of_tasks
from benchmarks.model import CLASSES, Kept
from benchmarks.payload import payload
from halog.config import load_config
from halog.errors import HalogError
from halog.runtime.remap import remap_request as wishes

OBJECTS_EACH = 100
"""Objects of each caller: callers never conflict, and every write is an update of an object read before."""


IMPORTED_LATE = (
    "halog.runtime.node.open",
    "halog.adapters.tcp.channel",
    "halog.adapters.kafka.log",
    "halog.adapters.rocksdb.store",
    "halog.adapters.zookeeper.coordinator",
)
"""What `halog.node` imports when it is first called: 0.18 s of Python, once in a process."""


class App:
    """One application process."""

    def __init__(self, config: str, name: str, switch_interval_ms: float = 0.0) -> None:
        self.config = config
        self.name = name
        if switch_interval_ms:
            sys.setswitchinterval(switch_interval_ms / 1000)
        self._writers: list[_Writer] = []

    def open(self) -> dict[str, Any]:
        """Join the cluster; seconds until `node()` returned."""
        begin = time.perf_counter()
        self.node: Any = halog.node(self.config, self.name)
        self.runtime: Any = self.node.runtime
        return {"s": time.perf_counter() - begin}

    def caught_up(self, partition: str, lsn: int, begin_open: bool = False) -> dict[str, Any]:
        """Seconds until this node's copy of a partition holds everything up to `lsn`; with the opening if asked."""
        begin = time.perf_counter()
        if begin_open:
            self.open()
        while (copy := self.runtime.copies.get(partition)) is None or copy.core.state.chain.state.lsn < lsn:
            time.sleep(0.001)
        return {"s": time.perf_counter() - begin}

    def imported(self) -> dict[str, Any]:
        """Answered as soon as the process has imported everything: what is timed begins after that, as it does for the
        baseline, which has imported Kafka's client."""
        for name in IMPORTED_LATE:
            importlib.import_module(name)
        return {}

    def close(self) -> None:
        """Hand over and leave."""
        if hasattr(self, "node"):
            self.node.close()

    def state(self) -> dict[str, Any]:
        """Who is active for what, as this node knows."""
        tables = self.runtime.router.tables
        return {
            name: {
                "active": None if t.active is None else t.active.node,
                "sync": [r.node for r in t.replicas if r.kind == "sync"],
                "replicas": [r.node for r in t.replicas],
                "serving": self.runtime.is_active(name),
                "index": t.index,
                "topic": t.topic,
            }
            for name, (_, t) in tables.items()
        }

    def lsn(self, partition: str) -> dict[str, Any]:
        """Where this node's copy stands."""
        core = self.runtime.copies[partition].core
        return {"lsn": core.state.chain.state.lsn, "next_offset": core.state.next_offset}

    def marked(self, partition: str) -> dict[str, Any]:
        """Up to which lsn the state topic is complete."""
        found = self.runtime.adapters.coordinator.get(f"snapshots/{partition}")
        return {"lsn": 0 if found is None else int(found.data.split()[0])}

    def hand_over(self, partition: str, to: str) -> dict[str, Any]:
        """As an operator's command does."""
        self.runtime.operators.hand_over(partition, to)
        return {}

    def hang(self) -> dict[str, Any]:
        """Have a notifier of remote nodes that never returns (N3)."""
        self.node.on_node_change(available=lambda change: threading.Event().wait())
        return {}

    def lead(self) -> dict[str, Any]:
        """Become active for every partition: whoever came first may have been quicker."""
        for name, table in self.state().items():
            if not table["serving"]:
                self.runtime.operators.hand_over(name, self.name)
        return {}

    # --- commits ---

    def prepare(self, kind: str, clients: int) -> dict[str, Any]:
        """The objects that `commits` changes."""
        cls, numbers = CLASSES[kind], range(clients * OBJECTS_EACH)
        self.node.load((cls(number=n, text=payload(n)) for n in numbers), duplicates="skip")
        return {}

    def commits(self, kind: str, clients: int, seconds: float) -> dict[str, Any]:
        """Transactions that each get one object, change a field and commit."""
        cls, node = CLASSES[kind], self.node

        def make(i: int) -> Op:
            first = i * OBJECTS_EACH

            def op(k: int) -> None:
                with node.transaction() as tx:
                    tx.get(cls, first + k % OBJECTS_EACH).count += 1

            return op

        return closed_loop(make, clients, seconds)

    def commits_of_tasks(self, kind: str, clients: int, seconds: float) -> dict[str, Any]:
        """The same, by tasks of one event loop (`halog.aio`)."""
        cls, node = CLASSES[kind], halog.aio.Node(self.node)

        def make(i: int) -> AsyncOp:
            first = i * OBJECTS_EACH

            async def op(k: int) -> None:
                async with node.transaction() as tx:
                    (await tx.get(cls, first + k % OBJECTS_EACH)).count += 1

            return op

        return closed_loop_of_tasks(make, clients, seconds)

    def commits_over(self, kind: str, partitions: list[str], seconds: float) -> dict[str, Any]:
        """Transactions of one client that each change one object in every partition named: of one that is named twice
        two objects. They are those of `prepare`."""
        cls, node = CLASSES[kind], self.node
        there = self._by_partition(kind, len(partitions) * OBJECTS_EACH * 2)
        chosen = [there[p][i :: len(partitions)] for i, p in enumerate(partitions)]

        def make(_: int) -> Op:
            def op(k: int) -> None:
                with node.transaction() as tx:
                    for numbers in chosen:
                        tx.get(cls, numbers[k % len(numbers)]).count += 1

            return op

        return closed_loop(make, 1, seconds)

    def commits_again(self, kind: str, clients: int, seconds: float) -> dict[str, Any]:
        """As `commits`, in the decorated form: what meets an object that is just being moved is run again."""
        cls, node = CLASSES[kind], self.node

        def make(i: int) -> Op:
            first = i * OBJECTS_EACH

            def change(number: int) -> None:
                node.get(cls, number).count += 1

            again = node.transactional(change)
            return lambda k: again(first + k % OBJECTS_EACH)

        return closed_loop(make, clients, seconds)

    def many(self, kind: str, clients: int, count: int) -> dict[str, Any]:
        """Exactly `count` single commits, as fast as `clients` threads make them."""
        from concurrent.futures import ThreadPoolExecutor

        cls, node = CLASSES[kind], self.node

        def some(i: int) -> None:
            for k in range(count // clients):
                with node.transaction() as tx:
                    tx.get(cls, i * OBJECTS_EACH + k % OBJECTS_EACH).count += 1

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(some, range(clients)))
        return {}

    # --- reads ---

    def reads(self, kind: str, objects: int, per_transaction: int, seconds: float) -> dict[str, Any]:
        """Get + one field, of random ones of `objects`, in transactions of many reads each: of different ones, or of
        all of them equally often."""
        cls, chance = CLASSES[kind], random.Random(1)
        numbers = list(range(objects)) * max(1, per_transaction // objects)
        rounds = [chance.sample(numbers, per_transaction) for _ in range(20)]
        count, turn = 0, 0
        end = time.perf_counter() + seconds
        begin = time.perf_counter()
        while time.perf_counter() < end:
            with self.node.transaction() as tx:
                get = tx.get
                for number in rounds[turn % 20]:
                    get(cls, number).count  # noqa: B018 - reading it is the point
            turn += 1
            count += per_transaction
        return {"per_s": count / (time.perf_counter() - begin)}

    def plain_reads(self, objects: int, seconds: float) -> dict[str, Any]:
        """The same of a dict of plain Python objects, which nothing keeps."""
        held = {n: Kept(number=n, text=payload(n)) for n in range(objects)}
        chance = random.Random(1)
        numbers = [chance.randrange(objects) for _ in range(1000)]
        count, begin = 0, time.perf_counter()
        while time.perf_counter() < begin + seconds:
            for number in numbers:
                held[number].count  # noqa: B018 - as above
            count += len(numbers)
        return {"per_s": count / (time.perf_counter() - begin)}

    # --- bulk ---

    def load(self, kind: str, first: int, count: int) -> dict[str, Any]:
        """`node.load` of objects that are there, as the baseline's are."""
        cls = CLASSES[kind]
        objects = [cls(number=n, text=payload(n)) for n in range(first, first + count)]
        begin = time.perf_counter()
        self.node.load(objects)
        return {"per_s": count / (time.perf_counter() - begin)}

    def change(self, kind: str, first: int, count: int) -> dict[str, Any]:
        """A transaction for each of them."""
        cls = CLASSES[kind]

        @self.node.transactional  # type: ignore[untyped-decorator]
        def counted(number: int) -> None:
            self.node.get(cls, number).count += 1

        for number in range(first, first + count):
            counted(number)
        return {}

    # --- placement ---

    def counts(self, kind: str, count: int) -> dict[str, int]:
        """How many of the first `count` numbers belong to each partition."""
        return {partition: len(numbers) for partition, numbers in self._by_partition(kind, count).items()}

    def _by_partition(self, kind: str, count: int) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number in range(count):
            found.setdefault(_owner(self.node, CLASSES[kind], number), []).append(number)
        return found

    def rebalance(self, policy: str, config: str) -> dict[str, Any]:
        """Begin what `halog rebalance` does with this file."""
        self.runtime.operators.rebalance(policy, load_config(config))
        return {}

    def rebalanced(self, policy: str) -> dict[str, Any]:
        """How far that is."""
        return wishes.progress(self.runtime.adapters.coordinator, policy)._asdict()

    # --- a writer that goes on while things are killed ---

    def begin_writes(self, kind: str, rate: float, partitions: list[str]) -> dict[str, Any]:
        """One writing thread for each partition."""
        self._writers = [_Writer(self.node, CLASSES[kind], p, rate) for p in partitions]
        return {}

    def end_writes(self) -> dict[str, Any]:
        """Each partition's acknowledged writes, as (begin, end) in monotonic seconds and by transaction id; the ids of
        those that were said not to have happened; and what was said."""
        for w in self._writers:
            w.stop.set()
        for w in self._writers:
            w.thread.join(15)
        return {w.partition: w.told() for w in self._writers}


def _number_in(node: Any, cls: type[Any], partition: str) -> int:
    """The first key that lives there."""
    return next(n for n in range(100_000) if _owner(node, cls, n) == partition)


def _owner(node: Any, cls: type[Any], number: int) -> str:
    """The partition a key belongs to."""
    info = node.space.info_of(cls)
    found: str = node.backend.partition_of(info.name, info.routing_key(info.check_key((number,))))
    return found


class _Writer:
    """Writes at a rate, one after the other, whatever happens."""

    def __init__(self, node: Any, cls: type[Any], partition: str, rate: float) -> None:
        self.node = node
        self.cls = cls
        self.partition = partition
        self.rate = rate
        self.times: list[tuple[float, float]] = []
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self.errors: list[str] = []
        self.stop = threading.Event()
        self.number = _number_in(node, cls, partition)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def told(self) -> dict[str, Any]:
        """What its caller knows."""
        return {"times": self.times, "acknowledged": self.acknowledged, "failed": self.failed, "errors": self.errors}

    def _run(self) -> None:
        while not self.stop.is_set():
            begin, tx = time.monotonic(), self.node.transaction()
            try:
                self._write(tx)
            except Exception as e:
                self.errors.append(f"{type(e).__name__}: {e}")
                if isinstance(e, HalogError) and e.happened is False and tx.id is not None:
                    self.failed.append(tx.id.hex())
            else:
                self.times.append((begin, time.monotonic()))
                self.acknowledged.append(tx.id.hex())
            self.stop.wait(max(0.0, 1 / self.rate - (time.monotonic() - begin)))

    def _write(self, tx: Any) -> None:
        with tx:
            found = tx.find(self.cls, self.number)
            if found is None:
                tx.create(self.cls(number=self.number, text=payload(self.number)))
            else:
                found.count += 1
