"""This module puts together what an operator sees of a cluster: the coordinator's tables beside what every node says of
its own copies.

It is pure but for `ask_nodes`. Each claim needs its proof. A partition has an active node only if the table names one,
that very run of it is registered, and it says so itself. A replica counts only if its copy has no error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from halog.cli.shared.log_status import KafkaView, kafka_view
from halog.cli.shared.mirror_status import standing_still, unmirrored
from halog.cli.shared.plain_text import plain_text_of
from halog.cli.shared.upgrade_status import UpgradeView, upgrade_of
from halog.core.roles import LEADING, Role
from halog.core.sites.sync_sites import SYNC as SYNC_SITE
from halog.core.table.definitions import status
from halog.core.table.group import as_of, counts, needed
from halog.core.table.states import State
from halog.core.table.table import PartitionTable
from halog.errors import HalogError, UnauthorizedError
from halog.metadata.config_versions import read
from halog.metadata.drains import drained_nodes
from halog.metadata.nodes import NodeInfo
from halog.runtime.rpc import frames
from halog.runtime.sites.split_watch import Split, parted
from halog.runtime.support.clock import wall_ms

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection

UP, OFFLINE, SILENT, DOWN, CLIENT = "up", "offline", "silent", "down", "client"
STARTING, LEAVING = "starting", "leaving"
OK, NO_ACTIVE, NO_QUORUM, TOO_FEW, UNPLACED = "ok", "no active", "no quorum", "replicas missing", "not placed"
MIRRORED = "mirrored"
"""Another site serves the partition, and all its copies at this site are there."""
PARTED = "parted"
"""Another site has gone on with the partition, too."""
OUTVOTED = "no quorum of sites"
"""This site has too few votes of sites, and refuses commits."""
SITE_MISSING = "sync site missing"
"""A site must have each commit in its log, and does not have them."""

STILL = "mirror stands still"
"""Another site serves the partition, and nothing of it is mirrored here."""
UNMIRRORED = "not mirrored"
"""This site serves the partition, and another site that should mirror it brings nothing."""

WELL = (OK, UNPLACED, MIRRORED)

_LEADING = frozenset(role.value for role in LEADING)

_OUT = {
    Role.FAILED.value: "its history is not the log's",
    Role.OFFLINE.value: "its node has no quorum in one of its zones",
}

Said = Mapping[str, Any]
"""This is what a node answered to `Status`, or {"error": why}."""


class CopyView(msgspec.Struct, frozen=True):
    """Describes one copy of a partition. `kind` is active, sync or async; missing, for a configured node that holds no
    copy; or mirror, where another site serves the partition."""

    node: str
    kind: str
    role: str
    lsn: int | None
    lag_records: int | None
    lag_ms: float | None
    error: str | None = None
    discarded_objects: int = 0
    """Objects of an async replica that contradicted the log (R2), since its process began."""


class SiteView(msgspec.Struct, frozen=True):
    """Describes another site whose log commits should wait for, as the active node has it
    (`halog.core.sites.sync_sites`)."""

    site: str
    state: str
    """The state is sync, behind, away or let go."""
    behind: int
    """How many records it has not confirmed."""


class VotesView(msgspec.Struct, frozen=True):
    """Describes the votes of one site, as the active node has them (`halog.core.sites.site_quorum`)."""

    site: str
    votes: int
    given_to: str
    """The site that has these votes; "": not known."""


class NodePartitionView(msgspec.Struct, frozen=True):
    """Describes a partition as one hosting node has it, with or without a copy (P8, P9)."""

    node: str
    status: str
    life: str | None
    """The state it knows; None: it did not say."""


class PartitionView(msgspec.Struct, frozen=True):
    """Describes one partition. `life` is its state (P8), as the active node knows it, else as the first node that says
    one."""

    partition: str
    policy: str
    state: str
    active: str | None
    epoch: int
    lsn: int | None
    configured: tuple[str, ...]
    missing: tuple[str, ...]
    copies: tuple[CopyView, ...]
    life: str = State.UNAVAILABLE.value
    seen: tuple[NodePartitionView, ...] = ()
    sites: tuple[SiteView, ...] = ()
    votes: tuple[VotesView, ...] = ()
    outvoted: bool = False
    """This site has too few of the votes."""
    parted: Split | None = None
    """What is known of the other site that has gone on with it, too."""
    why: str = ""
    """What is missing, in words, where the state alone does not say it."""

    @property
    def worst(self) -> CopyView | None:
        """Return the replica that is furthest behind; None if no replica told its lag."""
        told = [c for c in self.copies if c.lag_records is not None and c.kind != "active"]
        return max(told, key=lambda c: (c.lag_records, c.lag_ms), default=None)


class SeenAs(msgspec.Struct, frozen=True):
    """Describes the state of a node as another one has it (N3)."""

    state: str
    why: str
    since_ms: int
    """ms since 1970, by the clock of the node that says it."""


class NodeView(msgspec.Struct, frozen=True):
    """Describes one node: configured, registered, or both. `zones` says how it stands in each of them (Q1)."""

    node: str
    state: str
    address: str | None
    pid: int | None
    version: str | None
    session: str | None
    active: int
    replicas: int
    why: str | None = None
    zones: dict[str, str] = {}
    config: int | None = None
    """The version of the configuration it runs with; 0: its file."""
    knows: int | None = None
    """The active version it knows."""
    restart_for: tuple[str, ...] = ()
    """The keys of that version that wait for its restart."""
    reaches: tuple[str, ...] = ()
    """The other nodes that it hears, as it says itself: they count for it in a zone's quorum (Q1)."""
    failed: dict[str, str] = {}
    """By partition, why its copy there takes part in nothing."""
    addresses: tuple[str, ...] = ()
    """Where it is reached, in order of preference; `address` is the first."""
    seen_by: dict[str, SeenAs] = {}
    """The state of this node as each other node has it (N3), of those that say it."""

    @property
    def addresses_text(self) -> str | None:
        """Return its addresses as tables show them."""
        return ", ".join(self.addresses) or self.address

    @property
    def seen_text(self) -> str:
        """Return how others see it, as tables show it: a state with the time since when; by name, where they differ."""
        states = {seen.state for seen in self.seen_by.values()}
        if len(states) == 1:
            return f"{states.pop()} since {_clock(max(seen.since_ms for seen in self.seen_by.values()))}"
        return ", ".join(f"{by}: {seen.state} since {_clock(seen.since_ms)}" for by, seen in self.seen_by.items())

    @property
    def config_text(self) -> str:
        """Return the configuration's version as tables show it."""
        if self.config is None:
            return ""
        text = str(self.config) if self.config else "file"
        return f"{text}, restart for {self.knows}" if self.restart_for else text


