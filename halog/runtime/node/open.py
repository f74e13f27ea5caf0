"""`halog.node(...)` leads from a configuration to a node that is part of the cluster."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from halog.backend import Invocation, InvocationResult
from halog.config import Config, load_config
from halog.config.check import problem, wrong_node_name
from halog.config.multi_site import check_site
from halog.config.security import plaintext_problem
from halog.errors import ConfigError, RefusedError, StoreError, UnreachableError
from halog.events import UNREAD
from halog.metadata import bindings
from halog.ports import UnknownResult
from halog.runtime.events.history import History
from halog.runtime.events.node_notifiers import NodeChange, NodeNotifier
from halog.runtime.keys.key_owners import Places
from halog.runtime.keys.routing import Routing
from halog.runtime.membership.witness import Witness
from halog.runtime.merge.compensation import Compensate, Compensation, TriggerCalls, most_of
from halog.runtime.merge.merge_paces import MergePaces
from halog.runtime.node.live_config import ActiveConfig, of_file
from halog.runtime.node.node import Runtime
from halog.runtime.node.paces import PACES, Paces
from halog.runtime.node.partitions import Partitions
from halog.runtime.node.security_watch import today
from halog.runtime.node.wiring import active_version, adapters_for, import_modules, replace_store
from halog.runtime.support.adapters import Adapters
from halog.runtime.topics import schema_compatibility as fitting, schema_publication as publishing, schemas, topic_names
from halog.schema import Definition
from halog.schema.registry import DEFAULT, Registry
from halog.transactions.node import Node as Verbs

logger = logging.getLogger("halog.node")

T = TypeVar("T")


class RunningNode(Verbs):
    """A `RunningNode` is a node of a running cluster; `runtime` is for operators and tests."""

    def __init__(self, runtime: Runtime, registry: Registry, definitions: schemas.Definitions) -> None:
        """Hold a runtime. `definitions` are those that are stored, for objects written by older classes."""
        super().__init__(
            runtime,
            registry,
            definition_of=definitions.text,
            application_modules=runtime.config.application.modules,
            max_record_bytes=runtime.config.limits.max_record_bytes,
            close_backend=runtime.close,
        )
        self.runtime = runtime
        self.partitions = Partitions(runtime)
        """Every partition by name: state, status, node list; define, enable, disable, replicate, notifiers (P7, P8)."""
        self.definitions = definitions
        for notifier, names in registry.notifiers:
            runtime.lives.notify(notifier, names)

    def on_node_change(
        self, *, available: NodeNotifier | None = None, unavailable: NodeNotifier | None = None
    ) -> Callable[[], None]:
        """Call `available(change)` for each remote node that is up now, or comes up, and `unavailable(change)` for each
        of these that is not up any more (N3). Returns what takes both away again.

        Each is called in a transaction of its own, and again after a ConflictError, as by `transactional`. If it raises
        an error, the transaction is rolled back, the event history says so (`HALOG-1130`), and the others go on. For
        one node the calls come one after the other: an unavailable one waits until the available one has returned. They
        hold up neither other nodes' calls nor anything that nodes do. RefusedError: neither is given, or it is no
        function; ClosedError, ForkedError.
        """
        self.check_open()
        if available is None and unavailable is None:
            raise RefusedError("nothing to call: give on_node_change available=…, unavailable=…, or both")
        return self.follow_nodes(
            self._in_transaction("available", available), self._in_transaction("unavailable", unavailable)
        )

    def follow_nodes(self, available: NodeNotifier | None, unavailable: NodeNotifier | None) -> Callable[[], None]:
        """Call these as `on_node_change` does, but in no transaction: for what has transactions of another form."""
        self.check_open()
        return self.runtime.following().notify(available, unavailable)

    def _in_transaction(self, name: str, notifier: NodeNotifier | None) -> NodeNotifier | None:
        if notifier is not None and not callable(notifier):
            raise RefusedError(f"on_node_change: {name}={notifier!r} is no function; give one that takes a NodeChange")
        return None if notifier is None else self.transactional(notifier)

    def node_states(self) -> dict[str, NodeChange]:
        """Return by name in which state each remote node of this site is, why, and since when, as this process sees it
        (N3). A client begins to ask nodes with the first call: until they answer they are Discovered. ClosedError,
        ForkedError."""
        self.check_open()
        return self.runtime.following().now()


class _Classes:
    """A node publishes the application's classes by this, and knows where their objects belong."""

    def __init__(self, settings: Config, name: str, registry: Registry, outside: Adapters, paces: MergePaces) -> None:
        self._paces = paces
        self._settings = settings
        self._name = name
        self._registry = registry
        self._outside = outside
        self._bound: dict[str, str] = {}
        """What the cluster holds of bindings; known once they are agreed on."""
        self.definitions = schemas.Definitions(outside.log, topic_names.schemas_topic(settings))
        self.places = Places(settings, self._definition_of, self._bound, definition=self.definitions.find)
        self._asking = TriggerCalls()

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of their definitions, in order."""
        return tuple(sorted(info.type_id.hex() for info in self._registry.by_name.values()))

    def publish(self, history: History) -> None:
        """Agree with the cluster on bindings, and publish the definitions it lacks."""
        settings, outside, definitions = self._settings, self._outside, self.definitions
        topic = definitions.tp.topic
        declared = [info.parsed for info in self._registry.by_name.values()]
        stored = schemas.Definitions(outside.log, topic)
        self._bound.update(
            bindings.agree(outside.coordinator, settings, declared, lambda: [d.name for d in stored.all()])
        )
        publishing.publish(
            outside.log,
            topic,
            self._registry,
            partial(fitting.runs, outside.coordinator, self._name),
            hosts=outside.store is not None,
            lasts_s=settings.timing.session_timeout_ms / 1000,
            unread=partial(_tell_unread, history),
            definitions=definitions,
        )

    def compensate(self, routing: Routing) -> Compensate:
        """Return what asks triggers in a merge."""
        most = most_of(self._settings, self.places.policy_of)
        return Compensation(
            self.definitions, self._registry, most, routing.partition_of, self._asking, self._paces
        ).decide

    def _definition_of(self, type_name: str) -> Definition | None:
        info = self._registry.by_name.get(type_name)
        if info is not None:
            return info.parsed
        return self.definitions.newest(type_name)  # of another process's class


def _tell_unread(history: History, new: Definition, old: Definition) -> None:
    more = {"type": new.name, "id": new.type_id.hex(), "older": old.type_id.hex()}
    history.tell(UNREAD, "nobody runs the older one", more=more)


def node(
    config: str | Path | Config,
    name: str | None = None,
    *,
    registry: Registry = DEFAULT,
    adapters: Callable[[Config, str], Adapters] | None = None,
    activated: Callable[[Config, str], ActiveConfig] | None = None,
    witness: Witness | None = None,
) -> RunningNode:
    """Join the cluster as node `name` (default: `client-<pid>`, a node in no zone that hosts nothing). `witness`: who
    tells the others of this process's end; `halog node start` brings one where a policy has leases. `activated`: who
    knows the active version of the configuration; without it, where `adapters` are given, the file is all there is.

    ConfigError, UnreachableError, DuplicateNodeError, SchemaChangedError, StoreError: nothing is left running. A
    ZooKeeper that is there and busy, or a Kafka that is there and elects a leader, is waited for as long as a call may
    take (`timing.call_deadline_ms`).
    """
    return open_node(config, name, PACES, registry=registry, adapters=adapters, activated=activated, witness=witness)


def open_node(
    config: str | Path | Config,
    name: str | None,
    paces: Paces,
    *,
    registry: Registry,
    adapters: Callable[[Config, str], Adapters] | None = None,
    activated: Callable[[Config, str], ActiveConfig] | None = None,
    witness: Witness | None = None,
) -> RunningNode:
    """Do what `node` does, for a caller who cannot wait for the paces that nodes go by."""
    own = load_config(config)
    import_modules(own)
    name = name or f"client-{os.getpid()}"
    if why := wrong_node_name(name):
        raise ConfigError(f"a node cannot be called that: {why}", name=ascii(name[:110]))
    wait_s = own.timing.call_deadline_ms / 1000
    until = time.monotonic() + wait_s
    known = _patiently(until, paces, lambda: (activated or (of_file if adapters else active_version))(own, name))
    check_site(known.config, name)
    if wrong := plaintext_problem(known.config, name, today()):
        raise problem(known.config.source, *wrong)
    make = adapters or partial(adapters_for, patience_s=wait_s)
    try:
        return _patiently(until, paces, lambda: _joined(known, name, registry, make, witness, paces))
    except StoreError as e:
        if not e.evidence.get("rebuild"):
            raise
        unread = e
    replace_store(known.config, name, unread)
    return _patiently(until, paces, lambda: _joined(known, name, registry, make, witness, paces))


def _patiently(until: float, paces: Paces, attempt: Callable[[], T]) -> T:
    """Make an attempt again until then, while all that is wrong is that the coordinator, which was reached, gives no
    answer, or that the log, which was reached, has no leader. A broker that was killed leads again once its session has
    ended: 9 s by default."""
    while True:
        try:
            return attempt()
        except UnreachableError as error:
            if not (error.evidence.get("coordinator") or error.evidence.get("leaderless")) or time.monotonic() >= until:
                raise
            why = error.message
        except UnknownResult as error:  # what is made at a start may be made again
            if time.monotonic() >= until:
                raise UnreachableError(
                    f"the coordinator gave no answer: {error}; start again", coordinator=True
                ) from None
            why = str(error)
        logger.warning("no start yet, going on trying: %s", why)
        time.sleep(paces.again_s)


def _joined(
    known: ActiveConfig,
    name: str,
    registry: Registry,
    adapters: Callable[[Config, str], Adapters],
    witness: Witness | None,
    paces: Paces,
) -> RunningNode:
    def execute(partition: str, invocation: Invocation, *, own: bool = False) -> InvocationResult:
        return opened.executor(partition, invocation, own=own)

    outside = adapters(known.config, name)
    try:
        classes = _Classes(known.config, name, registry, outside, paces.merges)
        runtime = Runtime(
            known,
            name,
            outside,
            classes.places,
            execute,
            classes.publish,
            witness,
            classes.compensate,
            classes.ids,
            paces,
        )
    except BaseException:
        outside.close()
        raise
    opened = RunningNode(runtime, registry, classes.definitions)
    try:
        runtime.start()
        outside.coordinator.joined()
    except BaseException:
        opened.close()
        raise
    return opened
