"""A cluster of real node processes on the session's site: start, kill, freeze, wake, terminate, look.

Waits on conditions with deadlines, never sleeps instead of looking. What it tells of the cluster comes from ZooKeeper
and from the nodes' own stores.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

import halog
from halog.backend import CommittedObject
from halog.core.ids import Member
from halog.core.table.table import PartitionTable
from halog.errors import HalogError, NothingToDoError, RefusedError
from halog.metadata.nodes import NodeInfo
from halog.runtime.node.open import RunningNode
from halog.runtime.rpc import frames
from halog.schema.registry import DEFAULT, Registry
from tests.integration.closed import CLIENT, NODE, ClosedSite
from tests.integration.cluster.processes import LIMIT_S, Process, wait
from tests.integration.site import Site

TOML = """
[cluster]
name = "{name}"
[site]
bootstrap = "{bootstrap}"
zookeeper = "{zookeeper}"
replication_factor = {copies}
name = "{site_name}"
votes = {votes}
{other_sites}
[application]
modules = ["{module}"]
[zones.home]
nodes = [{zone}]
{zone_quorum}
[policies.p]
zone = "home"
partitions = {partitions}
sync_replicas = {sync}
async_replicas = {async_}
local_sync = "{local_sync}"
remote_sync = "{remote_sync}"
quorum = {quorum}
lease_ttl_ms = {lease_ms}
home = "{home}"
sync_sites = [{sync_sites}]
takeover = "{takeover}"
takeover_after_ms = {takeover_after_ms}
[bindings]
"*" = "p"
[timing]
keep_alive_ms = 200
non_response_timeout_ms = {silent_ms}
session_timeout_ms = {session_ms}
call_deadline_ms = {deadline_ms}
min_stay_ms = {stay_ms}
[snapshot]
every_records = {every}
every_ms = 600000
keep_records = {keep}
"""

PLAIN = '[security]\nplaintext_until = "9999-12-31"\n'
"""What nodes need that listen beyond loopback without TLS."""

SILENT_MS = 1_500  # more than the default: a test machine stalls for half a second, and haste is another test
SESSION_MS = 2_000
STARTS_S = 120.0
"""Until a node is up that starts beside all others."""
ANSWERS_S = 30.0
"""A node that lives answers within a few ms, and within some seconds where it stands still."""


class Values(TypedDict, total=False):
    """What stands in the configuration as it is given."""

    module: str
    partitions: int
    sync: int
    async_: int
    local_sync: str
    remote_sync: str
    lease_ms: int
    home: str
    takeover: str
    takeover_after_ms: int
    silent_ms: int
    deadline_ms: int
    stay_ms: int
    every: int
    keep: int


VALUES: Values = {
    "module": "tests.integration.cluster.fleet",
    "partitions": 6,
    "sync": 1,
    "async_": 1,
    "local_sync": "SYNC",
    "remote_sync": "NO_SYNC",
    "lease_ms": 0,
    "home": "",
    "takeover": "operator",
    "takeover_after_ms": 10_000,
    "silent_ms": SILENT_MS,
    "deadline_ms": 40_000,
    "stay_ms": 30_000,
    "every": 1_000_000,
    "keep": 1_000_000,
}
"""Those of a cluster that is asked for nothing else."""


def unique_name() -> str:
    """Of a cluster; the session's servers hold many, one after the other."""
    return f"it{uuid.uuid4().hex[:10]}"


def _asking(zone_quorum: str) -> str:
    return f"[zones.home.quorum]\n{zone_quorum}"


def _reached(other_nodes: Mapping[str, Mapping[str, str]], site: str) -> str:
    if site not in other_nodes:
        return "requests = false\n"
    lines = "".join(f'{node} = "{address}"\n' for node, address in other_nodes[site].items())
    return f"[sites.{site}.nodes]\n{lines}"


