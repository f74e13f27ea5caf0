"""`halog recover` restores a cluster whose ZooKeeper has lost its data, from its logs and its nodes' stores."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.confirm import cluster_option
from halog.cli.shared.messages import say
from halog.cli.shared.options import Name, Text
from halog.cli.shared.output import emit_json, emit_table

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.config import Config
    from halog.ports import Store
    from halog.runtime.node.cluster_recovery import RecoveredPartition, RecoveryPlan


def _places(ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, Path]:
    places = {}
    for one in given:
        node, _, path = one.partition("=")
        if not node or not path:
            raise click.BadParameter(f"{one!r} is not NODE=DIRECTORY")
        places[node] = Path(path)
    return places


def _check_given(
    config: Config, places: Mapping[str, Path], accepted: tuple[str, ...], layouts: tuple[str, ...]
) -> None:
    """Check the options against the file and this machine, before any server is asked."""
    from halog.errors import UnknownNameError

    for kind, names, known in (("node", (*places, *accepted), config.nodes), ("policy", layouts, config.policies)):
        for name in names:
            if name not in known:
                raise UnknownNameError.of(kind, name, list(known))
    for node, path in places.items():
        try:
            next(path.iterdir(), None)
        except FileNotFoundError:
            raise click.UsageError(f"--store {node}={path}: there is no such directory") from None
        except OSError as e:
            raise click.UsageError(f"--store {node}={path}: cannot be read: {e.strerror}") from None


@click.command()
@click.option("--from-logs", is_flag=True, help="Recover from the logs what ZooKeeper has lost; there is no other way.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; nothing is changed.")
@click.option(
    "--store",
    "places",
    type=Text(),
    multiple=True,
    callback=_places,
    metavar="NODE=DIRECTORY",
    help="Where a node's data directory can be read, if that is not its data_dir on this machine.",
)
@click.option(
    "--accept-loss",
    "accepted",
    type=Name(),
    multiple=True,
    metavar="NODE",
    help="Go on without what only this node's store may hold; --cluster confirms it.",
)
@click.option(
    "--layout-from-file",
    "layouts",
    type=Name(),
    multiple=True,
    metavar="POLICY",
    help="Take from the file where keys of this policy belong, though its mapping has changed since; --cluster "
    "confirms it.",
)
@cluster_option
@cluster_options
def recover(
    *,
    from_logs: bool,
    dry_run: bool,
    places: Mapping[str, Path],
    accepted: tuple[str, ...],
    layouts: tuple[str, ...],
    confirmed: str,
    options: ClusterOptions,
) -> None:
    """Make ZooKeeper's tables anew, after its data were lost, and Kafka's and the nodes' were not.

    Stop all nodes first. The logs tell which history each partition has, where it ends and in which epoch. The nodes'
    stores tell what their nodes had seen in ZooKeeper. They may also hold commits that did not wait for the log
    (local_sync = "NO_SYNC"): these are appended to the logs again. Bring the data directories of nodes on other
    machines with --store. One that is missing may hold what nobody else has: then nothing is done (exit code 5), unless
    --accept-loss names its node and --cluster the cluster; event HALOG-1019 says who did it.

    If the command is killed half way, repeat it: no node starts before it has ended.

    \b
    Examples:
      halog recover --from-logs --dry-run
      halog recover --from-logs
      halog recover --from-logs --store B=/mnt/b/halog --store C=/mnt/c/halog
      halog recover --from-logs --accept-loss C --cluster fleet
    """
    from halog.cli.shared.connection import modules_beside
    from halog.config import load_config
    from halog.errors import OutcomeUnknownError
    from halog.ports import UnknownResult
    from halog.runtime.node.cluster_identity import check_exists
    from halog.runtime.node.cluster_recovery import by_file
    from halog.runtime.node.cluster_repair import carry_out, check_stopped

    if not from_logs:
        raise click.UsageError("say what to recover from: --from-logs")
    _check_given(load_config(options.config_path), places, accepted, layouts)
    with options.connect(as_in_file=True) as connection, ExitStack() as stack:
        modules_beside(connection.config)
        check_stopped(connection.coordinator)
        check_exists(connection.adapters.log, connection.coordinator, connection.config)
        stores, missing = stack.enter_context(_opened(connection.config, places))
        plan = _look(connection, stores, missing)
        if not dry_run and not plan.nothing:
            _check(plan, accepted, layouts, connection.config.cluster.name, confirmed)
            try:
                plan = by_file(plan, layouts)
                carry_out(plan, connection.adapters.log, connection.coordinator, say)
            except UnknownResult as e:
                raise OutcomeUnknownError(f"ZooKeeper did not answer ({e}): repeat this, it goes on") from None
            _tell(connection, plan, accepted)
        _show(plan, options.format, connection.config.cluster.name, dry_run=dry_run)
        if dry_run:
            _check(plan, accepted, layouts, connection.config.cluster.name, confirmed)


def _look(connection: ClusterConnection, stores: Mapping[str, Store], missing: Mapping[str, str]) -> RecoveryPlan:
    from halog.runtime.node.cluster_recovery import RecoverySurvey

    log, coordinator = connection.adapters.log, connection.coordinator
    return RecoverySurvey(log, coordinator, connection.config, stores, missing, say).plan()


@contextmanager
def _opened(config: Config, places: Mapping[str, Path]) -> Iterator[tuple[dict[str, Store], dict[str, str]]]:
    """Open the stores that can be read. It gives them by the node they belong to, and why others cannot be read.
    RefusedError where a store is in use, or another cluster's. Nodes of several machines may have the same directory in
    the configuration."""
    from halog.errors import RefusedError
    from halog.runtime.node.cluster_identity import check_name, remembered

    stores: dict[str, Store] = {}
    missing: dict[str, str] = {}
    owners: dict[Path, str] = {}
    with ExitStack() as opened:
        for node in config.nodes:
            directory = Path(places.get(node, config.nodes[node].data_dir)).resolve()
            if directory not in owners:
                store = _store(directory, node, missing)
                if store is None:
                    continue
                opened.callback(store.close)
                check_name(store, config, node)
                known = remembered(store)
                owner = owners[directory] = known.node if known is not None and known.node in config.nodes else node
                if owner in stores:
                    raise RefusedError(
                        f"{directory} is not node {node}'s: it is node {owner}'s, whose store was found elsewhere, too",
                        node=owner,
                    )
                stores[owner] = store
            if owners[directory] != node:
                missing[node] = f"{directory} on this machine is node {owners[directory]}'s"
        yield stores, {node: why for node, why in missing.items() if node not in stores}


def _store(directory: Path, node: str, missing: dict[str, str]) -> Store | None:
    """Open a store. None: it cannot be read, and `missing` says why. RefusedError if it is in use."""
    from halog.adapters.rocksdb.store import RocksStore
    from halog.errors import RefusedError, StoreError

    try:
        return RocksStore(directory, read_only=True)
    except StoreError as e:
        if e.evidence.get("held"):
            raise RefusedError(f"{e.message}: stop node {node}, and repeat this", node=node) from None
        missing[node] = e.message.partition("; it will be")[0]
        return None
    except OSError as e:
        missing[node] = f"{directory} cannot be read: {e.strerror}"
        return None


def _check(
    plan: RecoveryPlan, accepted: tuple[str, ...], layouts: tuple[str, ...], cluster: str, confirmed: str
) -> None:
    """Raise RefusedError if the recovery cannot be done, or could lose something whose loss nobody has accepted."""
    from halog.errors import LogError, RefusedError

    if plan.problems:
        more = f" (and {len(plan.problems) - 1} more)" if len(plan.problems) > 1 else ""
        raise LogError(f"{plan.problems[0]}{more}; nothing was changed", problems=list(plan.problems))
    open_ = {node: why for node, why in plan.needs.items() if node not in accepted}
    if open_:
        said = "; ".join(f"node {node}: {why}" for node, why in open_.items())
        flags = " ".join(f"--accept-loss {node}" for node in open_)
        raise RefusedError(
            f"commits may be lost (HALOG-1018): {said}; nothing was changed. Bring the data directory with "
            f"`--store NODE=DIRECTORY`, or go on without: {flags} --cluster {cluster}",
            nodes=sorted(open_),
        )
    unsure = {policy: why for policy, why in plan.unsure.items() if policy not in layouts}
    if unsure:
        policy, why = next(iter(unsure.items()))
        raise RefusedError(
            f"policy {policy}: {why}; nothing was changed. Bring the data directory of a node that ran last, or, if "
            f"the file says where keys belong now, confirm that: --layout-from-file {policy} --cluster {cluster}",
            policy=policy,
        )
    if (plan.needs or plan.unsure) and confirmed != cluster:
        raise RefusedError(
            f"objects may be lost by this; nothing was changed. Confirm it with the name of this cluster: --cluster "
            f"{cluster}",
            cluster=cluster,
        )


def _tell(connection: ClusterConnection, plan: RecoveryPlan, accepted: tuple[str, ...]) -> None:
    """Write into the event history who has done it; no node can know."""
    from halog.cli.shared.event_log import note_or_say
    from halog.events import RECOVERED, UNLOGGED_LOST, EventPlace, event
    from halog.metadata.identity import who

    by, now_ms, cluster = who(), time.time_ns() // 1_000_000, connection.config.cluster.name
    at, name = EventPlace(cluster, connection.name), f"{connection.name}/recover/{now_ms}"
    again = sum(p.again for p in plan.partitions)
    made = [p for p in plan.partitions if p.table is not None]
    told = [
        event(
            RECOVERED,
            at,
            name=name,
            time_ms=now_ms,
            node=by,
            cause=f"ZooKeeper's data were lost, by {by}",
            more={"cluster": cluster, "partitions": len(made), "again": again, "lost": list(plan.lost)},
        )
    ]
    given_up = [node for node in plan.needs if node in accepted]
    for p in made if given_up else ():
        cause = f"what the stores of {', '.join(given_up)} may hold, at a recovery by {by}"
        where = EventPlace(cluster, connection.name, p.name, None if p.table is None else p.table.epoch.number)
        more = {"given_up": given_up, "by": by, "reason": "halog recover --accept-loss"}
        told.append(
            event(
                UNLOGGED_LOST,
                where,
                name=f"{name}/{p.name}",
                time_ms=now_ms,
                node=by,
                cause=cause,
                more=more,
            )
        )
    note_or_say(connection, told)


# --- showing ---


def _show(plan: RecoveryPlan, format_: str, cluster: str, *, dry_run: bool) -> None:
    if format_ == "json":
        emit_json(_document(plan, cluster, dry_run=dry_run))
        return
    if plan.nothing:
        click.echo(f"cluster {cluster}: nothing to recover, ZooKeeper has a table for every log")
        return
    rows = [
        (
            p.name,
            p.history.state.lsn,
            _epoch(p),
            p.history.mapping,
            p.again or "",
            "has one" if p.table is None else ", ".join(p.table.configured),
            "" if p.table is None else "noted by a node" if p.remembered else "as in the file",
        )
        for p in plan.partitions
    ]
    emit_table(["partition", "lsn", "epoch", "mapping", "appended again", "nodes", "placed"], rows)
    for policy, (version, by) in plan.mappings.items():
        click.echo(f"policy {policy}: mapping version {version}, where keys belong is as {by} has it")
    for text in plan.problems:
        click.echo(f"cannot be done: {text}")
    for node, why in plan.needs.items():
        click.echo(f"may be lost: node {node}: {why}")
    for policy, why in plan.unsure.items():
        click.echo(f"not known: policy {policy}: {why}")
    for text in plan.lost:
        click.echo(f"lost: {text}")
    made = sum(p.table is not None for p in plan.partitions)
    done = "would be made anew; nothing was changed" if dry_run else "made anew; start the nodes"
    click.echo(f"cluster {cluster}: {_made(made, sorted(plan.znodes))} {done}")


def _made(tables: int, znodes: list[str]) -> str:
    """Return what is made anew, in words: tables, other znodes, or both."""
    more = f" and {len(znodes) - 5} more" if len(znodes) > 5 else ""
    others = f"{', '.join(znodes[:5])}{more}"
    if not tables:
        return others or "nothing"
    of = f"the table{'' if tables == 1 else 's'} of {tables} partition{'' if tables == 1 else 's'}"
    return f"{of}, and {others}," if znodes else of


def _epoch(p: RecoveredPartition) -> int:
    return p.history.state.epoch.number if p.table is None else p.table.epoch.number


def _document(plan: RecoveryPlan, cluster: str, *, dry_run: bool) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "dry_run": dry_run,
        "done": not dry_run and not plan.problems,
        "nothing_to_do": plan.nothing,
        "partitions": [
            {
                "partition": p.name,
                "log_id": p.history.log_id,
                "lsn": p.history.state.lsn,
                "epoch": _epoch(p),
                "mapping": p.history.mapping,
                "appended_again": p.again,
                "held_by": p.held_by or None,
                "table_made": p.table is not None,
                "remembered": p.remembered,
                "nodes": None if p.table is None else list(p.table.configured),
            }
            for p in plan.partitions
        ],
        "never_used": list(plan.empty),
        "policies": {name: {"mapping": version, "by": by} for name, (version, by) in plan.mappings.items()},
        "restored": sorted(plan.znodes),
        "problems": list(plan.problems),
        "may_lose": plan.needs,
        "unsure": plan.unsure,
        "lost": list(plan.lost),
    }
