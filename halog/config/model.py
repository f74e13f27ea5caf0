"""This module holds the configuration's values: one frozen dataclass per table, every default with its reason.

It knows no file and no TOML. `Config.validate` is the one gate; see `check`.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from halog.config.addresses import Addresses, listed
from halog.config.check import first_problem
from halog.config.multi_site import here
from halog.config.security import NOTHING_SET, SecurityConfig
from halog.config.static import DYNAMIC, StaticPartition, partition_names
from halog.config.tuning import own_times
from halog.config.write import toml_lines
from halog.config.zones import expanded

NO_TABLE: Final = types.MappingProxyType({"table": False})
"""Marks fields that are not part of the file."""
DEFAULT_RING_SIZE: Final = 65_536
"""Shares differ by less than 1 % up to 655 partitions; see `mappers.consistent_hash`."""


@dataclass(frozen=True)
class ClusterConfig:
    """`[cluster]` has the name in front of every topic and znode."""

    name: str


@dataclass(frozen=True)
class SiteConfig:
    """`[site]` is one Kafka and one ZooKeeper: existing ones (`bootstrap`, `zookeeper`) or embedded (a data
    directory)."""

    name: str = "home"
    bootstrap: str | None = None
    zookeeper: str | None = None
    embedded: Path | None = None
    replication_factor: int | None = None  # brokers that hold each topic; None: 3, or as many as answer if fewer
    min_insync_replicas: int | None = None  # brokers that must have a record before it counts; None: all but one,
    # so that a record on fewer than two is never acknowledged and the loss of one broker stops nothing
    votes: int = 1  # count for which site goes on (`takeover`): equal unless configured; a site with 0 only follows


@dataclass(frozen=True)
class RemoteSiteConfig:
    """`[sites.NAME]` is another site of the cluster: the addresses under which it is reached from here, or embedded."""

    bootstrap: str | None = None
    zookeeper: str | None = None
    embedded: Path | None = None
    requests: bool = True  # what that site serves is used from here as inside a site; if nodes cannot reach its nodes,
    # each request fails within seconds. False: requests to it are refused at once
    nodes: Mapping[str, Addresses] = field(default_factory=dict)  # host:port of nodes that are reached from here at
    # other addresses than those they have registered (N2)
    votes: int = 1  # as its own [site] says


@dataclass(frozen=True)
class ApplicationConfig:
    """`[application]` is the list of the only modules ever imported."""

    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class ZoneQuorumConfig:
    """`[zones.NAME.quorum]` says what a node of the zone must reach, itself counted, to do anything (Q1). At most one
    key is set."""

    minimum_votes: int | None = None  # no quorum unless configured: the log prevents two actives by itself
    percentage: int | None = None  # 1 to 100, of the votes of all configured nodes of the zone
    minimum_active_remote_nodes: int | None = None  # nodes of the zone beside the one that counts

    @property
    def given(self) -> dict[str, int]:
        """Return the kinds that are set."""
        return {key: value for key, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class ZoneConfig:
    """`[zones.NAME]` names nodes that give each other redundancy, in placement order. A pattern such as `rack1-*` may
    stand for several (`Config.nodes_of` resolves them)."""

    nodes: tuple[str, ...]
    quorum: ZoneQuorumConfig = ZoneQuorumConfig()


@dataclass(frozen=True)
class PolicyConfig:
    """`[policies.NAME]` is a policy: the number of partitions and copies, the mapper, and what commits wait for."""

    zone: str = ""  # where its partitions are; or, in `zones`, several
    partitions: int = 12  # divides evenly over 2, 3, 4 and 6 nodes; bounds the number of useful nodes (P2)
    sync_replicas: int = 1  # a second copy before commit returns, so that failover needs no restore
    async_replicas: int = 0  # the log already keeps what is committed; these only make failover warm
    local_sync: str = "SYNC"  # the log: R6's default; a commit that returned survives the brokers' machines
    remote_sync: str = "NO_SYNC"  # replicas: R6's default; the log has the record too, so their memory is enough
    quorum: bool = False  # replicas that are gone leave the node list and commits go on (R4): the log arbitrates
    below_quorum: str = "refuse"  # a caller that hears at once can do something else; "wait": until its deadline
    count_never: bool = False  # a node that can never be active may hold the only copy: Q2's default
    lease_ttl_ms: int = 0  # R5: others wait so long before they replace a node that may be alive; 0: no leases, no wait
    mapper: str = "consistent_hash"  # the one whose look-ups need no search
    ring_size: int = DEFAULT_RING_SIZE
    rebalance: str = "auto"  # P2, P13: nodes move by themselves; "manual": `halog plan`, `halog rebalance`
    move_objects: int = 100  # so many are held for two round trips to the log while a mapping changes: a few ms
    move_pause_ms: int | None = None  # between two such transactions; None: three times what the first took, so that
    # nodes have time for other work, however busy they are; 0: done soonest
    move_threads: int = 1  # such transactions of one partition at the same time: commits of others keep most of the CPU
    copy_threads: int = 4  # copies of its partitions a node makes at the same time: more only take turns on few cores
    copy_bytes_per_s: int = 0  # 0: a node that gets a copy reads as fast as it can; it locks nothing, and the load is
    # even sooner. A limit is for shared disks or networks; it holds for copies that no redundancy waits for
    call_deadline_ms: int | None = None  # this and the next five: None, as `[timing]` says for all policies
    append_deadline_ms: int | None = None
    doubt_timeout_ms: int | None = None
    min_stay_ms: int | None = None
    join_settle_ms: int | None = None
    replace_after_ms: int | None = None
    before_images: bool = True  # merges and audits need the bytes a change replaced
    zones: tuple[str, ...] = ()  # instead of `zone`: the nodes of all of them
    backup: tuple[str, ...] = ()  # names or patterns: nodes for replicas; without any all are alike (P5)
    home: str = ""  # the site where its partitions begin, and whose log the other sites mirror; "": this very one, not
    # mirrored anywhere, for clusters with one data centre
    sync_sites: tuple[str, ...] = ()  # sites whose logs have a commit before it returns, except for the serving one:
    # each costs every commit a round trip there; without them nothing in one site waits for another
    sync_site_away: str = "refuse"  # while one of them confirms nothing, no commit returns that lacks its copy there;
    # "drop": commits go on without it, and are not there if this site is lost
    sync_site_away_ms: int = 5_000  # so long it may confirm nothing: a mirror's node that died is replaced in a second
    takeover: str = "operator"  # a site that does not reach another cannot know whether it goes on; "quorum": the votes
    # of sites decide which one does; "always": a site that misses the serving one goes on, and both are merged later
    takeover_after_ms: int = 10_000  # silence of the serving site before a takeover: a line's hiccups and the start of
    # a server are shorter; after half as long alone, a site refuses commits
    comparison: str = "three-way"  # of histories that parted: what only one side changed is no conflict; "two-way":
    # without the common ancestor, by the manual's rule
    kind: str = DYNAMIC  # halog names and spreads the partitions; "static": the file does (P3)
    static: Mapping[str, StaticPartition] = field(  # `[policies.NAME.partitions]`, see `static`
        default_factory=dict, metadata=NO_TABLE
    )

    def __post_init__(self) -> None:
        if self.static:
            object.__setattr__(self, "partitions", len(self.static))

    @property
    def spans(self) -> tuple[str, ...]:
        """Return the zones its partitions are in (P5)."""
        return self.zones or (self.zone,)

    @property
    def votes_bind(self) -> bool:
        """Does a site acknowledge nothing without the votes of sites (Q1)?"""
        return self.takeover == "quorum"

    @property
    def two_way(self) -> bool:
        """Are histories that parted compared without their common ancestor (M3)?"""
        return self.comparison == "two-way"

    @property
    def unlogged(self) -> bool:
        """Do commits not wait for the log, so that it may lack what nodes have (R6)?"""
        return self.local_sync == "NO_SYNC"


@dataclass(frozen=True)
class NodeConfig:
    """`[nodes.NAME]` is a node that may host partitions."""

    data_dir: Path
    address: Addresses = "127.0.0.1:0"  # loopback, any free port: nothing is reachable from outside unless configured
    listen: Addresses = ""  # where it listens, if not at `address`: may be all interfaces where `advertise` is given
    advertise: Addresses = ""  # where others reach it, if that is not where it listens; port 0: the one it listens at
    votes: int = 1  # in the quorums of its zones: equal unless configured; a node with 0 does not count
    failure_domain: str = ""  # what fails as one: a rack, a host; without one each node is its own, as on one rack
    site: str = ""  # where it is, in a file that all sites share; "": this site, as in a file of one site

    @property
    def listens(self) -> tuple[str, ...]:
        """Return where it listens, in order of preference."""
        return listed(self.listen or self.address)

    @property
    def reached(self) -> tuple[str, ...]:
        """Return where others reach it, in order of preference, as far as the configuration says."""
        return listed(self.advertise) or self.listens


@dataclass(frozen=True)
class TimingConfig:
    """`[timing]` holds the waiting times, in milliseconds."""

    keep_alive_ms: int = 150  # four may be lost within the non-response timeout before a node is suspected
    non_response_timeout_ms: int = 600  # stalls of half a second are common (GIL, disk); wrong costs a moment
    session_timeout_ms: int = 1_000  # ZooKeeper grants no less than two ticks, and the embedded one ticks in 500 ms
    append_deadline_ms: int = 5_000  # an append the log does not answer ends the epoch: longer than a broker's restart
    call_deadline_ms: int = 15_000  # a commit or call waits through a failover (under 1 s) and a broker's restart
    attempt_timeout_ms: int = 1_000  # one request to a node that does not answer; longer than a takeover takes
    doubt_timeout_ms: int = (
        2_000  # a transaction over several partitions undecided so long is aborted: a failover is over
    )
    store_flush_ms: int = 1_000  # a machine that lost power reads a second of the log again; a flush takes some ms
    min_stay_ms: int = (
        30_000  # a role returns to a preferred node that is back so long: reads are warm, flapping is rare
    )
    join_settle_ms: int = 10_000  # nodes that are started one by one are planned for together (`rebalance`)
    replace_after_ms: int = (
        600_000  # a node away so long is replaced (`rebalance`): longer than a reboot or an upgrade takes
    )
    close_deadline_ms: int = 5_000  # SIGTERM: hand over, then leave; supervisors usually kill after 10 s


@dataclass(frozen=True)
class LimitsConfig:
    """`[limits]` is a set of limits: what exceeds them is refused, so that nothing grows without bound."""

    max_record_bytes: int = 5_000_000  # R8: one encoded commit record; Kafka's limits are raised to fit
    max_in_flight: int = 4_096  # commits of one partition waiting for acknowledgement: far more than clients queue
    max_in_flight_bytes: int = 32_000_000  # the same in bytes: six of the largest records
    max_outcomes: int = 10_000  # D5: decisions of transactions over several partitions remembered, per partition
    store_flush_changes: int = 10_000  # the store is also flushed after so many objects and index entries: a few MB
    max_frame_bytes: int = 16_000_000  # node channel: three of the largest records with their envelope


@dataclass(frozen=True)
class SnapshotConfig:
    """`[snapshot]` says how often a partition's state topic is completed and its log trimmed."""

    every_records: int = 50_000  # a restore reads at most that many log records, about a second
    every_ms: int = 60_000  # a quiet partition's log is trimmed too
    keep_records: int = 100_000  # log kept behind the marker, so that a restarted node goes on warm after minutes away


