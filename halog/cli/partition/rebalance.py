"""This module has the command `halog rebalance`. It changes where a policy has keys, and moves the objects there under
traffic (P13, S1, T8)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.by_spark import LOCAL_SPARK, check_installed
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options, cluster_options_after
from halog.cli.shared.exit_codes import DEGRADED_EXIT
from halog.cli.shared.messages import echo_facts, progress, say
from halog.cli.shared.options import TIMEOUT_S, Name, Text
from halog.cli.shared.output import emit, emit_json

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.config import Config
    from halog.core.keys.mapping import Layout
    from halog.runtime.remap.remap_request import RemapProgress

WAIT_S = 3_600.0
"""The command waits this long: a million objects take some minutes. The nodes go on without it."""


policy_option = click.option(
    "--policy", type=Name(), metavar="NAME", help="The policy; may be left out if there is only one."
)


@click.group(invoke_without_command=True)
@policy_option
@click.option(
    "--zone", type=Name(), metavar="NAME", help="All policies of a zone whose mapping differs from the file's."
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
@cluster_options_after(WAIT_S, "Stop waiting (exit 6) after this long; the nodes go on.")
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
    options: ClusterOptions,
) -> None:
    """Bring a policy's mapping to what the configuration file says: ring size, mapper, its version, partitions.

    Objects that then belong elsewhere are moved while they are used; keys stay unique, and no object is missed
    meanwhile. New partitions are made first. If nodes do not have the code of a new mapper, they are named, and nothing
    is changed (exit code 5). Whatever dies, the nodes go on by themselves; `cancel` turns the change back.

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
        _by_spark(policy, zone, spark_master or LOCAL_SPARK, checkpoint, options, dry_run=dry_run)
        return
    from halog.cli.shared.connection import modules_beside

    with options.connect(at_most_s=TIMEOUT_S) as connection:
        modules_beside(connection.activated.own)
        wait_s = 0.0 if no_wait else options.timeout_s
        if zone is not None:
            _of_zone(connection, zone, options.format, wait_s, dry_run=dry_run)
        elif dry_run:
            _preview(connection, [_only_policy(connection.config, policy)], options.format, single=True)
        else:
            _begin(connection, _only_policy(connection.config, policy), options.format, wait_s)


def _by_spark(
    policy: str | None,
    zone: str | None,
    master: str,
    checkpoint: Path | None,
    options: ClusterOptions,
    *,
    dry_run: bool,
) -> None:
    """Run the job in this process, as `python -m spark_jobs.rebalance` does."""
    from halog.cli.shared.connection import modules_beside
    from halog.config import load_config

    check_installed("the nodes find by themselves what is to move")
    import spark_jobs.rebalance as job

    config = load_config(options.config_path)
    modules_beside(config)
    name = None if zone is not None else _only_policy(config, policy)
    if dry_run:
        job.count(options.config_path, name, zone, master, options.format)
    else:
        job.move(options.config_path, name, zone, master, checkpoint, options.timeout_s, options.format)


def _of_zone(connection: ClusterConnection, zone: str, format_: str, wait_s: float, *, dry_run: bool) -> None:
    """Rebalance the policies of a zone. All of them are checked before the first is begun."""
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
        say(f"every mapping of zone {zone} is the file's already; nothing was changed")
    elif connection.activated.number and wait_s:
        _say_number(connection)


def _only_policy(config: Config, given: str | None) -> str:
    """Return the policy that is meant. ConfigError if that is not clear."""
    from halog.errors import ConfigError

    names = list(config.policies)
    if given is None and len(names) != 1:
        raise ConfigError(f"name one with --policy; {config.source} has {', '.join(names) or 'none'}")
    return given or names[0]


