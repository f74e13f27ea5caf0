"""`halog plan rollback|list` brings what a plan has moved back to where it was (X10)."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

import click

from halog.cli.partition.migrate import rate_option
from halog.cli.partition.plan import (
    APPLY_S,
    at_once_option,
    carry_out,
    exit_if_refused,
    made_at,
    plan,
    show_plan,
    title,
)
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options, cluster_options_after
from halog.cli.shared.exit_codes import REFUSED_EXIT
from halog.cli.shared.messages import say
from halog.cli.shared.options import TIMEOUT_S, Name
from halog.cli.shared.output import emit

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.events import Event
    from halog.runtime.placement.plan import Plan

COUNT_S = 3.0
"""The command waits this long for the number of objects. A node that nobody has asked yet reads its keys: a million in
a second or two."""


@plan.command()
@click.argument("name", type=Name(), metavar="[PLAN]", default="")
@click.option("--partition", "only", type=Name(), multiple=True, metavar="NAME", help="Only this one; repeatable.")
@click.option("--dry-run", is_flag=True, help="Show what would go back; change nothing.")
@at_once_option
@rate_option
@cluster_options_after(APPLY_S, "Wait no longer (exit 6); what was begun goes on by itself.")
def rollback(
    name: str, only: tuple[str, ...], dry_run: bool, at_once: int, copy_rate: int | None, options: ClusterOptions
) -> None:
    """Bring what a plan has moved back to where it was before, and wait until it is there.

    PLAN is one of `halog plan list`, the last one if it is left out. It is done, or was cancelled half-way. The way
    back is a plan, too: it takes the place of the last one, and is carried out as `halog plan apply` does, under
    traffic. If it is interrupted, go on with the same command, or with `apply`; `cancel` ends it.

    Partitions that the plan did not move stay where they are. If one cannot go back (somebody has moved it since, or a
    node of before is gone), nothing is changed, the table says why, and the exit code is 5; --partition names those
    that should go back nevertheless. A plan that is not begun is refused, too: `halog plan cancel` ends it. A way back
    is rolled back only when it is named: then everything moves again as the plan had moved it.

    \b
    Examples:
      halog plan rollback --dry-run
      halog plan rollback
      halog plan rollback 51d6f0c2 --at-once 1 --copy-rate 5000000
      halog plan rollback 51d6f0c2 --partition flights-0 --partition flights-3
    """
    from halog.runtime.placement import plan as plans, plan_rollback as back

    with options.connect(at_most_s=TIMEOUT_S) as connection:
        for each in only:
            connection.table(each)
        found = back.under_way(connection.coordinator, connection.tables, name, only)
        way = found or _made(connection, name, only)
        copied = _objects_copied(connection, way)
        if dry_run or way.stay:
            show_plan(connection, way, options.format, copied=copied)
            _exit_if_some_stay(way)
            return
        if found is None:
            plans.store(connection.coordinator, way, connection.tables)
        states = carry_out(connection, way, at_once, copy_rate, options.timeout_s)
        show_plan(connection, way, options.format, states, copied)
    exit_if_refused(states)


def _made(connection: ClusterConnection, name: str, only: tuple[str, ...]) -> Plan:
    from halog.cli.shared.survey import CLIENT, DOWN, UP, survey
    from halog.metadata.drains import drained_nodes
    from halog.runtime.placement import plan_rollback as back

    undone, known = back.chosen(connection.coordinator, connection.tables, name)
    seen = survey(connection).nodes
    serving = [n.node for n in seen if n.state == UP]
    running = [n.node for n in seen if n.state not in (DOWN, CLIENT)]
    tables = {t.name: t for t in connection.tables}
    drained = drained_nodes(connection.coordinator)
    now = back.Situation(connection.config, tables, serving, running, known, _MoveHistory(connection), drained)
    return back.roll_back(undone, now, only)


class _MoveHistory:
    """Says what the event history has of moves. The history is read once, when it is first asked."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection

    def __call__(self, partition: str, nodes: tuple[str, ...]) -> str:
        """Return why and when the partition was last moved, if that was to these nodes. Empty: the history does not
        say, or not yet."""
        last = self._last.get(partition)
        return "" if last is None or last.more.get("to") != ", ".join(nodes) else f"{last.cause}, {_moment(last)}"

    @cached_property
    def _last(self) -> dict[str | None, Event]:
        from halog.cli.shared.event_log import EventLog
        from halog.events import MIGRATION

        events = (e for e in EventLog(self._connection).so_far() if e.code == MIGRATION.code)
        return {e.partition: e for e in sorted(events, key=lambda e: e.time_ms)}


def _moment(event: Event) -> str:
    from halog.cli.shared.event_log import time_text

    return time_text(event.time_ms)


def _objects_copied(connection: ClusterConnection, way: Plan) -> dict[str, int | None]:
    """Return, by partition, its objects, as often as a node makes a copy of it; None: not counted in time."""
    from halog.runtime.keys.loads import objects_of
    from halog.runtime.placement.plan_rollback import copies_of

    copies = copies_of(way.moves)
    wait_s = min(COUNT_S, connection.timeout_s)
    objects = objects_of(connection.router, [p for p, nodes in copies.items() if nodes], wait_s)
    return {p: objects[p] * len(nodes) if p in objects else None if nodes else 0 for p, nodes in copies.items()}


def _exit_if_some_stay(way: Plan) -> None:
    if way.stay:
        others = ": --partition names those that shall go back nevertheless" if way.moves else ""
        of = len(way.stay) + len(way.moves)
        say(f"halog: {len(way.stay)} of {of} partitions cannot go back; nothing was changed{others}")
        raise click.exceptions.Exit(REFUSED_EXIT)


@plan.command("list")
@cluster_options
def list_(options: ClusterOptions) -> None:
    """List the last plan and those before it that can be rolled back, the newest first.

    \b
    Examples:
      halog plan list
      halog plan list --format json
    """
    from halog.runtime.placement.plan import known, states_of

    with options.connect() as connection:
        found = [(p, Counter(states_of(p, connection.tables).values())) for p in known(connection.coordinator)]
    document = [
        {
            "plan": p.id,
            "made_ms": p.made_ms,
            "made_for": p.made_for,
            "why": p.why,
            "undoes": p.undoes,
            "cancelled": p.cancelled,
            "moves": len(p.moves),
            "states": counts,
        }
        for p, counts in found
    ]
    rows = [
        (title(p), made_at(p), len(p.moves), ", ".join(f"{n} {state}" for state, n in counts.items()), _whose(p))
        for p, counts in found
    ]
    emit(options.format, document, ["plan", "made", "moves", "now", "by"], rows)


def _whose(stored: Plan) -> str:
    if stored.undoes:
        return f"an operator, to roll back {stored.undoes}"
    return f"a node, for policy {stored.made_for}: {stored.why}" if stored.made_for else "an operator"
