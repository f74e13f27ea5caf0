"""This module has the command `halog list`. It lists the objects of a type, one a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import say
from halog.cli.shared.options import Name, number_of
from halog.cli.shared.output import emit

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection

SHOWN = 100
WIDTH = 60
"""The fields of an object are cut to so many columns; `halog get` shows one object whole."""


@click.command("list")
@click.argument("type_name", type=Name(), metavar="TYPE")
@click.option(
    "-n", "count", type=number_of(1), default=SHOWN, show_default=True, help="Show at most this many objects."
)
@click.option("--all", "all_", is_flag=True, help="Show all objects.")
@cluster_options
def list_(type_name: str, count: int, all_: bool, options: ClusterOptions) -> None:
    """List the objects of a type and of its subclasses, as the active nodes have committed them.

    Each partition is read from its active node page by page, in the order of the keys' bytes: an object is as some
    transaction left it, but two objects may be of two moments. `halog export` writes all of them to a file. An object
    that cannot be read is listed with the bytes of its key: `halog get --raw` shows it, `halog delete` deletes it.

    \b
    Examples:
      halog list Aircraft
      halog list Aircraft -n 10 --format json
      halog list Aircraft --all
    """

    with options.connect() as connection:
        found = list(islice(_objects(connection, type_name), None if all_ else count + 1))
    shown = found if all_ else found[:count]
    rows = [(d["type"], _key(d["key"]), d["partition"], d["version"], _fields(d)) for d in shown]
    emit(options.format, shown, ["type", "key", "partition", "version", "fields"], rows)
    if len(found) > len(shown):
        say(f"there are more: these are the first {count}; -n says how many, --all shows all")


def _objects(connection: ClusterConnection, type_name: str) -> Iterator[dict[str, Any]]:
    from halog.cli.shared.values import describe_any

    definitions = connection.definitions
    definition = definitions.current(type_name)
    names = definitions.family(type_name)
    policies = connection.policies_of(names)
    connection.check_settled(sorted(policies))
    for table in connection.tables:
        if table.policy in policies:
            for found in connection.scan(table.name, definition.family_id):
                shown = describe_any(definitions, found)
                of_family = "fields" not in shown and shown["type"] == definition.root  # it may be any of them
                if shown["type"] in names or of_family:
                    yield {**shown, "partition": table.name}


def _key(parts: list[Any]) -> str:
    return " ".join(part if isinstance(part, str) else json.dumps(part, ensure_ascii=False) for part in parts)


def _fields(shown: dict[str, Any]) -> str:
    from halog.cli.shared.values import short

    if "fields" not in shown:
        return f"cannot be read (key bytes {shown['key_bytes']})"
    fields = shown["fields"]
    return short(", ".join(f"{name}={short(value, 20)}" for name, value in fields.items()), WIDTH)