def _preview(connection: ClusterConnection, policies: list[str], format_: str, *, single: bool = False) -> None:
    documents = [_previewed(connection, policy) for policy in policies]
    rows = [(m["from"], m["to"], m["objects"]) for d in documents for m in d["moves"]]
    emit(format_, documents[0] if single else {"policies": documents}, ["from", "to", "objects"], rows)
    moves, objects = (sum(d[name] for d in documents) for name in ("would_move", "objects"))
    say(f"{moves:,} of {objects:,} objects would move; nothing was changed")


def _previewed(connection: ClusterConnection, policy: str) -> dict[str, Any]:
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


def _begin(connection: ClusterConnection, policy: str, format_: str, wait_s: float) -> None:
    from halog.runtime.remap import remap_request as wishes

    version = wishes.begin(connection.coordinator, connection.router, connection.activated.own, policy)
    if wait_s:
        _wait(connection, policy, version, wait_s)
    _show([wishes.progress(connection.coordinator, policy)], format_, single=True)
    if connection.activated.number and wait_s:
        _say_number(connection)


def _wait(connection: ClusterConnection, policy: str, version: int, wait_s: float) -> None:
    from halog.runtime.remap import remap_request as wishes

    layout = wishes.wished(connection.activated.own, policy)
    with progress() as bar:
        task = bar.add_task("partitions", total=None, note="")

        def seen(now: RemapProgress) -> None:
            bar.update(task, completed=now.clean, total=now.partitions, note=now.state)

        wishes.wait_until_done(connection.coordinator, policy, version, layout, wait_s, seen)


def _say_number(connection: ClusterConnection) -> None:
    """Tell that another version of the configuration is active: nodes that start go by it until this file is
    activated."""
    say(f"version {connection.activated.number} of the configuration is active: `halog config activate` this file")


@rebalance.command()
@cluster_options
def status(options: ClusterOptions) -> None:
    """Show how far each policy is with its last change, and what is in the way. Exit code 4 while one is under way.

    \b
    Examples:
      halog rebalance status
      halog rebalance status --format json
    """
    from halog.runtime.remap import remap_request as wishes

    with options.connect() as connection:
        found = [wishes.progress(connection.coordinator, name) for name in connection.coordinator.children("policies")]
        said = _said(connection) if any(p.state != wishes.DONE for p in found) else ([], {})
    problems, left_to = said
    _show(found, options.format, problems, left_to)
    for policy, job in left_to.items():
        say(f"policy {policy}: {job} finds what is to move, and the nodes leave that to it")
    for problem in problems:
        say(problem)
    if any(p.state != wishes.DONE for p in found):
        raise click.exceptions.Exit(DEGRADED_EXIT)


def _said(connection: ClusterConnection) -> tuple[list[str], dict[str, str]]:
    """Return what nodes say that keeps objects from moving; and by policy the job that they leave the search to."""
    from halog.errors import HalogError
    from halog.runtime.rpc import frames

    problems: list[str] = []
    left_to: dict[str, str] = {}
    for node in sorted(n.name for n in connection.nodes.values() if n.hosts):
        try:
            reply = connection.router.request(node, frames.StatusRequest(), connection.timeout_s)
        except HalogError as error:
            problems.append(f"node {node}: {error.message}")
            continue
        view: Any = reply.status.get("rebalance", {}) if isinstance(reply, frames.StatusReply) else {}
        problems += [f"node {node}: {problem}" for problem in view.get("problems", [])]
        left_to |= view.get("left_to", {})
    return problems, left_to


@rebalance.command()
@policy_option
@cluster_options
def cancel(policy: str | None, options: ClusterOptions) -> None:
    """Turn back a change that is under way: what has moved moves back, as another change. New partitions stay, empty.

    \b
    Examples:
      halog rebalance cancel --policy fleet
    """
    from halog.runtime.remap import remap_request as wishes

    with options.connect() as connection:
        name = _only_policy(connection.config, policy)
        wishes.turn_back(connection.coordinator, name)
        _show([wishes.progress(connection.coordinator, name)], options.format, single=True)


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
