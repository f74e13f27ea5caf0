"""This module has the commands `halog zone list|show|quorum`. They show which nodes give each other a quorum and
whether they have it, and switch it off."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.confirm import check_confirmed, check_named, cluster_option
from halog.cli.shared.exit_codes import DEGRADED_EXIT
from halog.cli.shared.messages import echo_facts
from halog.cli.shared.options import Name, reason_option
from halog.cli.shared.output import emit, emit_json, emit_table
from halog.core.tolerant import plain

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.cli.shared.zone_views import SiteReport, ZoneSiteView, ZoneView


@click.group()
def zone() -> None:
    """Show availability zones: their nodes, and their quorum.

    \b
    Examples:
      halog zone list
      halog zone show west
      halog zone quorum west --off --cluster fleet --reason "the other rack is being moved"
    """


@zone.command("list")
@cluster_options
def list_(options: ClusterOptions) -> None:
    """List zones with their state, quorum and nodes, those at other sites included.

    Exit code 4 if a zone is partial (a node is missed, or nothing is heard of a site where it has nodes), disabled (a
    node has no quorum) or unknown.

    \b
    Examples:
      halog zone list
      halog zone list --format json
    """
    import msgspec

    with options.connect() as connection:
        views = _views(connection, list(connection.config.all_sites.zones))
    rows = [(v.zone, v.state, _quorum(v), _nodes(v), _missed(v)) for v in views]
    emit(options.format, [msgspec.to_builtins(v) for v in views], ["zone", "state", "quorum", "nodes", ""], rows)
    _exit(views)


@zone.command("show")
@click.argument("name", type=Name(), metavar="ZONE")
@cluster_options
def show(name: str, options: ClusterOptions) -> None:
    """Show one zone, and how each of its nodes stands in it, at every site.

    Exit code 4 if it is partial, disabled or unknown.

    \b
    Examples:
      halog zone show west
      halog zone show west --format json
    """
    import msgspec

    with options.connect() as connection:
        _known(connection, name)
        (view,) = _views(connection, [name])
    if options.format == "json":
        emit_json(msgspec.to_builtins(view))
    else:
        _show(view)
    _exit([view])


@zone.command("quorum")
@click.argument("name", type=Name(), metavar="ZONE")
@click.option("--off/--on", "off", default=None, help="Switch it off: no node goes offline for this zone; or on again.")
@cluster_option
@reason_option
@cluster_options
def quorum(name: str, off: bool | None, confirmed: str, reason: str, options: ClusterOptions) -> None:
    """Show whether a zone's quorum is on; switch it off, or on again.

    It takes effect at once, and lasts until it is switched back; no node need be up. Nodes that are offline because
    they lack the quorum come back. With it off, each side of a network that is cut in two goes on with what it reaches;
    at one site the log still lets only one of them commit. If a zone has nodes at several sites, only the quorum of
    this site's nodes is switched. Refused with exit code 5 if the configuration gives the zone no quorum, or no node at
    this site. --off is also refused unless --cluster confirms it with the name of the cluster.

    \b
    Examples:
      halog zone quorum west
      halog zone quorum west --off --cluster fleet --reason "two machines burnt down"
      halog zone quorum west --on
    """

    from halog.errors import RefusedError
    from halog.metadata.zone_switches import ZoneSwitch, read_switch, set_switch

    with options.connect() as connection:
        _known(connection, name)
        demand = _demand(connection, name)
        if off is None:
            switch = read_switch(connection.coordinator, name)
        elif not demand:
            raise RefusedError(f"zone {name} has no quorum: give it one in [zones.{name}.quorum] first", zone=name)
        else:
            if off and not read_switch(connection.coordinator, name).off:
                _check_given_up(connection, name, confirmed)
            check_named(connection, confirmed)
            wanted = ZoneSwitch(off, reason, time.time_ns() // 1_000_000)
            switch = set_switch(connection.coordinator, name, wanted)
    if options.format == "json":
        emit_json({"zone": name, "quorum": demand or None, **plain(switch)})
    else:
        how = _switched(switch.reason, switch.since_ms) if switch.off else ""
        echo_facts([("zone", name), ("quorum", f"{demand or 'none'}{how}")])


def _check_given_up(connection: ClusterConnection, name: str, confirmed: str) -> None:
    apart = "each side of a network that is cut in two would go on with what it reaches"
    given_up = f"zone {name} would have no quorum, and {apart}"
    check_confirmed(connection, confirmed, given_up, "If that may be", zone=name)


def _views(connection: ClusterConnection, names: list[str]) -> list[ZoneView]:
    from halog.cli.shared.zone_views import zone_sites, zone_view

    config = connection.config
    sites = dict.fromkeys(site for name in names for site in zone_sites(config, name))
    heard = {site: _heard(connection, site, names) for site in sites}
    return [zone_view(config, name, heard) for name in names]


def _heard(connection: ClusterConnection, site: str, names: list[str]) -> SiteReport:
    from halog.cli.shared.remote_nodes import hear_zones
    from halog.cli.shared.survey import ask_nodes
    from halog.cli.shared.zone_views import SiteReport
    from halog.metadata.zone_switches import read_switch

    if site != connection.config.site.name:
        return hear_zones(connection, site, names)
    return SiteReport(ask_nodes(connection), {name: read_switch(connection.coordinator, name) for name in names})


def _demand(connection: ClusterConnection, name: str) -> str:
    """Return what the zone's quorum asks for at this site; only its nodes count for it."""
    from halog.errors import RefusedError
    from halog.runtime.membership.node_quorum import zones_of

    config = connection.config
    if name not in config.zones:
        raise RefusedError(
            f"zone {name} has no node at site {config.site.name}: give the command with the configuration of a site "
            "where it has one",
            zone=name,
        )
    return next(z.demand for z in zones_of(config, config.nodes_of(name)[0]) if z.name == name)


