"""Names taken twice, sizes beyond the limit, and bytes from somebody who is no halog: refused, and nothing changes."""

from __future__ import annotations

import os
import socket
import struct

import pytest
from confluent_kafka import Producer

from halog.errors import RecordTooLargeError
from halog.runtime.rpc import frames
from tests.faults.clients import Clients
from tests.faults.conftest import MODULE
from tests.faults.history import Outcome
from tests.faults.judge import judge
from tests.faults.scene import SERVES_AGAIN_S, active, complete, epochs
from tests.faults.things import Blob, BurstError, Counter
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import Process, wait

pytestmark = [pytest.mark.timeout(180), pytest.mark.feature("N1", "R8", "N5")]


@pytest.mark.promise(8)
def test_a_node_name_is_taken_twice(cluster: Cluster) -> None:
    """A second node of the active's name, on another data directory: it is refused, and the first goes on."""
    name = active(cluster)
    with Clients(cluster.client(), "twin") as clients:
        before, runs = epochs(cluster), cluster.registered()
        toml = cluster.configuration("twin.toml")
        toml.write_text(toml.read_text().replace(f'data_dir = "{name}"', 'data_dir = "twin"'))
        argv = ["halog.cli.main", "node", "start", "--config", str(toml), "--name", name]
        twin = Process("twin", cluster.directory, argv)
        cluster.helpers.append(twin)
        assert twin.exit_code() != 0
        assert f"a node named {name} is running already" in twin.last_words()
        clients.flows(SERVES_AGAIN_S)
        assert (epochs(cluster), cluster.registered()) == (before, runs)
    assert clients.told(Outcome.UNKNOWN) == []
    judge(cluster, clients)


@pytest.mark.promise(2)
def test_nodes_of_the_same_names_in_another_cluster(cluster: Cluster, make: Make) -> None:
    """Two clusters on the same servers, their nodes called alike: neither sees the other, nor its losses."""
    other = make(nodes="AB", partitions=2, async_=0, module=MODULE)
    other.start()
    other.whole()
    with Clients(cluster.client(), "one") as here, Clients(other.client(), "two") as there:
        before = epochs(other)
        cluster.kill("A")
        here.flows(SERVES_AGAIN_S)
        there.flows(SERVES_AGAIN_S)
        assert epochs(other) == before
        cluster.start("A")
        complete(cluster)
    judge(cluster, here)
    judge(other, there)


@pytest.mark.promise(8)
@pytest.mark.quick_fault
def test_a_record_beyond_the_limit(cluster: Cluster) -> None:
    """5.1 MB are refused by name while others commit, and leave no trace, and so is an object of more than half of the
    limit; 4.9 MB pass."""
    node = cluster.client()
    with Clients(node, "large") as clients:
        group = clients.groups["p-0"]
        for _ in range(3):
            for size in (5_100_000, 2_600_000):
                with pytest.raises(RecordTooLargeError, match="Blob"), node.transaction():
                    node.create(Blob(group=group, name="too large", data=os.urandom(size)))
        with node.transaction():
            node.create(Blob(group=group, name="large", data=os.urandom(2_450_000)))
            node.create(Blob(group=group, name="as large", data=os.urandom(2_450_000)))
        with node.transaction():
            assert node.find(Blob, group, "too large") is None
        clients.flows(SERVES_AGAIN_S)
        with node.transaction():
            node.delete(node.get(Blob, group, "large"))
            node.delete(node.get(Blob, group, "as large"))
    assert clients.told(Outcome.UNKNOWN) == []
    judge(cluster, clients)


@pytest.mark.promise(5)
def test_a_method_that_raises_after_it_changed_something(cluster: Cluster) -> None:
    """On the active node, while others commit to the same objects: the caller gets its exception, nobody its change."""
    node = cluster.client()
    with Clients(node, "burst") as clients:
        for group in clients.groups.values():
            with node.transaction():
                node.create(Counter(group=group, name="burst", value=1))
            for _ in range(5):
                with pytest.raises(BurstError, match="at 1001"), node.transaction():
                    node.get(Counter, group, "burst").burst(1000)
            with node.transaction():
                assert node.get(Counter, group, "burst").add(1) == 2
        clients.flows(SERVES_AGAIN_S)
    judge(cluster, clients)


NEST = b"\x91" * 200_000
"""MessagePack arrays in arrays."""


@pytest.mark.promise(8)
@pytest.mark.quick_fault
def test_bytes_of_a_stranger_on_the_node_channel(cluster: Cluster) -> None:
    """Rubbish, huge lengths, bombs, half frames, another cluster's greeting: connections end, and nobody is deposed."""
    name = active(cluster)
    router = cluster.client().runtime.router
    wait(lambda: name in router.nodes, f"{name} is known")
    host, _, port = router.nodes[name].address.rpartition(":")
    hello = framed(frames.encode(frames.Hello(cluster.name, "stranger", 1)))
    foreign = framed(frames.encode(frames.Hello("another-cluster", "A", 1)))
    said = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 4096,
        struct.pack(">I", 0xFFFFFFFF),
        framed(b""),
        framed(NEST),
        hello + framed(NEST),
        hello + framed(os.urandom(5_000)),
        hello + struct.pack(">I", 15_000_000) + b"half",
        foreign + framed(frames.encode(frames.StatusRequest())),
        framed(frames.encode(frames.StatusRequest())),
    ]
    with Clients(cluster.client(), "stranger") as clients:
        before = epochs(cluster)
        kept = []
        for data in said * 5:
            stranger = socket.create_connection((host, int(port)), 5)
            stranger.sendall(data)
            kept.append(stranger)
        clients.flows(SERVES_AGAIN_S)
        with socket.create_connection((host, int(port)), 5) as stranger:
            stranger.settimeout(5)
            stranger.sendall(foreign + framed(frames.encode(frames.StatusRequest())))
            with stranger.makefile("rb") as heard:
                told = frames.decode_reply(heard.read(int.from_bytes(heard.read(4), "big")))
                assert isinstance(told, frames.ErrorReply)
                assert "it belongs to cluster 'another-cluster'" in told.message
                assert heard.read() == b"", "another cluster's node is told why it is refused, and nothing else"
        for stranger in kept:
            stranger.close()
        clients.flows(SERVES_AGAIN_S)
        assert epochs(cluster) == before
    assert clients.told(Outcome.UNKNOWN) == []
    judge(cluster, clients)


def framed(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


@pytest.mark.promise(8)
def test_hostile_definitions_in_the_schemas_topic(cluster: Cluster) -> None:
    """A foreign producer's rubbish, a nesting bomb, a million fields: nodes that start read past them and serve."""
    producer = Producer({"bootstrap.servers": cluster.site.info.bootstrap, "message.max.bytes": 6_000_000})
    fields = b",".join(b'{"name":"f%d","type":"int"}' % n for n in range(100_000))
    for n, data in enumerate(
        (
            b"rubbish",
            b"[" * 100_000,
            b'{"name":' * 50_000,
            b"{}",
            b"[]",
            b'{"name":"X","fields":[' + fields + b"]}",
        )
    ):
        producer.produce(f"{cluster.name}.schemas", data, key=n.to_bytes(8, "big"))
    producer.produce(f"{cluster.name}.schemas", b"no type id", key=b"?")
    assert producer.flush(20) == 0
    victim = active(cluster)
    with Clients(cluster.client(), "schemas") as clients:
        cluster.kill(victim)
        cluster.start([victim])
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(cluster, clients)
