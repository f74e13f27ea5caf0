"""`halog type list|retire` shows what definitions of types the cluster has and who runs them, and takes one back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import say
from halog.cli.shared.options import Name
from halog.cli.shared.output import emit, emit_json

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.schema import Definition


@click.group("type")
def type_() -> None:
    """List the definitions of types that the cluster has; take one back that no object uses.

    \b
    Examples:
      halog type list
      halog type retire Aircraft 20cb2a44dce4d161
    """


@type_.command("list")
@click.argument("type_name", type=Name(), required=False, metavar="[TYPE]")
@click.option("--objects", "count", is_flag=True, help="Count the objects that each definition wrote. Reads them all.")
@cluster_options
def list_(type_name: str | None, count: bool, options: ClusterOptions) -> None:
    """List the stored definitions, the newest of each type last, with the processes that run each.

    A definition is published when the first process starts that declares its class so. An object keeps the definition
    that wrote it until it is changed.

    \b
    Examples:
      halog type list
      halog type list Aircraft --objects
      halog type list --format json
    """
    from halog.cli.objects.retirement import counted, definitions_of
    from halog.runtime.topics.schema_compatibility import runners

    with options.connect() as connection:
        found = definitions_of(connection, type_name)
        running = _running(connection)
        objects = counted(connection, found) if count else {}
    document = [_document(d, runners(d, running), sum(objects[d.type_id].values()) if count else None) for d in found]
    rows = [
        (d["type"], d["id"], _or_dash(d["version"]), _or_dash(d["objects"]), ", ".join(d["run_by"]) or "-", _shown(d))
        for d in document
    ]
    emit(options.format, document, ["type", "definition", "version", "objects", "run by", "fields"], rows)


@type_.command()
@click.argument("type_name", type=Name(), metavar="TYPE")
@click.argument("definition", type=Name(), metavar="DEFINITION")
@click.option("--dry-run", is_flag=True, help="Say whether it could be taken back; change nothing.")
@cluster_options
def retire(type_name: str, definition: str, dry_run: bool, options: ClusterOptions) -> None:
    """Take a definition back that no stored object uses and no process runs.

    DEFINITION is its id, as `halog type list` and the error of a process that cannot start name it; the beginning is
    enough. Refused with exit code 5, and nothing changed, if objects use it, a process runs it, or a transaction in
    doubt would or may write objects with it (`halog txn list`). If no node is up, the logs are searched for it; then it
    is also refused for an object that was changed or deleted since. A class that declares it again publishes it again.

    \b
    Examples:
      halog type retire Aircraft 20cb2a44dce4d161
      halog type retire Aircraft 20cb --dry-run
    """
    from halog.cli.objects.retirement import check_unused, definition_of, retired

    with options.connect() as connection:
        found = definition_of(connection, type_name, definition)
        check_unused(connection, found, lambda: _running(connection))
        if not dry_run and not retired(connection, found, lambda: _running(connection)):
            say("the event history does not have it: its log does not answer")
    what = "could be" if dry_run else "was"
    if options.format == "json":
        emit_json({"type": found.name, "id": found.type_id.hex(), "retired": not dry_run})
    else:
        click.echo(f"definition {found.type_id.hex()} of {found.name} {what} taken back: no object uses it")


def _running(connection: ClusterConnection) -> Any:
    from halog.runtime.topics.schema_compatibility import runs

    return runs(connection.coordinator, connection.name)


def _document(definition: Definition, run_by: list[str], objects: int | None) -> dict[str, Any]:
    said = definition.as_json()
    return {
        "type": definition.name,
        "id": definition.type_id.hex(),
        "version": definition.version,
        "objects": objects,
        "run_by": run_by,
        "definition": said,
    }


def _or_dash(value: object) -> object:
    return "-" if value is None else value


def _shown(document: dict[str, Any]) -> str:
    from halog.cli.shared.values import short

    return short(", ".join(field["name"] for field in document["definition"]["fields"]), 60)