class PlanView(msgspec.Struct, frozen=True):
    """Describes a plan that is not done (P13): nodes may hold back their own plans for it."""

    id: str
    made_for: str
    """The policy that a node made it for; "": an operator made it."""
    made_ms: int
    moves: int
    waiting: int
    moving: int


class Survey(msgspec.Struct, frozen=True):
    """Describes the whole cluster at one moment."""

    cluster: str
    site: str
    nodes: tuple[NodeView, ...]
    partitions: tuple[PartitionView, ...]
    config: int = 0
    """The active version of the configuration; 0: none."""
    plan: PlanView | None = None
    """The plan that is not done; None: there is none."""
    drained: tuple[str, ...] = ()
    """Nodes that were drained: they get no partitions that are added."""
    kafka: KafkaView | None = None
    """The log, if it does not answer."""
    upgrade: UpgradeView | None = None
    """The upgrade that is not over."""
    plain_text: dict[str, str] = {}
    """Nodes that take plain text from other machines, and what to say of each."""

    @property
    def is_well(self) -> bool:
        """Does everything serve as it should?"""
        return not self.degraded and self.kafka is None

    @property
    def failed(self) -> list[tuple[str, str, str]]:
        """Return (partition, node, why) of every copy that takes part in nothing, as its node says."""
        return sorted((p, n.node, why) for n in self.nodes for p, why in n.failed.items())

    @property
    def degraded(self) -> list[PartitionView]:
        """Return the partitions that are degraded: those without an active node, with fewer replicas than configured,
        or parted. A partition that was never placed (P7) lacks nothing."""
        return [p for p in self.partitions if p.state not in WELL]


