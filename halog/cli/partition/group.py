"""This module has the commands `halog partition list|show|lag`. They show where partitions live and how far their
copies are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import echo_facts
from halog.cli.shared.options import Name
from halog.cli.shared.output import emit_json, emit_table
from halog.core.tolerant import plain

if TYPE_CHECKING:
    from halog.cli.shared.survey import CopyView, PartitionView
    from halog.core.table.table import PartitionTable


@click.group()
def partition() -> None:
    """Show where partitions live and what their copies do; change it.

    \b
    Examples:
      halog partition list
      halog partition show flights-3
      halog partition lag
    """


@partition.command("list")
@cluster_options
@click.option("--degraded", is_flag=True, help="Only those that `halog status` calls degraded.")
def list_(options: ClusterOptions, degraded: bool) -> None:
    """List partitions with their active node, node list and state.

    `state` says whether anything is missing, `life` what the partition does: Initial, Active, Migrating, Replicating,
    Updating or Unavailable.

    \b
    Examples:
      halog partition list
      halog partition list --degraded
      halog partition list --format json
    """
    from halog.cli.shared.survey import WELL

    views = [v for v in _views(options) if not degraded or v.state not in WELL]
    if options.format == "json":
        emit_json([as_json(v) for v in views])
        return
    rows = [
        (v.partition, v.state, v.life, v.active, v.epoch, v.lsn, _node_list(v), ", ".join(v.missing)) for v in views
    ]
    emit_table(["partition", "state", "life", "active", "epoch", "lsn", "replicas", "missing"], rows)


def _views(options: ClusterOptions, only: str | None = None) -> list[PartitionView]:
    from halog.cli.shared.survey import survey, survey_of

    with options.connect() as connection:
        if only is None:
            return list(survey(connection).partitions)
        table = connection.table(only)
        return [survey_of(connection, table)]


def as_json(view: PartitionView) -> dict[str, Any]:
    """Return a partition as plain values."""
    import msgspec

    from halog.cli.shared.divergence_rows import document

    plain: dict[str, Any] = msgspec.to_builtins(view)
    return {**plain, "parted": None if view.parted is None else document(view.partition, view.parted)}


def _node_list(view: PartitionView) -> str:
    return ", ".join(f"{c.node} ({c.kind})" for c in view.copies if c.kind in ("sync", "async"))


@partition.command("show")
@click.argument("name", type=Name(), metavar="PARTITION")
@cluster_options
def show(name: str, options: ClusterOptions) -> None:
    """Show one partition: its table in the coordinator, and every copy.

    \b
    Examples:
      halog partition show flights-3
      halog partition show flights-3 --format json
    """

    from halog.cli.shared.survey import survey_of

    with options.connect() as connection:
        table = connection.table(name)
        view = survey_of(connection, table)
    if options.format == "json":
        group = plain(table.group)
        place = {"topic": table.topic, "index": table.index, "log_id": table.log_id}
        said = {"definitions": plain(table.definitions), "resync": plain(table.resync)}
        emit_json({**as_json(view), **place, **said, "quorum": table.quorum, "group": group, **_moving_json(table)})
        return
    _show_facts(table, view)
    _show_copies(view.copies)
    _show_seen(table, view)


def _show_facts(table: PartitionTable, view: PartitionView) -> None:
    echo_facts(
        [
            ("partition", f"{view.partition}: {view.state}"),
            *_parted(view),
            ("life", view.life),
            ("policy", view.policy),
            ("log", f"{table.topic}, partition {table.index}"),
            ("log id", table.log_id),
            ("epoch", view.epoch),
            ("active", view.active),
            ("configured", ", ".join(view.configured)),
            ("missing", ", ".join(view.missing) or "none"),
            *_moving(table),
            *_copied_anew(table),
            ("nodes needed", _needed(table)),
            *((f"site {s.site}", f"{s.state}, {s.behind} records not confirmed") for s in view.sites),
            *([("votes of sites", _votes(view))] if view.votes else []),
        ]
    )


def _votes(view: PartitionView) -> str:
    """Return the votes of sites, and whose they are."""
    return ", ".join(f"{v.site}'s {v.votes}: {v.given_to or 'not known'}" for v in view.votes)


def _parted(view: PartitionView) -> list[tuple[str, object]]:
    """Return what the other site has done, too."""
    from halog.cli.shared.divergence_rows import summary

    return [] if view.parted is None else [("parted", summary(view.parted))]


def _moving_json(table: PartitionTable) -> dict[str, object]:
    from halog.core.table.migration import left

    target = table.target
    return {"target": None if target is None else list(target.nodes), "still_to_do": list(left(table))}


def _moving(table: PartitionTable) -> list[tuple[str, object]]:
    """Return where it is moving to, and what is left to do."""
    from halog.core.table.migration import left

    if table.target is None:
        return []
    return [("moves to", ", ".join(table.target.nodes)), ("still to do", "; ".join(left(table)))]


def _copied_anew(table: PartitionTable) -> list[tuple[str, object]]:
    """Return the replicas that are copied anew on demand."""
    from halog.core.table.resync import left

    return [("replicates", "; ".join(left(table)))] if table.resync is not None else []


def _show_seen(table: PartitionTable, view: PartitionView) -> None:
    """Show how every node has it, foreign ones included, and what each has defined."""
    rows = []
    for seen in view.seen:
        said = table.definitions.get(seen.node)
        definition = "" if said is None else f"{', '.join(said.nodes)} with {said.sync_replicas} sync"
        rows.append((seen.node, seen.status, seen.life, definition))
    emit_table(["node", "status", "life", "definition"], rows)


def _needed(table: PartitionTable) -> str:
    """Return how many nodes a commit needs, and why."""
    from halog.core.table.group import as_of, needed
    from halog.runtime.support.clock import wall_ms

    now, active = as_of(table, wall_ms()), "" if table.active is None else table.active.node
    number, why = needed(now, active), _overridden(now, active) or ("quorum" if table.quorum else "")
    if now is not table:
        why += f"{'; ' if why else ''}an override is over, and stands in ZooKeeper still"
    return f"{number} ({why})" if why else f"{number}"


def _overridden(table: PartitionTable, active: str) -> str:
    """Return which override says so, or ""."""
    group = table.group
    if group.designated and group.designated == active:
        what, until_ms, reason = f"{active} is designated", group.designated_until_ms, group.designated_reason
    elif group.required:
        what, until_ms, reason = f"{group.required} required", group.required_until_ms, group.required_reason
    else:
        return ""
    if until_ms:
        what += f" until {datetime.fromtimestamp(until_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"{what}{': ' + reason if reason else ''}"


def _show_copies(copies: tuple[CopyView, ...]) -> None:
    rows = [(c.node, c.kind, c.role, c.lsn, c.lag_records, _ms(c), c.error or _discarded(c)) for c in copies]
    emit_table(["node", "kind", "role", "lsn", "behind", "ms", ""], rows)


def _discarded(copy: CopyView) -> str:
    return f"{copy.discarded_objects} objects discarded for the log's" if copy.discarded_objects else ""


def _ms(copy: CopyView) -> str | None:
    return None if copy.lag_ms is None else f"{copy.lag_ms:.0f}"


@partition.command("lag")
@click.argument("name", type=Name(), metavar="[PARTITION]", required=False)
@cluster_options
def lag(name: str | None, options: ClusterOptions) -> None:
    """Show how far each replica is behind its active node, the furthest first.

    A replica's lag is what it knows itself: the active node tells its last lsn with every keep-alive.

    \b
    Examples:
      halog partition lag
      halog partition lag flights-3
      halog partition lag --format json
    """
    rows = [(v, c) for v in _views(options, name) for c in v.copies if c.kind != "active"]
    rows.sort(key=lambda row: _urgency(row[1]), reverse=True)
    if options.format == "json":
        emit_json([_lag_json(v, c) for v, c in rows])
        return
    emit_table(
        ["partition", "node", "kind", "lsn", "active's lsn", "behind", "ms", ""],
        [(v.partition, c.node, c.kind, c.lsn, v.lsn, c.lag_records, _ms(c), c.error or "") for v, c in rows],
    )


def _urgency(copy: CopyView) -> tuple[bool, int, float]:
    return copy.error is not None, copy.lag_records or 0, copy.lag_ms or 0.0


def _lag_json(view: PartitionView, copy: CopyView) -> dict[str, Any]:
    return {
        "partition": view.partition,
        "node": copy.node,
        "kind": copy.kind,
        "lsn": copy.lsn,
        "active_lsn": view.lsn,
        "records": copy.lag_records,
        "ms": copy.lag_ms,
        "error": copy.error,
    }
