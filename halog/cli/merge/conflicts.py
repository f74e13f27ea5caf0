"""`halog conflicts list` shows where two sites' histories parted, and what a merge of them would make. It changes
nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options_after
from halog.cli.shared.options import Name
from halog.cli.shared.output import emit_json, emit_table
from halog.cli.shared.with_home import comparison_option, is_two_way, partition_option, with_home

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable
    from halog.ports import Log
    from halog.runtime.merge.compensation import Compensate, Compensations
    from halog.runtime.support.adapters import SiteAccess
    from restore.branch import Side
    from restore.creating import KeyDecision
    from restore.merge import BranchCommit, Difference, Even, State

READ_S = 120.0
"""The command waits this long: both logs are read from their last snapshots on."""

NO_OBJECTS = b"\xff" * 9
"""No index key begins with these bytes."""

LEFT_OUT = "left out"
"""Stands instead of how the histories are related, for a partition that a restore does not merge."""

UNDECIDED = "not decided here"
"""Stands where only the source's node can tell."""


@click.group()
def conflicts() -> None:
    """Show what contradicts in the histories of two sites that have both gone on, what merges made of it, and what they
    left to you; settle it.

    \b
    Examples:
      halog conflicts list --source east
      halog conflicts list --source east --format json
      halog conflicts show --partition flights-0
      halog conflicts settle Flight LH4 --as initiating
    """


@conflicts.command("list")
@click.option(
    "--source",
    "source",
    type=Name(),
    required=True,
    metavar="SITE",
    help="The site whose data is kept if nothing else decides.",
)
@partition_option
@comparison_option
@click.option("--all", "everything", is_flag=True, help="Also objects that only one site touched.")
@cluster_options_after(READ_S, "Give up (exit 3 or 6) after this long.")
def list_(source: str, names: tuple[str, ...], two_way: bool | None, everything: bool, options: ClusterOptions) -> None:
    """List what this site's history and that of site SOURCE contradict each other in, since they parted.

    Each object is shown with what it was then, what each site made of it, and what would stand. The triggers of the
    application's modules decide that first. Else an instance that only this site has is added, and in all other
    conflicts the source is kept. What a trigger cannot say here is shown as not decided. Reads both logs, and changes
    nothing.

    \b
    Examples:
      halog conflicts list --source east
      halog conflicts list --source east --partition flights-0 --all
      halog conflicts list --source east --two-way --format json
    """

    with options.connect() as connection:
        other = _other(connection, source)
        tables = with_home(connection, names)
        remote = connection.adapters.reach(other)
        try:
            sources = {table.name: source for table in tables}
            preview(
                connection,
                tables,
                sources,
                lambda site: remote,
                two_way=two_way,
                everything=everything,
                format_=options.format,
            )
        finally:
            remote.close()


def preview(
    connection: ClusterConnection,
    tables: Iterable[PartitionTable],
    sources: Mapping[str, str],
    reach: Callable[[str], SiteAccess],
    *,
    two_way: bool | None,
    everything: bool = False,
    left: Mapping[str, str] | None = None,
    format_: str,
) -> None:
    """Show what a restore would make of these partitions, each merged at its source. For `two_way` see `is_two_way`.
    `left` says by partition why a restore leaves it out."""
    begin, unasked = _deciding(connection)
    documents = [
        _partition(
            connection,
            reach(sources[table.name]),
            table,
            begin(),
            three_way=not is_two_way(connection, table.policy, two_way),
            everything=everything,
        )
        | {"why": unasked}
        for table in tables
    ]
    documents += [_left_out(name, why) for name, why in (left or {}).items()]
    if format_ == "json":
        emit_json(documents)
    else:
        _show(documents, ", ".join(dict.fromkeys(sources.values())), connection.config.site.name)


