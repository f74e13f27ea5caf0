"""A cluster whose every connection goes through a link of its own: node to node, each way, and each process's Kafka and
ZooKeeper. So any of them can be cut, one way or both, for one process alone.

Nodes tell each other their addresses through ZooKeeper, and the broker tells its own in its metadata. Links rewrite
both on the way back, each process's for itself; the addresses have the same length, so frames keep theirs.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import halog
from halog.runtime.node.open import RunningNode
from tests.faults.links import LENGTH, Link, Way, kafka_request, zookeeper_request
from tests.integration.cluster.harness import Cluster

CLIENT = "client-in-mesh"


class Mesh:
    """Nodes of `cluster` and one client."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.names = [*cluster.nodes, CLIENT]
        self.ports = {n: free_port() for n in cluster.nodes}
        site = cluster.site
        self.channel = {(x, y): self._channel(y) for x in self.names for y in cluster.nodes if x != y}
        self.zookeeper = {
            x: Link(lambda: site.info.zookeeper, named=zookeeper_request, edit=self._addresses(x)) for x in self.names
        }
        self.kafka = {x: self._kafka() for x in self.names}
        self._client: RunningNode | None = None

    # --- the way there ---

    def _channel(self, to: str) -> Link:
        return Link(lambda: f"127.0.0.1:{self.ports[to]}")

    def _kafka(self) -> Link:
        site = self.cluster.site
        link: Link

        def edit(frame: bytes) -> bytes:
            real = int(site.info.bootstrap.rpartition(":")[2])
            return frame.replace(b"127.0.0.1" + LENGTH.pack(real), b"127.0.0.1" + LENGTH.pack(link.port))

        link = Link(lambda: site.info.bootstrap, named=kafka_request, edit=edit)
        return link

    def _addresses(self, reader: str) -> Callable[[bytes], bytes]:
        def edit(frame: bytes) -> bytes:
            for name, port in self.ports.items():
                if name != reader:
                    seen = self.channel[reader, name].port
                    frame = frame.replace(b"127.0.0.1:%d" % port, b"127.0.0.1:%d" % seen)
            return frame

        return edit

    def toml(self, name: str) -> Path:
        """The configuration as this process has it."""
        path = self.cluster.configuration(
            f"mesh-{name}.toml", bootstrap=self.kafka[name].address, zookeeper=self.zookeeper[name].address
        )
        text = path.read_text()
        for node, port in self.ports.items():
            text = text.replace(f'data_dir = "{node}"', f'data_dir = "{node}"\naddress = "127.0.0.1:{port}"')
        path.write_text(text)
        return path

    # --- life ---

    def start(self) -> None:
        for name in self.cluster.nodes:
            self.cluster.launch(name, self.toml(name))
        for name in self.cluster.nodes:
            self.cluster.processes[name].ready()
        self.cluster.whole()

    def whole(self) -> None:
        """All links are open and every node list is complete."""
        self.heal()
        self.cluster.whole()

    @property
    def client(self) -> RunningNode:
        if self._client is None:
            self._client = halog.node(self.toml(CLIENT), name=CLIENT)
        return self._client

    def close(self) -> None:
        self.heal()
        if self._client is not None:
            self._client.close()
        for link in self.links():
            link.close()

    # --- faults ---

    def links(self) -> list[Link]:
        return [*self.channel.values(), *self.zookeeper.values(), *self.kafka.values()]

    def between(self, x: str, y: str) -> list[Link]:
        """Both connections between two nodes."""
        return [self.channel[pair] for pair in ((x, y), (y, x)) if pair in self.channel]

    def around(self, x: str) -> list[Link]:
        """All connections from and to one node, its servers' included."""
        peers = [link for pair, link in self.channel.items() if x in pair]
        return [*peers, self.zookeeper[x], self.kafka[x]]

    def silence(self, x: str, y: str) -> None:
        """Nothing x says reaches y; what y says reaches x. (One way for packets would be two for TCP.)"""
        self.channel[x, y].hold(Way.OUT)
        if (y, x) in self.channel:
            self.channel[y, x].hold(Way.BACK)

    def heal(self) -> None:
        for link in self.links():
            link.heal()


def free_port() -> int:
    """One that nobody listens at, below those the kernel hands out to whoever connects; five digits, as those have, so
    that addresses are equally long."""
    while True:
        port = random.randint(12_000, 29_999)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
