"""`halog get` shows one object, found by type and key and decoded by its stored definition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import echo_facts
from halog.cli.shared.options import Hex, Name, Text, of_arguments
from halog.cli.shared.output import emit_json

if TYPE_CHECKING:
    from halog.backend import CommittedObject
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.keys.mapping import Place


key_bytes_option = click.option(
    "--key-bytes",
    type=Hex(),
    metavar="HEX",
    help="The key as its bytes, as `halog list` shows one that cannot be read.",
)


@click.command()
@click.argument("type_name", type=Name(), metavar="TYPE")
@click.argument("key", type=Text(), metavar="KEY...", nargs=-1)
@key_bytes_option
@click.option("--raw", is_flag=True, help="Show the bytes of the object instead of its fields.")
@cluster_options
def get(type_name: str, key: tuple[str, ...], key_bytes: bytes | None, raw: bool, options: ClusterOptions) -> None:
    """Show one object as the active node has committed it.

    Give a key of several fields word by word, or as one JSON array. No code of the application is needed: the schemas
    topic says what the type looks like. A base finds the objects of its subclasses. If an object cannot be read, its
    bytes are shown, and why.

    \b
    Examples:
      halog get Aircraft N14228
      halog get Flight 2013-01-01T10:00:00+00:00 UA 1545 N14228
      halog get Flight '["2013-01-01T10:00:00+00:00", "UA", 1545, "N14228"]' --format json
      halog get Aircraft N14228 --raw
      halog get Reading --key-bytes 80a0c0
    """
    from halog.cli.shared.values import describe_any, ref_text

    with options.connect() as connection:
        partition, found = find(connection, type_name, key, key_bytes)
        shown = {**describe_any(connection.definitions, found, raw=raw), "partition": partition}
        active = connection.router.active(partition)
    if options.format == "json":
        emit_json(shown)
        return
    bytes_ = ("key_bytes", "bytes", "why")
    echo_facts(
        [
            ("type", f"{shown['type']} (definition {shown['definition']})"),
            ("key", json.dumps(shown["key"], ensure_ascii=False)),
            ("partition", f"{partition}, active on {active}"),
            ("version", shown["version"]),
            ("reference", ref_text(found.ref)),
            *((name.replace("_", " "), shown[name]) for name in bytes_ if name in shown),
            *((f"  {name}", _text(value)) for name, value in shown.get("fields", {}).items()),
        ]
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def find(
    connection: ClusterConnection, type_name: str, words: tuple[str, ...], key_bytes: bytes | None = None
) -> tuple[str, CommittedObject]:
    """Return (partition, object). NotFoundError names type and key."""
    from halog.errors import NotFoundError

    if bool(words) == (key_bytes is not None):
        raise click.UsageError("give the object's key, or --key-bytes")
    family = connection.definitions.family(type_name)
    looks = (
        _by_words(connection, type_name, words) if key_bytes is None else _by_bytes(connection, type_name, key_bytes)
    )
    for partition, found in looks:
        if found is not None and _is_of(connection, found, family):
            return partition, found
    in_hex = "" if key_bytes is None else key_bytes.hex()
    shown = " ".join(words) or f"of the bytes {in_hex}"
    raise NotFoundError(f"no {type_name} has the key {shown}", type=type_name, key=list(words) or in_hex)


def _by_words(
    connection: ClusterConnection, type_name: str, words: tuple[str, ...]
) -> Iterator[tuple[str, CommittedObject | None]]:
    from halog.cli.shared.placed_objects import located

    index_key, places = sought(connection, type_name, words)
    for place in places:
        yield located(connection, index_key, place)


def _by_bytes(
    connection: ClusterConnection, type_name: str, key_bytes: bytes
) -> Iterator[tuple[str, CommittedObject | None]]:
    """Look in every partition: a mapper may not know what these bytes mean."""
    definitions = connection.definitions
    index_key = definitions.current(type_name).family_id + key_bytes
    policies = connection.policies_of(definitions.family(type_name))
    for table in connection.tables:
        if table.policy in policies:
            (found,) = connection.fetch(table.name, [index_key])
            yield table.name, found


def _is_of(connection: ClusterConnection, found: CommittedObject, family: Sequence[str]) -> bool:
    """Is it an object of the family? One that cannot be told counts as one, for it is in their key space."""
    from halog.errors import HalogError

    try:
        return connection.definitions.of(found.value).name in family
    except HalogError:
        return True


def sought(connection: ClusterConnection, type_name: str, words: tuple[str, ...]) -> tuple[bytes, list[Place]]:
    """Return the index key, and where an object of the type or of a derived one may be."""
    from halog.cli.shared.values import parse_key
    from halog.schema import ForeignType

    definitions = connection.definitions
    foreign = ForeignType(definitions.current(type_name))
    with of_arguments():
        key = parse_key(foreign.parsed, words)
        routing_key, index_key = foreign.routing_key(key), foreign.index_key(key)
    family = definitions.family(type_name)
    connection.policies_of(family)
    bound = [name for name in family if connection.places.policy_of(name) is not None]
    places = dict.fromkeys(connection.owner(name).place(name, routing_key) for name in bound)
    return index_key, [*places]
