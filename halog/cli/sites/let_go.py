"""This module has the command `halog site let-go`. It lets commits go on without a site whose log, or whose votes, they
need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.confirm import check_confirmed, check_named, cluster_option
from halog.cli.shared.messages import say
from halog.cli.shared.options import Name, reason_option
from halog.cli.shared.output import emit
from halog.cli.shared.with_home import partition_option, with_home

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable


@click.command("let-go")
@click.argument("name", type=Name(), metavar="SITE")
@partition_option
@click.option("--may-fork", is_flag=True, help="Also if that site may have the votes to go on by itself.")
@cluster_option
@reason_option
@cluster_options
def let_go(
    name: str, names: tuple[str, ...], may_fork: bool, confirmed: str, reason: str, options: ClusterOptions
) -> None:
    """Let commits go on without a site whose log they wait for (sync_sites), until it has caught up again, or whose
    votes they need (takeover), until it gives them again.

    Use it at the site that serves, while the other one is away. What is acknowledged from now on is lost if this site
    is lost. Once the other site has everything, commits wait for it again by themselves. If sites vote on which of them
    goes on, the other one may have gone on. Then this is refused with exit code 5, unless --may-fork says that it has
    not, or that two histories are better than none, and --cluster confirms it with the name of the cluster.

    \b
    Examples:
      halog site let-go east
      halog site let-go east --partition flights-0
      halog site let-go east --may-fork --cluster fleet --reason "its building burns"
    """
    from halog.cli.sites.site_events import SiteChange, tell
    from halog.runtime.sites.switchover import Switchover

    with options.connect() as connection:
        tables = _awaiting(connection, names, name)
        _check_votes(connection, name, tables, may_fork, confirmed)
        check_named(connection, confirmed)
        here, reach = connection.config.site.name, connection.adapters.reach
        policies, by_name, changed = connection.config.policies, {t.name: t for t in tables}, list[str]()
        asked: list[SiteChange] = []

        def done(partition: str) -> None:
            t = by_name[partition]
            changed.append(partition)
            say(f"partition {partition}: goes on without site {name}")
            forks = policies[t.policy].votes_bind
            asked.append(SiteChange(partition, "let-go", name, here, t.epoch.number, may_fork=forks))

        try:
            Switchover(connection.coordinator, here, reach, options.timeout_s).let_go(by_name, name, done)
        finally:  # perhaps only some partitions were changed
            tell(connection, asked, reason)
    documents = [{"partition": t.name, "site": name, "changed": t.name in changed} for t in tables]
    rows = [(d["partition"], name, "goes on without it" if d["changed"] else "as it was") for d in documents]
    emit(options.format, documents, ["partition", "site", ""], rows)


def _awaiting(connection: ClusterConnection, names: Iterable[str], site: str) -> list[PartitionTable]:
    """Return the partitions whose commits wait for that site's log, or need its votes: those named, or all that are
    served here. ConfigError for others."""
    from halog.errors import ConfigError, UnknownNameError

    config = connection.config
    if site not in config.other_sites and site != config.site.name:
        raise UnknownNameError.of("site", site, list(config.other_sites), str(config.source))
    wanted = with_home(connection, names)
    voters = config.other_sites if site in config.other_sites else ()
    found = [
        t
        for t in wanted
        if (site in config.policies[t.policy].sync_sites and site != config.site.name)
        or (site in voters and config.policies[t.policy].votes_bind)
    ]
    if not found or (names and len(found) < len(wanted)):
        policies = sorted({t.policy for t in wanted if t not in found})
        where = f"policies.{policies[0]}.sync_sites and takeover" if policies else "sync_sites and takeover of policies"
        raise ConfigError(
            f"{config.source}: commits wait for no site {site}: see {where}; nothing was changed", site=site
        )
    return found if names else [t for t in found if not t.owner] or found


def _check_votes(
    connection: ClusterConnection, site: str, tables: Iterable[PartitionTable], may_fork: bool, confirmed: str
) -> None:
    """Raise RefusedError where that site may serve by its votes, and nobody says that it may (F6)."""
    from halog.errors import RefusedError

    voted = next((t for t in tables if connection.config.policies[t.policy].votes_bind), None)
    if voted is None:
        return
    forks = f"partition {voted.name}: sites vote on which of them goes on, and site {site} may have done so"
    unless = "If it has not, or may be overruled later"
    if not may_fork:
        raise RefusedError(f"{forks}; nothing was changed. {unless}, say --may-fork", partition=voted.name, site=site)
    check_confirmed(connection, confirmed, forks, unless, partition=voted.name, site=site)