def _deciding(connection: ClusterConnection) -> tuple[Compensations, str]:
    """Return what decides conflicts as the source's nodes do. If the application's modules cannot be imported here,
    what a trigger may be asked about is left open, and the reason is returned: a preview that is wrong is worse than
    none."""
    from halog.errors import ConfigError
    from halog.runtime.merge.compensation import Compensation, most_of, undecided
    from halog.runtime.node.wiring import import_modules

    try:
        import_modules(connection.config)
    except ConfigError as e:
        unasked = f"triggers are not asked here: {e}"
        return lambda: undecided(unasked), unasked

    def place(type_name: str, routing_key: bytes) -> str:
        return connection.owner(type_name).partition(type_name, routing_key)

    most = most_of(connection.config, connection.places.policy_of)
    return lambda: Compensation(connection.definitions, connection.around.registry, most, place).decide, ""


def _other(connection: ClusterConnection, source: str) -> str:
    from halog.errors import UnknownNameError

    config = connection.config
    if source not in config.other_sites:
        raise UnknownNameError.of("site", source, list(config.other_sites), str(config.source))
    return source


def _partition(
    connection: ClusterConnection,
    remote: SiteAccess,
    table: PartitionTable,
    decide: Compensate,
    *,
    three_way: bool,
    everything: bool,
) -> dict[str, Any]:
    from halog.metadata.partition_tables import table_of
    from restore.branches import compared
    from restore.creating import TargetMerge, with_created
    from restore.plan import totals
    from restore.replay import name_of

    here = connection.config.site.name
    theirs = _side(connection, remote.name, remote.log, table_of(remote.coordinator, table.name))
    ours = _side(connection, here, connection.adapters.log, table)
    found = compared(theirs, ours, three_way=three_way, even=_even(connection, remote))
    # A key that neither site has touched since they parted is the same here as at the source.
    into = TargetMerge(table.name, name_of(ours.state), lambda key: connection.fetch(table.name, [key])[0])
    decided = with_created(decide(found.keys), into)
    counted = totals(d.choice for d in decided)
    return {
        "partition": table.name,
        "why": "",
        "histories": found.said(remote.name, here),
        "fork_lsn": found.fork_lsn,
        "touched": counted.keys,
        "conflicts": {kind.value: n for kind, n in counted.conflicts.items()},
        "objects": [
            _foreseen(connection, d) for d in decided if everything or d.choice.found.is_told or d.choice.deferred
        ],
    }


def _foreseen(connection: ClusterConnection, decided: KeyDecision) -> dict[str, Any]:
    """Return one key as a document. What fails here need not fail at the node, which has what a trigger reads."""
    choice = decided.choice
    document = told(connection, choice.found, choice.then, decided.by, choice.deferred) | {"undecided": ""}
    if not decided.failed:
        return document
    why = f"{choice.deferred} (here, where no node is whose objects it could read)" if decided.by else choice.deferred
    return document | {"stands": UNDECIDED, "then": None, "deferred": "", "undecided": why}


def _even(connection: ClusterConnection, source: SiteAccess) -> Even | None:
    """Return what brings values of types with several definitions to one form. The source's definitions come first, as
    its nodes will have them."""
    from halog.runtime.topics.schemas import of_both
    from halog.schema.versions import bringing

    return bringing(of_both(source.log, connection.definitions))


def _left_out(partition: str, why: str) -> dict[str, Any]:
    """Return a partition that is not compared as a document of the same form."""
    return {
        "partition": partition,
        "why": why,
        "histories": LEFT_OUT,
        "fork_lsn": None,
        "touched": 0,
        "conflicts": {},
        "objects": [],
    }


