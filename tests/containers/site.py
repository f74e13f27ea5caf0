"""Three brokers and three ZooKeeper servers in containers, hurt and mended like the embedded site.

The nodes and clients of a test stay processes of this machine: they come in by loopback ports the containers publish,
the servers talk to each other in a network of their own. Ports are chosen once, so that a server that was killed comes
back where it was; its data is in its container.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"  # its image is in no registry we reach: remove_leftovers does it

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from testcontainers.core.container import DockerContainer
from testcontainers.core.image import DockerImage
from testcontainers.core.network import Network

from halog.embedded import ports, probe
from tests.containers.available import LABEL, base, remove_leftovers, run_name
from tests.integration.cluster.processes import wait
from tools import images

COUNT = 3
CLUSTER_ID = "aGFsb2ctY29udGFpbmVycw"
STARTS_S = 90.0
"""All six at once on two cores that do other things, too."""


@dataclass(frozen=True)
class SiteInfo:
    """Where clients on this machine connect to."""

    bootstrap: str
    zookeeper: str


class Member:
    """One server in its container."""

    def __init__(self, name: str, port: int, container: DockerContainer) -> None:
        self.name = name
        self.port = port
        self.container = container

    @property
    def state(self) -> str:
        """As Docker calls it: running, paused, exited."""
        wrapped = self.container.get_wrapped_container()
        wrapped.reload()
        return str(wrapped.status)

    def do(self, what: str, *states: str) -> None:
        """`docker WHAT`, if it is in one of these states."""
        if self.state in states:
            getattr(self.container.get_wrapped_container(), what)()

    def answers(self) -> bool:
        """In its own protocol; a ZooKeeper server that has no quorum does not."""
        if self.name.startswith("kafka"):
            return probe.kafka_answers(self.port, 2.0)
        return probe.zookeeper_answers(self.port, 2.0)

    def log(self, lines: int = 60) -> str:
        said: bytes = self.container.get_wrapped_container().logs(tail=lines)
        return said.decode(errors="replace")


class ContainerSite:
    """The site of `--site containers`. A server is named "kafka", "zookeeper" (all three), or "kafka2" (one)."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self._stack = ExitStack()

    # --- from nothing, to nothing ---

    def __enter__(self) -> SiteInfo:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> SiteInfo:
        """Builds the images, unless nothing changed, and brings all six up."""
        remove_leftovers()
        images.prepare(("kafka", "zookeeper"))
        try:
            network = self._stack.enter_context(Network(docker_network_kw={"labels": {LABEL: run_name()}}))
            for server in ("zookeeper", "kafka"):
                self._launch(server, network)
            self._await(list(self.members))
            self._warm()
        except BaseException:
            self.stop()
            raise
        return self.info

    def stop(self) -> None:
        """Containers, their data and their network are gone."""
        self._stack.close()
        self.members.clear()

    def _launch(self, server: str, network: Network) -> None:
        tag = f"halog-{server}:test"
        arguments: Any = {"buildargs": {"BASE": base(server)}}
        DockerImage(images.IMAGES / server, tag=tag, clean_up=False, **arguments).build()
        for number in range(1, COUNT + 1):
            name = f"{server}{number}"
            port = ports.pick({m.port for m in self.members.values()})
            container = DockerContainer(tag).with_network(network).with_network_aliases(name)
            container.with_envs(**_environment(server, number, port)).with_kwargs(
                labels={LABEL: run_name()},
                healthcheck={"test": ["NONE"]},  # each is a process in the container; this class looks itself
            )
            inside = "9094/tcp" if server == "kafka" else "2181/tcp"
            container.ports[inside] = ("127.0.0.1", port)  # type: ignore[assignment]  # docker-py takes an address, too
            self._stack.enter_context(container)
            self.members[name] = Member(name, port, container)

    # --- what a test sees ---

    @property
    def info(self) -> SiteInfo:
        return SiteInfo(self._addresses("kafka"), self._addresses("zookeeper"))

    def _addresses(self, server: str) -> str:
        return ",".join(f"127.0.0.1:{m.port}" for m in self.named(server))

    def named(self, server: str) -> list[Member]:
        """All of a kind, or the one of this name."""
        return [m for n, m in self.members.items() if n == server or n.rstrip("123") == server]

    def kill(self, server: str) -> None:
        """docker kill: SIGKILL, as a crash; it stays down until started."""
        self._each(server, "kill", "running", "paused")

    def start_server(self, server: str) -> None:
        """On the same port and data; returns when it answers. One that runs is left alone."""
        self._each(server, "start", "exited", "created")
        self._await([m.name for m in self.named(server)])

    def restart(self, server: str) -> None:
        """An orderly stop, then a start."""
        self._each(server, "stop", "running")
        self.start_server(server)

    def pause(self, server: str) -> None:
        """Alive, connected, silent."""
        self._each(server, "pause", "running")

    def resume(self, server: str) -> None:
        self._each(server, "unpause", "paused")

    def _each(self, server: str, what: str, *states: str) -> None:
        """At the same time: Docker takes half a second for one."""
        with ThreadPoolExecutor(COUNT) as pool:
            list(pool.map(lambda m: m.do(what, *states), self.named(server)))

    def zookeeper_leader(self) -> str:
        """The name of the server that leads the ensemble."""
        found: list[str] = []

        def led() -> bool:
            found[:] = [m.name for m in self.named("zookeeper") if "Mode: leader" in srvr(m)]
            return len(found) == 1

        wait(led, "one ZooKeeper server leads", STARTS_S)
        return found[0]

    def broker_leading(self, topic: str, index: int) -> str:
        """The name of the broker that leads a log partition."""
        metadata = self._admin().list_topics(topic, timeout=10)
        return f"kafka{metadata.topics[topic].partitions[index].leader}"

    def describe(self) -> dict[str, str]:
        """Each server's state and last lines, for the report of a failure."""
        return {name: f"{m.state}\n{m.log()}" for name, m in self.members.items()}

    # --- waiting ---

    def _await(self, names: list[str]) -> None:
        deadline = time.monotonic() + STARTS_S
        for name in names:
            member = self.members[name]
            _until(member.answers, deadline, lambda m=member: f"{m.name} does not answer: {m.state}\n{m.log()}")  # type: ignore[misc]
        if any(n.startswith("kafka") for n in names):
            running = [m for m in self.named("kafka") if m.state == "running"]
            _until(lambda: self._brokers() >= len(running), deadline, lambda: "a broker is not in the metadata")
            if len(running) == COUNT:
                _until(self.in_sync, deadline, lambda: "a broker does not catch up")

    def _warm(self) -> None:
        """Fresh brokers answer long before each of them has heard of the others: until all of them know the leaders of
        a topic with three copies, made for this, and gone again."""
        deadline, topic, admin = time.monotonic() + STARTS_S, "warm", self._admin()

        def known() -> bool:
            return all(self._knows(m, topic) for m in self.named("kafka"))

        admin.create_topics([NewTopic(topic, COUNT, COUNT)])[topic].result(STARTS_S)
        _until(known, deadline, lambda: "a broker does not know who leads a new topic")
        admin.delete_topics([topic])[topic].result(STARTS_S)

    def _knows(self, broker: Member, topic: str) -> bool:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}", "log_level": 0})
        try:
            found = admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
        except KafkaException:
            return False
        return len(found) == COUNT and all(p.leader >= 0 and len(p.isrs) == COUNT for p in found)

    def _admin(self) -> Any:
        return AdminClient({"bootstrap.servers": self.info.bootstrap, "log_level": 0})

    def _brokers(self) -> int:
        try:
            return len(self._admin().list_topics(timeout=5).brokers)
        except KafkaException:
            return 0

    def in_sync(self) -> bool:
        """Has every topic all its copies?"""
        try:
            topics = self._admin().list_topics(timeout=5).topics.values()
        except KafkaException:
            return False
        return all(sorted(p.isrs) == sorted(p.replicas) for t in topics for p in t.partitions.values())


def srvr(member: Member) -> str:
    """What a ZooKeeper server says of itself; nothing, if it is down."""
    import socket

    try:
        with socket.create_connection(("127.0.0.1", member.port), 2) as connection:
            connection.sendall(b"srvr")
            with connection.makefile("rb") as said:
                return said.read().decode(errors="replace")
    except OSError:
        return ""


def _environment(server: str, number: int, port: int) -> dict[str, str]:
    names = [f"{server}{n}" for n in range(1, COUNT + 1)]
    if server == "zookeeper":
        return {"MYID": str(number), "SERVERS": " ".join(names)}
    return {
        "NODE_ID": str(number),
        "NAME": names[number - 1],
        "OUTSIDE": f"127.0.0.1:{port}",
        "VOTERS": ",".join(f"{n}@{name}:9093" for n, name in enumerate(names, 1)),
        "CLUSTER_ID": CLUSTER_ID,
    }


def _until(condition: Callable[[], bool], deadline: float, what: Callable[[], str]) -> None:
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)