def _known(connection: ClusterConnection, name: str) -> None:
    from halog.errors import UnknownNameError

    zones = connection.config.all_sites.zones
    if name not in zones:
        raise UnknownNameError.of("zone", name, zones)


def _show(view: ZoneView) -> None:
    sites = [(f"site {s.site}", s.state + (f": {s.why}" if s.why else "")) for s in view.sites if view.spans]
    echo_facts(
        [
            ("zone", f"{view.zone}: {view.state}"),
            *sites,
            ("quorum", _quorum(view)),
            ("policies", ", ".join(view.policies) or "none"),
        ]
    )
    rows = [
        (
            n.node,
            *([n.site] if view.spans else []),
            n.votes,
            n.state,
            "" if n.needed is None else f"{n.have} {n.of}, {n.needed} needed",
            ", ".join(n.misses),
        )
        for n in view.nodes
    ]
    emit_table(["node", *(["site"] if view.spans else []), "votes", "state", "reaches", "misses"], rows)


def _nodes(view: ZoneView) -> str:
    """Return the zone's nodes, by site if it has some at others."""
    if not view.spans:
        return ", ".join(n.node for n in view.nodes)
    return "; ".join(f"{s.site}: {', '.join(n.node for n in view.nodes if n.site == s.site)}" for s in view.sites)


def _quorum(view: ZoneView) -> str:
    """Return the zone's quorum, by site where they differ: each site counts its own nodes."""
    texts = {s.site: _demanded(s) for s in view.sites}
    if len(set(texts.values())) == 1 and (not view.spans or "none" in texts.values()):
        return next(iter(texts.values()))
    return "; ".join(f"{site}: {text}" for site, text in texts.items())


def _demanded(site: ZoneSiteView) -> str:
    if site.quorum is None:
        return "none"
    return site.quorum + (_switched(site.reason, site.since_ms) if site.off else "")


def _switched(reason: str | None, since_ms: int | None) -> str:
    since = datetime.fromtimestamp((since_ms or 0) / 1000, UTC).isoformat(timespec="seconds")
    return f" (switched off since {since}{f': {reason}' if reason else ''})"


def _missed(view: ZoneView) -> str:
    disabled = [n.node for n in view.nodes if n.state == "disabled"]
    missed = sorted({m for n in view.nodes for m in n.misses})
    said = [f"{', '.join(disabled)} without a quorum"] if disabled else []
    said += [f"missed: {', '.join(missed)}"] if missed else []
    return "; ".join([*said, *(f"site {s.site} {s.why}" for s in view.sites if s.why)])


def _exit(views: list[ZoneView]) -> None:
    if not all(v.ok for v in views):
        raise click.exceptions.Exit(DEGRADED_EXIT)
