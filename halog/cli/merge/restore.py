"""`halog restore` makes two sites' branches one history again, and `halog restore undo` takes that back (M2)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halog.cli.merge.merge_ids import of
from halog.cli.shared.by_spark import LOCAL_SPARK
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options_after
from halog.cli.shared.messages import say
from halog.cli.shared.options import Name, NodeAt, Text
from halog.cli.shared.output import emit
from halog.cli.shared.with_home import comparison_option, is_two_way, partition_option, with_home

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.config import Config
    from halog.core.table.table import PartitionTable
    from halog.metadata.restore_requests import RestoreRequest

RESTORE_S = 300.0
"""The command waits this long. All branches are closed, read, merged and followed: that takes seconds, but triggers may
be slow, and so may the line."""

FOLLOWS = ("done", "nothing")
"""After these phases the initiating site mirrors the source."""

UNDONE_EXIT = 5
"""The exit code if a partition was not restored."""


@click.group(invoke_without_command=True)
@click.option(
    "--source",
    "source",
    type=Name(),
    metavar="SITE",
    help="Where to merge.  [default: the site that said last that it serves]",
)
@click.option(
    "--from",
    "nodes",
    type=NodeAt(partition_needed=True),
    multiple=True,
    metavar="PARTITION=NODE",
    help="The active node to merge at; repeatable.",
)
@click.option(
    "--active",
    "actives",
    type=NodeAt(partition_needed=False),
    multiple=True,
    metavar="[PARTITION=]NODE",
    help="The node that should serve afterwards, at either site; repeatable.  [default: the node that merged]",
)
@partition_option
@comparison_option
@click.option("--dry-run", is_flag=True, help="Show every conflict and its outcome, and change nothing.")
@click.option("--spark", is_flag=True, help="A Spark job compares both histories; the nodes merge by what it finds.")
@click.option(
    "--spark-master", type=Text(), metavar="URL", show_default=LOCAL_SPARK, help="Where Spark runs; implies --spark."
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where a job that was killed goes on from; implies --spark.",
)
@click.option("--classified", is_flag=True, help="Merge by what a Spark job has found before.")
@cluster_options_after(RESTORE_S, "Wait for this long; what is not done by then goes on by itself.")
@click.pass_context
def restore(context: click.Context, /, **given: Any) -> None:
    """Merge this site's history into that of another one that has gone on, too, and follow it from then on.

    This site is the initiating one: where the two contradict each other, and no trigger says otherwise, the source's
    data is kept. Its nodes stop serving the partitions. The source's node of each partition merges what both did since
    they parted, in one step, runs compensation triggers, and serves on; this site mirrors it. `halog conflicts list`
    and `--dry-run` show beforehand what comes of it, `halog conflicts show` afterwards.

    With --spark a job reads both histories, on a Spark cluster or here, while the source serves: its nodes read only
    what they did meanwhile.

    Exit code 5 if a partition was not restored; give the command again, and it goes on. Partitions of policies that
    keep a directory of keys cannot be merged: the others are.

    \b
    Examples:
      halog restore --source east --dry-run
      halog restore --source east
      halog restore --from flights-0=east-1 --partition flights-0
      halog restore --source east --spark --checkpoint var/merge
      halog restore --active west-2
    """
    if context.invoked_subcommand is None:
        _restore(**given)


def _restore(
    source: str | None,
    nodes: tuple[tuple[str, str], ...],
    actives: tuple[tuple[str, str], ...],
    names: tuple[str, ...],
    two_way: bool | None,
    dry_run: bool,
    spark: bool,
    spark_master: str | None,
    checkpoint: Path | None,
    classified: bool,
    options: ClusterOptions,
) -> None:
    from halog.cli.merge.nodes_anywhere import check_known
    from halog.cli.shared.by_spark import classifying
    from halog.metadata.partition_tables import table_of
    from halog.runtime.merge.restore_command import RestoreCommand
    from halog.runtime.support.adapters import SiteAccess
    from halog.runtime.topics.topic_names import state_topic

    if spark := spark or spark_master is not None or checkpoint is not None:
        _check_spark(dry_run=dry_run, classified=classified)
    with options.connect() as connection:
        config, reach = connection.config, connection.adapters.reach
        tables, left = mergeable(config, with_home(connection, names), named=bool(names))
        if not dry_run:  # a dry run tells it in its answer
            for name, why in left.items():
                say(f"partition {name} is left out: {why}")
        own = SiteAccess(config.site.name, connection.adapters.log, connection.coordinator)
        topics = partial(state_topic, config)
        with RestoreCommand(own, topics, reach, config.other_sites, options.timeout_s) as reuniting:
            remote = reuniting.remote
            check_known(connection, [*nodes, *actives], remote)
            named = _named(connection, [t.name for t in tables], source, nodes)
            asked = _asked(tables, actives)
            sources = reuniting.sources(tables, named, [t.name for t in tables if asked.get(t.name) in t.configured])
            if dry_run:
                from halog.cli.merge.conflicts import preview

                preview(connection, tables, sources, remote, two_way=two_way, left=left, format_=options.format)
                return
            manual = _two_way(connection, tables, two_way)
            active = _active(tables, asked, lambda name: table_of(remote(sources[name]).coordinator, name))
            there = {name: node for name, (node, here) in active.items() if not here}
            classify = classifying(options.config_path, tables, sources, checkpoint, spark_master) if spark else None
            ended = reuniting.restore(
                tables,
                sources,
                two_way=manual,
                active=there,
                classified=spark or classified,
                classify=classify,
                told=_tell,
            )
        back = {name: node for name, (node, here) in active.items() if here and name in ended}
        _take_back(connection, {n: node for n, node in back.items() if ended[n].phase in FOLLOWS}, options.timeout_s)
        ended |= _left_out(connection, left)
    _emit(options.format, ended, sources | dict.fromkeys(left, ""))


def _check_spark(*, dry_run: bool, classified: bool) -> None:
    """Raise UsageError if --spark is of no use with another option, and ConfigError if Spark is missing."""
    from halog.cli.shared.by_spark import check_installed

    if dry_run or classified:
        raise click.UsageError(f"--spark is of no use with {'--dry-run' if dry_run else '--classified'}")
    check_installed("the nodes compare by themselves")


def _two_way(connection: ClusterConnection, tables: Iterable[PartitionTable], said: bool | None) -> bool:
    """Are they compared without the common ancestor? RefusedError if some are, and others are not."""
    from halog.errors import RefusedError

    by_rule: dict[bool, list[str]] = {False: [], True: []}
    for table in tables:
        by_rule[is_two_way(connection, table.policy, said)].append(table.name)
    three, two = (", ".join(names) for names in by_rule.values())
    if three and two:
        raise RefusedError(
            f"by their policies' comparison {two} are compared two-way and {three} three-way: restore them one after "
            "the other (--partition), or say --two-way or --three-way"
        )
    return bool(two)


def _asked(tables: Iterable[PartitionTable], actives: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the node that should serve each partition."""
    asked: dict[str, str] = {}
    names = [table.name for table in tables]
    for partition, node in actives:
        if partition:
            _check_restored("--active", partition, node, names)
        asked |= dict.fromkeys([partition] if partition else names, node)
    return asked


