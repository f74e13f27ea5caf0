"""This module holds everything that runs while two sites part and come together: servers, lines, nodes, clients,
commands.

It knows nothing of cuts and verdicts.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import halog
from halog.demo import cluster
from halog.demo.client_reports import ClientReports
from halog.demo.options import Options
from halog.demo.processes import Child, stop_all, undivided, uninterrupted
from halog.demo.scene import NodeScene
from halog.demo.split.scene import SplitScene
from halog.demo.split.sites import NAMES, SplitSites, nodes_of
from halog.demo.split.steps import WEST
from halog.demo.split.traffic import TrafficOrder
from halog.demo.staging import GRACE_S, UP_S, Staging, node_command
from halog.demo.watch import ClusterWatch, NodeStatus, is_up, uneven
from halog.embedded.progress import Progress
from halog.errors import HalogError
from halog.ports import Coordinator
from halog.runtime.node.open import RunningNode

COMMAND_S = 120.0
"""An operator's command takes some seconds; a loaded machine may need ten times that."""


class CommandResult(NamedTuple):
    """Holds how a command ended; `said` is its document, None if it printed none."""

    code: int
    said: Any
    log: Path


class SplitStage(Staging):
    """A `SplitStage` runs the servers, nodes and clients of one run."""

    def __init__(self, options: Options, scene: SplitScene, progress: Progress) -> None:
        super().__init__(options.data_dir, scene)
        self.options = options
        self.scene = scene
        self.sites = SplitSites(self.base / "sites", progress)
        self.children: dict[str, Child] = {}
        self.reports: dict[str, ClientReports] = {}
        self.configs: dict[str, Path] = {}
        self.nodes: dict[str, RunningNode] = {}
        """The demo's own nodes, one at each site: they host nothing."""
        self.watches: dict[str, ClusterWatch] = {}
        self._commands = 0
        self._passing = ""
        """The child that may end by itself: a command."""

    # --- life ---

    def _has_begun(self) -> bool:
        return bool(self.children)

    def _open(self) -> None:
        self.scene.phase = "starting two sites, each with a Kafka and a ZooKeeper"
        self.sites.start()
        self.run_dir.mkdir(mode=0o700)
        slowest = max(max(info.kafka_ms, info.zookeeper_ms) for info in self.sites.infos.values())
        self.scene.tell(f"Kafka and ZooKeeper of both sites answered after {slowest:,} ms")
        for site in NAMES:
            config = self.sites.config(site, self.run_dir, self.run_dir.name, self.options.partitions)
            self.configs[site] = cluster.write_config(config, self.run_dir / f"{site}.toml")
        for site in NAMES:  # the home first: the others ask it for the partitions' log ids
            self._open_site(site)
        self.wait("east to mirror everything", self.level, UP_S)
        self.scene.tell(f"west serves {self.options.partitions} partitions, east mirrors them; each has two copies")

    def _open_site(self, site: str) -> None:
        self.scene.phase = f"starting {site}'s nodes"
        for name in nodes_of(site):
            child = self._child(name, node_command(self.configs[site], name))
            self.scene.sites[site].nodes[name] = NodeScene("starting", child.pid)
        self.nodes[site] = halog.node(self.configs[site], name=f"{site}-demo")
        watch = self.watches[site] = ClusterWatch(self.nodes[site].runtime.router)
        for name in nodes_of(site):
            watch.add(name)
        self.wait(f"{site}'s nodes", lambda: self._is_up(site), UP_S)

    def _is_up(self, site: str) -> bool:
        partitions, watch = self.options.partitions, self.watches[site]
        return all(is_up(watch.latest[n], self.children[n].pid, partitions) for n in nodes_of(site))

    def close(self) -> None:
        """End everything of this run."""
        with uninterrupted():
            for watch in self.watches.values():
                watch.close()
            stop_all([*(r.child for r in self.reports.values()), *self.children.values()], GRACE_S)
            for node in self.nodes.values():
                with contextlib.suppress(HalogError):
                    node.close()
            self.sites.stop()
            if not self.keep:
                shutil.rmtree(self.base, ignore_errors=True)

    # --- processes ---

    def _child(self, name: str, argv: list[str], *, pipes: bool = False) -> Child:
        with undivided():
            child = self.children[name] = Child(name, argv, self.run_dir, pipes=pipes)
        return child

    def start_client(self, site: str, flights: Path, sabotaged: int) -> None:
        """Start a site's client; it waits at its gate."""
        order = TrafficOrder(
            site,
            str(self.configs[site]),
            str(flights),
            str(self.journal(site)),
            self.options.rows,
            self.options.seed,
            sabotaged,
        )
        argv = ["halog.demo.split.traffic", msgspec.json.encode(order).decode()]
        with undivided():
            child = Child(f"{site}-client", argv, self.run_dir, pipes=True)
            self.reports[site] = ClientReports(child, self.scene.sites[site])

    def allow(self, site: str, steps: int) -> None:
        """Let a client go on to this step."""
        self.reports[site].child.tell(f"allow {steps}")

    def command(self, site: str, *words: str, meanwhile: Callable[[], object] = lambda: None) -> CommandResult:
        """Run `halog …` with a site's configuration, as an operator there runs it."""
        self._commands += 1
        name = f"halog-{self._commands}-{'-'.join(w.strip('-') for w in words[:2])}"
        argv = ["halog.cli.main", *words, "--config", str(self.configs[site]), "--format", "json"]
        child, heard = self._child(name, argv, pipes=True), list[bytes]()
        reader = threading.Thread(target=lambda: heard.append(child.said.read()), daemon=True)
        reader.start()

        def ended() -> bool:
            meanwhile()
            return not child.running

        self._passing = name
        try:
            self.wait(f"`halog {' '.join(words)}` at {site}", ended, COMMAND_S)
        finally:
            self._passing = ""
            if not child.running:
                reader.join(COMMAND_S)
                child.finish(time.monotonic())
                del self.children[name]
        out = b"".join(heard)
        return CommandResult(child.exit_code(), json.loads(out) if out.strip() else None, child.log)

    def must(self, site: str, *words: str, meanwhile: Callable[[], object] = lambda: None) -> Any:
        """Run a command that has to succeed; return its document."""
        ran = self.command(site, *words, meanwhile=meanwhile)
        if ran.code != 0:
            why = ran.log.read_text(errors="replace").strip().splitlines()[-1:] or [f"it said {ran.said}"]
            raise HalogError(f"`halog {' '.join(words)}` at {site} ended with exit code {ran.code}: {why[0][:300]}")
        return ran.said

    # --- looking ---

    def _look(self) -> None:
        for name, child in self.children.items():
            if name != self._passing:
                child.check()
        for reports in self.reports.values():
            reports.check()
        for site, watch in self.watches.items():
            self._update(site, watch)

    def _update(self, site: str, watch: ClusterWatch) -> None:
        self.scene.serves[site] = sum(not t.owner and t.active is not None for t in watch.tables.values())
        self.scene.sites[site].nodes = {
            name: NodeScene("up" if status else "silent", self.children[name].pid, lag=status.lag if status else 0)
            for name, status in watch.latest.items()
        }

    # --- what is there ---

    @property
    def partitions(self) -> list[str]:
        """Return the names of all partitions."""
        return list(self.watches[WEST].tables)

    def coordinator(self, site: str) -> Coordinator:
        """Return a site's coordinator."""
        return self.nodes[site].runtime.adapters.coordinator

    def asked(self) -> Mapping[str, NodeStatus | None]:
        """Ask each node of both sites for its status now."""
        return {name: watch.ask(name) for watch in self.watches.values() for name in watch.latest}

    def level(self) -> bool:
        """Are all copies of both sites the same history, to the same record?"""
        return not uneven(self.asked(), self.partitions)
