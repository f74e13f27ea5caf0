"""A site and a cluster of real processes: the embedded Kafka and ZooKeeper, raw baselines, and halog nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.calm import Calm
from benchmarks.processes import Child
from halog.config import (
    ApplicationConfig,
    ClusterConfig,
    Config,
    NodeConfig,
    PolicyConfig,
    SiteConfig,
    SnapshotConfig,
    ZoneConfig,
)
from halog.config.security import NOTHING_SET, SecurityConfig
from halog.embedded import EmbeddedSite, SiteInfo

WAIT_S = 30.0
"""Longest wait for the cluster to be as a suite needs it; it takes one to three seconds."""

STAY_MS = 3_600_000
"""Longer than any run. The default has the planner's choice back half a minute later: in the middle of a case."""

RAW_TOPICS = ("raw.sync", "raw.async", "raw.bulk", "raw.failover", "raw.pause")


def wait_until(what: str, holds: Callable[[], bool], seconds: float = WAIT_S) -> None:
    """TimeoutError names what did not come true."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)


class Scene:
    """Everything a suite needs; `close` ends it all."""

    def __init__(self, directory: Path, *, switch_interval_ms: float = 0.0, patience: int = 1) -> None:
        self.directory = directory
        self.calm = Calm(patience)
        self.logs = directory / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.switch_interval_ms = switch_interval_ms
        self.children: dict[str, Child] = {}
        self._site = EmbeddedSite(directory / "site")
        self.info: SiteInfo = self._site.start()
        self._topics()

    def _topics(self) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.info.bootstrap})
        for future in admin.create_topics([NewTopic(t, 1, 1) for t in RAW_TOPICS]).values():
            future.result(10)

    def topic(self, name: str, *, flush: bool = False) -> None:
        """One more topic of the baselines; `flush`: each record is on the disk before it is acknowledged."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        config = {"flush.messages": "1"} if flush else {}
        admin = AdminClient({"bootstrap.servers": self.info.bootstrap})  # must outlive its request
        made = admin.create_topics([NewTopic(name, 1, 1, config=config)])
        made[name].result(10)

    # --- children ---

    def start(self, process: str, role: str, /, **args: Any) -> Child:
        """A child of the harness."""
        child = self.children[process] = Child(process, role, self.logs, args)
        return child

    def raw(self, name: str, topic: str) -> Child:
        """A client process of the baselines."""
        return self.start(name, "raw", bootstrap=self.info.bootstrap, topic=topic)

    def app(self, config: Path, name: str, process: str = "") -> Child:
        """An application process, not yet joined to its cluster: give it the command `open`."""
        return self.start(
            process or f"{config.stem}-{name}",
            "app",
            config=str(config),
            name=name,
            switch_interval_ms=self.switch_interval_ms,
        )

    def end(self, child: Child, *, kill: bool = False) -> None:
        """End one child."""
        self.children.pop(child.name, None)
        child.kill() if kill else child.stop()

    def end_all(self) -> None:
        """End all children, the clients first."""
        for child in reversed(list(self.children.values())):
            self.end(child)

    def close(self) -> None:
        """End children and servers."""
        for child in list(self.children.values()):
            child.kill()
        self.children.clear()
        self._site.stop()

    # --- clusters ---

    def cluster(
        self,
        name: str,
        nodes: str,
        bindings: dict[str, PolicyConfig],
        *,
        stays: bool = False,
        security: SecurityConfig = NOTHING_SET,
        **snapshot: int,
    ) -> Path:
        """A configuration file for a cluster of its own: one policy for each managed class. `stays`: who is made active
        stays so, though the planner would have spread these few partitions over the nodes."""
        config = Config(
            cluster=ClusterConfig(name),
            site=SiteConfig(bootstrap=self.info.bootstrap, zookeeper=self.info.zookeeper),
            application=ApplicationConfig(("benchmarks.model",)),
            zones={"zone": ZoneConfig(tuple(nodes))},
            policies={
                k.lower(): replace(p, zone="zone", min_stay_ms=STAY_MS if stays else None) for k, p in bindings.items()
            },
            bindings={k: k.lower() for k in bindings},
            nodes={n: NodeConfig(data_dir=self.directory / name / n) for n in nodes},
            snapshot=replace(SnapshotConfig(), **snapshot),
            security=security,
        )
        path = self.directory / f"{name}.toml"
        path.write_text(config.to_toml())
        return path

    def open(self, config: Path, names: str, client: str = "", copies: int = 0) -> dict[str, Child]:
        """Start nodes (and a client), and wait until every partition has its active and all its replicas: on every
        node, or so many copies."""
        children = {n: self.app(config, n) for n in [*names, *([client] if client else [])]}
        for child in children.values():
            child.command("open")
        for child in children.values():
            child.heard()
        wait_until("the cluster is complete", lambda: complete(children[names[0]].ask("state"), copies or len(names)))
        return children


def complete(state: dict[str, Any], copies: int) -> bool:
    """Every partition has an active node and so many in its node list with it."""
    return all(t["active"] and len(t["replicas"]) == copies - 1 for t in state.values())
