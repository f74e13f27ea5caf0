"""Everything that runs while two sites part and come together: servers, lines, nodes, clients, commands.

Knows nothing of cuts and verdicts.
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
from halog.demo.options import Options
from halog.demo.processes import Child, stop_all, undivided, uninterrupted
from halog.demo.scene import NodeScene
from halog.demo.split.scene import SplitScene
from halog.demo.split.sites import NAMES, Sites, nodes_of
from halog.demo.split.steps import EAST, WEST
from halog.demo.split.traffic import Order
from halog.demo.staging import GRACE_S, UP_S, Staging
from halog.demo.watch import NodeStatus, Watch, is_up, uneven
from halog.embedded.progress import Progress
from halog.errors import HalogError
from halog.ports import Coordinator
from halog.runtime.node.open import Node

COMMAND_S = 120.0
"""An operator's command takes some seconds; a loaded machine may need ten times that."""


class Reports:
    """What a client says, read on a thread of its own."""

    def __init__(self, child: Child, scene: SplitScene, site: str) -> None:
        self.child = child
        self._scene = scene.sites[site]
        self.done = False
        self.error = ""
        self.first: float | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self.child.said:
            said = json.loads(line)
            if "error" in said:
                self.error = said["error"]
                continue
            self.first = said["first"]
            self._scene.progress(said, time.monotonic())
            self.done = said.get("done", False)

    def check(self) -> None:
        """HalogError if the client will never be done."""
        if not self.done and not self.child.alive:
            self._thread.join(1.0)
            if not self.done:
                raise HalogError(f"the {self.child.name} ended early: {self.error or self.child.last_words()}")


class Ran(NamedTuple):
    """What became of a command; `said` is its document, None if it said none."""

    code: int
    said: Any
    log: Path


class Stage(Staging):
    """See the module."""

    def __init__(self, options: Options, scene: SplitScene, progress: Progress) -> None:
        super().__init__(options.data_dir, scene)
        self.options = options
        self.scene = scene
        self.sites = Sites(self.base / "sites", progress)
        self.children: dict[str, Child] = {}
        self.reports: dict[str, Reports] = {}
        self.configs: dict[str, Path] = {}
        self.nodes: dict[str, Node] = {}
        """The demo's own, one at each site: they host nothing."""
        self.watches: dict[str, Watch] = {}
        self._commands = 0
        self._passing = ""
        """The child that may end by itself."""

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
            argv = ["halog.cli.main", "node", "start", "--config", str(self.configs[site]), "--name", name]
            child = self._child(name, [*argv, "--log-level", "info"])
            self.scene.sites[site].nodes[name] = NodeScene("starting", child.pid)
        self.nodes[site] = halog.node(self.configs[site], name=f"{site}-demo")
        watch = self.watches[site] = Watch(self.nodes[site].runtime.router)
        for name in nodes_of(site):
            watch.add(name)
        self.wait(f"{site}'s nodes", lambda: self._is_up(site), UP_S)

    def _is_up(self, site: str) -> bool:
        partitions, watch = self.options.partitions, self.watches[site]
        return all(is_up(watch.latest[n], self.children[n].pid, partitions) for n in nodes_of(site))

    def close(self) -> None:
        """Nothing of this run is alive afterwards."""
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
        order = Order(
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
            self.reports[site] = Reports(child, self.scene, site)

    def journal(self, site: str) -> Path:
        """Where a client's journal is kept."""
        return self.run_dir / f"{site}.journal"

    def allow(self, site: str, steps: int) -> None:
        """Let a client go on to this step."""
        self.reports[site].child.tell(f"allow {steps}")

    def command(self, site: str, *words: str, meanwhile: Callable[[], object] = lambda: None) -> Ran:
        """`halog …` with a site's configuration, as an operator there runs it."""
        self._commands += 1
        name = f"halog-{self._commands}-{'-'.join(w.strip('-') for w in words[:2])}"
        argv = ["halog.cli.main", *words, "--config", str(self.configs[site]), "--format", "json"]
        child, heard = self._child(name, argv, pipes=True), list[bytes]()
        reader = threading.Thread(target=lambda: heard.append(child.said.read()), daemon=True)
        reader.start()

        def ended() -> bool:
            meanwhile()
            return not child.alive

        self._passing = name
        try:
            self.wait(f"`halog {' '.join(words)}` at {site}", ended, COMMAND_S)
        finally:
            self._passing = ""
            if not child.alive:
                reader.join(COMMAND_S)
                child.finish(time.monotonic())
                del self.children[name]
        out = b"".join(heard)
        return Ran(child.exit_code or 0, json.loads(out) if out.strip() else None, child.log)

    def must(self, site: str, *words: str, meanwhile: Callable[[], object] = lambda: None) -> Any:
        """The document of a command that has to succeed."""
        ran = self.command(site, *words, meanwhile=meanwhile)
        if ran.code != 0:
            why = ran.log.read_text(errors="replace").strip().splitlines()[-1:] or [f"it said {ran.said}"]
            raise HalogError(f"`halog {' '.join(words)}` at {site} ended with exit code {ran.code}: {why[0][:300]}")
        return ran.said

    # --- looking ---

    def _look(self) -> None:
        for name, child in self.children.items():
            if not child.alive and name != self._passing:
                raise HalogError(
                    f"{name} ended unasked (exit code {child.exit_code}): {child.last_words()}; see {child.log}"
                )
        for reports in self.reports.values():
            reports.check()
        for site, watch in self.watches.items():
            self._update(site, watch)

    def _update(self, site: str, watch: Watch) -> None:
        self.scene.serves[site] = sum(not t.owner and t.active is not None for t in watch.tables.values())
        self.scene.sites[site].nodes = {
            name: NodeScene("up" if status else "silent", self.children[name].pid, lag=status.lag if status else 0)
            for name, status in watch.latest.items()
        }

    # --- what is there ---

    @property
    def partitions(self) -> list[str]:
        """All of them, by name."""
        return list(self.watches[WEST].tables)

    def coordinator(self, site: str) -> Coordinator:
        """A site's."""
        return self.nodes[site].runtime.adapters.coordinator

    def asked(self) -> Mapping[str, NodeStatus | None]:
        """How each node of both sites is now."""
        return {name: watch.ask(name) for watch in self.watches.values() for name in watch.latest}

    def level(self) -> bool:
        """Are all copies of both sites the same history, to the same record?"""
        return not uneven(self.asked(), self.partitions)

    def east_serves(self) -> bool:
        """All that there is."""
        tables = self.watches[EAST].tables.values()
        return all(not t.owner and t.active is not None for t in tables)
