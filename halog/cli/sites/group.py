"""`halog site list|lag|metrics|promote|demote|let-go` shows which site serves what and how far mirrors are, and changes
it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options, cluster_options_after
from halog.cli.shared.confirm import check_confirmed, check_named, cluster_option
from halog.cli.shared.exit_codes import DEGRADED_EXIT
from halog.cli.shared.messages import say
from halog.cli.shared.mirror_status import mirrors, unmirrored
from halog.cli.shared.options import Name, reason_option
from halog.cli.shared.output import emit, emit_table
from halog.cli.shared.with_home import partition_option, with_home
from halog.cli.sites.let_go import let_go
from halog.cli.sites.metrics import metrics

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.config import Config
    from halog.core.table.table import PartitionTable
    from halog.metadata.nodes import NodeInfo
    from halog.runtime.sites.split_watch import Split

SWITCH_S = 60.0
"""A switch drains, mirrors what is left and elects. That takes a second or two, but a mirror may have to catch up
first."""


@click.group()
def site() -> None:
    """Show which site serves and how far the others are behind; take over.

    \b
    Examples:
      halog site list
      halog site lag
      halog site metrics
      halog site promote
      halog site demote --to east
      halog site let-go east
    """


site.add_command(metrics)
site.add_command(let_go)


@site.command("list")
@cluster_options
def list_(options: ClusterOptions) -> None:
    """List the sites as this one sees them: where partitions are served, whether requests for them can go there, and
    whether their histories are one.

    Exit code 4 if histories have parted, a mirror stands still, or another site does not mirror what it should.

    \b
    Examples:
      halog site list
      halog site list --format json
    """
    from halog.cli.shared.divergence_rows import COLUMNS, row
    from halog.runtime.sites.split_watch import parted

    with options.connect() as connection:
        own, others = connection.config.site.name, connection.config.other_sites
        found = mirrors(connection, with_home(connection, ()))
        serves = dict.fromkeys((own, *others), 0)
        for table in connection.tables:
            serves[table.owner or own] = serves.get(table.owner or own, 0) + 1
        both = parted(connection.coordinator, connection.tables)
        lacking = unmirrored(connection, connection.tables)
        documents = [_site(connection, name, own, serves[name], found, both, lacking) for name in serves]
    apart = [one for d in documents for one in d["parted"]]
    rows = [
        (
            d["site"],
            d["state"],
            d["serves"],
            d["mirrored_here"],
            d["waited_for"],
            d["requests"],
            len(d["parted"]),
        )
        for d in documents
    ]
    heads = ["site", "state", "serves", "mirrored here", "waited for", "requests go there", "parted"]
    emit(options.format, documents, heads, rows)
    if apart and options.format != "json":
        emit_table(COLUMNS, map(row, apart))
    for d in documents:
        if d["not_mirrored_there"]:
            say(f"site {d['site']} mirrors nothing of {', '.join(d['not_mirrored_there'])} now")
    if any(d["parted"] or d["still"] or d["not_mirrored_there"] for d in documents):
        raise click.exceptions.Exit(DEGRADED_EXIT)


@site.command("lag")
@partition_option
@cluster_options
def lag(names: tuple[str, ...], options: ClusterOptions) -> None:
    """Show how far this site's mirrors are behind: log entries, and the time records take from there to here.

    Exit code 4 if one stands still.

    \b
    Examples:
      halog site lag
      halog site lag --partition flights-0 --format json
    """

    with options.connect() as connection:
        found = mirrors(connection, [t for t in with_home(connection, names) if t.owner])
    rows = [
        (m["partition"], m["site"], m["by"], m["behind"], m["lag_ms"], m["age_s"], _yes(m["commits_wait"]), m["why"])
        for m in found
    ]
    heads = ["partition", "from site", "by", "entries behind", "lag ms", "told s ago", "commits wait", ""]
    emit(options.format, found, heads, rows)
    if any(m["why"] for m in found):
        raise click.exceptions.Exit(DEGRADED_EXIT)


@site.command("promote")
@partition_option
@click.option("--may-fork", is_flag=True, help="Take over even if nobody knows whether the other site goes on.")
@cluster_option
@reason_option
@cluster_options_after(SWITCH_S, "Give up after this long; what is not taken over by then stays where it is.")
def promote(names: tuple[str, ...], may_fork: bool, confirmed: str, reason: str, options: ClusterOptions) -> None:
    """Make this configuration's site serve partitions that another one serves.

    The other site's nodes end their epochs with everything logged; this site mirrors the rest, and takes over: nothing
    is lost. If the other site cannot be reached, this is refused with exit code 5, unless --may-fork says that two
    histories are better than none, and --cluster confirms it with the name of the cluster. The two histories can be
    told apart later, and never mix.

    \b
    Examples:
      halog site promote
      halog site promote --partition flights-0 --partition flights-1
      halog site promote --may-fork --cluster fleet --reason "west burns"
    """
    from halog.cli.sites.site_events import SiteChange, tell
    from halog.runtime.sites.switchover import Switchover, SwitchResult

    with options.connect() as connection:
        here, reach = connection.config.site.name, connection.adapters.reach
        tables = with_home(connection, names)
        _check_given_up(connection, tables if may_fork else (), confirmed)
        if may_fork:
            warn_of_directories(connection.config, tables)
        epochs = {t.name: t.epoch.number for t in tables}
        asked: list[SiteChange] = []

        def done(s: SwitchResult) -> None:
            _say(s.partition, here)
            if s.taken_over_from:
                epoch = epochs[s.partition]
                asked.append(SiteChange(s.partition, "promote", s.taken_over_from, here, epoch, s.may_fork, s.lacks))

        switching = Switchover(connection.coordinator, here, reach, options.timeout_s)
        try:
            switches = switching.promote(epochs, may_fork=may_fork, done=done)
        finally:  # perhaps only some partitions were changed
            tell(connection, asked, reason)
    documents = [
        {"partition": s.partition, "site": here, "from": s.taken_over_from, "may_fork": s.may_fork, "lacks": s.lacks}
        for s in switches
    ]
    rows = [
        (d["partition"], d["from"] or "was here", "perhaps" if d["may_fork"] else "no", d["lacks"] or "nothing")
        for d in documents
    ]
    emit(options.format, documents, ["partition", "taken over from", "forked", "may lack"], rows)


def _check_given_up(connection: ClusterConnection, tables: Iterable[PartitionTable], confirmed: str) -> None:
    """Check the confirmation. Nothing is given up where this site serves already."""
    if others := sorted({t.owner for t in tables if t.owner}):
        given_up = f"what site {', '.join(others)} serves would be served here, too, and the history may split"
        check_confirmed(connection, confirmed, given_up, "If that may be", site=others[0])
    check_named(connection, confirmed)


def warn_of_directories(config: Config, tables: Iterable[PartitionTable]) -> None:
    """Warn of each policy whose histories cannot be merged again."""
    from halog.config.mapper import is_listed

    for policy in dict.fromkeys(t.policy for t in tables):
        if is_listed(mapper := config.policies[policy].mapper):
            say(
                f"policy {policy} keeps a directory of keys (mapper {mapper}): where both sites go on with it they "
                "cannot be merged, and one of them must give up what it did"
            )


@site.command("demote")
@click.option("--to", "to", type=Name(), required=True, metavar="SITE", help="The site that should serve them.")
@partition_option
@reason_option
@cluster_options
def demote(to: str, names: tuple[str, ...], reason: str, options: ClusterOptions) -> None:
    """Stop serving here what another site has taken over, and mirror it from now on.

    Use it at a site that came back and still serves: its nodes end their epochs. If the other site has all of its
    history, this one mirrors that site. If not, both have gone on: `halog site list` shows it, and neither is changed.
    Refused with exit code 5 if the other site says that it does not serve them: nobody would.

    \b
    Examples:
      halog site demote --to east
      halog site demote --to east --reason "east has the better branch"
    """
    from halog.cli.sites.site_events import SiteChange, tell
    from halog.errors import UnknownNameError
    from halog.runtime.sites.switchover import Switchover

    with options.connect() as connection:
        config = connection.config
        if to not in config.other_sites:
            raise UnknownNameError.of("site", to, list(config.other_sites), str(config.source))
        tables = _known_at(connection, to, names)
        _check_served(connection, to, [t for t in tables if not t.owner])
        wanted = [t.name for t in tables]
        epochs, changed = {t.name: t.epoch.number for t in tables}, list[str]()

        def done(name: str) -> None:
            changed.append(name)
            say(f"partition {name}: stops here, for site {to} to serve it")

        switching = Switchover(connection.coordinator, config.site.name, connection.adapters.reach, options.timeout_s)
        try:
            switching.demote(wanted, to, done)
        finally:  # perhaps only some partitions were changed
            tell(connection, [SiteChange(name, "demote", to, to, epochs[name]) for name in changed], reason)
    documents = [{"partition": name, "to": to, "changed": name in changed} for name in wanted]
    rows = [(name, to, "stops here" if name in changed else "was not served here") for name in wanted]
    emit(options.format, documents, ["partition", "to", ""], rows)


# --- what is known ---


def _known_at(connection: ClusterConnection, site: str, names: tuple[str, ...]) -> list[PartitionTable]:
    """Return the partitions named, or all with a home, that are also at that site. RefusedError for a named one that is
    not."""
    from halog.config.multi_site import is_at
    from halog.errors import RefusedError

    tables = with_home(connection, names)
    found = [t for t in tables if is_at(connection.config, t.policy, site)]
    if names and (away := next((t for t in tables if t not in found), None)):
        raise RefusedError(
            f"partition {away.name}: policy {away.policy} has no node at site {site}, so nobody would serve it; "
            "nothing was changed",
            partition=away.name,
            site=site,
        )
    return found


def _check_served(connection: ClusterConnection, site: str, tables: Iterable[PartitionTable]) -> None:
    """Raise RefusedError for a partition that the site says it does not serve. If it cannot be reached, nobody
    knows."""
    from halog.errors import RefusedError, UnreachableError
    from halog.metadata.partition_tables import serves

    try:
        remote = connection.adapters.reach(site)
    except UnreachableError:
        return
    try:
        idle = next((t.name for t in tables if not serves(remote.coordinator, t)), "")
    finally:
        remote.close()
    if idle:
        raise RefusedError(
            f"partition {idle} is not served by site {site}, so nobody would serve it; nothing was changed. To have "
            f"that site take it over say `halog site promote` with the configuration of site {site}",
            partition=idle,
            site=site,
        )


def _site(
    connection: ClusterConnection,
    name: str,
    own: str,
    serves: int,
    found: list[dict[str, Any]],
    both: dict[str, Split],
    lacking: Mapping[str, Collection[str]],
) -> dict[str, Any]:
    from halog.cli.shared.divergence_rows import documents

    mine = [m for m in found if m["site"] == name]
    state, requests = ("this one", "") if name == own else _reached(connection, name)
    return {
        "site": name,
        "state": state,
        "serves": serves,
        "mirrored_here": len(mine),
        "waited_for": sum(name in t.synced and not t.owner for t in connection.tables),
        "requests": requests,
        "votes": connection.config.site_votes[name],
        "parted": documents({p: one for p, one in both.items() if one.site == name}),
        "still": [m["partition"] for m in mine if m["why"]],
        "not_mirrored_there": [partition for partition, sites in lacking.items() if name in sites],
    }


def _reached(connection: ClusterConnection, name: str) -> tuple[str, str]:
    """Return how the site's servers are reached, and how many of its nodes answer over the line; "off" where none is
    asked."""
    from halog.errors import HalogError
    from halog.metadata.nodes import read_nodes

    requests = connection.config.other_sites[name].requests
    try:
        remote = connection.adapters.reach(name)
        try:
            infos = read_nodes(remote.coordinator, remote.coordinator.children("nodes")) if requests else {}
        finally:
            remote.close()
    except HalogError as e:
        return f"cannot be reached: {e}", "" if requests else "off"
    return "reached", _answering(connection, name, infos) if requests else "off"


def _answering(connection: ClusterConnection, site: str, infos: Mapping[str, NodeInfo]) -> str:
    from halog.cli.shared.remote_nodes import ask_site

    said = ask_site(connection, site, infos)
    return f"{sum('error' not in one for one in said.values())} of {len(said)} nodes answer"


def _yes(said: bool | None) -> str:
    return "" if said is None else "yes" if said else "no"


def _say(partition: str, site: str) -> None:
    say(f"partition {partition}: served by site {site}")
