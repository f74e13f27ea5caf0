"""A node: what an application holds. Implements `Backend` for transactions, here or across the network.

A node named in a zone hosts partitions (`Host`); any other name is a client: it uses objects, hosts nothing and keeps
nothing on disk. Work is done where the partition is active: here without any I/O but the log's, else by asking the
active node, waiting out failovers.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

import halog
from halog.backend import Execute, Found, KnownMappings
from halog.config import Config
from halog.core.ids import Member, Reference, location_code
from halog.core.table.table import PartitionTable
from halog.errors import HalogError
from halog.metadata import nodes
from halog.metadata.nodes import NodeInfo
from halog.ports import Log, SessionState, Store, TopicPartition, UnknownResult, Versioned
from halog.runtime.client.caller import Asker, limits_of
from halog.runtime.client.commits import Commits
from halog.runtime.client.outcome_delivery import DecisionDelivery
from halog.runtime.client.outcomes import OutcomeQuery
from halog.runtime.client.reads import Reads
from halog.runtime.client.two_phase import TwoPhaseCommits
from halog.runtime.client.vote_calls import Ballots
from halog.runtime.events.history import History
from halog.runtime.events.partition_states import PartitionStates
from halog.runtime.events.reporter import EventReporter
from halog.runtime.host.host import Host
from halog.runtime.keys.key_owners import Places
from halog.runtime.keys.routing import Routing
from halog.runtime.membership.addresses import check_bound, check_reachable, machine
from halog.runtime.membership.challenges import Challenging
from halog.runtime.membership.members import Membership
from halog.runtime.membership.node_quorum import Zoning, zones_of
from halog.runtime.membership.witness import Witness
from halog.runtime.merge.compensation import Compensations, by_the_rules
from halog.runtime.node import cluster_identity as belonging
from halog.runtime.node.admin import Operators
from halog.runtime.node.assembly import homes_of, make_afar, make_host, tend_sites
from halog.runtime.node.coordinator_memo import Remembering
from halog.runtime.node.live_config import Activated, Configured, of_file
from halog.runtime.node.request_server import Service
from halog.runtime.node.shutdown import hand_over_all
from halog.runtime.node.status import status
from halog.runtime.placement import bootstrap as cluster
from halog.runtime.placement.auto_rebalance import AutoRebalance
from halog.runtime.placement.definitions import begun_anew
from halog.runtime.remap.mover import Mover
from halog.runtime.remap.remap_driver import RemapDriver
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames
from halog.runtime.rpc.missing_server import log_missing
from halog.runtime.rpc.pages import room_in
from halog.runtime.rpc.router import Router
from halog.runtime.sites.home_tables import HomeTables, returned
from halog.runtime.store import replaced_mark as replaced
from halog.runtime.support.adapters import Adapters
from halog.runtime.topics import topic_names

logger = logging.getLogger("halog.node")

AGAIN_S = 0.2
"""Pause before the coordinator is asked again for what it did not answer."""

_INSTALLATION = b"halog:installation"


class Runtime:
    """A running node. Thread-safe. Close it, or use it in a with-block."""

    def __init__(
        self,
        config: Config,
        name: str,
        adapters: Adapters,
        places: Places,
        execute: Execute,
        publish: Callable[[Log], None] = lambda log: None,
        witness: Witness | None = None,
        activated: Activated | None = None,
        compensate: Compensations = lambda: by_the_rules,
        types: tuple[str, ...] = (),
    ) -> None:
        self.config = config
        self.name = name
        self.adapters = adapters
        self.pid = os.getpid()
        self.location = location_code(name)
        self._compensate = compensate
        self._types = types
        self.incarnation = time.time_ns() // 1_000_000
        belonging.check_name(adapters.store, config, name)
        self.installation = self._installation(adapters.store)
        if adapters.store is not None:
            replaced.began(adapters.store, self.incarnation)
        self.member = Member(name, self.incarnation)
        self.router = Router(name, adapters.channel, config.timing.attempt_timeout_ms / 1000, config.site.name)
        self._afar = self.router.afar = make_afar(config, adapters)
        self.host: Host | None = None
        self.remapping: RemapDriver | None = None
        journal = partial(adapters.log.journal, TopicPartition(topic_names.events_topic(config.cluster.name), 0))
        self.telling = EventReporter(History(config.cluster.name, name, self.incarnation, journal))
        self.lives = PartitionStates(name, self.telling.history, lambda p: p in self.routing.mappings.now.updating)
        self.router.seen, self.router.look = self.lives.table_seen, self._look
        self.router.missing = self._log_missing
        self.configured = Configured(activated or of_file(config, name), self.telling.history, self._reconfigured)
        self.states: Mapping[str, object] = {}
        self.session_state = SessionState.CONNECTED
        self._execute = execute
        self._publish = publish
        self.routing = routing = Routing(places, adapters.coordinator, self.router, repr(self.member).encode())
        self.partition_of = routing.partition_of
        self.place_of = routing.place_of
        self.partitions_of = routing.partitions_of
        self.had = routing.had
        self.relearn = routing.relearn
        self.next_partition = routing.next_partition
        routing.closing = lambda: self._asker.closed
        self.router.served, routing.mappings.homes = routing.mappings.served, homes_of(config)
        self._witness = witness
        self._challenging: Challenging | None = None
        self._counts = itertools.count((self.incarnation << 22) + 1)  # threads take theirs one by one
        self._nodes_lock = threading.Lock()
        call_s, doubt_s = config.timing.call_deadline_ms / 1000, config.timing.doubt_timeout_ms / 1000
        self._asker = Asker(name, self.router, {}, call_s, 2 * doubt_s, limits_of(config))
        self.deadline_of = self._asker.call_of
        self.epoch_of = self._asker.epoch
        self._commits = Commits(self._asker, self.location, self._waits_for_quorum)
        self.new_transaction_id = self._commits.new_id
        self.commit = self._commits.commit
        self.begin_commit = self._commits.begin
        self.follow_up = self._commits.follow_up
        self.unsent = self._commits.unsent
        self._ballots = Ballots(self._asker)
        self._spanning = TwoPhaseCommits(self._asker, self._ballots, self._waits_for_quorum, self._commits, doubt_s)
        self.commit_over = self._spanning.commit
        room = room_in(config.limits.max_frame_bytes)
        reads = self._reads = Reads(self._asker, execute, self._waits_for_quorum, self._lease_ms, room)
        self.fetch = reads.fetch
        self.view = reads.view
        self.reach = reads.reach
        self.barrier = reads.barrier
        self.fetch_leased = reads.fetch_leased
        self.scan = reads.scan
        self.mover = Mover(self._asker, routing, reads.fetch, self.commit_over, self.new_transaction_id)
        self.gather = self.mover.gather
        afterwards = OutcomeQuery(self._asker, self._ballots)
        self.outcome = afterwards.outcome
        self.operators = Operators(
            self._asker, config, adapters.coordinator, reads, places, self.telling.history, afterwards
        )
        self.validate = reads.validate
        self.invoke = reads.invoke

    def _waits_for_quorum(self, partition: str) -> bool:
        known = self.router.tables.get(partition)
        policy = None if known is None else self.config.policies.get(known[1].policy)
        return policy is not None and policy.below_quorum == "wait"

    def _log_missing(self, partition: str) -> str:
        known = self.router.tables.get(partition)
        return log_missing(self.adapters.log, None if known is None else known[1])

    def _lease_ms(self, partition: str) -> int:
        known = self.router.tables.get(partition)
        policy = None if known is None else self.config.policies.get(known[1].policy)
        return 0 if policy is None else policy.lease_ttl_ms

    def _installation(self, store: Store | None) -> int:
        if store is None:
            return time.time_ns()
        kept = store.get(_INSTALLATION)
        if kept is None:
            kept = time.time_ns().to_bytes(8, "big")
            store.write([(_INSTALLATION, kept)], flush=True)
        return int.from_bytes(kept, "big")

    @property
    def copies(self) -> Mapping[str, Copy]:
        """The partitions hosted here."""
        return self._asker.copies

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
        a, c = self.adapters, self.config
        self._settling = DecisionDelivery()
        self.host = host = make_host(c, a, self.member, self.router, self.telling, self._settling)
        if host is not None:
            host.prepare()
        a.coordinator.connect(self._session_changed)
        self._hello = hello = frames.Hello(c.cluster.name, self.name, self.incarnation)
        self.info = info = self._know_members(host)
        self.service = Service(
            hello,
            self.members,
            host,
            self._execute,
            self.status,
            c.nodes,
            self.telling,
            c.limits.max_frame_bytes,
        )
        a.channel.introduce(frames.encode(hello))
        address = c.nodes[self.name].address if self.name in c.nodes else "127.0.0.1:0"
        actual = a.channel.listen(address, self.service.on_frame, self.service.on_closed) if host is not None else ""
        check_bound(self.name, address, actual)
        info = msgspec.structs.replace(info, address=actual)
        self.info = self.members.me = info
        nodes.register(a.coordinator, info, 2 * c.timing.session_timeout_ms / 1000)
        check_reachable(info, nodes.read_nodes(a.coordinator, a.coordinator.children("nodes")).values())
        tables = self._create_topics_and_tables()
        self.routing.mappings.changed = self.lives.look
        self.routing.mappings.watch(c.policies)
        if host is not None:
            tables = begun_anew(a.coordinator, tables, self.name)
            tables = returned(c, a.coordinator, a.reach, tables, self.member)
        for name, (version, table) in tables.items():
            self.router.table_seen(name, version, table)
        self.lives.begin()
        if host is not None:
            self._serve(host, list(tables.values()))
            self.telling.joined(actual, self.pid, len(host.copies))
            replaced.tell(host.store, self.telling.store_replaced)
        a.coordinator.watch_members("partitions", self._table_changed)
        a.coordinator.watch_children("nodes", self._nodes_changed)
        self.configured.watch(a.coordinator, hosts=host is not None)

    def _know_members(self, host: Host | None) -> NodeInfo:
        """Who is up, and whether this node has a quorum, from before it is heard of; what it will say of itself."""
        a, c = self.adapters, self.config
        info = NodeInfo(
            self.name,
            self.incarnation,
            "",
            self.installation,
            host is not None,
            self.pid,
            halog.__version__,
            "" if self._witness is None else self._witness.registered,
            machine(),
            self._types,
        )
        changed, run = (_ignore, _run_in_thread) if host is None else (self._alive_changed, host.run)
        self.members = Membership(
            info,
            self._hello,
            a.channel,
            c.timing.keep_alive_ms,
            c.timing.non_response_timeout_ms,
            changed,
            run,
            2 * c.timing.session_timeout_ms,
        )
        self.members.noticed, self.members.line = self.telling.noticed, self.telling.line
        if host is not None:
            told = self.members.challenge_answered, self.members.is_lost_at, lambda: self.members.offline
            self._challenging = challenging = Challenging(self.member, a.coordinator, *told)
            self.members.met, self.members.challenge = challenging.met_soon, challenging.ask
        self.members.coordinated = lambda: self.session_state is SessionState.CONNECTED
        self.zoning = Zoning(self.name, zones_of(c, self.name) if host is not None else [], self.telling.history)
        self.zoning.watch(a.coordinator, self.members.look)
        self.members.judge = self.zoning.judge
        self.router.offline = lambda: self.members.offline
        self.members.look()
        return info

    def _serve(self, host: Host, tables: list[tuple[int, PartitionTable]]) -> None:
        """Host what the tables say, and do what hosting nodes do by themselves."""
        host.roles_seen = self.lives.role_seen
        host.start(self.members)
        self.members.tails, self.members.succeeded = host.tails, host.leasing.died
        self._settling.ballots = self._ballots
        host.placing.begin(tables)
        self._asker.copies = host.copies
        self.states = host.states
        self.service.mover, self.routing.loads.here = self.mover, self.service.counting.told
        self.zoning.tend(host, lambda: self.members.offline)
        others = self.adapters.coordinator, self.router, self.members, self.telling.history
        rebalancing = AutoRebalance(lambda: self.config, lambda: self.configured.active, *others)
        if rebalancing.wanted:
            host.keep_on("rebalancing", partial(rebalancing.turn, host.pause))
        remembering = Remembering(self.adapters.coordinator, host.store, lambda: self.router.tables.values())
        host.keep_on("remembering", partial(remembering.turn, host.pause))
        self.routing.mappings.noted = remembering.stir
        self.remapping = RemapDriver(self, host)
        host.keep_on("remapping", self.remapping.turn)
        if self.config.other_sites:
            tend_sites(self.config, self.adapters, host, self._compensate)
        self._commits.deliveries = self._reads.deliveries = self._ballots.deliveries = host.deliveries

    def _create_topics_and_tables(self) -> dict[str, tuple[int, PartitionTable]]:
        a, c = self.adapters, self.config
        belonging.create_topics(a, c, self.name, activated=self.configured.activated)
        self.telling.history.begin()
        self._publish(a.log)
        created, planned = self.telling.created, self.configured.activated
        with HomeTables(c, a.reach) as originals:
            return cluster.create_tables(a.coordinator, c, created, planned=planned, originals=originals.of)

    def close(self, hand_over: bool = True) -> None:
        """Hand over what this node is active for, leave, and let go of everything. In a forked child nothing of it is
        there to be let go of."""
        if self._asker.closed or os.getpid() != self.pid:
            return
        if hand_over and self.host is not None:
            hand_over_all(self.host, self.config.timing.close_deadline_ms / 1000)
        self._asker.closed = True
        self._spanning.close()
        self._reads.letting_go.close()
        self._afar.close()
        members = getattr(self, "members", None)
        if members is not None:
            members.close()
            self.zoning.close()
            if self._challenging is not None:
                self._challenging.close()
        if self.host is not None:
            self.host.close()
        self._unregister()
        if self.copies:
            self.telling.left()
        self.lives.close()
        self.telling.history.close()
        self.adapters.close()

    def _unregister(self) -> None:
        info: NodeInfo | None = getattr(self, "info", None)
        try:
            found = self.adapters.coordinator.get(f"nodes/{self.name}")
            if info is not None and found is not None and nodes.is_registration(found.data, info):
                self.adapters.coordinator.delete(f"nodes/{self.name}")
        except HalogError:
            logger.debug("could not unregister; the session will end by itself")

    # --- the coordinator ---

    def _alive_changed(self, members: frozenset[Member], why: str) -> None:
        assert self.host is not None
        self.host.alive_changed(members, why)
        self.lives.members_seen(members | self.members.answering, self.members.offline)

    def _reconfigured(self, config: Config) -> None:
        """What of an activated version takes effect at once."""
        self.config = self.operators.config = config
        if self.host is not None:
            self.service.known = config.nodes
            self.zoning.configure(zones_of(config, self.name))

    def _session_changed(self, state: SessionState) -> None:
        lost_before = self.session_state is SessionState.LOST
        self.session_state = state
        logger.info("coordinator session: %s", state.value)
        if self.host is not None and (state is SessionState.LOST or lost_before):
            self.host.leasing.session_lost()
        if state is SessionState.CONNECTED and lost_before and not self._asker.closed:
            threading.Thread(target=self._register_again, name="halog-register", daemon=True).start()

    def _register_again(self) -> None:
        """The old session took our registration with it. Tried until it is there, or the session is lost again."""
        wait_s = 2 * self.config.timing.session_timeout_ms / 1000
        while not self._asker.closed and self.session_state is not SessionState.LOST:
            try:
                nodes.register(self.adapters.coordinator, self.info, wait_s)
                break
            except (HalogError, UnknownResult) as e:
                logger.warning("could not register again, going on trying: %s", e)
                time.sleep(AGAIN_S)
        if self.host is not None:
            for copy in list(self.host.copies.values()):
                self.host.refresh_table(copy)

    def _table_changed(self, path: str, found: Versioned | None) -> None:
        if found is not None:
            table = PartitionTable.from_bytes(found.data)
            (self.host or self.router).table_seen(table.name, found.version, table)

    def _look(self, partition: str) -> None:
        with suppress(HalogError):  # what is known stays
            self._table_changed("", self.adapters.coordinator.get(f"partitions/{partition}"))

    def _nodes_changed(self, names: list[str]) -> None:
        """The watch tells a change once: what could not be read then is read later."""
        a = self.adapters
        with self._nodes_lock:  # what is read later is applied later
            try:
                infos = nodes.read_nodes(a.coordinator, a.coordinator.children("nodes"))
            except HalogError as e:
                if not self._asker.closed:
                    logger.warning("could not read the registered nodes, going on trying: %s", e)
                    _later(AGAIN_S, lambda: self._nodes_changed([]))
                return
            self.router.nodes_seen(infos)
            if self.host is not None:
                self.members.registrations(infos)
            else:
                self.lives.members_seen(frozenset(i.member for i in infos.values() if i.hosts), "")
            if self._witness is not None:
                to = [i.address for i in infos.values() if i.hosts and i.name != self.name]
                self._witness.others(self._hello, to)

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

    def find(self, partition: str, key: bytes, mapping: int = 0) -> Found | None:
        """See Backend."""
        copy = self._asker.copies.get(partition)
        if copy is not None and copy.serving:
            objects, ledger = copy.objects, copy.core.state.ledger
            found = objects.cache.get(key)
            if found is None and not ledger.locks:
                found = objects.find(key)
            if found is not None or (ledger.mapping == mapping and not ledger.locks and copy.serving):
                return found
        return self.fetch(partition, (key,), mapping=mapping)[0]

    def status(self) -> dict[str, object]:
        """Plain values: this node, whom it sees, and its copies."""
        return status(self)


def _later(seconds: float, work: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, work)
    timer.name, timer.daemon = "halog-later", True
    timer.start()


def _run_in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="halog-work", daemon=True).start()


def _ignore(*_: Any) -> None:
    pass
