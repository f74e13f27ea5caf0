"""A cluster whose mapping changes, and an application that uses it meanwhile and notices whatever goes wrong."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import halog
from halog.config import Config
from halog.core.keys.mapping import PolicyMapping
from halog.errors import AvailabilityError, ConflictError, DuplicateKeyError, OutcomeUnknownError
from halog.metadata import mapped_policies
from halog.runtime.keys.key_owners import Places
from halog.schema import Registry
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node

TYPES = Registry()
POLICY = "test"
WORKS = ("_count", "_look", "_come_and_go", "_all", "_race")
PACE_S = 0.003
"""Between two works of a thread: the rest of the machine is for the change."""


@halog.managed(key="name", registry=TYPES)
class Counter:
    name: str
    value: int = 0

    def up(self) -> int:
        self.value += 1
        return self.value


@halog.managed(key=("shop", "number"), partition_by="shop", registry=TYPES)
class Order:
    shop: str
    number: int
    text: str = ""

    def again(self, number: int) -> None:
        """Another order of the same shop, made where this one is."""
        other = halog.current().find(Order, self.shop, number - 1)
        halog.current().create(Order(self.shop, number, "" if other is None else other.text))


def cluster_of(nodes: int, partitions: int = 4, move_objects: int = 20, **more: Any) -> Cluster:
    made = Cluster(nodes, partitions=partitions, registry=TYPES, **more)
    return configured(made, move_objects=move_objects)


def configured(cluster: Cluster, **values: Any) -> Cluster:
    """Nodes that start from now on have another file."""
    cluster.config = changed(cluster.config, **values)
    return cluster


def begin(cluster: Cluster, by: str = "A", **values: Any) -> int:
    """The wish of an operator whose file has these values from now on."""
    configured(cluster, **values)
    return cluster.node(by).runtime.operators.rebalance(POLICY, cluster.config)


def changed(config: Config, **values: Any) -> Config:
    return replace(config, policies={POLICY: replace(config.policies[POLICY], **values)}).validate()


def mapping(cluster: Cluster) -> PolicyMapping:
    name = next(iter(cluster.running))
    return mapped_policies.read(cluster.node(name).runtime.adapters.coordinator, POLICY).mapping


def wait_done(cluster: Cluster, version: int, seconds: float = 20.0) -> None:
    def done() -> bool:
        now = mapping(cluster)
        return now.version == version and now.changing is None

    wait_until(done, f"mapping version {version} is not all there is", seconds)


def places(cluster: Cluster, config: Config) -> Callable[[str, bytes], str]:
    """Where a key belongs, by the configuration alone."""
    found = Places(config, lambda name: TYPES.info(name).parsed)
    owners = {info.name: found.owner(info.name) for info in TYPES.by_name.values()}
    return lambda type_name, routing_key: owners[type_name].partition(type_name, routing_key)


def where(cluster: Cluster) -> dict[str, list[tuple[str, bytes]]]:
    """Key → (partition, reference) of everything that any active copy holds."""
    found: dict[str, list[tuple[str, bytes]]] = {}
    for name, table in cluster.tables().items():
        assert table.active is not None
        copy = cluster.node(table.active.node).runtime.copies[name]
        for f in copy.objects.scan(b""):
            found.setdefault(f.key.hex(), []).append((name, f.ref))
    return found


def check(cluster: Cluster, config: Config) -> None:
    """Nothing doubled, nothing misplaced."""
    by_file = places(cluster, config)
    for key, at in where(cluster).items():
        assert len(at) == 1, f"{key} is in {at}"
        info = next(i for i in TYPES.by_name.values() if key.startswith(i.family_id.hex()))
        routing_key = info.routing_key(info.decode_index_key(bytes.fromhex(key)))
        assert by_file(info.name, routing_key) == at[0][0], f"{key} is in {at[0][0]}"


class Traffic:
    """Threads that create, find, change and delete; `problems` is what must not be."""

    def __init__(self, node: Node, steady: int) -> None:
        self.node = node
        self.names = [f"steady{i}" for i in range(steady)]
        self.problems: list[str] = []
        self.counted: dict[str, int] = dict.fromkeys(self.names, 0)
        self.unknown: dict[str, int] = dict.fromkeys(self.names, 0)
        self.alive: set[str] = set()
        self.doubtful: set[str] = set()
        self.done: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        """What each work met last."""
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def fill(self) -> None:
        self.node.load([Counter(name) for name in self.names])

    @contextmanager
    def running(self, seed: int = 1) -> Iterator[Traffic]:
        works = [self._count, self._look, self._come_and_go, self._all, self._race]
        threads = [
            threading.Thread(target=self._forever, args=(work, random.Random(seed * 100 + i)), daemon=True)
            for i, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(30)

    def goes_on(self) -> None:
        """Everything is done at least once more."""
        done = {work: self.done.get(work, 0) for work in WORKS}
        try:
            wait_until(lambda: self.problems or all(self.done.get(w, 0) > n for w, n in done.items()), "it stopped")
        except AssertionError:
            stopped = {w: self.refused.get(w) for w, n in done.items() if self.done.get(w, 0) == n}
            raise AssertionError(f"traffic stopped: {stopped}") from None
        assert not self.problems, self.problems

    def _forever(self, work: Callable[[random.Random, int], None], chance: random.Random) -> None:
        for n in itertools.count():
            if self._stop.wait(PACE_S):
                return
            try:
                work(chance, n)
                with self._lock:
                    self.done[work.__name__] = self.done.get(work.__name__, 0) + 1
            except (ConflictError, AvailabilityError) as error:
                self.refused[work.__name__] = f"{type(error).__name__}: {error}"
            except Exception as error:
                self.problems.append(f"{work.__name__}: {type(error).__name__}: {error}")
                return

    def _count(self, chance: random.Random, n: int) -> None:
        """Nothing that was counted is lost, or counted twice."""
        name = chance.choice(self.names)
        try:
            with self.node.transaction():
                self.node.get(Counter, name).up()
        except OutcomeUnknownError:
            self.unknown[name] += 1
        else:
            self.counted[name] += 1

    def _look(self, chance: random.Random, n: int) -> None:
        """Trace 34: what exists throughout is never missed."""
        name = chance.choice(self.names)
        with self.node.transaction():
            if self.node.find(Counter, name) is None:
                self.problems.append(f"{name} was not found")

    def _all(self, chance: random.Random, n: int) -> None:
        names: list[str] = []
        ended = False
        with suppress(ConflictError), self.node.transaction():  # on a busy machine each meets the next change
            for counter in self.node.extent(Counter):
                names.append(counter.name)
            ended = True
        self._judge(names, ended)

    def _judge(self, names: list[str], ended: bool) -> None:
        """Nothing is seen twice, and all is seen once it `ended`, also by a transaction that is refused then."""
        if len(set(names)) != len(names):
            self.problems.append("an extent has an object twice")
        missed = set(self.names).difference(names)
        if missed and ended:
            self.problems.append(f"an extent misses {len(missed)}: {sorted(missed)[:3]}")

    def _come_and_go(self, chance: random.Random, n: int) -> None:
        name = f"new{chance.randrange(200)}"
        try:
            with self.node.transaction():
                found = self.node.find(Counter, name)
                if found is None:
                    self.node.create(Counter(name, n))
                else:
                    self.node.delete(found)
        except (OutcomeUnknownError, ConflictError):
            self.doubtful.add(name)
            raise

    def _race(self, chance: random.Random, n: int) -> None:
        """Trace 33: a key that exists cannot be created, wherever it is just now."""
        name = chance.choice(self.names)
        try:
            with self.node.transaction() as tx:
                self.node.create(Counter(name, -1))
        except DuplicateKeyError:
            return
        self.problems.append(f"{name} was created a second time, in {tx.home}")

    def finished(self) -> None:
        """Judge."""
        assert not self.problems, self.problems[:5]
        for name in self.names:
            with self.node.transaction():
                value = self.node.get(Counter, name).value
            assert self.counted[name] <= value <= self.counted[name] + self.unknown[name], name
        self._judge(self.node.transactional()(lambda: [c.name for c in self.node.extent(Counter)])(), ended=True)
        assert not self.problems, self.problems[:5]
        for work in WORKS:
            assert self.done.get(work), f"{work} did nothing"


def a_node_dies_in_the_middle(cluster: Cluster, check: Callable[[Cluster], object]) -> None:
    """Of a change of the ring, under traffic; it comes back, and all is where it belongs before and after."""
    traffic = Traffic(cluster.client(), 150)
    traffic.fill()
    with traffic.running(2):
        begin(cluster, ring_size=999)
        wait_until(lambda: mapping(cluster).next is not None, "the change is not open")
        cluster.kill("A")
        wait_done(cluster, 1, 30)
    traffic.finished()
    cluster.settle()
    check(cluster)
    cluster.restart("A")
    cluster.settle()
    check(cluster)
