"""`halog get`: one object, by type and key, decoded by its stored definition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halog.cli.options import config_option, timeout_option
from halog.cli.output import emit_json, format_option
from halog.cli.talk import echo_facts

if TYPE_CHECKING:
    from halog.backend import Found
    from halog.cli.connection import Connection
    from halog.core.mapping import Place


@click.command()
@click.argument("type_name", metavar="TYPE")
@click.argument("key", metavar="KEY...", nargs=-1, required=True)
@config_option
@format_option
@timeout_option
def get(type_name: str, key: tuple[str, ...], config_path: Path, format_: str, timeout_s: float) -> None:
    """Show one object as the active node has committed it.

    The key of several fields is given word by word, or as one JSON array. No code of the application is needed: what
    the type looks like stands in the schemas topic. A base finds the objects of its subclasses.

    \b
    Examples:
      halog get Aircraft N14228
      halog get Flight 2013-01-01T10:00:00+00:00 UA 1545 N14228
      halog get Flight '["2013-01-01T10:00:00+00:00", "UA", 1545, "N14228"]' --format json
    """
    from halog.cli.connection import connect
    from halog.cli.values import describe, ref_text

    with connect(config_path, timeout_s) as connection:
        partition, found = find(connection, type_name, key)
        shown = {**describe(connection.definitions, found), "partition": partition}
        active = connection.router.active(partition)
    if format_ == "json":
        emit_json(shown)
        return
    echo_facts(
        [
            ("type", f"{shown['type']} (definition {shown['definition']})"),
            ("key", json.dumps(shown["key"], ensure_ascii=False)),
            ("partition", f"{partition}, active on {active}"),
            ("version", shown["version"]),
            ("reference", ref_text(found.ref)),
            *((f"  {name}", _text(value)) for name, value in shown["fields"].items()),
        ]
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def find(connection: Connection, type_name: str, words: tuple[str, ...]) -> tuple[str, Found]:
    """(partition, object); NotFoundError names type and key."""
    from halog.cli.listed import located
    from halog.errors import NotFoundError

    index_key, places = sought(connection, type_name, words)
    family = connection.definitions.family(type_name)
    for place in places:
        partition, found = located(connection, index_key, place)
        if found is not None and connection.definitions.of(found.value).name in family:
            return partition, found
    raise NotFoundError(f"no {type_name} has the key {' '.join(words)}", type=type_name, key=list(words))


def sought(connection: Connection, type_name: str, words: tuple[str, ...]) -> tuple[bytes, list[Place]]:
    """The index key, and where an object of the type or of one derived from it may be."""
    from halog.cli.values import parse_key
    from halog.schema import ForeignType

    definitions = connection.definitions
    foreign = ForeignType(definitions.current(type_name))
    key = parse_key(foreign.parsed, words)
    routing_key = foreign.routing_key(key)
    family = definitions.family(type_name)
    connection.policies_of(family)
    bound = [name for name in family if connection.places.policy_of(name) is not None]
    places = dict.fromkeys(connection.owner(name).place(name, routing_key) for name in bound)
    return foreign.index_key(key), [*places]
