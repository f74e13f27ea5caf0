"""This module has what the driver must know of a cluster before executors read it: topics, definitions, bindings.

The driver never joins the cluster. It reads ZooKeeper and the schemas topic, and imports no module of the application;
the owner of its router decides what nodes are asked. Everything an executor is given is plain values of this module.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.conf import client, common
from halog.adapters.kafka.read import Readers
from halog.config import Config, load_config
from halog.core.ids import Member
from halog.core.table.table import PartitionTable
from halog.errors import AvailabilityError, ConfigError, UnknownTypeError
from halog.metadata import bindings
from halog.metadata.cluster_level import check_level
from halog.ports import Entry, TopicPartition
from halog.runtime.keys.key_owners import Places
from halog.runtime.node.kafka_access import kafka_access
from halog.runtime.node.live_config import in_force
from halog.runtime.node.wiring import adapters_for, addresses, remote_site
from halog.runtime.rpc import frames, versions
from halog.runtime.rpc.router import Router
from halog.runtime.rpc.watch import watch
from halog.runtime.support.adapters import Adapters, SiteAccess
from halog.runtime.topics import topic_names
from halog.runtime.topics.schemas import Definitions, of_both
from halog.schema import Definition
from halog.schema.definition import ID_BYTES
from halog.schema.versions import several
from spark_jobs.snapshot import Place


class ReadOnlyLog:
    """A `ReadOnlyLog` is the part of a Kafka `Log` that executors need; nothing of it can write."""

    def __init__(self, access: KafkaAccess) -> None:
        self._access = access
        self._admin: object = None
        self._readers = Readers(access, self._client, self._forget)

    def _client(self) -> object:
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = client(AdminClient, self._access, common)
        return self._admin

    def _forget(self) -> None:
        self._admin = None

    def bounds(self, tp: TopicPartition, timeout_s: float = 10.0) -> tuple[int, int]:
        return self._readers.bounds(tp, timeout_s)

    def read(self, tp: TopicPartition, start: int, end: int, timeout_s: float = 10.0) -> Iterator[Entry]:
        return self._readers.read(tp, start, end, timeout_s)

    def read_keyed(self, tp: TopicPartition, start: int = 0) -> Iterator[tuple[bytes, bytes | None]]:
        return self._readers.read_keyed(tp, start)

    def close(self) -> None:
        """Close all connections."""
        self._readers.close()


class Site:
    """A `Site` is a connection of the driver. Use `connect`."""

    def __init__(self, config: Config, own: Config, adapters: Adapters, name: str) -> None:
        self.config = config
        self.own = own
        self.name = name
        self._channel = adapters.channel
        self.coordinator = adapters.coordinator
        self.log = adapters.log
        self.reach = adapters.reach
        self.kafka = kafka_access(own, addresses(own)[0], name)
        self.look()

    def kafka_of(self, site: str) -> KafkaAccess:
        """Return how another site's Kafka is reached. UnreachableError where that one is embedded, and not running."""
        return kafka_access(self.own, remote_site(self.own, site)[0], self.name)

    def look(self) -> None:
        """Learn what the cluster has now. VersionMismatchError where this halog does not know its level."""
        config, coordinator = self.config, self.coordinator
        check_level(coordinator, config.cluster.name)
        self.definitions = Definitions(self.log, topic_names.schemas_topic(config))
        self.held = bindings.read(coordinator)
        found = coordinator.get_many([f"partitions/{name}" for name in coordinator.children("partitions")])
        tables = [PartitionTable.from_bytes(value.data) for value in found if value is not None]
        self.tables = sorted(tables, key=lambda t: (t.policy, t.index))
        if not self.tables:
            raise AvailabilityError(
                f"{config.source}: cluster {config.cluster.name} does not exist at this site yet; its first "
                "`halog node start` creates it",
                cluster=config.cluster.name,
            )

    def router(self, attempt_s: float) -> Router:
        """Return a router that asks the nodes, each attempt for so long; it knows the partitions there are now."""
        me = Member(self.name, time.time_ns() // 1_000_000)
        hello = versions.greeting(self.config.cluster.name, me, "tool")
        self._channel.introduce(frames.encode(hello), versions.judge_answer)
        router = Router(self.name, self._channel, attempt_s)
        watch(self.coordinator, router, [table.name for table in self.tables])
        return router

    def places_of(self, policies: Sequence[str]) -> list[Place]:
        """Return the partitions of some policies."""
        return [self._place(t) for t in self.tables if t.policy in policies]

    def _place(self, table: PartitionTable) -> Place:
        state = topic_names.state_topic(self.config, table.policy)
        return Place(table.name, table.index, table.topic, state, table.log_id, self.config.site.name, table.home)

    def family(self, type_name: str, *, subtypes: bool) -> Family:
        """Return a type as readers must know it. UnknownTypeError names the known ones."""
        names = self.definitions.family(type_name) if subtypes else (self.definitions.current(type_name).name,)
        current = {name: self.definitions.current(name) for name in names}
        places = Places(self.config, self.definition_of, self.held)
        policies = places.policies_of(names)
        stored = {d.type_id: d.text for d in self.definitions.all() if d.name in current}
        return Family(
            type_name,
            current[type_name].family_id,
            {name: d.text for name, d in current.items()},
            stored,
            tuple(self.places_of(policies)),
            self.kafka,
            self.definitions.tp.topic,
            subtypes,
        )

    def definitions_of_versions(self, source: SiteAccess) -> tuple[str, ...]:
        """Return the definitions of types that have several at either site, as texts, in the source's order."""
        return tuple(d.text for d in several(of_both(source.log, self.definitions)))

    def definition_of(self, type_name: str) -> Definition | None:
        """Return the newest definition of a name, or None."""
        try:
            return self.definitions.current(type_name)
        except UnknownTypeError:
            return None


class Family(msgspec.Struct, frozen=True):
    """A `Family` is a type and those derived from it: all that an executor needs to read their objects."""

    name: str
    family_id: bytes
    current: dict[str, str]
    """Type name → its newest definition."""
    stored: dict[bytes, str]
    """Type id → definition, as far as known when the query was made."""
    places: tuple[Place, ...]
    kafka: KafkaAccess
    """Executors read files and secrets of it themselves, each on its machine."""
    schemas: str
    """The schemas topic."""
    subtypes: bool = True
    """Were types derived from it asked for, too?"""

    @property
    def definition(self) -> Definition:
        """Return the newest definition of the type that was asked for."""
        return Definition.parse(self.current[self.name])

    def stored_as(self, value: bytes) -> Definition:
        """Return the definition that wrote a value; it is looked up in the schemas topic if it is newer than the
        query."""
        return stored_as(value[:ID_BYTES], self.stored, self.kafka, self.schemas)


def stored_as(type_id: bytes, known: Mapping[bytes, str], kafka: KafkaAccess, schemas: str) -> Definition:
    """Return the definition that wrote an object of this type; it is looked up in the schemas topic if it is not
    known."""
    text = known.get(type_id)
    if text is not None:
        return Definition.parse(text)
    log = ReadOnlyLog(kafka)
    try:
        return Definitions(log, schemas).find(type_id)
    finally:
        log.close()


def check_sites(site: Site, policy: str, source: str, places: Mapping[int, Place]) -> None:
    """Check that a policy has two branches. ConfigError."""
    config = site.own
    if source not in config.other_sites:
        known = ", ".join(config.other_sites) or "none"
        raise ConfigError(f"{config.source}: {source} is no other site; [sites] has {known}", site=source)
    if not places:
        raise ConfigError(f"the cluster has no partitions of policy {policy}")
    if not site.config.policies[policy].home:
        raise ConfigError(f"policy {policy} has no home: its partitions are at this site only")


@contextmanager
def connect(config: str | Path | Config) -> Iterator[Site]:
    """Hold a connection while a query is made. ConfigError, UnreachableError, AvailabilityError."""
    own = load_config(config)
    name = f"halog-spark-{re.sub(r'[^A-Za-z0-9._-]', '-', socket.gethostname())[:60]}-{os.getpid()}"
    if name in own.nodes:
        raise ConfigError(f"{own.source}: [nodes] holds {name}, which is this process's own name")
    adapters = adapters_for(own, name)
    try:
        adapters.coordinator.connect(lambda state: None)
        active = in_force(own, adapters.coordinator).config
        yield Site(active, own, adapters, name)
    finally:
        for part in (adapters.channel, adapters.coordinator, adapters.log):
            part.close()
