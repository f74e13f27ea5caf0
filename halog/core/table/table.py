"""A `PartitionTable` is the partition's entry in ZooKeeper: one znode per partition, changed only by versioned
compare-and-set.

It says who *should* be active. If it is wrong or slow, the log still lets only one history through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from halog.core import tolerant
from halog.core.ids import NO_EPOCH, EpochId, Member
from halog.core.log.chain import ChainState
from halog.core.tolerant import TolerantDecoder, TolerantStruct, carrying
from halog.errors import CoordinatorError

SYNC, ASYNC = "sync", "async"


class Replica(TolerantStruct, frozen=True):
    """A `Replica` is one in the current node list: one incarnation of a node, and whether commits wait for it."""

    node: str
    incarnation: int
    kind: str

    @property
    def member(self) -> Member:
        return Member(self.node, self.incarnation)

    @property
    def as_async(self) -> Replica:
        return msgspec.structs.replace(self, kind=ASYNC)


class Group(TolerantStruct, frozen=True, omit_defaults=True):
    """A `Group` is what operators may change while the partition runs (Q2, Q3); see `halog.core.table.group`."""

    priorities: dict[str, int] = msgspec.field(default_factory=dict)
    """Node → 0 Never, 1 Normal, 2 High, 3 Highest. A node that is not named is Normal."""
    required: int = 0
    """So many nodes are required instead of the quorum; 0: no override."""
    required_until_ms: int = 0
    """When that ends, in ms since 1970; 0: when an operator says so."""
    required_reason: str = ""
    designated: str = ""
    """In a group of two: the node that may go on alone."""
    designated_until_ms: int = 0
    designated_reason: str = ""


class Target(TolerantStruct, frozen=True):
    """A `Target` is where a partition moves to (P12); see `halog.core.table.migration`."""

    nodes: tuple[str, ...]
    """In priority order."""
    sync_replicas: int


DEFINED, ENABLED, DISABLED = "defined", "enabled", "disabled"


class PartitionDefinition(TolerantStruct, frozen=True):
    """A `PartitionDefinition` is what one node says of a partition (P7); see `halog.core.table.definitions`."""

    nodes: tuple[str, ...]
    """Where the partition is to be, in priority order. Said by a node that is not among them: where that node knows it
    to be (P9)."""
    sync_replicas: int
    said: str
    """DEFINED: not in effect yet. ENABLED: in effect. DISABLED: that node does not host it."""

    @property
    def target(self) -> Target:
        return Target(self.nodes, self.sync_replicas)


WAITING, OUT, EMPTY = "waiting", "out", "empty"


class Resync(TolerantStruct, frozen=True):
    """A `Resync` lists replicas that are to be copied anew (P12), one after the other; see
    `halog.core.table.resync`."""

    nodes: tuple[str, ...]
    """The replicas that are left. It is the first one's turn."""
    phase: str = WAITING
    """The phase of the first one. WAITING: its turn has not begun. OUT: it has left the node list and is to drop its
    copy. EMPTY: it has dropped it, and catches up."""


