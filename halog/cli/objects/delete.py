"""This module has the command `halog delete`. It deletes one object for an operator, whether it can be read or not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from halog.cli.objects.get import find, key_bytes_option
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.confirm import check_confirmed, cluster_option
from halog.cli.shared.messages import say
from halog.cli.shared.options import Name, Text
from halog.cli.shared.output import emit_json

if TYPE_CHECKING:
    from halog.backend import CommittedObject, Work
    from halog.cli.shared.connection import ClusterConnection


@click.command()
@click.argument("type_name", type=Name(), metavar="TYPE")
@click.argument("key", type=Text(), metavar="KEY...", nargs=-1)
@key_bytes_option
@cluster_option
@cluster_options
def delete(
    type_name: str, key: tuple[str, ...], key_bytes: bytes | None, confirmed: str, options: ClusterOptions
) -> None:
    """Delete one object, also one that cannot be read.

    This is an ordinary commit of the version that was found: if the application changes the object meanwhile, nothing
    happens. References to it lead nowhere from then on. `halog get --raw` shows what is deleted.

    \b
    Examples:
      halog delete Ticket T-17 --cluster fleet
      halog delete Reading --key-bytes 80a0c0 --cluster fleet
    """
    from halog.cli.shared.values import describe_any

    with options.connect() as connection:
        partition, found = find(connection, type_name, key, key_bytes)
        shown = {**describe_any(connection.definitions, found, raw=True), "partition": partition}
        name = f"{shown['type']} {' '.join(map(str, shown['key']))}"
        check_confirmed(connection, confirmed, f"{name} of partition {partition} would be gone", "If that is meant")
        connection.check_settled([connection.table(partition).policy])
        connection.commit(_works(connection, shown["type"], partition, found))
        if not _tell(connection, name, partition, shown):
            say("the event history did not take it")
    if options.format == "json":
        emit_json(shown)
    else:
        click.echo(f"{name} of partition {partition} is deleted; its bytes were {shown['bytes']}")


def _works(connection: ClusterConnection, type_name: str, partition: str, found: CommittedObject) -> dict[str, Work]:
    """Return the delete of the object, and of its entry in the key directory if it has one."""
    from halog.backend import Work, Write
    from halog.core.keys.directory import beside, entries_of
    from halog.core.log.records import DELETE
    from halog.runtime.keys.key_owners import routing_of

    gone = Write(DELETE, found.ref, found.key, None, found.version)
    parts = {partition: [gone]}
    owner = connection.owner(type_name)
    if owner.listed:
        definition = connection.definitions.current(type_name)
        places = {found.key: owner.place(type_name, routing_of(definition)(found.key))}
        entries = entries_of(places, lambda at, keys, version: connection.fetch(at, keys))
        for at, row in beside([gone], partition, places.__getitem__, entries.get):
            parts.setdefault(at, []).append(Write(*row))
    return {at: Work((), tuple(writes)) for at, writes in parts.items()}


def _tell(connection: ClusterConnection, name: str, partition: str, shown: dict[str, Any]) -> bool:
    """Write into the event history what was deleted, and by whom."""
    from halog.cli.shared.event_log import note
    from halog.events import DELETED, EventPlace, event
    from halog.metadata.identity import who

    by = who()
    told = event(
        DELETED,
        EventPlace(connection.config.cluster.name, connection.name, partition),
        name=f"{connection.name}/deleted/{shown['ref']}",
        time_ms=time.time_ns() // 1_000_000,
        node=by,
        cause=f"by {by}",
        more={"object": name, **{told: shown[told] for told in ("key_bytes", "version", "definition")}},
    )
    return note(connection, told)
