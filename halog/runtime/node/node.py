"""A node is what an application holds. It implements `Backend` for transactions, here or across the network.

A node named in a zone hosts partitions (`Host`); any other name is a client: it uses objects, hosts nothing and keeps
nothing on disk. Work is done where the partition is active: here without any I/O but the log's, else by asking the
active node, waiting out failovers.

A `Runtime` makes its parts in the order in which they need each other, and hands the earlier ones to the later ones.
Where two need each other, a third one knows both: `Knowledge`, `NodeMembership`, `OtherSites`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from halog.backend import CommittedObject, Execute, KnownMappings
from halog.config import Config
from halog.config.security import OFF
from halog.core.ids import Reference
from halog.core.table.table import PartitionTable
from halog.metadata import nodes
from halog.metadata.cluster_level import LEVEL, check_level
from halog.metadata.nodes import NodeInfo
from halog.ports import SessionState
from halog.release import RELEASE
from halog.runtime.client.outcome_delivery import DecisionDelivery
from halog.runtime.client.vote_calls import Ballots
from halog.runtime.events.history import History
from halog.runtime.events.node_states import NodeStates
from halog.runtime.host.host import Host
from halog.runtime.host.offline_copies import OfflineCopies
from halog.runtime.host.services import NodeContext
from halog.runtime.keys.key_owners import Places
from halog.runtime.keys.routing import Routing
from halog.runtime.membership import duplicates
from halog.runtime.membership.addresses import advertised, check_reachable, machine
from halog.runtime.membership.node_quorum import NodeQuorum, zones_of
from halog.runtime.membership.witness import Witness
from halog.runtime.merge.compensation import Compensate, by_the_rules
from halog.runtime.node import cluster_identity as belonging
from halog.runtime.node.access import Access
from halog.runtime.node.admin import Operators
from halog.runtime.node.assembly import OtherSites, make_audit, make_host, make_relay, make_telling
from halog.runtime.node.client_half import ClientHalf, make_asker
from halog.runtime.node.cluster_watch import CoordinatorWatch
from halog.runtime.node.coordinator_memo import CoordinatorMemo
from halog.runtime.node.knowledge import Knowledge
from halog.runtime.node.level_watch import LevelWatch
from halog.runtime.node.live_config import ActiveConfig, LiveConfig, PartitionRules
from halog.runtime.node.node_load import LoadCounter
from halog.runtime.node.node_membership import NodeMembership
from halog.runtime.node.node_run import NodeRun, begin_run
from halog.runtime.node.paces import PACES, Paces
from halog.runtime.node.registration import Registration
from halog.runtime.node.request_server import Service
from halog.runtime.node.security_watch import SecurityWatch
from halog.runtime.node.shutdown import hand_over_all
from halog.runtime.node.site_levels import to_known_sites
from halog.runtime.node.start_phase import StartPhase
from halog.runtime.node.status import status
from halog.runtime.placement import bootstrap as cluster
from halog.runtime.placement.auto_rebalance import AutoRebalance
from halog.runtime.placement.definitions import begun_anew
from halog.runtime.remap.remap_driver import RemapDriver
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames, versions
from halog.runtime.sites.home_tables import HomeTables, returned
from halog.runtime.store import replaced_mark as replaced
from halog.runtime.support.adapters import Adapters


def _publishes_nothing(history: History) -> None:
    """There are no classes."""


def _no_copies(level: int) -> None:
    """Nothing is written here."""


def _by_the_rules(routing: Routing) -> Compensate:
    return by_the_rules


class Runtime:
    """A `Runtime` is a running node. Thread-safe. Close it, or use it in a with-block."""

    def __init__(
        self,
        activated: ActiveConfig,
        name: str,
        adapters: Adapters,
        places: Places,
        execute: Execute,
        publish: Callable[[History], None] = _publishes_nothing,
        witness: Witness | None = None,
        compensate: Callable[[Routing], Compensate] = _by_the_rules,
        types: tuple[str, ...] = (),
        paces: Paces = PACES,
    ) -> None:
        """`publish` publishes the application's classes, whose ids are `types`, once there are topics; it is given the
        history. `compensate` is what decides in merges."""
        config, hosts = activated.config, adapters.store is not None
        self.adapters = adapters = to_known_sites(adapters, config.cluster.name)
        self._publish = publish
        self._paces = paces
        self._joined = False
        self.phase = StartPhase.STARTING
        run = self._begin(config, name)
        telling = self.telling = make_telling(config, adapters, run.member)
        self.audit = make_audit(config, adapters, telling.history)
        self.zoning = NodeQuorum(name, zones_of(config, name) if hosts else [], telling.history)
        self.configured = LiveConfig(activated, telling.history, self._reconfigure)
        copies: dict[str, Copy] = {}
        self.copies: Mapping[str, Copy] = copies
        """The partitions hosted here."""
        known = self._known = Knowledge(
            config, adapters, run, telling.history, copies, paces.remote, lambda: self.config.nodes
        )
        self.lives = known.lives
        self.nodes = known.nodes
        self.router = known.router
        self._afar = known.afar
        self.asker = make_asker(config, run, known.router, copies)
        self.ballots = Ballots(self.asker)
        context = NodeContext(run.member, config.site.name, adapters.coordinator)
        self._others = (
            OtherSites(config, adapters, context, lambda: compensate(self.routing), paces)
            if hosts and config.other_sites
            else None
        )
        self._relay = make_relay(run.member, adapters, known.router, self.ballots, lambda: self.members.answering)
        settling = DecisionDelivery(self.ballots, self._relay)
        self.host: Host | None = make_host(
            config, adapters, context, known.tables, telling, settling, self._others, known.lives.role_seen, paces
        )
        counting = LoadCounter(self.host)
        self._offer(config, run, places, execute, counting)
        self._take_part(config, run, witness, types)
        self._listen_by(config, execute, counting)

    def _begin(self, config: Config, name: str) -> NodeRun:
        """Say which node this is, and which run of it."""
        run = begin_run(config, name, self.adapters.store)
        self.name = name
        self.pid = os.getpid()
        self.location = run.location
        self.installation = run.installation
        self.incarnation = run.member.incarnation
        self._counts = itertools.count((self.incarnation << 22) + 1)  # threads take theirs one by one
        return run

    def _offer(self, config: Config, run: NodeRun, places: Places, execute: Execute, counting: LoadCounter) -> None:
        """Make what the application uses; its methods are those of `Backend`."""
        host, asker = self.host, self.asker
        rules = PartitionRules(self.configured, self.router)
        here, deliveries = (None, None) if host is None else (counting, host.deliveries)
        half = self._half = ClientHalf(
            config,
            run,
            asker,
            self.ballots,
            rules,
            places,
            self._known,
            here,
            deliveries,
            execute,
            self._paces.abort_s,
        )
        self.states: Mapping[str, object] = {} if host is None else host.states
        self.deadline_of = asker.call_of
        self.epoch_of = asker.epoch
        routing = self.routing = half.routing
        self.partition_of = routing.partition_of
        self.place_of = routing.place_of
        self.partitions_of = routing.partitions_of
        self.had = routing.had
        self.relearn = routing.relearn
        self.next_partition = routing.next_partition
        commits = self._commits = half.commits
        self.new_transaction_id = commits.new_id
        self.commit = commits.commit
        self.begin_commit = commits.begin
        self.follow_up = commits.follow_up
        self.unsent = commits.unsent
        self.commit_over = half.spanning.commit
        reads = half.reads
        self.fetch = reads.fetch
        self.fetch_leased = reads.fetch_leased
        self.view = reads.view
        self.scan = reads.scan
        self.reach = reads.reach
        self.barrier = reads.barrier
        self.validate = reads.validate
        self.invoke = reads.invoke
        self.mover = half.mover
        self.gather = half.mover.gather
        self.outcome = half.afterwards.outcome
        self.operators = Operators(
            asker, self.configured, self.adapters.coordinator, reads, places, self.telling.history, half.afterwards
        )

    def _take_part(self, config: Config, run: NodeRun, witness: Witness | None, types: tuple[str, ...]) -> None:
        """Make what knows who is up, this node among them."""
        a, host = self.adapters, self.host
        registered = "" if witness is None else witness.registered
        hosts, me = host is not None, run.member
        info = NodeInfo(
            *me,
            "",
            run.installation,
            hosts,
            self.pid,
            RELEASE,
            registered,
            machine(),
            types,
            versions.SPOKEN,
            level=LEVEL,
            tls=config.security.node_tls != OFF,
        )
        wait_s = 2 * config.timing.session_timeout_ms / 1000
        self._hello = versions.greeting(config.cluster.name, me, "node" if hosts else "client")
        lives = partial(duplicates.lives, a.channel, self._hello)
        self._registration = Registration(a.coordinator, info, wait_s, self.asker, host, lives)
        self._membership = NodeMembership(
            config,
            a,
            self._hello,
            self._known,
            host,
            self.zoning,
            self._registration,
            self.telling,
            self._relay.lost_at,
        )
        self.members = self._membership.members
        members = None if host is None else self.members
        self._security = SecurityWatch(config, self.name, a.channel, self.telling.history)
        self._watch = CoordinatorWatch(
            a.coordinator, self._hello, self.asker, self._known, members, witness, config.security
        )

    def _listen_by(self, config: Config, execute: Execute, counting: LoadCounter) -> None:
        """Make what answers other nodes, and what carries out changes of mappings."""
        host = self.host
        self.service = Service(
            self._hello,
            self.members,
            host,
            execute,
            self.status,
            lambda: self.config.nodes,
            Access(self.name, config.security.roles, lambda: self.config.nodes),
            self.telling,
            config.limits.max_frame_bytes,
            counting,
            None if host is None else self.mover,
            lambda: self.info,
            self.audit,
            self._security,
        )
        self.remapping = (
            None if host is None else RemapDriver(host, self.members, lambda: self.config, self.routing, self.mover)
        )

    @property
    def config(self) -> Config:
        """Return the configuration in force."""
        return self.configured.config

    @property
    def info(self) -> NodeInfo:
        """Return what this node says of itself."""
        return self._registration.info

    def following(self) -> NodeStates:
        """Return what follows the states of other nodes. A client asks nodes from the first time on that this is
        wanted."""
        if self._known.asks is not None:
            self._known.asks.begin()
        return self.nodes

    @property
    def session_state(self) -> SessionState:
        """Return how its session with the coordinator stands."""
        return self._registration.state

    # --- life ---

    def start(self) -> Runtime:
        """Join the cluster. On any error nothing is left running."""
        try:
            self._start()
        except BaseException:
            self.close(hand_over=False)
            raise
        return self

    def _start(self) -> None:
        a, c, host = self.adapters, self.config, self.host
        if host is not None:
            host.prepare()
        a.coordinator.connect(self._registration.session_changed)
        check_level(a.coordinator, c.cluster.name)
        self.phase = StartPhase.DISCOVERY
        self._membership.begin(a.coordinator)
        self.router.nodes_seen(nodes.read_nodes(a.coordinator, a.coordinator.children("nodes")))
        self._register(c)
        tables = self._create_topics_and_tables()
        self.routing.mappings.watch(c.policies)
        if host is not None:
            tables = begun_anew(a.coordinator, tables, self.name)
            tables = returned(c, a.coordinator, a.reach, tables, host.me)
        for name, (version, table) in tables.items():
            self.router.table_seen(name, version, table)
        self.lives.begin()
        if host is not None:
            self._serve(host, list(tables.values()))
            self.telling.joined(self.info.address, self.pid, len(host.copies))
            replaced.tell(host.store, self.telling.store_replaced)
        known = _no_copies if host is None else host.levels.seen
        LevelWatch(a.coordinator, c.cluster.name, self._known.own, self.members.look, known).begin()
        self._watch.begin()
        self._security.begin()
        self.configured.watch(a.coordinator, hosts=host is not None)
        self.phase = StartPhase.UP

    def _register(self, c: Config) -> None:
        """Listen, if this node hosts anything, and let the others know where."""
        a = self.adapters
        a.channel.introduce(frames.encode(self._hello), versions.judge_answer)
        reached: tuple[str, ...] = ()
        self.phase = StartPhase.LISTENERS
        if self.host is not None:
            own, service = c.nodes[self.name], self.service
            hears = service.on_frame, service.on_closed, service.on_refused
            at = [a.channel.listen(address, *hears) for address in own.listens]
            reached = advertised(self.name, own, at)
        self.phase = StartPhase.KEEP_ALIVE
        self._registration.register(reached)
        others = nodes.read_nodes(a.coordinator, a.coordinator.children("nodes")).values()
        check_reachable(self.info, others)
        duplicates.check_alone(self.info, others)

    def _serve(self, host: Host, tables: list[tuple[int, PartitionTable]]) -> None:
        """Host what the tables say, and do what hosting nodes do by themselves."""
        host.start(self.members)
        host.placing.begin(tables)
        self._joined = True
        self.zoning.tend(OfflineCopies(host, self.router.offline).restore)
        others = self.adapters.coordinator, self.router, self.members, self.telling.history
        rebalancing = AutoRebalance(
            lambda: self.config, lambda: self.configured.active, *others, paces=self._paces.rebalance
        )
        if rebalancing.wanted:
            host.keep_on("rebalancing", partial(rebalancing.turn, host.pause))
        remembering = CoordinatorMemo(
            self.adapters.coordinator, host.store, lambda: self.router.tables.values(), self._known.mapping_changed
        )
        host.keep_on("remembering", partial(remembering.turn, host.pause))
        if self.remapping is not None:
            host.keep_on("remapping", self.remapping.turn)
        if self._others is not None:
            self._others.tend(host)

    def _reconfigure(self, config: Config) -> None:
        """Put into effect what of an activated version takes effect at once."""
        if self.host is not None:
            self.zoning.configure(zones_of(config, self.name))
        self._watch.configure(config.discovery)

    def _create_topics_and_tables(self) -> dict[str, tuple[int, PartitionTable]]:
        a, c = self.adapters, self.config
        belonging.create_topics(a, c, self.name, activated=self.configured.activated)
        self.telling.history.begin()
        self._publish(self.telling.history)
        created, planned = self.telling.created, self.configured.activated
        with HomeTables(c, a.reach, self._paces.sites) as originals:
            return cluster.create_tables(a.coordinator, c, created, planned=planned, originals=originals.of)

    def close(self, hand_over: bool = True) -> None:
        """Hand over what this node is active for, leave, and let go of everything. In a forked child nothing of it is
        there to be let go of."""
        if self.asker.closed or os.getpid() != self.pid:
            return
        with ExitStack() as held:  # whatever one of them meets, the others are let go of: the store's lock, too
            held.callback(self.adapters.close)
            self._leave(hand_over=hand_over)

    def _leave(self, *, hand_over: bool) -> None:
        self.phase = StartPhase.LEAVING
        self.nodes.end()
        if hand_over and self.host is not None:
            hand_over_all(self.host, self.config.timing.close_deadline_ms / 1000)
        self.asker.close()
        if self._known.asks is not None:
            self._known.asks.close()
        self._half.close()
        self._afar.close()
        self._membership.close()
        self._relay.close()
        if self.host is not None:
            self.host.close()
        if self._others is not None:
            self._others.close()
        self._registration.unregister()
        if self._joined and self.copies:
            self.telling.left()
        self.lives.close()
        self.nodes.close()
        self._security.close()
        self.audit.close()
        self.telling.history.close()

    # --- Backend ---

    @property
    def mapped(self) -> KnownMappings:
        """See Backend."""
        return self.routing.mappings.now

    def new_reference(self) -> Reference:
        """See Backend."""
        return Reference(self.location, self.installation, next(self._counts))

    def is_active(self, partition: str) -> bool:
        """See Backend."""
        copy = self.copies.get(partition)
        return copy is not None and copy.serving

    def find(self, partition: str, key: bytes, mapping: int = 0) -> CommittedObject | None:
        """See Backend."""
        copy = self.copies.get(partition)
        if copy is not None and copy.serving:
            objects, ledger = copy.objects, copy.core.state.ledger
            found = objects.cache.get(key)
            if found is None and not ledger.locks:
                found = objects.find(key)
            if found is not None or (ledger.mapping == mapping and not ledger.locks and copy.serving):
                return found
        return self.fetch(partition, (key,), mapping=mapping)[0]

    def status(self) -> dict[str, object]:
        """Return plain values: this node, whom it sees, and its copies."""
        return status(self)

    @property
    def why_outdated(self) -> str:
        """Return why this process takes part no more, for the rest of its run: its halog does not know the cluster's
        level (U1); "": it does, or the node serves something yet, which it is about to give up."""
        why = self._known.own.why_outdated
        gone = not why or (self.router.offline() and not any(copy.serving for copy in self.copies.values()))
        return why if gone else ""
