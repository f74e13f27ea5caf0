"""This module runs a cluster in one process, for applications' tests (X5): the real runtime over memory adapters, with
kill and pause.

The nodes elect, replicate and fail over as in production; only the log, the coordinator and the disks are in memory.
Time is real, so a test waits for the same few hundred milliseconds an operator would.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from halog.adapters.memory import (
    MemoryBroker,
    MemoryChannel,
    MemoryCoordinator,
    MemoryDisk,
    MemoryLog,
    MemoryStore,
    MemoryTree,
)
from halog.config import (
    ApplicationConfig,
    ClusterConfig,
    Config,
    NodeConfig,
    PolicyConfig,
    RemoteSiteConfig,
    SiteConfig,
    TimingConfig,
    ZoneConfig,
)
from halog.core.roles import Role
from halog.core.table.table import PartitionTable
from halog.errors import UnreachableError
from halog.runtime.node.open import RunningNode, open_node
from halog.runtime.node.paces import PACES, Paces
from halog.runtime.support.adapters import Adapters, SiteAccess
from halog.schema.registry import DEFAULT, Registry
from halog.testing.gate import Gate, GatedPort
from halog.transactions.node import Node as Verbs

SILENT_MS: Final = 2_000
"""All nodes share one interpreter, so a busy machine stops them for longer than one of their own. A node that is killed
is noticed by its connections, at once."""
WAIT_S: Final = 60.0
"""Whatever a cluster does by itself takes it under two seconds, or thirty times that on a busy machine. A test that
waits longer has failed."""


class NodeHandle(msgspec.Struct):
    """Holds a running node with what it takes to kill or pause it."""

    node: RunningNode
    gate: Gate
    coordinator: MemoryCoordinator
    channel: MemoryChannel
    paused: bool = False


class Cluster:
    """A `Cluster` runs `nodes` nodes named A, B, C, …, and any number of clients, in this process. Close it, or use it
    in a with-block.

    `partitions`, `sync_replicas`, `remote_sync`, `quorum`, `lease_ttl_ms`: as in a policy. `registry`: the declared
    types. `modules`: application modules whose exceptions may cross nodes.

    With `site` it is one site of a larger cluster, and its nodes are named after it. `home`: another running one, where
    all partitions begin, and which is mirrored here (M5). `others`: names of sites that it may `see` later. `requests`:
    do requests go to those sites? `homes`: types that begin at other sites than `home`; each gets a policy of its own,
    named after it. `sync_sites`, `sync_site_away`, `takeover` and the keys beside them hold for all these policies.
    `votes`: of sites that do not have one each. `paces`: how often nodes look at what they do by themselves.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        partitions: int = 12,
        sync_replicas: int = 1,
        remote_sync: str = "NO_SYNC",
        quorum: bool = False,
        lease_ttl_ms: int = 0,
        registry: Registry = DEFAULT,
        modules: tuple[str, ...] = (),
        site: str = "",
        home: Cluster | None = None,
        others: tuple[str, ...] = (),
        requests: bool = True,
        homes: Mapping[str, str] = MappingProxyType({}),
        sync_sites: tuple[str, ...] = (),
        sync_site_away: str = "refuse",
        sync_site_away_ms: int = 5_000,
        takeover: str = "operator",
        takeover_after_ms: int = 10_000,
        votes: Mapping[str, int] = MappingProxyType({}),
        paces: Paces = PACES,
    ) -> None:
        self._paces = paces
        self.names = tuple(f"{site}{'-' if site else ''}{chr(ord('A') + i)}" for i in range(nodes))
        self.registry = registry
        self.site = site
        self.home = home
        self._pid = os.getpid()
        self._others = {} if home is None else {home.site: home}
        self._lines: dict[str, list[tuple[Gate, MemoryCoordinator]]] = {}
        """Gates and sessions of connections to other sites."""
        self._cut: set[str] = set()
        """Sites that are not reached from here."""
        self._lining = threading.Lock()
        """No line is made while lines are cut."""
        config = _config(self.names, partitions, min(sync_replicas, nodes - 1), modules)
        config = _with_policy(config, remote_sync=remote_sync, quorum=quorum, lease_ttl_ms=lease_ttl_ms)
        if site:
            config = _with_policy(
                config,
                sync_sites=sync_sites,
                sync_site_away=sync_site_away,
                sync_site_away_ms=sync_site_away_ms,
                takeover=takeover,
                takeover_after_ms=takeover_after_ms,
            )
            config = _with_sites(config, site, site if home is None else home.site, others, homes)
            config = _with_reach(config, requests, votes)
        self.config = config.validate()
        self.broker = MemoryBroker()
        self.tree = MemoryTree()
        self.disks = {name: MemoryDisk(name) for name in self.names}
        self.running: dict[str, NodeHandle] = {}
        self._clients: list[RunningNode] = []

    # --- life ---

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self, seconds: float = WAIT_S) -> Cluster:
        """Start every node that is not running, and wait until all partitions have an active node and replicas."""
        for name in self.names:
            if name not in self.running:
                self._start(name)
        self.settle(seconds)
        return self

    def close_clients(self) -> None:
        """Close all clients, while nodes go on."""
        for client in self._clients:
            client.close()
        self._clients.clear()

    def close(self) -> None:
        """Close all clients and nodes; do nothing in a forked child, where they belong to the parent."""
        if os.getpid() != self._pid:
            return
        self.close_clients()
        for disk in self.disks.values():
            disk.heal()
        for name in list(self.running):
            self.resume(name)
        for name in list(self.running):
            self.running.pop(name).node.close()

    def _start(self, name: str) -> None:
        gate, coordinator, channel = Gate(), MemoryCoordinator(self.tree), self._channel()
        store = MemoryStore(self.disks[name])

        def adapters(config: Config, name: str) -> Adapters:
            log = MemoryLog(self.broker)
            lined: Any = _SiteChannel(channel, self._is_cut)
            return Adapters(
                GatedPort(log, gate),
                GatedPort(coordinator, gate),
                GatedPort(lined, gate),
                GatedPort(store, gate),
                self._reach,
            )

        opened = open_node(self.config, name, self._paces, registry=self.registry, adapters=adapters)
        self.running[name] = NodeHandle(opened, gate, coordinator, channel)

    def _channel(self) -> MemoryChannel:
        return MemoryChannel(self.config.limits.max_frame_bytes)

    def _reach(self, site: str) -> SiteAccess:
        there, gate = self._others.get(site), Gate()
        if there is None or site in self._cut:
            raise UnreachableError(f"site {site} cannot be reached", site=site)
        coordinator = MemoryCoordinator(there.tree)
        coordinator.connect(lambda state: None)
        with self._lining:
            cut = site in self._cut  # while it was made
            if not cut:
                self._lines.setdefault(site, []).append((gate, coordinator))
        if cut:
            there.tree.end_session(coordinator.session)
            raise UnreachableError(f"site {site} cannot be reached", site=site)
        return SiteAccess(site, GatedPort(MemoryLog(there.broker), gate), GatedPort(coordinator, gate))

    def _is_cut(self, address: str) -> bool:
        """Is this the address of a node of another site, and the line to it cut?"""
        return any(
            address == running.node.runtime.info.address
            for name, there in self._others.items()
            if name in self._cut
            for running in list(there.running.values())
        )

    # --- using it ---

    def node(self, name: str) -> RunningNode:
        """Return a running node by name."""
        return self.running[name].node

    def client(self) -> Verbs:
        """Open a process that only uses objects: a node in no zone. It is closed with the cluster."""

        def adapters(config: Config, name: str) -> Adapters:
            lined: Any = _SiteChannel(self._channel(), self._is_cut)
            return Adapters(MemoryLog(self.broker), MemoryCoordinator(self.tree), lined, None, self._reach)

        name = f"client-{len(self._clients)}"
        opened = open_node(self.config, name, self._paces, registry=self.registry, adapters=adapters)
        self._clients.append(opened)
        return opened

    def tables(self) -> dict[str, PartitionTable]:
        """Return every partition's table, as the coordinator has it."""
        found = {}
        for name in self.tree.children("partitions"):
            value = self.tree.get(f"partitions/{name}")
            if value is not None:
                found[name] = PartitionTable.from_bytes(value.data)
        return found

    def partition_of(self, cls: type[Any], *key: Any) -> str:
        """Return the partition that owns this key."""
        info = self.registry.info(cls)
        some = next(iter(self.running.values())).node
        return some.runtime.partition_of(info.name, info.routing_key(info.check_key(key)))

    def active_for(self, cls: type[Any], *key: Any) -> str:
        """Return the node that is active for the object with this key, whether or not the object exists."""
        partition = self.partition_of(cls, *key)
        active = wait_until(lambda: self.tables()[partition].active, f"{partition} has no active node")
        return str(active.node)

    def settle(self, seconds: float = WAIT_S) -> None:
        """Wait until every partition is served by a running node and has as many replicas as nodes allow."""
        alive = {n: r for n, r in self.running.items() if not r.paused}

        def follows(name: str, table: PartitionTable) -> bool:
            copies = [alive[n].node.runtime.copies.get(name) for n in table.configured if n in alive]
            return all(c is not None and c.core.state.role is Role.FOLLOWING for c in copies)

        def settled() -> bool:
            for name, table in self.tables().items():
                if table.owner and not follows(name, table):
                    return False
                if table.owner or not table.configured:  # another site serves it, or it is not placed yet (P7)
                    continue
                if table.active is None or table.active.node not in alive:
                    return False
                copy = alive[table.active.node].node.runtime.copies.get(name)
                if copy is None or not copy.serving:
                    return False
                if len(table.replicas) < min(len(table.configured), len(alive)) - 1:
                    return False
            return True

        wait_until(settled, "the cluster did not settle", seconds)

    def see(self, other: Cluster) -> None:
        """Let this site reach that one from now on; this site is its home."""
        self._others[other.site] = other

    # --- hurting it ---

    def cut(self) -> None:
        """Cut the line between this site and its home, both ways. For a home, cut all lines that it has made."""
        if self.home is not None:
            self.home._cut_to(self.site)
        for site in self._others:
            self._cut_to(site)

    def cut_off(self, *sites: str) -> None:
        """Cut the lines between this site and these, both ways; by default all."""
        for site in sites or tuple(self._others):
            self._cut_to(site)
            self._others[site]._cut_to(self.site)

    def mend(self, *sites: str) -> None:
        """Restore the lines between this site and these, both ways; by default all."""
        for site in sites or tuple(self._others):
            self._cut.discard(site)
            self._others[site]._cut.discard(self.site)

    def _cut_to(self, site: str) -> None:
        with self._lining:
            self._cut.add(site)
            lines = self._lines.pop(site, [])
        for gate, coordinator in lines:
            gate.kill()
            coordinator.tree.end_session(coordinator.session)  # as the server there does when a session is silent

    def kill(self, name: str) -> None:
        """End a node as kill -9 does: connections break, its session ends, nothing is handed over."""
        hurt = self.running.pop(name)
        hurt.gate.kill()
        self.disks[name].heal()
        hurt.channel.close()
        hurt.coordinator.expire(reconnect=False)
        hurt.coordinator.close()
        hurt.node.runtime.close(hand_over=False)  # its threads end; nothing they do gets past the gate
        hurt.node.abandon()
        self.disks[name] = _left_behind(self.disks[name])

    def restart(self, name: str) -> RunningNode:
        """Start a killed node again on the disk it left behind, and return it."""
        self._start(name)
        return self.node(name)

    def pause(self, name: str) -> None:
        """Stop a node as SIGSTOP does. Its session ends when the session timeout has passed."""
        hurt = self.running[name]
        hurt.gate.shut()
        hurt.paused = True

        def forget() -> None:
            if hurt.paused:
                hurt.coordinator.expire(reconnect=False)

        timer = threading.Timer(self.config.timing.session_timeout_ms / 1000, forget)
        timer.daemon = True
        timer.start()

    def resume(self, name: str) -> None:
        """Wake a paused node."""
        hurt = self.running[name]
        if hurt.paused:
            hurt.paused = False
            hurt.coordinator.resume()
            hurt.gate.open()