def _check_restored(option: str, partition: str, node: str, restored: Collection[str]) -> None:
    from halog.errors import ConfigError

    if partition not in restored:
        raise ConfigError(f"{option} {partition}={node}: {partition} is not to be restored", partition=partition)


def _active(
    tables: Iterable[PartitionTable], asked: Mapping[str, str], at_source: Callable[[str], PartitionTable]
) -> dict[str, tuple[str, bool]]:
    """Return that node by partition, and whether it is one of this site's. RefusedError for one that has no copy."""
    from halog.errors import RefusedError

    by_name = {table.name: table for table in tables}
    found = {}
    for name, node in asked.items():
        here, there = by_name[name].configured, at_source(name).configured
        if node not in (*here, *there):
            listed = ", ".join((*here, *there))
            raise RefusedError(f"{node} has no copy of {name}, at either site ({listed})", partition=name, node=node)
        found[name] = node, node in here
    return found


def _take_back(connection: ClusterConnection, active: Mapping[str, str], timeout_s: float) -> None:
    """Have this site serve again what its own nodes should serve."""
    from halog.cli.partition.failover import hand_over
    from halog.runtime.sites.switchover import Switchover

    if not active:
        return
    config = connection.config
    Switchover(connection.coordinator, config.site.name, connection.adapters.reach, timeout_s).promote(active)
    router = connection.router
    with router.changed:
        router.changed.wait_for(
            lambda: all(node in router.tables[n][1].node_list for n, node in active.items()), timeout_s
        )
    for name, node in active.items():
        if router.active(name) != node:
            hand_over(connection, name, node, timeout_s)


def mergeable(
    config: Config, tables: Iterable[PartitionTable], *, named: bool
) -> tuple[list[PartitionTable], dict[str, str]]:
    """Return the partitions that can be merged; and of the others, by partition, why not. If a policy keeps a
    directory, a key may be in two partitions at two sites. RefusedError if the operator has `named` one of these, or
    there are no others."""
    from halog.config.mapper import is_listed
    from halog.errors import RefusedError

    found, left = [], dict[str, str]()
    for table in tables:
        mapper = config.policies[table.policy].mapper
        if is_listed(mapper):
            left[table.name] = (
                f"policy {table.policy} keeps a directory of keys (mapper {mapper}), and each site may have put the "
                "same key into another partition: it cannot be merged. `halog export` at the site that is to give up, "
                "`halog import --skip-existing` at the other one, then `halog site demote` at the first"
            )
        else:
            found.append(table)
    if left and (named or not found):
        name, why = next(iter(left.items()))
        raise RefusedError(f"partition {name}: {why}", partition=name)
    return found, left


