"""This module holds everything that runs during the demo: the site, the node processes, the client, and the demo's own
node.

It knows nothing of faults and verdicts.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from pathlib import Path

import msgspec

import halog
from halog.config import Config
from halog.demo import cluster
from halog.demo.client import ReplayOrder
from halog.demo.client_reports import ClientReports
from halog.demo.options import Options
from halog.demo.processes import Child, stop_all, undivided, uninterrupted
from halog.demo.scene import NodeScene, Scene
from halog.demo.staging import GRACE_S, UP_S, Staging, node_command
from halog.demo.watch import ClusterWatch, is_up
from halog.embedded import EmbeddedSite
from halog.embedded.progress import Progress
from halog.errors import HalogError
from halog.metadata import config_versions as versions
from halog.ports import Coordinator
from halog.runtime.node.open import RunningNode

STALL_S = 90.0
"""A client that has finished no row for so long is stuck: this is longer than it tries a single one."""


class Stage(Staging):
    """A `Stage` runs the site, the nodes and the client of one run."""

    def __init__(self, options: Options, scene: Scene, progress: Progress) -> None:
        super().__init__(options.data_dir, scene)
        self.options = options
        self.scene = scene
        self.site = EmbeddedSite(self.base / "site", progress=progress)
        self.nodes: dict[str, Child] = {}
        self.wounded: set[str] = set()
        """Nodes whose end or silence is the demo's own doing."""
        self.reports: ClientReports | None = None
        self.node: RunningNode
        self.watch: ClusterWatch

    # --- life ---

    def _has_begun(self) -> bool:
        return bool(self.nodes)

    def _open(self) -> None:
        self.scene.phase = "starting Kafka and ZooKeeper"
        info = self.site.start()
        self.scene.tell(f"Kafka answered after {info.kafka_ms:,} ms, ZooKeeper after {info.zookeeper_ms:,} ms")
        self.run_dir.mkdir(mode=0o700)
        self.config = cluster.make_config(info, self.run_dir, self.run_dir.name, self.options.partitions)
        self.config_path = cluster.write_config(self.config, self.run_dir / "halog.toml")
        self.scene.phase = "starting three nodes"
        for name in cluster.NODES:
            self.start_node(name)
        self.node = halog.node(self.config, name="demo")
        self.watch = ClusterWatch(self.node.runtime.router)
        for name in cluster.NODES:
            self.watch.add(name)
        self.wait("all partitions to be active with all replicas", self._complete, UP_S)
        self.scene.tell(f"three nodes serve {self.options.partitions} partitions, each active, sync and async replica")

    def close(self) -> None:
        """End everything of this run."""
        with uninterrupted():
            if hasattr(self, "watch"):
                self.watch.close()
            client = [self.reports.child] if self.reports is not None else []
            stop_all([*client, *self.nodes.values()], GRACE_S)
            if hasattr(self, "node"):
                with contextlib.suppress(HalogError):
                    self.node.close()
            self.site.stop()
            if not self.keep:
                shutil.rmtree(self.base, ignore_errors=True)

    # --- processes ---

    def start_node(self, name: str) -> Child:
        """Start a node process, or start it again on its data."""
        with undivided():
            child = self.nodes[name] = Child(name, node_command(self.config_path, name), self.run_dir)
        self.scene.nodes[name] = NodeScene("starting", child.pid)
        if hasattr(self, "watch") and name not in self.watch.latest:
            self.watch.add(name)
        return child

    def end_node(self, name: str, limit_s: float) -> None:
        """Send SIGTERM to a node that hosts nothing, and wait until it has ended in order; HalogError otherwise."""
        child = self.nodes[name]
        self.wounded.add(name)
        self.scene.nodes[name].state = "left"
        self.watch.forget(name)
        child.signal(signal.SIGTERM)
        self.wait(f"node {name} to end", lambda: not child.running, limit_s)
        if code := child.exit_code():
            raise HalogError(f"node {name} ended with exit code {code}: {child.last_words()}; see {child.log}")

    def start_client(self, flights: Path, allowed: int, sabotaged: int) -> None:
        """Start the client process."""
        order = ReplayOrder(
            config=str(self.config_path),
            flights=str(flights),
            journal=str(self.journal("client")),
            rows=self.options.rows,
            allowed=allowed,
            sabotaged=sabotaged,
        )
        argv = ["halog.demo.client", msgspec.json.encode(order).decode()]
        with undivided():
            child = Child("client", argv, self.run_dir, pipes=True)
            self.reports = ClientReports(child, self.scene, stall_s=STALL_S)

    def activate(self, config: Config, why: str) -> None:
        """Make this the cluster's configuration, as `halog config activate` does, and the file of nodes that start
        later."""
        draft = versions.Draft(time.time_ns() // 1_000_000, "the demo", str(self.config_path), why, config)
        versions.activate(self.coordinator, versions.read(self.coordinator), draft)
        self.config = config
        cluster.write_config(config, self.config_path)

    @property
    def coordinator(self) -> Coordinator:
        """Return the site's coordinator."""
        return self.node.runtime.adapters.coordinator

    def allow(self, rows: int) -> None:
        """Let the client go on to this row."""
        assert self.reports is not None
        self.reports.child.tell(f"allow {rows}")

    # --- waiting ---

    def pause(self, seconds: float) -> None:
        """Let time pass, and notice a child that ends meanwhile."""
        until = time.monotonic() + seconds
        self.wait("time", lambda: time.monotonic() >= until)

    def _look(self) -> None:
        for name, child in self.nodes.items():
            if name not in self.wounded:
                child.check()
        if self.reports is not None:
            self.reports.check()
        if hasattr(self, "watch"):
            self._update()

    def _update(self) -> None:
        tables = self.watch.tables.values()
        for name, seen in self.scene.nodes.items():
            status = self.watch.latest.get(name)
            seen.pid = self.nodes[name].pid
            seen.active = sum(t.active is not None and t.active.node == name for t in tables)
            seen.replicas = sum(any(r.node == name for r in t.replicas) for t in tables)
            seen.lag = status.lag if status is not None else 0
            if name not in self.wounded:
                seen.state = "up" if status is not None else "silent"

    # --- conditions ---

    def _complete(self) -> bool:
        return self.is_whole() and all(self.is_up(n) for n in self.nodes)

    def is_whole(self) -> bool:
        """Say whether every partition is where it belongs, with all its copies in the node list."""
        tables = self.watch.tables.values()
        return bool(tables) and all(t.target is None and len(t.node_list) == len(t.configured) for t in tables)

    def is_up(self, name: str) -> bool:
        """Say whether this very process answers, with all its copies."""
        return is_up(self.watch.latest[name], self.nodes[name].pid, self.watch.hosted(name))

    def answers_up(self, name: str) -> bool:
        """Say the same, asked now."""
        self.watch.latest[name] = status = self.watch.ask(name)
        return is_up(status, self.nodes[name].pid, self.watch.hosted(name))

    def is_back(self, name: str) -> bool:
        """Is the node up, in every node list, level, and active for nothing except what the tables give it?"""
        if not self.watch.in_every_list(name) or not self.answers_up(name):
            return False
        status = self.watch.latest[name]
        if status is None or status.lag > 0 or status.failed is not None:
            return False
        return status.leads() <= set(self.watch.led_by(name))