def survey(connection: ClusterConnection) -> Survey:
    """Ask every registered node, and put the answers beside the tables."""
    tables = connection.tables
    said, split = ask_nodes(connection), parted(connection.coordinator, tables)
    config, still, lacking = connection.config, standing_still(connection, tables), unmirrored(connection, tables)
    partitions = tuple(partition_view(t, connection.nodes, said, split, still, lacking) for t in tables)
    return Survey(
        config.cluster.name,
        config.site.name,
        tuple(node_views(list(config.nodes), connection.nodes, said)),
        partitions,
        read(connection.coordinator).number,
        plan_of(connection),
        tuple(drained_nodes(connection.coordinator)),
        kafka_view(connection, said, [p.partition for p in partitions if p.state == NO_ACTIVE]),
        upgrade_of(connection.coordinator),
        plain_text_of(said),
    )


def survey_of(connection: ClusterConnection, table: PartitionTable) -> PartitionView:
    """Return the view of one partition."""
    split = parted(connection.coordinator, [table])
    still, lacking = standing_still(connection, [table]), unmirrored(connection, [table])
    return partition_view(table, connection.nodes, ask_nodes(connection), split, still, lacking)


def plan_of(connection: ClusterConnection) -> PlanView | None:
    """Return the plan while some part of it waits or moves. The rest of a cancelled plan does not wait."""
    from halog.runtime.placement import plan as plans

    stored = plans.read(connection.coordinator)
    if stored is None:
        return None
    states = list(plans.states_of(stored, connection.tables).values())
    waiting = 0 if stored.cancelled else states.count(plans.WAITING)
    moving = states.count(plans.MOVING)
    if not waiting and not moving:
        return None
    return PlanView(stored.id, stored.made_for, stored.made_ms, len(stored.moves), waiting, moving)


def ask_nodes(connection: ClusterConnection) -> dict[str, Said]:
    """Return what each hosting node says of itself. UnauthorizedError if all of them refuse this process."""
    hosting = [n.name for n in connection.nodes.values() if n.hosts]
    timeout = min(connection.around.node_answer_s, connection.timeout_s)

    refusals: list[UnauthorizedError] = []

    def ask(node: str) -> Said:
        try:
            reply = connection.router.request(node, frames.StatusRequest(), timeout)
        except HalogError as error:
            if isinstance(error, UnauthorizedError):
                refusals.append(error)
            return {"error": str(error)}
        return reply.status if isinstance(reply, frames.StatusReply) else {"error": "it answered no status"}

    with ThreadPoolExecutor(max(1, len(hosting))) as pool:
        said = dict(zip(hosting, pool.map(ask, hosting), strict=True))
    if refusals and len(refusals) == len(hosting):
        raise refusals[0]
    return said


# --- nodes ---


def node_views(
    configured: Sequence[str], registered: Mapping[str, NodeInfo], said: Mapping[str, Said]
) -> Iterable[NodeView]:
    """Yield the configured nodes in their order, then the others by name."""
    others = [name for name in sorted(registered) if name not in configured]
    for name in (*configured, *others):
        view = _node_view(name, registered.get(name), said.get(name, {}))
        yield msgspec.structs.replace(view, seen_by=_seen_by(name, said))