@dataclass(frozen=True)
class Config:
    """Holds everything a node or tool needs to know. `source` is where it came from, for messages."""

    cluster: ClusterConfig
    site: SiteConfig
    application: ApplicationConfig = ApplicationConfig()
    zones: Mapping[str, ZoneConfig] = field(default_factory=dict)
    policies: Mapping[str, PolicyConfig] = field(default_factory=dict)
    bindings: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, NodeConfig] = field(default_factory=dict)
    sites: Mapping[str, RemoteSiteConfig] = field(default_factory=dict)
    discovery: Mapping[str, Addresses] = field(default_factory=dict)
    """`[discovery]` gives the addresses of nodes, of this site or others, that all processes reach otherwise than they
    have registered (N2)."""
    timing: TimingConfig = TimingConfig()
    limits: LimitsConfig = LimitsConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    security: SecurityConfig = NOTHING_SET
    source: str = field(default="configuration", compare=False, metadata=NO_TABLE)
    written: frozenset[tuple[str, ...]] | None = field(default=None, compare=False, repr=False, metadata=NO_TABLE)
    """The keys that stand in the file, as paths; None: it was built in Python, where each value is meant."""
    whole: Config | None = field(default=None, repr=False, metadata=NO_TABLE)
    """The tree of all sites, of which this is one site's part; None: this is all there is."""

    def validate(self) -> Config:
        """Check everything, and return what this site runs with: the configuration itself, unless nodes say at which
        site they are. ConfigError names file, key and reason."""
        if error := first_problem(self):
            raise error
        return here(self)

    def policy_of(self, type_name: str, bases: Sequence[str] = ()) -> str | None:
        """Return the policy a type is bound to: by its name, else by that of its nearest base (P6), else by "*"; None
        if none. `bases`: the managed ones, nearest first."""
        return next((self.bindings[n] for n in (type_name, *bases, "*") if n in self.bindings), None)

    def timing_of(self, policy: str) -> TimingConfig:
        """Return the times that count for a policy's partitions: its own where it has any (P4), else those of all."""
        return replace(self.timing, **own_times(self.policies[policy]))

    def partition_names(self, policy: str) -> tuple[str, ...]:
        """Return a policy's partitions, in the order of their index."""
        return partition_names(policy, self.policies[policy])

    def hosts_of(self, policy: str) -> tuple[str, ...]:
        """Return the nodes that may have copies of a policy's partitions: those of its zones, each once."""
        return tuple(dict.fromkeys(n for zone in self.policies[policy].spans for n in self.nodes_of(zone)))

    def backups_of(self, policy: str) -> tuple[str, ...]:
        """Return those of a policy's nodes that are for replicas only."""
        return expanded(self.policies[policy].backup, self.hosts_of(policy))

    def nodes_of(self, zone: str) -> tuple[str, ...]:
        """Return the nodes of a zone, each once; those a pattern names in the order of `[nodes]`."""
        return expanded(self.zones[zone].nodes, self.nodes)

    @property
    def other_sites(self) -> Mapping[str, RemoteSiteConfig]:
        """Return `sites` without this site, which may be listed, too, so that one file serves all sites except for
        `[site]`."""
        return {name: site for name, site in self.sites.items() if name != self.site.name}

    @property
    def all_sites(self) -> Config:
        """Return the configuration with the nodes, zones and policies of all sites, as the file has it."""
        return self.whole or self

    def home_of(self, policy: str) -> str:
        """Return the site where a policy's partitions begin."""
        return self.policies[policy].home or self.site.name

    @property
    def site_votes(self) -> dict[str, int]:
        """Return the votes of every site of the cluster, this one first."""
        return {self.site.name: self.site.votes, **{name: site.votes for name, site in self.other_sites.items()}}

    def mirrored(self, policy: str) -> bool:
        """Do a policy's partitions begin at another site, so that this one mirrors their log?"""
        return self.home_of(policy) != self.site.name

    def is_client(self, node: str) -> bool:
        """Say whether a node of this name is a client: in no zone, without a data directory."""
        return node not in self.nodes

    def to_toml(self) -> str:
        """Return the configuration as TOML; defaults are written out, absent values left out."""
        return "\n".join(toml_lines(self))