def _left_out(connection: ClusterConnection, left: Mapping[str, str]) -> dict[str, RestoreRequest]:
    from halog.metadata.identity import who
    from halog.metadata.restore_requests import FAILED, RestoreRequest

    site = connection.config.site.name
    return {name: RestoreRequest(site=site, by=who(), at_ms=0, phase=FAILED, why=why) for name, why in left.items()}


@restore.command("undo")
@click.option(
    "--merge",
    "merge",
    type=Name(),
    metavar="ID",
    help="The merge to undo; the first digits will do.  [default: the last one of each partition]",
)
@partition_option
@cluster_options_after(RESTORE_S, "Wait for this long; what is not done by then goes on by itself.")
def undo_(merge: str | None, names: tuple[str, ...], options: ClusterOptions) -> None:
    """Undo a merge: what the source had before it stands again, except where objects were changed since.

    Give it at the site that serves. What the other site did stays in the report, and in its own log.

    \b
    Examples:
      halog restore undo
      halog restore undo --partition flights-0
      halog restore undo --merge 6150ebec5631
    """
    from halog.cli.merge.merge_ids import unknown
    from halog.errors import NothingToDoError
    from halog.runtime.merge.restore_command import undo

    with options.connect() as connection:
        tables = with_home(connection, names)
        found = _merges(connection, tables, merge)
        if not found and merge is not None:
            raise unknown(tables, merge)
        if not found:
            raise NothingToDoError(f"no merge was made here{of(tables)}; nothing was changed")
        ended = undo(connection.coordinator, found, options.timeout_s, _tell)
    _emit(options.format, ended, dict.fromkeys(found, connection.config.site.name))


def _merges(connection: ClusterConnection, tables: Iterable[PartitionTable], merge: str | None) -> dict[str, str]:
    """Return, by partition, the merge asked for, else the last one made here. A partition without one is left out."""
    from halog.cli.merge.merge_ids import meant
    from halog.metadata.restore_requests import last_merge, restore_of

    if merge is not None:
        return meant(connection, tables, merge)
    last = {t.name: last_merge(restore_of(connection.coordinator, t.name)) for t in tables}
    return {name: found for name, found in last.items() if found}


def _named(
    connection: ClusterConnection, partitions: Collection[str], source: str | None, nodes: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Return the site that was named for each partition."""
    from halog.errors import UnknownNameError

    config = connection.config
    if source is not None and source not in config.other_sites:
        raise UnknownNameError.of("site", source, list(config.other_sites), str(config.source))
    named = dict.fromkeys(partitions, source or "")
    for partition, node in nodes:
        _check_restored("--from", partition, node, partitions)
        named[partition] = _site_of(connection, partition, node)
    return named


def _site_of(connection: ClusterConnection, partition: str, node: str) -> str:
    """Return the other site at which this node is active for the partition."""
    from halog.errors import HalogError, RefusedError
    from halog.metadata.partition_tables import table_of

    why = []
    for site in connection.config.other_sites:
        try:
            remote = connection.adapters.reach(site)
            try:
                table = table_of(remote.coordinator, partition)
            finally:
                remote.close()
        except HalogError as e:
            why.append(f"; site {site}: {e}")
            continue
        if table.active is not None and table.active.node == node and not table.owner:
            return site
    raise RefusedError(
        f"node {node} is not active for {partition} at any other site{''.join(why)}", partition=partition, node=node
    )


def _tell(partition: str, now: RestoreRequest) -> None:
    why = f": {now.why}" if now.why else ""
    say(f"partition {partition}: {now.phase}{why}")


def _emit(format_: str, ended: Mapping[str, RestoreRequest], sources: Mapping[str, str]) -> None:
    documents = [
        {
            "partition": name,
            "source": sources[name],
            "phase": ended[name].phase if name in ended else "asked",
            "why": ended[name].why if name in ended else "",
            "merge": ended[name].merge if name in ended else "",
            **(ended[name].result if name in ended else {}),
        }
        for name in sources
    ]
    rows = [
        (
            d["partition"],
            d["source"],
            d["phase"],
            d.get("objects", ""),
            d.get("changed", ""),
            sum(d.get("conflicts", {}).values()),
            d.get("deferred", ""),
            d["why"],
        )
        for d in documents
    ]
    columns = ["partition", "at", "", "objects touched", "changed", "conflicts", "deferred", "why"]
    emit(format_, documents, columns, rows)
    if any(d["phase"] not in FOLLOWS for d in documents):
        raise click.exceptions.Exit(UNDONE_EXIT)
