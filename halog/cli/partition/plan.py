"""This module has the commands `halog plan create|show|apply|status|cancel`. They spread partitions over the nodes; a
plan is looked at before it is done (P13)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from halog.cli.partition.migrate import rate_option
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options, cluster_options_after
from halog.cli.shared.exit_codes import DEGRADED_EXIT, REFUSED_EXIT
from halog.cli.shared.messages import progress, say
from halog.cli.shared.options import Name, number_of
from halog.cli.shared.output import emit_json, emit_table

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.runtime.placement.plan import Plan

AT_ONCE = 2
"""So many partitions move at the same time: each copies its data beside the traffic, and two keep two disks busy."""

APPLY_S = 3_600.0
"""`apply` may take this long: it can be stopped and taken up again at any time."""


@click.group()
def plan() -> None:
    """Make copies and roles even over the nodes of their zones: as a plan first, then under traffic.

    A plan also brings partitions to the number of copies that the configuration asks for by now, and copies of one
    partition into different failure domains (`[nodes.NAME] failure_domain`). `rollback` brings back what a plan has
    moved.

    \b
    Examples:
      halog plan create
      halog plan apply
      halog plan status
      halog plan rollback --dry-run
    """


@plan.command()
@click.option("--policy", "policies", type=Name(), multiple=True, metavar="NAME", help="Only this policy; repeatable.")
@click.option("--replace-down", is_flag=True, help="Put other nodes in the place of those that are down now.")
@click.option("--skip-inconsistent", is_flag=True, help="Leave partitions that a node has defined elsewhere.")
@click.option("--dry-run", is_flag=True, help="Only show it; do not make it the cluster's plan.")
@cluster_options
def create(
    policies: tuple[str, ...], replace_down: bool, skip_inconsistent: bool, dry_run: bool, options: ClusterOptions
) -> None:
    """Plan what should move, and why. Moves nothing yet.

    It moves as few copies as evenness allows: within each policy one node has at most one copy more than another, and
    is preferred for at most one partition more. Policies are not evened out against each other: only in a tie, a copy
    that moves anyway goes to the node with the fewest copies of all policies. A node that is down keeps what it has and
    gets nothing new. The plan replaces the last one, unless that is half done (exit code 5).

    If a running node has defined a partition on other nodes than the cluster has it on, and not enabled it, that is an
    error that names both lists (exit code 5). Then nothing is planned, unless --skip-inconsistent.

    A static policy is planned only when it is named: its partitions go to where the configuration has them.

    \b
    Examples:
      halog plan create
      halog plan create --policy fleet --dry-run
      halog plan create --replace-down
    """
    from halog.cli.shared.survey import CLIENT, DOWN, UP, survey
    from halog.metadata.drains import drained_at
    from halog.runtime.placement.plan import check, make, store

    with options.connect() as connection:
        drained = drained_at(connection.coordinator)  # read first: the plan does not know of nodes drained meanwhile
        if ignored := connection.activated.ignored(connection.name):
            say(f"the plan goes by version {connection.activated.number}, not by {options.config_path} in {ignored}")
        seen = survey(connection).nodes
        serving = [n.node for n in seen if n.state == UP]
        running = [n.node for n in seen if n.state not in (DOWN, CLIENT)]
        down = [n.node for n in seen if n.state == DOWN] if replace_down else []
        if not skip_inconsistent:
            check(connection.config, connection.tables, running, policies)
        made = make(connection.config, connection.tables, serving, running, policies, replaced=down, drained=drained)
        if not dry_run:
            store(connection.coordinator, made, connection.tables)
        show_plan(connection, made, options.format)
        _tell_static(connection, policies)
        _tell_drained(made)
    if made.moves and not dry_run:
        say(f"plan {made.id}: {len(made.moves)} partitions are to move; `halog plan apply` moves them")


@plan.command()
@cluster_options
def show(options: ClusterOptions) -> None:
    """Show the plan: what moves from where to where, why, and how far that is.

    \b
    Examples:
      halog plan show
      halog plan show --format json
    """

    with options.connect() as connection:
        show_plan(connection, _stored(connection), options.format)


@plan.command()
@cluster_options
def status(options: ClusterOptions) -> None:
    """Show how far the plan is, in figures. Exit code 4 while something waits or moves.

    \b
    Examples:
      halog plan status
      halog plan status --format json
    """
    from halog.runtime.placement.plan import MOVING, WAITING, states_of

    with options.connect() as connection:
        stored = _stored(connection)
        counts = Counter(states_of(stored, connection.tables).values())
    if options.format == "json":
        emit_json(
            {
                "plan": stored.id,
                "made_for": stored.made_for,
                "undoes": stored.undoes,
                "cancelled": stored.cancelled,
                "moves": len(stored.moves),
                **counts,
            }
        )
    else:
        emit_table(
            ["plan", "made", "moves", *counts], [(title(stored), made_at(stored), len(stored.moves), *counts.values())]
        )
    if counts[MOVING] or (counts[WAITING] and not stored.cancelled):
        raise click.exceptions.Exit(DEGRADED_EXIT)


at_once_option = click.option(
    "--at-once", type=number_of(1), default=AT_ONCE, show_default=True, help="Partitions that move together."
)


@plan.command()
@at_once_option
@rate_option
@cluster_options_after(APPLY_S, "Wait no longer (exit 6); what was begun goes on by itself.")
def apply(at_once: int, copy_rate: int | None, options: ClusterOptions) -> None:
    """Carry out the plan, a few partitions at a time, and wait until all of them are where they should be.

    It moves them under traffic, as `halog partition migrate` does. It may be interrupted: the nodes finish what was
    begun, and the next `apply` goes on with the rest. Partitions that somebody else moved since the plan was made are
    left alone. Exit code 5 if a move was refused. It is the same if a node that should get copies was drained since the
    plan was made; then nothing moves.

    \b
    Examples:
      halog plan apply
      halog plan apply --at-once 1 --copy-rate 5000000
    """

    with options.connect() as connection:
        stored = _stored(connection)
        if stored.cancelled:
            say(f"plan {stored.id} was cancelled; `halog plan create` makes another one")
            raise click.exceptions.Exit(REFUSED_EXIT)
        states = carry_out(connection, stored, at_once, copy_rate, options.timeout_s)
        show_plan(connection, stored, options.format, states)
    exit_if_refused(states)


def carry_out(
    connection: ClusterConnection, stored: Plan, at_once: int, copy_rate: int | None, timeout_s: float
) -> dict[str, str]:
    """Move what waits, under a bar that counts partitions. Return how far each one is."""
    from halog.cli.partition.move_events import MoveEvents
    from halog.runtime.placement import plan as plans

    with MoveEvents(connection) as told, progress() as bar:
        task = bar.add_task("partitions moved", total=len(stored.moves), note="")
        said = ""

        def tell(states: dict[str, str]) -> None:
            nonlocal said
            told.tell()
            moving = [p for p, s in states.items() if s == plans.MOVING]
            finished = sum(s not in (plans.MOVING, plans.WAITING) for s in states.values())
            note = f"moving: {', '.join(f'{p}{_pace(connection, p)}' for p in moving)}" if moving else ""
            bar.update(task, completed=finished, note=note)
            if bar.disable and note and note != said:
                say(f"{finished} of {len(states)} moved; {note}")
            said = note

        return plans.apply(
            connection.coordinator,
            connection.config,
            connection.router,
            stored,
            at_once,
            timeout_s,
            tell,
            told=told,
            copy_rate=copy_rate,
        )


def exit_if_refused(states: dict[str, str]) -> None:
    """Exit with code 5 if a move was refused, or something was in its way that somebody must look at."""
    from halog.runtime.placement.plan import CHANGED, DONE

    if any(s not in (DONE, CHANGED) for s in states.values()):
        raise click.exceptions.Exit(REFUSED_EXIT)


@plan.command()
@cluster_options
def cancel(options: ClusterOptions) -> None:
    """Begin nothing more of the plan. What moves already is finished by the nodes.

    \b
    Examples:
      halog plan cancel
      halog plan cancel --format json
    """
    from halog.runtime.placement.plan import MOVING, WAITING, cancel as cancel_plan, states_of

    with options.connect() as connection:
        cancelled = cancel_plan(connection.coordinator)
        counts = Counter(states_of(cancelled, connection.tables).values())
    if options.format == "json":
        emit_json({"plan": cancelled.id, "cancelled": True, "moving": counts[MOVING], "stay": counts[WAITING]})
    else:
        click.echo(f"plan {cancelled.id}: cancelled; {counts[MOVING]} partitions are moving, {counts[WAITING]} stay")


def _pace(connection: ClusterConnection, partition: str) -> str:
    """Return the highest rate at which its new copy is read, if there is a limit."""
    from halog.core.table.migration import copy_rate

    known = connection.router.tables.get(partition)
    wanted = () if known is None or known[1].target is None else known[1].target.nodes
    rate = max((copy_rate(known[1], n) for n in wanted), default=0) if known is not None else 0
    return f" (its copy at {rate:,} bytes a second at most)" if rate else ""


def _tell_drained(made: Plan) -> None:
    """Tell of nodes that were drained, and to which the plan brings copies again."""
    for node in sorted(made.drained):
        if comes := [m.partition for m in made.moves if node in m.target.nodes and node not in m.before]:
            say(
                f"{node} was drained, and is to have {', '.join(comes)}: when the plan is carried out, it no longer "
                "counts as drained"
            )


def _tell_static(connection: ClusterConnection, named: tuple[str, ...]) -> None:
    """Tell of static policies that were left alone, and have partitions that the configuration places otherwise."""
    from halog.core.table.table import Target
    from halog.runtime.placement.bootstrap import by_hand

    for name, policy in connection.config.policies.items():
        wanted = {} if name in named else by_hand(policy)
        now = {t.name: t.target or Target(t.configured, t.sync_replicas) for t in connection.tables if t.policy == name}
        away = [p for p, place in now.items() if wanted.get(p, place) != place]
        if away:
            say(
                f"policy {name} is static and was left alone; {', '.join(away)}: elsewhere than the configuration "
                f"says, `halog plan create --policy {name}` plans the way"
            )


def _stored(connection: ClusterConnection) -> Plan:
    from halog.errors import NothingToDoError
    from halog.runtime.placement.plan import read

    stored = read(connection.coordinator)
    if stored is None:
        raise NothingToDoError("there is no plan: `halog plan create` makes one")
    return stored


def show_plan(
    connection: ClusterConnection,
    stored: Plan,
    format_: str,
    states: dict[str, str] | None = None,
    copied: Mapping[str, int | None] | None = None,
) -> None:
    """Show what moves, and how far that is. `copied` says by partition how many objects are copied for it, if that is
    known."""
    from halog.runtime.placement.plan import states_of

    known = states_of(stored, connection.tables) if states is None else states
    if format_ == "json":
        emit_json(_as_json(stored, known, copied))
        return
    if stored.made_for:
        say(f"plan {stored.id} was made for policy {stored.made_for} by a node, since {stored.why}; nodes carry it out")
    if stored.undoes:
        say(f"plan {stored.id} rolls back plan {stored.undoes}")
    if not stored.moves:
        say("nothing is to move: every partition is as it shall be" if not stored.stay else "nothing can move")
    extra = () if copied is None else ("objects copied",)
    rows = []
    for m in stored.moves:
        objects = () if copied is None else ("?" if copied[m.partition] is None else copied[m.partition],)
        to, sync = ", ".join(m.target.nodes), m.target.sync_replicas
        rows.append((m.partition, ", ".join(m.before), to, sync, *objects, known[m.partition], m.why))
    stay = [(name, "", "", "", *("" for _ in extra), "stays", why) for name, why in stored.stay.items()]
    if rows or stay:
        emit_table(["partition", "from", "to", "sync", *extra, "state", "why"], [*rows, *stay])


def _as_json(stored: Plan, states: dict[str, str], copied: Mapping[str, int | None] | None) -> dict[str, Any]:
    moves = [
        {
            "partition": m.partition,
            "from": list(m.before),
            "to": list(m.target.nodes),
            "sync_replicas": m.target.sync_replicas,
            "state": states[m.partition],
            "why": m.why,
            **({} if copied is None else {"objects_copied": copied[m.partition]}),
        }
        for m in stored.moves
    ]
    return {
        "plan": stored.id,
        "made_for": stored.made_for,
        "why": stored.why,
        "undoes": stored.undoes,
        "cancelled": stored.cancelled,
        "moves": moves,
        "stay": stored.stay,
    }


def title(stored: Plan) -> str:
    """Return its name, and whether it ended early."""
    return f"{stored.id} (cancelled)" if stored.cancelled else stored.id


def made_at(stored: Plan) -> str:
    """Return when it was made, in UTC."""
    return datetime.fromtimestamp(stored.made_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
