"""This module takes a definition back. It finds who uses it: by the active nodes, or by the logs where no node is
up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from halog.cli.shared.event_log import note
from halog.cli.shared.txn_views import votes_of
from halog.errors import RefusedError, UnknownNameError
from halog.events import RETIRED, EventPlace, event
from halog.metadata.identity import who
from halog.ports import TopicPartition
from halog.runtime.topics import topic_names
from halog.runtime.topics.schema_compatibility import Runs, runners
from halog.schema import Definition
from halog.schema.definition import ID_BYTES

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection

Counts = dict[bytes, dict[str, int]]
"""Maps type id → partition → number of objects."""


def definitions_of(connection: ClusterConnection, type_name: str | None) -> list[Definition]:
    """Return all definitions, or those of a type. UnknownTypeError if it has none."""
    known = connection.definitions.all() if type_name is None else connection.definitions.named(type_name)
    return sorted(known, key=lambda d: d.name)


def definition_of(connection: ClusterConnection, type_name: str, id_: str) -> Definition:
    """Return the definition whose id begins so. UnknownNameError if there is none, or if there are several."""
    known = {d.type_id.hex(): d for d in definitions_of(connection, type_name)}
    found = [d for name, d in known.items() if id_ and name.startswith(id_.lower())]
    if len(found) != 1:
        raise UnknownNameError.of("definition", id_, sorted(known), where=f"type {type_name}")
    return found[0]


def counted(connection: ClusterConnection, definitions: Sequence[Definition]) -> Counts:
    """Return how many objects each of them wrote, as the active nodes have them."""
    found: Counts = {d.type_id: {} for d in definitions}
    families = {d.family_id for d in definitions}
    for table in connection.tables:
        for family in families:
            for item in connection.scan(table.name, family):
                by_partition = found.get(bytes(item.value[:ID_BYTES]))
                if by_partition is not None:
                    by_partition[table.name] = by_partition.get(table.name, 0) + 1
    return found


def check_unused(connection: ClusterConnection, definition: Definition, running: Callable[[], Runs]) -> None:
    """Raise RefusedError if the definition is used or may be; it names by whom."""
    _check_not_run(definition, running())
    id_, name = definition.type_id.hex(), definition.name
    if any(node.hosts for node in connection.nodes.values()):
        _check_not_in_doubt(connection, definition)  # first: what is decided meanwhile is then counted as objects
        objects = counted(connection, [definition])[definition.type_id]
        if objects:
            shown = ", ".join(f"{partition} ({count})" for partition, count in objects.items())
            raise RefusedError(
                f"definition {id_} of {name} is used by {sum(objects.values())} objects, in {shown}; nothing was "
                f"changed. Delete them, or change each of them with the class that should stay: a change writes the "
                "object anew",
                type=name,
                id=id_,
                objects=objects,
            )
        return
    mentioned = list(_mentioned(connection, definition))
    if mentioned:
        raise RefusedError(
            f"definition {id_} of {name} wrote objects in {', '.join(mentioned)}, by the logs; nothing was changed. "
            "Nodes can say whether they are still there: start some, if need be with `[application] modules` left out, "
            "and give the command again. Nodes need no class",
            type=name,
            id=id_,
            partitions=mentioned,
        )


def _check_not_run(definition: Definition, running: Runs) -> None:
    by = runners(definition, running)
    if by:
        raise RefusedError(
            f"definition {definition.type_id.hex()} of {definition.name} is run by {', '.join(by)}; nothing was "
            "changed. Stop them first",
            type=definition.name,
            id=definition.type_id.hex(),
            run_by=by,
        )


def _check_not_in_doubt(connection: ClusterConnection, definition: Definition) -> None:
    """Check that no transaction in doubt would write with it: that is no object yet, and may become one at any time."""
    doubts = [(t.name, d) for t in connection.tables for d in votes_of(connection, t.name).doubts]
    would = [(p, d.tx.hex()) for p, d in doubts if definition.type_id in d.types]
    if would:
        txns = sorted({tx for _, tx in would})
        where = ", ".join(dict.fromkeys(p for p, _ in would))
        raise RefusedError(
            f"definition {definition.type_id.hex()} of {definition.name} is used by transactions in doubt in {where}: "
            f"{', '.join(txns[:5])}{' and others' if len(txns) > 5 else ''} would or may write objects with it; "
            "nothing was changed. Wait until that is decided, or decide it: `halog txn list`",
            type=definition.name,
            id=definition.type_id.hex(),
            transactions=txns,
        )


def _mentioned(connection: ClusterConnection, definition: Definition) -> Iterator[str]:
    """Yield the partitions whose log or state topic holds a value of it: each object that it ever wrote is in one of
    the two. That is not so where commits do not wait for the log: nodes' stores may hold more."""
    config, log, id_ = connection.config, connection.adapters.log, definition.type_id
    for table in connection.tables:
        policy = config.policies.get(table.policy)
        if policy is None or policy.local_sync == "NO_SYNC":
            yield f"{table.name} (perhaps: its log may lack what nodes have)"
            continue
        tp = TopicPartition(table.topic, table.index)
        start, end = log.bounds(tp, connection.timeout_s)
        state = TopicPartition(topic_names.state_topic(config, table.policy), table.index)
        in_log = any(id_ in entry.value for entry in connection.read(tp, start, end))
        if in_log or any(id_ in value for _, value in log.read_keyed(state) if value is not None):
            yield table.name


def retired(connection: ClusterConnection, definition: Definition, running: Callable[[], Runs]) -> bool:
    """Take it back, and return whether the event history tells of it. RefusedError, and it is there again, if a process
    began to run it just then."""
    log, tp = connection.adapters.log, connection.definitions.tp
    log.put(tp, definition.type_id, None)
    try:
        _check_not_run(definition, running())
    except BaseException:
        log.put(tp, definition.type_id, definition.text.encode())
        raise
    now = time.time_ns() // 1_000_000
    told = event(
        RETIRED,
        EventPlace(connection.config.cluster.name, connection.name),
        name=f"{connection.name}/{now}/1",
        time_ms=now,
        node=who(),
        cause=f"by {who()}; no object uses it",
        more={"type": definition.name, "id": definition.type_id.hex()},
    )
    return note(connection, told)
