"""`halog rebalance`: change where a policy has keys, and move the objects there under traffic (P13, S1, T8)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.by_spark import LOCAL_SPARK, check_installed
from halog.cli.shared.exit_codes import DEGRADED_EXIT
from halog.cli.shared.messages import echo_facts, progress, say
from halog.cli.shared.options import Name, Text, config_option, timeout_after, timeout_option
from halog.cli.shared.output import emit, emit_json, format_option

if TYPE_CHECKING:
    from halog.cli.shared.connection import Connection
    from halog.config import Config
    from halog.core.keys.mapping import Layout
    from halog.runtime.remap.remap_request import RemapProgress

WAIT_S = 3_600.0
"""How long it is waited for: a million objects take some minutes. The nodes go on without the command."""


policy_option = click.option(
    "--policy", type=Name(), metavar="NAME", help="The policy; may be left out where there is one only."
)


@click.group(invoke_without_command=True)
@policy_option
@click.option(
    "--zone", type=Name(), metavar="NAME", help="All policies of a zone whose mapping is another one than the file's."
)
@click.option("--dry-run", is_flag=True, help="Count what would move from where to where; change nothing.")
@click.option("--no-wait", is_flag=True, help="Return once it is begun.")
@click.option("--spark", is_flag=True, help="A Spark job finds what is to move, and hands it to the nodes.")
@click.option(
    "--spark-master", type=Text(), metavar="URL", show_default=LOCAL_SPARK, help="Where Spark runs; implies --spark."
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where a job that was killed goes on from; implies --spark. Of a zone, a directory in it for each policy.",
)
@config_option
@format_option
@timeout_after(WAIT_S, "Stop waiting (exit 6) after this long; the nodes go on.")
@click.pass_context
def rebalance(
    ctx: click.Context,
    policy: str | None,
    zone: str | None,
    dry_run: bool,
    no_wait: bool,
    spark: bool,
    spark_master: str | None,
    checkpoint: Path | None,
    config_path: Path,
    format_: str,
    timeout_s: float,
) -> None:
    """Bring a policy's mapping to what the configuration file says: ring size, mapper, its version, partitions.

    Objects that belong elsewhere by then are moved while they are used; keys stay unique, and nothing is missed
    meanwhile. Partitions that are new are made first. Nodes that do not have the code of a new mapper are named, and
    nothing is changed (exit code 5). Whatever dies, the nodes go on by themselves; `cancel` turns the change back.

    With --spark a job shows all objects to the mapper, on a Spark cluster or here, and the nodes move what it finds. It
    joins a change that is under way, so a job that was killed is started again with the same command.

    \b
    Examples:
      halog rebalance --policy fleet --config new.toml --dry-run
      halog rebalance --policy fleet --config new.toml
      halog rebalance --zone main --config new.toml --spark --checkpoint var/rebalance
      halog rebalance --policy fleet --config new.toml --spark-master spark://host:7077
      halog rebalance status
      halog rebalance cancel --policy fleet
    """
    if ctx.invoked_subcommand is not None:
        return
    if policy is not None and zone is not None:
        raise click.UsageError("give --policy or --zone")
    if spark or spark_master is not None or checkpoint is not None:
        if no_wait or (dry_run and checkpoint is not None):
            raise click.UsageError(f"{'--no-wait' if no_wait else '--checkpoint'} is of no use to this job")
        _by_spark(config_path, policy, zone, spark_master or LOCAL_SPARK, checkpoint, dry_run, format_, timeout_s)
        return
    from halog.cli.shared.connection import connect, modules_beside

    with connect(config_path, min(timeout_s, 10.0)) as connection:
        modules_beside(connection.activated.own)
        wait_s = 0.0 if no_wait else timeout_s
        if zone is not None:
            _of_zone(connection, zone, format_, wait_s, dry_run=dry_run)
        elif dry_run:
            _preview(connection, [_only_policy(connection.config, policy)], format_, single=True)
        else:
            _begin(connection, _only_policy(connection.config, policy), format_, wait_s)


def _by_spark(
    config_path: Path,
    policy: str | None,
    zone: str | None,
    master: str,
    checkpoint: Path | None,
    dry_run: bool,
    format_: str,
    wait_s: float,
) -> None:
    """In this process: what `python -m spark_jobs.rebalance` does."""
    from halog.cli.shared.connection import modules_beside
    from halog.config import load_config

    check_installed("the nodes find by themselves what is to move")
    import spark_jobs.rebalance as job

    config = load_config(config_path)
    modules_beside(config)
    name = None if zone is not None else _only_policy(config, policy)
    if dry_run:
        job.count(config_path, name, zone, master, format_)
    else:
        job.move(config_path, name, zone, master, checkpoint, wait_s, format_)


def _of_zone(connection: Connection, zone: str, format_: str, wait_s: float, *, dry_run: bool) -> None:
    """All of them are checked before the first is begun."""
    from halog.runtime.remap import remap_request as wishes

    config, coordinator, router = connection.activated.own, connection.coordinator, connection.router
    names = wishes.of_zone(coordinator, config, zone)
    if dry_run:
        _preview(connection, names, format_)
        return
    for name in names:
        wishes.check(coordinator, router, config, name)
    begun = {name: wishes.join(coordinator, router, config, name) for name in names}
    for name, version in begun.items():
        if wait_s:
            _wait(connection, name, version, wait_s)
    _show([wishes.progress(coordinator, name) for name in names], format_)
    if not names:
        say(f"no mapping of zone {zone} is another one than the file's; nothing was changed")
    elif connection.activated.number and wait_s:
        _say_number(connection)


def _only_policy(config: Config, given: str | None) -> str:
    """The one that is meant. ConfigError where that is not clear."""
    from halog.errors import ConfigError

    names = list(config.policies)
    if given is None and len(names) != 1:
        raise ConfigError(f"name one with --policy; {config.source} has {', '.join(names) or 'none'}")
    return given or names[0]


def _preview(connection: Connection, policies: list[str], format_: str, *, single: bool = False) -> None:
    documents = [_previewed(connection, policy) for policy in policies]
    rows = [(m["from"], m["to"], m["objects"]) for d in documents for m in d["moves"]]
    emit(format_, documents[0] if single else {"policies": documents}, ["from", "to", "objects"], rows)
    moves, objects = (sum(d[name] for d in documents) for name in ("would_move", "objects"))
    say(f"{moves:,} of {objects:,} objects would move; nothing was changed")


def _previewed(connection: Connection, policy: str) -> dict[str, Any]:
    from halog.cli.shared.remap_begin import counted
    from halog.metadata import mapped_policies
    from halog.runtime.remap import remap_request as wishes

    wanted = connection.activated.own
    layout = wishes.wished(wanted, policy)
    now = mapped_policies.read(connection.coordinator, policy).mapping
    objects, moves = counted(connection, wanted, policy)
    return {
        "policy": policy,
        "now": _as_json(now.now),
        "wished": _as_json(layout),
        "objects": objects,
        "would_move": sum(moves.values()),
        "moves": [{"from": a, "to": b, "objects": n} for (a, b), n in moves.items()],
    }


def _begin(connection: Connection, policy: str, format_: str, wait_s: float) -> None:
    from halog.runtime.remap import remap_request as wishes

    version = wishes.begin(connection.coordinator, connection.router, connection.activated.own, policy)
    if wait_s:
        _wait(connection, policy, version, wait_s)
    _show([wishes.progress(connection.coordinator, policy)], format_, single=True)
    if connection.activated.number and wait_s:
        _say_number(connection)


def _wait(connection: Connection, policy: str, version: int, wait_s: float) -> None:
    from halog.runtime.remap import remap_request as wishes

    layout = wishes.wished(connection.activated.own, policy)
    with progress() as bar:
        task = bar.add_task("partitions", total=None, note="")

        def seen(now: RemapProgress) -> None:
            bar.update(task, completed=now.clean, total=now.partitions, note=now.state)

        wishes.wait_until_done(connection.coordinator, policy, version, layout, wait_s, seen)


def _say_number(connection: Connection) -> None:
    """Nodes that start go by the active version, until that is another one, too."""
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
    from halog.cli.shared.connection import connect
    from halog.runtime.remap import remap_request as wishes

    with connect(config_path, timeout_s) as connection:
        found = [wishes.progress(connection.coordinator, name) for name in connection.coordinator.children("policies")]
        said = _said(connection) if any(p.state != wishes.DONE for p in found) else ([], {})
    problems, left_to = said
    _show(found, format_, problems, left_to)
    for policy, job in left_to.items():
        say(f"policy {policy}: {job} finds what is to move, and the nodes leave that to it")
    for problem in problems:
        say(problem)
    if any(p.state != wishes.DONE for p in found):
        raise click.exceptions.Exit(DEGRADED_EXIT)


def _said(connection: Connection) -> tuple[list[str], dict[str, str]]:
    """What nodes say that keeps objects from moving; and by policy the job that they leave the search to."""
    from halog.errors import HalogError
    from halog.runtime.rpc import frames

    problems: list[str] = []
    left_to: dict[str, str] = {}
    for node in sorted(n.name for n in connection.nodes.values() if n.hosts):
        try:
            reply = connection.router.request(node, frames.Status(), connection.timeout_s)
        except HalogError as error:
            problems.append(f"node {node}: {error.message}")
            continue
        view: Any = reply.status.get("rebalance", {}) if isinstance(reply, frames.StatusIs) else {}
        problems += [f"node {node}: {problem}" for problem in view.get("problems", [])]
        left_to |= view.get("left_to", {})
    return problems, left_to


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
    from halog.cli.shared.connection import connect
    from halog.runtime.remap import remap_request as wishes

    with connect(config_path, timeout_s) as connection:
        name = _only_policy(connection.config, policy)
        wishes.turn_back(connection.coordinator, name)
        _show([wishes.progress(connection.coordinator, name)], format_, single=True)


def _show(
    found: list[RemapProgress],
    format_: str,
    problems: list[str] | None = None,
    left_to: dict[str, str] | None = None,
    *,
    single: bool = False,
) -> None:
    documents = [p._asdict() for p in found]
    if single and format_ == "json":
        emit_json(documents[0])
    elif single:
        echo_facts((name, value) for name, value in documents[0].items())
    else:
        document = {"policies": documents, "problems": problems or [], "left_to": left_to or {}}
        columns = ["policy", "version", "state", "clean", "partitions"]
        emit(format_, document, columns, [[d[c] for c in columns] for d in documents])


def _as_json(layout: Layout) -> dict[str, object]:
    return {
        "mapper": layout.mapper,
        "mapper_version": layout.mapper_version or None,
        "partitions": layout.partitions,
        "ring_size": layout.ring_size,
    }
