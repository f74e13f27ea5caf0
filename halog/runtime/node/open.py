"""`halog.node(...)`: from a configuration to a node that is part of the cluster."""

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
from halog.config.check import NAMED, is_name
from halog.config.multi_site import check_site
from halog.errors import ConfigError, StoreError, UnreachableError
from halog.events import UNREAD
from halog.metadata import bindings
from halog.ports import Log, UnknownResult
from halog.runtime.keys.key_owners import Places
from halog.runtime.membership.witness import Witness
from halog.runtime.merge.compensation import Compensate, Compensation, TriggerCalls, most_of
from halog.runtime.node.live_config import Activated, of_file
from halog.runtime.node.node import Runtime
from halog.runtime.node.partitions import Partitions
from halog.runtime.node.wiring import active_version, adapters_for, import_modules, replace_store
from halog.runtime.support.adapters import Adapters
from halog.runtime.topics import schema_compatibility as fitting, schema_publication as publishing, schemas, topic_names
from halog.schema import Definition
from halog.schema.registry import DEFAULT, Registry
from halog.transactions.node import Node as Verbs

logger = logging.getLogger("halog.node")

AGAIN_S = 0.2
"""Pause before a start that got no answer is tried again."""

T = TypeVar("T")


class Node(Verbs):
    """A node of a running cluster; `runtime` is for operators and tests."""

    runtime: Runtime
    partitions: Partitions
    """Every partition by name: state, status, node list; define, enable, disable, replicate, notifiers (P7, P8)."""
    definitions: schemas.Definitions


def node(
    config: str | Path | Config,
    name: str | None = None,
    *,
    registry: Registry = DEFAULT,
    adapters: Callable[[Config, str], Adapters] | None = None,
    activated: Callable[[Config, str], Activated] | None = None,
    witness: Witness | None = None,
) -> Node:
    """Join the cluster as node `name` (default: `client-<pid>`, a node in no zone that hosts nothing). `witness`: who
    tells the others of this process's end; `halog node start` brings one where a policy has leases. `activated`: who
    knows the active version of the configuration; without it, where `adapters` are given, the file is all there is.

    ConfigError, UnreachableError, DuplicateNodeError, SchemaChangedError, StoreError: nothing is left running. A
    ZooKeeper that is there and busy is waited for as long as a call may take (`timing.call_deadline_ms`).
    """
    own = load_config(config)
    import_modules(own)
    name = name or f"client-{os.getpid()}"
    if not is_name(name):
        raise ConfigError(f"a node's name must be {NAMED}, not {name[:110]!a}", name=ascii(name[:110]))
    wait_s = own.timing.call_deadline_ms / 1000
    until = time.monotonic() + wait_s
    known = _patiently(until, lambda: (activated or (of_file if adapters else active_version))(own, name))
    check_site(known.config, name)
    make = adapters or partial(adapters_for, patience_s=wait_s)
    try:
        return _patiently(until, lambda: _joined(known, name, registry, make, witness))
    except StoreError as e:
        if not e.evidence.get("rebuild"):
            raise
        why = str(e.evidence.get("why", e.message))
    replace_store(known.config, name, why)
    return _patiently(until, lambda: _joined(known, name, registry, make, witness))


def _patiently(until: float, attempt: Callable[[], T]) -> T:
    """Again until then, while all that is wrong is that the coordinator, which was reached, gives no answer."""
    while True:
        try:
            return attempt()
        except UnreachableError as error:
            if not error.evidence.get("coordinator") or time.monotonic() >= until:
                raise
            why = error.message
        except UnknownResult as error:  # what is made at a start may be made again
            if time.monotonic() >= until:
                raise UnreachableError(
                    f"the coordinator gave no answer: {error}; start again", coordinator=True
                ) from None
            why = str(error)
        logger.warning("no start yet, going on trying: %s", why)
        time.sleep(AGAIN_S)


def _joined(
    known: Activated,
    name: str,
    registry: Registry,
    adapters: Callable[[Config, str], Adapters],
    witness: Witness | None,
) -> Node:
    settings = known.config

    def execute(partition: str, invocation: Invocation, *, own: bool = False) -> InvocationResult:
        return opened.executor(partition, invocation, own=own)

    def publish(log: Log) -> None:
        topic = topic_names.schemas_topic(settings)
        places.held = bindings.agree(
            outside.coordinator,
            settings,
            [info.parsed for info in registry.by_name.values()],
            lambda: [d.name for d in schemas.Definitions(log, topic).all()],
        )
        hosts, lasts_s = runtime.host is not None, settings.timing.session_timeout_ms / 1000
        running = partial(fitting.runs, outside.coordinator, name)
        opened.definitions = publishing.publish(
            log, topic, registry, running, hosts=hosts, lasts_s=lasts_s, unread=tell_unread
        )
        places.definition = opened.definitions.find

    def tell_unread(new: Definition, old: Definition) -> None:
        more = {"type": new.name, "id": new.type_id.hex(), "older": old.type_id.hex()}
        runtime.telling.history.tell(UNREAD, "nobody runs the older one", more=more)

    def compensate() -> Compensate:
        place, most = runtime.routing.partition_of, most_of(settings, places.policy_of)
        return Compensation(opened.definitions, registry, most, place, asking).decide

    def definition_of(type_name: str) -> Definition | None:
        info = registry.by_name.get(type_name)
        if info is not None:
            return info.parsed
        return opened.definitions.newest(type_name)  # of another process's class

    places, asking = Places(settings, definition_of), TriggerCalls()
    outside = adapters(settings, name)
    try:
        ids = tuple(sorted(info.type_id.hex() for info in registry.by_name.values()))
        runtime = Runtime(settings, name, outside, places, execute, publish, witness, known, compensate, ids)
    except BaseException:
        outside.close()
        raise
    opened = Node(
        runtime,
        registry,
        definition_of=lambda type_id: opened.definitions.text(type_id),
        application_modules=settings.application.modules,
        max_record_bytes=settings.limits.max_record_bytes,
        close_backend=runtime.close,
    )
    opened.runtime, opened.partitions = runtime, Partitions(runtime)
    for notifier, names in registry.notifiers:
        runtime.lives.notify(notifier, names)
    try:
        runtime.start()
        outside.coordinator.joined()
    except BaseException:
        opened.close()
        raise
    return opened