def _seen_by(name: str, said: Mapping[str, Said]) -> dict[str, SeenAs]:
    """Return the state that each node says that this one is in. A node of an older halog does not say."""
    found = {by: answer.get("nodes", {}).get(name) for by, answer in sorted(said.items())}
    return {by: SeenAs(seen["state"], seen["why"], seen["since_ms"]) for by, seen in found.items() if seen}


def _clock(ms: int) -> str:
    """Return a time as tables show it, in UTC as events have it."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _node_view(name: str, info: NodeInfo | None, said: Said) -> NodeView:
    if info is None:
        return NodeView(name, DOWN, None, None, None, None, 0, 0, "not registered")
    roles = [copy["role"] for copy in said.get("copies", ())]
    failed = _failed(said)
    degraded = f"{len(failed)} of its {len(roles)} partitions have failed here: {_some(list(failed))}"
    leading = sum(_leads(role) for role in roles)
    offline, config, phase = said.get("offline"), said.get("config", {}), said.get("phase", UP)
    state = CLIENT if not info.hosts else SILENT if "error" in said else OFFLINE if offline else UP
    if state == UP and phase != UP:
        state = LEAVING if phase == LEAVING else STARTING
    return NodeView(
        name,
        state,
        info.address or None,
        info.pid,
        info.version,
        said.get("session"),
        leading,
        len(roles) - leading,
        said.get("error") or offline or (degraded if failed else f"phase {phase}" if state == STARTING else None),
        {zone["zone"]: zone["state"] for zone in said.get("zones", ())},
        config.get("version"),
        config.get("active"),
        tuple(config.get("restart_for", ())),
        _reaches(name, said),
        failed,
        info.reached,
    )


def _failed(said: Said) -> dict[str, str]:
    copies = (c for c in said.get("copies", ()) if c["error"] or c["role"] == Role.FAILED.value)
    return dict(sorted((c["partition"], c["error"] or _OUT[Role.FAILED.value]) for c in copies))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _reaches(name: str, said: Said) -> tuple[str, ...]:
    """Return the nodes that this one hears. A node of an older halog says only which nodes are up."""
    return tuple(n for n in said.get("reaches", said.get("alive", ())) if n != name)


def _leads(role: str) -> bool:
    return role in _LEADING


# --- partitions ---


def partition_view(
    table: PartitionTable,
    registered: Mapping[str, NodeInfo],
    said: Mapping[str, Said],
    split: Mapping[str, Split] = MappingProxyType({}),
    still: Mapping[str, str] = MappingProxyType({}),
    unmirrored: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> PartitionView:
    """Return the view of one partition, as its table says and its nodes confirm."""
    copies = tuple(_copy_view(node, table, registered, said) for node in _nodes_of(table))
    active = next((c for c in copies if c.kind == "active"), None)
    serving = active is not None and active.error is None and _leads(active.role)
    counted = {c.node for c in copies if c.kind in ("sync", "async", "mirror") and c.error is None}
    missing = tuple(n for n in table.configured if n not in counted and not (serving and active and n == active.node))
    told = _of_active(table, said.get(active.node, {})) if serving and active else {}
    sites = tuple(SiteView(name, *how) for name, how in told.get("sites", {}).items())
    state = health(table, active.node if serving and active else None, counted, sites)
    outvoted = not told.get("quorum_of_sites", True)
    state = OUTVOTED if outvoted else state
    state = PARTED if table.name in split else state
    why = _short(table, registered, said) if state in (NO_ACTIVE, NO_QUORUM) else ""
    if state == MIRRORED and table.name in still:
        state, why = STILL, still[table.name]
    if state == OK and table.name in unmirrored:
        state, why = UNMIRRORED, f"site {', '.join(unmirrored[table.name])} brings nothing of it"
    seen = tuple(_seen(node, table, said.get(node, {})) for node, info in sorted(registered.items()) if info.hosts)
    return PartitionView(
        table.name,
        table.policy,
        state,
        active.node if serving and active else None,
        table.epoch.number,
        active.lsn if active else None,
        table.configured,
        missing,
        copies,
        _life(table, seen),
        seen,
        sites,
        tuple(VotesView(*one) for one in told.get("votes", ())),
        outvoted,
        split.get(table.name),
        why,
    )


def _short(table: PartitionTable, registered: Mapping[str, NodeInfo], said: Mapping[str, Said]) -> str:
    """Return how many of its nodes are up and how many it needs, where it needs more."""
    up = [n for n in table.configured if n in registered and "error" not in said.get(n, {"error": ""})]
    need = needed(as_of(table, wall_ms()), up[0] if up else "")
    return f"{len(up)} of {len(table.configured)} nodes up, {need} needed" if len(up) < need else ""


def _of_active(table: PartitionTable, said: Said) -> Said:
    """Return what the active node says of its copy."""
    return next((c for c in said.get("copies", ()) if c["partition"] == table.name), {})


def health(table: PartitionTable, active: str | None, counted: set[str], sites: tuple[SiteView, ...] = ()) -> str:
    """Return the partition's state with these replicas."""
    if not table.configured:
        return UNPLACED
    if table.owner:
        return TOO_FEW if len(counted) < len(table.configured) else MIRRORED
    if active is None:
        return NO_ACTIVE
    if 1 + sum(counts(table, n) for n in counted) < needed(as_of(table, wall_ms()), active):
        return NO_QUORUM
    if any(s.state != SYNC_SITE for s in sites):
        return SITE_MISSING
    return TOO_FEW if len(counted) < len(table.configured) - 1 else OK