def _side(connection: ClusterConnection, site: str, log: Log, table: PartitionTable) -> Side:
    """Return a site's branch, read from where its log begins, or from its snapshot's marker where that was trimmed."""
    from halog.cli.shared.partition_log import place_of
    from halog.ports import TopicPartition
    from halog.runtime.topics.state_topic import load
    from halog.runtime.topics.topic_names import state_topic
    from restore.branch import Side, read_on

    tp, begin = place_of(table), table.beginning(site)
    _, end = log.bounds(tp)
    topic = TopicPartition(state_topic(connection.config, table.policy), table.index)
    loaded = load(log, table.name, tp, topic, begin, NO_OBJECTS)
    if loaded is None:
        return read_on(Side(site, log, tp, begin, 0), end)
    in_doubt = tuple(u.offset for u in loaded.ledger.undecided.values())
    at = loaded.position
    return read_on(Side(site, log, tp, at.state, at.next_offset, in_doubt), max(end, at.next_offset))


def told(connection: ClusterConnection, found: Difference, then: State, by: str, why: str) -> dict[str, Any]:
    """Return one key as a document. `by` is the trigger that decided; `why` says why an operator must decide."""
    name, key = _named(connection, found, then)
    stands = "source" if then == found.source else "initiating" if then == found.initiating else "merged"
    return {
        "type": name,
        "key": key,
        "is": found.kind.value,
        "base": state_of(connection, found.base),
        "source": state_of(connection, found.source),
        "initiating": state_of(connection, found.initiating),
        "source_time": _time(found.source_by),
        "initiating_time": _time(found.initiating_by),
        "stands": "nothing" if stands == "merged" and then is None else stands,
        "then": state_of(connection, then),
        "by": by,
        "deferred": why,
    }


def _named(connection: ClusterConnection, found: Difference, then: State) -> tuple[str, list[Any]]:
    from halog.cli.shared.values import describe_key
    from halog.errors import HalogError

    family, key = describe_key(connection.definitions, found.key)
    some = found.source or found.initiating or found.base or then
    if some is None or some.value is None:
        return family, key
    try:
        return connection.definitions.of(some.value).name, key
    except HalogError:
        return family, key


def state_of(connection: ClusterConnection, state: State) -> dict[str, Any] | None:
    """Return a state as a document."""
    from halog.cli.shared.record_text import fields_of

    if state is None:
        return None
    fields = None if state.value is None else fields_of(state.value, connection.definitions)
    return {"ref": state.ref.hex(), "fields": fields}


def _time(by: tuple[BranchCommit, ...]) -> str | None:
    if not by:
        return None
    return dt.datetime.fromtimestamp(by[-1].time_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")


# --- for people ---


def _show(documents: list[dict[str, Any]], source: str, here: str) -> None:
    rows = [
        (
            d["partition"],
            d["histories"],
            d["fork_lsn"],
            d["touched"],
            sum(d["conflicts"].values()),
            d["why"],
        )
        for d in documents
    ]
    emit_table(["partition", "histories", "parted behind lsn", "objects touched", "conflicts", "why"], rows)
    objects = [_row(d["partition"], o) for d in documents for o in d["objects"]]
    if objects:
        emit_table(["partition", "object", "is", f"at {source}", f"at {here}", "stands"], objects)


def _row(partition: str, o: dict[str, Any]) -> tuple[str, ...]:
    from halog.cli.shared.values import short

    name = f"{o['type']} {short(o['key'])}"
    return partition, name, o["is"], said_of(o["source"]), said_of(o["initiating"]), stands(o)


def stands(o: dict[str, Any]) -> str:
    """Return what stands of a key, in a word or two."""
    if o.get("undecided"):
        return f"{UNDECIDED}: {o['undecided']}"[:80]
    said = str(o["stands"]) if o["stands"] != "merged" else said_of(o["then"])
    if o.get("closed"):
        return f"{said} (was for an operator, {o['closed']})"
    return f"{said} (for an operator: {o['deferred']})"[:80] if o["deferred"] else said


def said_of(state: dict[str, Any] | None) -> str:
    """Return a state's fields on one line."""
    from halog.cli.shared.values import short

    if state is None:
        return "nothing"
    fields = state["fields"]
    return "unknown" if fields is None else "  ".join(f"{n}={short(v, 20)}" for n, v in fields.items())[:60]