class PartitionTable(TolerantStruct, frozen=True):
    """A `PartitionTable` is what the cluster has agreed on for one partition."""

    name: str
    log_id: str
    """32 hex digits that name this partition's history."""
    topic: str
    index: int
    policy: str
    configured: tuple[str, ...]
    """Nodes in priority order, as placed. The group quorum counts them (R7). P10 and R4 shrink `replicas`, never this.
    Only a migration changes it, by one node at a time."""
    sync_replicas: int
    quorum: int = 0
    """How many nodes must have a commit, the active one included, as the policy has it (R7). 0: no commit waits for
    more than the sync set, which shrinks with its members (R4)."""
    count_never: bool = False
    """Does the acknowledgement of a node that can never be active count (Q2)?"""
    group: Group = Group()
    config_version: int = 0
    """How often operators placed it anew; 0: it is where the configuration of its first node placed it."""
    epoch: EpochId = NO_EPOCH
    active: Member | None = None
    replicas: tuple[Replica, ...] = ()
    """The current node list behind the active node, in priority order."""
    target: Target | None = None
    """The placement that the partition moves to; None: it is where it is to be."""
    definitions: dict[str, PartitionDefinition] = msgspec.field(default_factory=dict)
    """What nodes said of it through API or commands (P7)."""
    admitted: tuple[str, ...] | None = None
    """Not None: the application places the partition. These are the nodes whose present run has enabled it, or was
    there when another node did (P8). None: the configuration places it, and all its nodes host it."""
    resync: Resync | None = None
    """The replicas that are being copied anew; None: there are none."""
    passed_over: tuple[str, ...] = ()
    """Of the replicas that were last to be copied anew, those whose turn ended before they dropped their copy."""
    copy_rate: int = 0
    """How many bytes a second a node reads that gets a copy for `target`, as long as no redundancy waits for it. 0: as
    fast as it can."""
    home: str = ""
    """The other site in which this partition's history begins, which this site's log mirrors; "": this site."""
    owner: str = ""
    """The other site whose nodes are to serve it; "": this site. Nodes of this site then follow, and are no candidates
    (F1)."""
    synced: tuple[str, ...] = ()
    """While this site serves it: the other sites whose logs have everything acknowledged
    (`halog.core.sites.sync_sites`)."""
    let_go: tuple[str, ...] = ()
    """Sites that commits do not wait for, by an operator's word, until those sites have caught up."""
    overruled: tuple[str, ...] = ()
    """Sites whose votes do not count, by an operator's word, until this site has them
    (`halog.core.sites.site_quorum`)."""
    claims: int = 0
    """Counts how often another site was about to take it or gave it back, or this site gave it up. What was said before
    such a time counts for nothing after it (`halog.metadata.site_ownership`)."""
    claimed_by: str = ""
    """The token of the command that was about to take it the last of these times; "": it was no command."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the nodes that have a copy, or are to make one."""
        wanted = () if self.target is None else self.target.nodes
        return (*self.configured, *(n for n in wanted if n not in self.configured))

    @property
    def present(self) -> tuple[str, ...]:
        """Return the configured nodes that may host it now, as far as they run."""
        return self.configured if self.admitted is None else tuple(n for n in self.configured if n in self.admitted)

    @property
    def away(self) -> str:
        """Return the replica that runs but is out of the node list, because it drops its copy; "": there is none."""
        return self.resync.nodes[0] if self.resync is not None and self.resync.phase == OUT else ""

    def leaves(self, node: str) -> bool:
        """Say whether the node is to leave, for good (P12) or until its copy is made anew. Others are to be sync
        replicas before it does."""
        if self.target is not None:
            return node not in self.target.nodes
        return self.resync is not None and self.resync.nodes[0] == node and self.resync.phase != EMPTY

    @property
    def disabled_on(self) -> frozenset[str]:
        """Return the nodes that have disabled it, and get no copy (P7)."""
        return frozenset(n for n, d in self.definitions.items() if d.said == DISABLED)

    @property
    def shut(self) -> bool:
        """Say whether it is disabled on the only node it has. Then it can be read, and takes nothing new (P7)."""
        return len(self.configured) == 1 and self.target is None and self.configured[0] in self.disabled_on

    @property
    def sync_set(self) -> frozenset[Member]:
        return frozenset(r.member for r in self.replicas if r.kind == SYNC)

    def kind_of(self, member: Member) -> str | None:
        """Return sync or async; None if the member is no replica."""
        return next((r.kind for r in self.replicas if r.member == member), None)

    @property
    def node_list(self) -> tuple[str, ...]:
        """Return the node list: the active node first, then the replicas."""
        return (*(() if self.active is None else (self.active.node,)), *(r.node for r in self.replicas))

    def beginning(self, site: str) -> ChainState:
        """Return where its log begins, in this site."""
        return ChainState(bytes.fromhex(self.log_id), site, owner=self.home)

    def to_bytes(self) -> bytes:
        """Return the table as the znode holds it. What is not in use is absent, so that nodes that do not know it can
        read the rest."""
        fields = msgspec.to_builtins(self)
        for name in ("target", "admitted", "resync"):
            if fields[name] is None:
                del fields[name]
        for name in _ABSENT_IF_EMPTY:
            if not fields[name]:
                del fields[name]
        return tolerant.encode(fields)

    @staticmethod
    def from_bytes(data: bytes) -> PartitionTable:
        """Decode a znode; CoordinatorError names what is wrong with it."""
        try:
            return _DECODER.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as e:
            raise CoordinatorError(f"a partition znode is not a partition table: {e}", head=data[:80].hex()) from e


_DECODER = TolerantDecoder(PartitionTable)
_ABSENT_IF_EMPTY = (
    "definitions",
    "passed_over",
    "copy_rate",
    "home",
    "owner",
    "synced",
    "let_go",
    "overruled",
    "claims",
    "claimed_by",
)


def listed_as(member: Member, kind: str, before: Iterable[Replica]) -> Replica:
    """Return what a node list says of a member; `before`, as it said until now, may say more than is known here."""
    known = next((r for r in before if r.member == member), None)
    return carrying(Replica(member.node, member.incarnation, kind), known)


def arrange(
    configured: Iterable[str], active: str, usable: Iterable[Member], sync_replicas: int, before: Sequence[Replica] = ()
) -> tuple[Replica, ...]:
    """Return the node list behind `active`: usable members in configured order, the first `sync_replicas` of them
    sync. `before`: the list until now."""
    by_name = {m.node: m for m in usable if m.node != active}
    ordered = [by_name[n] for n in configured if n in by_name]
    return tuple(listed_as(m, SYNC if i < sync_replicas else ASYNC, before) for i, m in enumerate(ordered))