def _seen(node: str, table: PartitionTable, said: Said) -> NodePartitionView:
    return NodePartitionView(node, status(table, node).value, said.get("states", {}).get(table.name))


def _life(table: PartitionTable, seen: Iterable[NodePartitionView]) -> str:
    """Return the life of a partition. A node that has just started says Initial; so does every node before the
    partition is placed."""
    active = "" if table.active is None else table.active.node
    told = sorted((s for s in seen if s.life is not None), key=lambda s: s.node != active)
    lives = [s.life for s in told if s.life != State.INITIAL.value]
    if lives:
        return str(lives[0])
    return State.INITIAL.value if told or not table.configured else State.UNAVAILABLE.value


def _nodes_of(table: PartitionTable) -> list[str]:
    return list(dict.fromkeys((*table.node_list, *table.hosts)))


def _copy_view(
    node: str, table: PartitionTable, registered: Mapping[str, NodeInfo], said: Mapping[str, Said]
) -> CopyView:
    kind = _kind(node, table)
    answer = said.get(node)
    info = registered.get(node)
    if info is not None and node in table.configured and node not in table.present:
        return CopyView(node, kind, "none", None, None, None, "not enabled there since the node was started")
    if info is None or answer is None or "error" in answer:
        why = "node is down" if info is None else "node is silent"
        return CopyView(node, kind, "unknown", None, None, None, why)
    if kind not in ("missing", "mirror") and info.incarnation != _incarnation(node, table):
        return CopyView(node, kind, "unknown", None, None, None, "the node was restarted and has not rejoined yet")
    copy = next((c for c in answer.get("copies", ()) if c["partition"] == table.name), None)
    if copy is None:
        return CopyView(node, kind, "none", None, None, None, "the node holds no copy")
    error = copy["error"] or _OUT.get(copy["role"])
    figures = copy["lsn"], copy["lag_records"], copy["lag_ms"]
    return CopyView(node, kind, copy["role"], *figures, error, copy.get("discarded_objects", 0))


def _kind(node: str, table: PartitionTable) -> str:
    if table.owner:
        return "mirror"
    if table.active is not None and table.active.node == node:
        return "active"
    return next((r.kind for r in table.replicas if r.node == node), "missing")


def _incarnation(node: str, table: PartitionTable) -> int | None:
    if table.active is not None and table.active.node == node:
        return table.active.incarnation
    return next((r.incarnation for r in table.replicas if r.node == node), None)