class _SiteChannel:
    """A `_SiteChannel` is a channel that sends requests to another site's nodes over the line, and fails them while
    it is cut."""

    def __init__(self, channel: MemoryChannel, is_cut: Callable[[str], bool]) -> None:
        self._channel = channel
        self._is_cut = is_cut

    def request(self, address: str, frame: bytes, timeout_s: float, *, connect_s: float | None = None) -> bytes:
        """See Channel."""
        if self._is_cut(address):
            raise UnreachableError(f"{address} cannot be connected: the line is cut", address=address, sent=False)
        return self._channel.request(address, frame, timeout_s, connect_s=connect_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


def wait_until(holds: Callable[[], Any], why: str, seconds: float = WAIT_S) -> Any:
    """Return the first true value of `holds()`; AssertionError saying `why` if there is none in time."""
    until = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > until:
            raise AssertionError(f"{why} within {seconds:g} s")
        time.sleep(0.005)
    return found


def _config(names: tuple[str, ...], partitions: int, sync_replicas: int, modules: tuple[str, ...]) -> Config:
    spare = len(names) - 1 - sync_replicas
    return Config(
        ClusterConfig("test"),
        SiteConfig(bootstrap="memory:1", zookeeper="memory:1"),
        ApplicationConfig(modules),
        zones={"test": ZoneConfig(names)},
        policies={"test": PolicyConfig("test", partitions, sync_replicas, async_replicas=max(0, min(1, spare)))},
        bindings={"*": "test"},
        nodes={name: NodeConfig(Path(f"/nonexistent/{name}")) for name in names},
        timing=TimingConfig(non_response_timeout_ms=SILENT_MS),
    ).validate()


def _with_policy(config: Config, **keys: Any) -> Config:
    return replace(config, policies={"test": replace(config.policies["test"], **keys)})


def _with_reach(config: Config, requests: bool, votes: Mapping[str, int]) -> Config:
    """Return it with each site's votes; `requests`: do requests go to the other ones?"""
    own = replace(config.site, votes=votes.get(config.site.name, 1))
    sites = {n: replace(s, requests=requests, votes=votes.get(n, 1)) for n, s in config.sites.items()}
    return replace(config, site=own, sites=sites)


def _with_sites(config: Config, site: str, home: str, others: tuple[str, ...], homes: Mapping[str, str]) -> Config:
    addresses = {name: f"{name}:1" for name in (home, site, *others)}
    policy = config.policies["test"]
    policies = {"test": replace(policy, home=home)}
    policies |= {kind.lower(): replace(policy, home=at) for kind, at in homes.items()}
    return replace(
        config,
        site=SiteConfig(site, addresses[site], addresses[site]),
        sites={name: RemoteSiteConfig(address, address) for name, address in addresses.items()},
        policies=policies,
        bindings={**{kind: kind.lower() for kind in homes}, **config.bindings},
    )


def _left_behind(disk: MemoryDisk) -> MemoryDisk:
    """Return a copy of a killed node's disk, free of its dead store."""
    left = MemoryDisk(disk.name)
    left.data = dict(disk.data)
    return left
