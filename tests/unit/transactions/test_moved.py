"""What a process remembers of an object that has moved to another partition (T8)."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator

import pytest

import halog
from halog.backend import CommittedObject, KnownMappings, Work
from halog.errors import ConflictError, DeadlineError, LockedError, RemappedError
from halog.schema import Registry, managed
from halog.testing.memory import MemoryBackend, MemoryCluster
from halog.transactions.families import entry_at
from halog.transactions.node import Node as MemoryNode
from halog.transactions.space import Space

pytestmark = pytest.mark.feature("P6")

TYPES = Registry()


@managed(key="name", registry=TYPES)
class Thing:
    name: str
    text: str = ""


def test_a_version_of_another_partition_is_another_value() -> None:
    """Versions count positions in a log: the same number elsewhere says nothing."""
    info, space = TYPES.info(Thing), Space(MemoryBackend(), TYPES)
    key = info.index_key(("t",))
    there = CommittedObject(b"r" * 24, 17, info.encode(Thing("t", "before it moved")), key)
    here = CommittedObject(b"r" * 24, 17, info.encode(Thing("t", "since")), key)
    assert space.image(there, "p-0").values["text"] == "before it moved"
    image = space.image(here, "p-1")
    assert (image.partition, image.values["text"]) == ("p-1", "since")
    assert space.image(here, "p-1") is image


def test_what_was_read_before_the_mapping_changed_is_a_conflict_where_it_belongs_now() -> None:
    """Not the error of classes that are bound to different policies: running the transaction again helps."""
    backend = MemoryBackend()
    with MemoryNode(backend, TYPES) as node:
        with node.transaction():
            node.create(Thing("t"))
        with pytest.raises(ConflictError, match="by now; run the transaction again"), node.transaction() as tx:
            node.get(Thing, "t")
            entry = tx.entries[TYPES.info(Thing).index_key(("t",))]
            assert entry_at(tx, entry.key, entry.partition) is entry
            backend.mapped = KnownMappings()
            entry_at(tx, entry.key, "elsewhere")


def test_what_is_refused_again_and_again_ends_in_time() -> None:
    backend = MemoryBackend()
    backend.deadline_s = 0.02
    space = Space(backend, TYPES)
    error = RemappedError("routed by an older mapping", partition="p-3", mapping=1)
    since = space.relearn(error)
    assert space.relearn(error, since) == since
    time.sleep(0.03)
    with pytest.raises(DeadlineError, match="partition p-3 serves mapping version 1 and has refused"):
        space.relearn(error, since)
    space.relearn(error)  # somebody else begins


class Moving(MemoryBackend):
    """The first attempt meets a newer mapping; the next ones find what it has locked, until that is known to be off."""

    def __init__(self, holder: str = "") -> None:
        super().__init__()
        self.presented: list[bytes] = []
        self.holder = holder
        self.deadline_s = 0.2

    def relearn(self, partition: str, version: int) -> None:
        """It knows the newer one."""

    def commit(self, partition: str, tx: bytes, work: Work) -> int:
        self.presented.append(tx)
        if len(self.presented) == 1:
            raise RemappedError("routed by an older mapping", partition=partition, mapping=1)
        if len(self.presented) < 4 or self.holder:
            holder = self.holder or self.presented[0].hex()
            raise LockedError("held", partition=partition, tx=holder, settled_lsn=0)
        return super().commit(partition, tx, work)


def test_its_own_attempt_that_is_withdrawn_is_waited_for() -> None:
    """The withdrawal travels beside the next attempt, and may be slower."""
    backend = Moving()
    with MemoryNode(backend, TYPES) as node:
        with node.transaction():
            node.create(Thing("t"))
        assert len(set(backend.presented)) == len(backend.presented) == 4, "each attempt has an id of its own"
        with node.transaction():
            assert node.get(Thing, "t").text == ""


@pytest.mark.parametrize("holder", ["another transaction's", "its own, for ever"])
def test_another_transaction_or_too_long_a_wait_is_told(holder: str) -> None:
    backend = Moving("ab" * 16)
    if holder.startswith("its own"):
        backend.new_transaction_id = lambda: bytes.fromhex("ab" * 16)  # type: ignore[method-assign]
    began = time.monotonic()
    with MemoryNode(backend, TYPES) as node, pytest.raises(LockedError), node.transaction():
        node.create(Thing("t"))
    assert (len(backend.presented) > 5) == (time.monotonic() - began > 0.1) == holder.startswith("its own")


# --- methods ---


@managed(key=("name", "number"), partition_by="name", registry=TYPES)
class Leg:
    name: str
    number: int

    def land(self) -> int:
        """What shares its `partition_by` values is within reach."""
        here = halog.current()
        total = here.find(Total, self.name) or here.create(Total(self.name))
        total.legs += 1
        return total.legs


@managed(key="name", registry=TYPES)
class Total:
    name: str
    legs: int = 0


class Turning(MemoryBackend):
    """A client's, or the active node's; `version` is the mapping it goes by, and each has every key elsewhere."""

    version = 0
    learnt = 0

    def partition_of(self, type_name: str, routing_key: bytes) -> str:
        names = self.cluster.names
        return names[(zlib.crc32(routing_key) + self.version) % len(names)]

    def relearn(self, partition: str, version: int) -> None:
        self.turn(version)
        self.learnt += 1

    def turn(self, version: int) -> None:
        self.version, self.mapped = version, KnownMappings(dict.fromkeys(self.cluster.names, version))


@pytest.fixture
def nodes() -> Iterator[tuple[MemoryNode, Turning, Turning]]:
    """A client, and the backends of client and active node."""
    cluster = MemoryCluster()
    server, client = Turning(cluster), Turning(cluster, name="client", active=False)
    with MemoryNode(server, TYPES) as active, MemoryNode(client, TYPES) as node:
        cluster.execute = active.executor
        yield node, client, server


def test_a_method_of_a_new_object_that_was_routed_by_an_older_mapping_is_run_again(
    nodes: tuple[MemoryNode, Turning, Turning],
) -> None:
    """Its caller had not heard of the change: a conflict, not the error of objects that never share a partition."""
    node, client, server = nodes
    server.turn(1)
    with pytest.raises(RemappedError, match="called by mapping version 0, and 1 is served"), node.transaction():
        node.create(Leg("n", 1)).land()
    assert client.version == 1, "whoever runs it again is routed by the new one"
    with node.transaction():
        assert node.create(Leg("n", 1)).land() == 1


def test_what_was_created_before_its_process_heard_of_the_change_is_not_called_by_the_new_mapping(
    nodes: tuple[MemoryNode, Turning, Turning],
) -> None:
    """Another thread learns of it while the transaction is open."""
    node, client, server = nodes
    server.turn(1)
    with pytest.raises(RemappedError), node.transaction():
        leg = node.create(Leg("n", 1))
        client.turn(1)
        leg.land()


def test_a_caller_that_knows_more_tells_the_active_node(nodes: tuple[MemoryNode, Turning, Turning]) -> None:
    node, client, server = nodes
    client.turn(1)
    with node.transaction():
        assert node.create(Leg("n", 1)).land() == 1
    assert (server.version, server.learnt) == (1, 1)


def test_a_mapping_that_changes_while_a_method_runs_here_is_a_conflict() -> None:
    backend = Turning(MemoryCluster())
    with (
        MemoryNode(backend, TYPES) as node,
        pytest.raises(ConflictError, match="the mapping has changed since"),
        node.transaction(),
    ):
        leg = node.create(Leg("n", 1))
        backend.turn(1)
        leg.land()


def test_a_method_does_not_go_by_a_route_of_an_older_mapping(nodes: tuple[MemoryNode, Turning, Turning]) -> None:
    """The active node has heard of the change, and remembers where it found the object before."""
    node, client, server = nodes
    with node.transaction():
        assert node.create(Leg("n", 1)).land() == 1
    moved = client.partition_of("Total", TYPES.info(Total).routing_key(("n",)))
    server.turn(1)
    client.turn(1)
    now = client.partition_of("Total", TYPES.info(Total).routing_key(("n",)))
    assert moved != now
    cluster = client.cluster
    cluster.partitions[now].objects, cluster.partitions[moved].objects = cluster.partitions[moved].objects, {}
    with node.transaction():
        assert node.create(Leg("n", 2)).land() == 2
