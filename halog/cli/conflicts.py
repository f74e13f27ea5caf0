"""`halog conflicts list`: where two sites' histories parted, and what a merge of them would find. Changes nothing."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halog.cli.options import config_option, timeout_after
from halog.cli.output import emit_json, emit_table, format_option
from halog.cli.sites import partition_option, with_home

if TYPE_CHECKING:
    from halog.cli.connection import Connection
    from halog.core.table import PartitionTable
    from halog.runtime.outside import Remote
    from restore.branches import Compared
    from restore.merge import Committed, Difference, State
    from restore.plan import Choice

READ_S = 120.0
"""Both logs are read from their beginnings, twice."""


@click.group()
def conflicts() -> None:
    """Histories of two sites that have both gone on: what each has that the other lacks, and what contradicts.

    \b
    Examples:
      halog conflicts list --source east
      halog conflicts list --source east --format json
    """


@conflicts.command("list")
@click.option("--source", "source", required=True, metavar="SITE", help="The site whose data is kept in doubt.")
@partition_option
@click.option("--two-way", is_flag=True, help="By the manual's rule, which knows no common ancestor.")
@click.option("--all", "everything", is_flag=True, help="Also what only one of them touched.")
@config_option
@format_option
@timeout_after(READ_S, "Give up (exit 3 or 6) after this long.")
def list_(
    source: str,
    names: tuple[str, ...],
    two_way: bool,
    everything: bool,
    config_path: Path,
    format_: str,
    timeout_s: float,
) -> None:
    """List what this site's history and that of site SOURCE contradict each other in, since they parted.

    Each object with what it was then and what each site made of it, and what stands by default: an instance that only
    this site has is added, in all other conflicts the source is kept. Reads both logs, and changes nothing.

    \b
    Examples:
      halog conflicts list --source east
      halog conflicts list --source east --partition flights-0 --all
      halog conflicts list --source east --two-way --format json
    """
    from halog.cli.connection import connect

    with connect(config_path, timeout_s) as connection:
        remote = connection.adapters.reach(_other(connection, source))
        try:
            documents = [
                _partition(connection, remote, table, three_way=not two_way, everything=everything)
                for table in with_home(connection, names)
            ]
        finally:
            remote.close()
    if format_ == "json":
        emit_json(documents)
        return
    _show(documents, source, connection.config.site.name)


def _other(connection: Connection, source: str) -> str:
    from halog.errors import ConfigError

    config = connection.config
    if source not in config.other_sites:
        known = ", ".join(config.other_sites) or "none"
        raise ConfigError(f"{config.source}: {source} is no other site; [sites] has {known}", site=source)
    return source


def _partition(
    connection: Connection, remote: Remote, table: PartitionTable, *, three_way: bool, everything: bool
) -> dict[str, Any]:
    from halog.cli.partition_log import place_of
    from halog.runtime.sites import table_of
    from restore.branches import compared, outcomes, side
    from restore.plan import totals

    here, tp = connection.config.site.name, place_of(table)
    theirs = side(remote.name, remote.log, tp, table_of(remote.coordinator, table.name).beginning(remote.name))
    ours = side(here, connection.adapters.log, tp, table.beginning(here))
    found = compared(theirs, ours, three_way=three_way)
    choices = outcomes(found)
    counted = totals(choices)
    return {
        "partition": table.name,
        "histories": _relation(found, here, remote.name),
        "fork_lsn": found.fork_lsn,
        "touched": counted.keys,
        "conflicts": {kind.value: n for kind, n in counted.conflicts.items()},
        "objects": [_object(connection, c) for c in choices if everything or c.is_conflict],
    }


def _relation(found: Compared, here: str, there: str) -> str:
    from restore.divergence import Behind, Fork, Same

    match found.relation:
        case Fork():
            return "parted"
        case Same():
            return "the same"
        case Behind(first=first):
            return f"site {there if first else here} is behind"
        case _:
            return "unrelated"


def _object(connection: Connection, choice: Choice) -> dict[str, Any]:
    found = choice.found
    name, key = _named(connection, found)
    return {
        "type": name,
        "key": key,
        "is": found.kind.value,
        "base": _state(connection, found.base),
        "source": _state(connection, found.source),
        "initiating": _state(connection, found.initiating),
        "source_time": _time(found.source_by),
        "initiating_time": _time(found.initiating_by),
        "stands": "initiating" if choice.then == found.initiating and choice.then != found.source else "source",
    }


def _named(connection: Connection, found: Difference) -> tuple[str, list[Any]]:
    from halog.cli.values import describe_key
    from halog.errors import HalogError

    family, key = describe_key(connection.definitions, found.key)
    some = found.source or found.initiating or found.base
    if some is None or some.value is None:
        return family, key
    try:
        return connection.definitions.of(some.value).name, key
    except HalogError:
        return family, key


def _state(connection: Connection, state: State) -> dict[str, Any] | None:
    from halog.cli.record_text import fields_of

    if state is None:
        return None
    fields = None if state.value is None else fields_of(state.value, connection.definitions)
    return {"ref": state.ref.hex(), "fields": fields}


def _time(by: tuple[Committed, ...]) -> str | None:
    if not by:
        return None
    return dt.datetime.fromtimestamp(by[-1].time_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")


# --- for people ---


def _show(documents: list[dict[str, Any]], source: str, here: str) -> None:
    rows = [
        (d["partition"], d["histories"], d["fork_lsn"], d["touched"], sum(d["conflicts"].values())) for d in documents
    ]
    emit_table(["partition", "histories", "parted behind lsn", "objects touched", "conflicts"], rows)
    objects = [_row(d["partition"], o) for d in documents for o in d["objects"]]
    if objects:
        emit_table(["partition", "object", "is", f"at {source}", f"at {here}", "stands"], objects)


def _row(partition: str, o: dict[str, Any]) -> tuple[str, ...]:
    from halog.cli.values import short

    name = f"{o['type']} {short(o['key'])}"
    return partition, name, o["is"], _said(o["source"]), _said(o["initiating"]), o["stands"]


def _said(state: dict[str, Any] | None) -> str:
    from halog.cli.values import short

    if state is None:
        return "nothing"
    fields = state["fields"]
    return "unknown" if fields is None else "  ".join(f"{n}={short(v, 20)}" for n, v in fields.items())[:60]
