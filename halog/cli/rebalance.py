"""`halog rebalance`: change where a policy has keys, and move the objects there under traffic (P13, T8)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halog.cli.options import config_option, timeout_after, timeout_option
from halog.cli.output import emit, emit_json, format_option
from halog.cli.talk import echo_facts, progress, say

if TYPE_CHECKING:
    from halog.cli.connection import Connection
    from halog.core.mapping import Layout
    from halog.runtime.wishes import Progress

WAIT_S = 3_600.0
"""How long it is waited for: a million objects take some minutes. The nodes go on without the command."""

DEGRADED_EXIT = 4

policy_option = click.option("--policy", metavar="NAME", help="The policy; may be left out where there is one only.")


@click.group(invoke_without_command=True)
@policy_option
@click.option("--dry-run", is_flag=True, help="Count what would move from where to where; change nothing.")
@click.option("--no-wait", is_flag=True, help="Return once it is begun.")
@config_option
@format_option
@timeout_after(WAIT_S, "Stop waiting (exit 6) after this long; the nodes go on.")
@click.pass_context
def rebalance(
    ctx: click.Context,
    policy: str | None,
    dry_run: bool,
    no_wait: bool,
    config_path: Path,
    format_: str,
    timeout_s: float,
) -> None:
    """Bring a policy's mapping to what the configuration file says: ring size, mapper, its version, partitions.

    Objects that belong elsewhere by then are moved while they are used; keys stay unique, and nothing is missed
    meanwhile. Partitions that are new are made first. Nodes that do not have the code of a new mapper are named, and
    nothing is changed (exit code 5). Whatever dies, the nodes go on by themselves; `cancel` turns the change back.

    \b
    Examples:
      halog rebalance --policy fleet --config new.toml --dry-run
      halog rebalance --policy fleet --config new.toml
      halog rebalance status
      halog rebalance cancel --policy fleet
    """
    if ctx.invoked_subcommand is not None:
        return
    from halog.cli.connection import connect, modules_beside

    with connect(config_path, min(timeout_s, 10.0)) as connection:
        modules_beside(connection.activated.own)
        name = _policy(connection, policy)
        if dry_run:
            _preview(connection, name, format_)
            return
        _begin(connection, name, format_, 0.0 if no_wait else timeout_s)


def _policy(connection: Connection, given: str | None) -> str:
    from halog.errors import ConfigError

    names = list(connection.config.policies)
    if given is None and len(names) != 1:
        raise ConfigError(f"name one with --policy; {connection.config.source} has {', '.join(names) or 'none'}")
    return given or names[0]


def _preview(connection: Connection, policy: str, format_: str) -> None:
    from collections.abc import Iterator

    from halog.backend import Found
    from halog.core.directory import is_entry
    from halog.runtime import mappings, wishes

    counted = 0
    layout = wishes.wished(connection.activated.own, policy)
    now = mappings.read(connection.coordinator, policy).mapping
    with progress() as bar:
        task = bar.add_task("partitions", total=len(now.partition_names(policy)), note="")

        def scan(partition: str) -> Iterator[Found]:
            nonlocal counted
            for found in connection.scan(partition, b""):
                counted += not is_entry(found.key)
                if counted % 1000 == 0:
                    bar.update(task, note=f"{counted:,} objects")
                yield found
            bar.advance(task)

        moves = wishes.preview(connection.coordinator, connection.places, connection.activated.own, policy, scan)
    document = {
        "policy": policy,
        "now": _as_json(now.now),
        "wished": _as_json(layout),
        "objects": counted,
        "would_move": sum(moves.values()),
        "moves": [{"from": a, "to": b, "objects": n} for (a, b), n in moves.items()],
    }
    emit(format_, document, ["from", "to", "objects"], [(a, b, n) for (a, b), n in moves.items()])
    say(f"{sum(moves.values()):,} of {counted:,} objects would move; nothing was changed")


def _begin(connection: Connection, policy: str, format_: str, wait_s: float) -> None:
    from halog.runtime import wishes

    config = connection.activated.own
    version = wishes.begin(connection.coordinator, connection.router, config, policy)
    if wait_s:
        with progress() as bar:
            task = bar.add_task("partitions", total=None, note="")

            def seen(now: Progress) -> None:
                bar.update(task, completed=now.clean, total=now.partitions, note=now.state)

            wishes.wait_until_done(connection.coordinator, policy, version, wishes.wished(config, policy), wait_s, seen)
    _show([wishes.progress(connection.coordinator, policy)], format_, single=True)
    if connection.activated.number and wait_s:
        say(f"version {connection.activated.number} of the configuration is active: `halog config activate` this file")


@rebalance.command()
@config_option
@format_option
@timeout_option
def status(config_path: Path, format_: str, timeout_s: float) -> None:
    """How far each policy is with its last change, and what is in the way. Exit code 4 while one is under way.

    \b
    Examples:
      halog rebalance status
      halog rebalance status --format json
    """
    from halog.cli.connection import connect
    from halog.runtime import wishes

    with connect(config_path, timeout_s) as connection:
        found = [wishes.progress(connection.coordinator, name) for name in connection.coordinator.children("policies")]
        problems = _problems(connection) if any(p.state != wishes.DONE for p in found) else []
    _show(found, format_, problems)
    for problem in problems:
        say(problem)
    if any(p.state != wishes.DONE for p in found):
        raise click.exceptions.Exit(DEGRADED_EXIT)


def _problems(connection: Connection) -> list[str]:
    """What nodes say that keeps objects from moving."""
    from halog.errors import HalogError
    from halog.runtime import frames

    said = []
    for node in sorted(n.name for n in connection.nodes.values() if n.hosts):
        try:
            reply = connection.router.request(node, frames.Status(), connection.timeout_s)
        except HalogError as error:
            said.append(f"node {node}: {error.message}")
            continue
        view: Any = reply.status.get("rebalance", {}) if isinstance(reply, frames.StatusIs) else {}
        said += [f"node {node}: {problem}" for problem in view.get("problems", [])]
    return said


@rebalance.command()
@policy_option
@config_option
@format_option
@timeout_option
def cancel(policy: str | None, config_path: Path, format_: str, timeout_s: float) -> None:
    """Turn a change back that is under way: what has moved moves back, as another change. New partitions stay, empty.

    \b
    Examples:
      halog rebalance cancel --policy fleet
    """
    from halog.cli.connection import connect
    from halog.runtime import wishes

    with connect(config_path, timeout_s) as connection:
        name = _policy(connection, policy)
        wishes.turn_back(connection.coordinator, name)
        _show([wishes.progress(connection.coordinator, name)], format_, single=True)


def _show(found: list[Progress], format_: str, problems: list[str] | None = None, *, single: bool = False) -> None:
    documents = [p._asdict() for p in found]
    if single and format_ == "json":
        emit_json(documents[0])
    elif single:
        echo_facts((name, value) for name, value in documents[0].items())
    else:
        document = {"policies": documents, "problems": problems or []}
        columns = ["policy", "version", "state", "clean", "partitions"]
        emit(format_, document, columns, [[d[c] for c in columns] for d in documents])


def _as_json(layout: Layout) -> dict[str, object]:
    return {
        "mapper": layout.mapper,
        "mapper_version": layout.mapper_version or None,
        "partitions": layout.partitions,
        "ring_size": layout.ring_size,
    }