def members_of(table: PartitionTable) -> list[Member]:
    """The active one, and the replicas."""
    return [*([] if table.active is None else [table.active]), *(r.member for r in table.replicas)]


class Cluster:
    """Nodes, named by single letters or as a tuple says, in one zone with one policy `p`.

    Where the cluster has several sites there is one of these for each: `name` is the same, `site_name` its own,
    `other_sites` are (Kafka, ZooKeeper) of the others as this one reaches them, `other_nodes` by site their nodes'
    addresses from here (without them no request goes there), and `home` is where `p` begins. `addresses`: where nodes
    of this one listen."""

    def __init__(
        self,
        directory: Path,
        site: Site,
        *,
        nodes: Sequence[str] = "ABC",
        quorum: bool = False,
        zone_quorum: str = "",
        name: str = "",
        site_name: str = "home",
        other_sites: Mapping[str, tuple[str, str]] = MappingProxyType({}),
        other_nodes: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        addresses: Mapping[str, str] = MappingProxyType({}),
        sync_sites: Sequence[str] = (),
        votes: Mapping[str, int] = MappingProxyType({}),
        classes: bool = True,
        inside: Callable[[], AbstractContextManager[object]] = nullcontext,
        **values: Unpack[Values],
    ) -> None:
        """`classes`: do clients in this process know those of `module`? Two modules may have the same names. `inside`:
        where its processes are to be, if that is not where this one is."""
        if unknown := values.keys() - VALUES.keys():
            raise TypeError(f"no value of the configuration: {sorted(unknown)}")
        self.site = site
        self.directory = directory
        self.nodes = nodes
        self.inside = inside
        self.name = name or unique_name()
        self.values: dict[str, object] = {
            **VALUES,
            **values,
            "name": self.name,
            "bootstrap": site.info.bootstrap,
            "zookeeper": site.info.zookeeper,
            "copies": len(site.info.bootstrap.split(",")),
            "zone": ", ".join(f'"{n}"' for n in nodes),
            "session_ms": SESSION_MS,
            "quorum": str(quorum).lower(),
            "zone_quorum": zone_quorum and _asking(zone_quorum),
            "site_name": site_name,
            "sync_sites": ", ".join(f'"{n}"' for n in sync_sites),
            "votes": votes.get(site_name, 1),
            "other_sites": "".join(
                f'[sites.{name}]\nbootstrap = "{kafka}"\nzookeeper = "{zookeeper}"\n'
                + f"votes = {votes.get(name, 1)}\n"
                + _reached(other_nodes, name)
                for name, (kafka, zookeeper) in other_sites.items()
            ),
        }
        self.addresses = addresses
        self.processes: dict[str, Process] = {}
        self.helpers: list[Process] = []
        self.toml = self.configuration("halog.toml")
        self._client_toml = self.toml if classes else self.configuration("client.toml", module="tests")
        if isinstance(site, ClosedSite):
            site.allow(self.toml)
        self._registry = DEFAULT if classes else Registry()
        self._clients: dict[str, RunningNode] = {}
        self._zk: Any = None

    def configuration(self, file: str, **changed: object) -> Path:
        """The configuration with other values, as a file."""
        path = self.directory / file
        text = TOML.format(**{**self.values, **changed})
        text += PLAIN if self.addresses else ""
        text += "".join(f'[nodes.{n}]\ndata_dir = "{n}"\n{self._listens(n)}' for n in self.nodes)
        path.write_text(self.site.text(text) if isinstance(self.site, ClosedSite) else text)
        return path

    def file_of(self, user: str, file: Path) -> Path:
        """The configuration of those who do more, or less, than an operator, where that matters."""
        return self.site.file_of(user, file) if isinstance(self.site, ClosedSite) else file

    def _listens(self, node: str) -> str:
        return f'address = "{self.addresses[node]}"\n' if node in self.addresses else ""

    def timed(self, **ms: int) -> None:
        """More values of [timing], before anything is started."""
        lines = "".join(f"{name} = {value}\n" for name, value in ms.items())
        self.toml.write_text(self.toml.read_text().replace("[timing]\n", f"[timing]\n{lines}"))

    # --- processes ---

    def launch(
        self,
        name: str,
        toml: Path | None = None,
        *,
        by: Callable[[list[str]], list[str]] = list,
        source: Path | None = None,
    ) -> Process:
        """Start a node without waiting for it. `by`: makes of its module and arguments those of what runs it.
        `source`: of another halog than this one."""
        file = self.file_of(NODE, toml or self.toml)
        argv = ["halog.cli.main", "node", "start", "--config", str(file), "--name", name]
        argv += ["--log-level", "info", "--switch-interval-us", "500"]
        with self.inside():
            process = Process(name, self.directory, by(argv), source)
        self.processes[name] = process
        return process

    def start(self, names: Sequence[str] | None = None) -> None:
        """Start nodes together; each has said that it is up."""
        for name in names or self.nodes:
            self.launch(name)
        for name in names or self.nodes:
            self.processes[name].ready(STARTS_S)

    def kill(self, name: str) -> None:
        """kill -9."""
        self.processes[name].kill()

    def freeze(self, name: str) -> None:
        self.processes[name].freeze()

    def wake(self, name: str) -> None:
        self.processes[name].thaw()

    def running(self) -> list[str]:
        return [n for n, p in self.processes.items() if p.running]

    def whole(self, limit_s: float = LIMIT_S) -> None:
        """Every node runs, and every partition has its whole node list."""
        missing = [n for n in self.nodes if n not in self.running()]
        if missing:
            self.start(missing)
        wait(self.complete, "every node list is complete", limit_s)
        wait(self.client_knows, "the client knows every table", limit_s)

    def lead(self, partition: str, node: str) -> None:
        """Let this node be the active one: which of them stands first at the start is chance."""
        if partition not in self.led_by(node):
            try:
                self.client().runtime.operators.hand_over(partition, node)
            except (NothingToDoError, RefusedError):  # it is active already: the role has come back to it meanwhile
                if partition not in self.led_by(node):
                    raise

        def stands() -> bool:
            table = self.table(partition)
            return table.active is not None and table.active.node == node and self.complete(table)

        wait(stands, f"{node} is active for {partition}")

    def in_place(self) -> None:
        """Let every role be where it is preferred, and every node list be complete. What a test before this one has
        moved comes back by itself, half a minute later: else in the middle of this one."""
        for table in self.tables():
            self.lead(table.name, table.configured[0])

    def complete(self, *tables: PartitionTable) -> bool:
        """Have these, or all there are, their whole node lists, of runs that are registered now? It is asked some fifty
        times a second: each znode is read once."""
        asked = tables or self.tables()
        if any(sorted(t.node_list) != sorted(t.configured) for t in asked):
            return False
        infos = self.registered()
        return all(infos.get(m.node) == m.incarnation for t in asked for m in members_of(t))

    def client_knows(self) -> bool:
        known = self.client().runtime.router.tables
        return all(t.name in known and known[t.name][1] == t for t in self.tables())

    # --- the truth outside of nodes ---

    @property
    def zk(self) -> Any:
        if self._zk is None:
            self._zk = KazooClient(self.site.info.zookeeper, timeout=10)
            self._zk.start(30)
        return self._zk

    def znode(self, path: str) -> bytes | None:
        """What ZooKeeper holds; waits through its restart."""
        found: list[bytes | None] = []

        def read() -> bool:
            try:
                found.append(self.zk.get(f"/halog/{self.name}/{path}")[0])
            except NoNodeError:
                found.append(None)
            except KazooException:
                return False
            return True

        wait(read, f"ZooKeeper tells {path}")
        return found[-1]

    def partitions(self) -> list[str]:
        return [f"p-{i}" for i in range(int(str(self.values["partitions"])))]

    def table(self, partition: str) -> PartitionTable:
        data = self.znode(f"partitions/{partition}")
        assert data is not None, f"ZooKeeper knows no partition {partition}"
        return PartitionTable.from_bytes(data)

    def tables(self) -> list[PartitionTable]:
        return [self.table(p) for p in self.partitions()]

    def led_by(self, node: str) -> list[str]:
        return [t.name for t in self.tables() if t.active is not None and t.active.node == node]

    def registered(self) -> dict[str, int]:
        """Registered hosting nodes with their incarnations."""
        found = {n: self.znode(f"nodes/{n}") for n in self.nodes}
        infos = {n: msgspec.json.decode(data, type=NodeInfo) for n, data in found.items() if data is not None}
        return {n: info.incarnation for n, info in infos.items()}

    # --- asking nodes ---

    def client(self, name: str = "client") -> RunningNode:
        """A node in no zone, in this process; closed with the cluster."""
        if name not in self._clients:
            toml = self.file_of(CLIENT, self._client_toml)
            self._clients[name] = halog.node(toml, name=name, registry=self._registry)
        return self._clients[name]

    def ask(self, node: str, request: frames.Request, limit_s: float = ANSWERS_S) -> frames.Reply:
        """What a node answers. One that was started again is asked where it is now."""
        router = self.client().runtime.router
        started = self.registered().get(node)
        if started is not None:  # the client may still know where it was before it was started again
            wait(lambda: node in router.nodes and router.nodes[node].incarnation >= started, f"{node} is known")
        return router.request(node, request, limit_s)

    def status(self, node: str, limit_s: float = ANSWERS_S) -> dict[str, Any]:
        reply = self.ask(node, frames.StatusRequest(), limit_s)
        assert isinstance(reply, frames.StatusReply)
        return reply.status

    def copies(self, node: str) -> dict[str, dict[str, Any]]:
        """What a node says of each of its copies; empty if it does not answer."""
        try:
            return {c["partition"]: c for c in self.status(node)["copies"]}
        except HalogError:
            return {}

    def stored(self, node: str, partition: str) -> Iterator[CommittedObject]:
        """Everything in a node's own copy."""
        after = b""
        while True:
            reply = self.ask(node, frames.Scan(partition, b"", after, 1_000, True))
            assert isinstance(reply, frames.Objects)
            for found in reply.items:
                assert found is not None
                after = found.key
                yield found
            if reply.end:
                return

    def hashes(self, node: str, partition: str) -> frames.StateHashesReply:
        """What a node says of the objects of its own copy, with a look at what it has stored."""
        reply = self.ask(node, frames.StateHashes(partition, scan=True))
        assert isinstance(reply, frames.StateHashesReply)
        return reply

    def describe(self) -> str:
        """Tables and copies, for the report of a failure; never fails itself."""
        lines: list[str] = []
        if "client" not in self._clients:
            return "no client was opened"
        for name, (version, table) in sorted(self.client().runtime.router.tables.items()):
            lines.append(f"{name} v{version} epoch {table.epoch.number} {table.active} {table.replicas}")
        for node in self.running():
            with suppress(Exception):
                lines += [f"{node} {copy}" for copy in self.status(node, 5.0)["copies"]]
        return "\n".join(lines)

    def log_of(self, node: str) -> str:
        """What a node has said on stderr, all its runs."""
        return (self.directory / f"{node}.err").read_text()

    # --- the end ---

    def forget(self) -> None:
        """Close what this process has open; the next use opens it anew."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        if self._zk is not None:
            self._zk.stop()
            self._zk.close()
        self._zk = None

    def close(self) -> None:
        for process in [*self.processes.values(), *self.helpers]:
            process.kill()
        self.forget()


Make = Callable[..., Cluster]
"""The fixture `make`: a cluster of the test's own."""
