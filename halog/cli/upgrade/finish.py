"""`halog upgrade finish` raises the cluster's level and ends an upgrade (U1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import say
from halog.cli.shared.output import emit_json
from halog.cli.upgrade.group import upgrade
from halog.cli.upgrade.scope import hosting_names

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.metadata.upgrades import Upgrade


@upgrade.command("finish")
@click.option("--leave-clients", is_flag=True, help="Clients that do not know the level may be refused from then on.")
@cluster_options
def finish_(leave_clients: bool, options: ClusterOptions) -> None:
    """Raise the cluster's level to what this halog knows, and end the upgrade. There is no way back then.

    Every configured node must be registered and know that level, and so must every client that is registered, at every
    site: whoever does not know it is refused from then on. Else nothing is changed, and the exit code is 5. Where there
    is no level to be raised the upgrade ends all the same, and nothing stands against going back by hand.

    \b
    Examples:
      halog upgrade finish
      halog upgrade finish --leave-clients
    """
    from halog.cli.upgrade.telling import command_now, tell_step
    from halog.errors import NothingToDoError
    from halog.metadata.cluster_level import LEVEL, raise_level, read_level
    from halog.metadata.upgrades import alone, change, read_upgrade
    from halog.runtime.upgrade.record import ended

    with options.connect() as connection:
        c, command = connection.coordinator, command_now()
        session_s = connection.config.timing.session_timeout_ms / 1000
        with alone(c, command.by, wait_s=min(options.timeout_s, 2 * session_s)):
            found, was = read_upgrade(c), read_level(c)
            is_open = found is not None and not found.over
            if found is not None and is_open:
                _check_brought(connection, found)
            if was.level >= LEVEL and not is_open:
                raise NothingToDoError(
                    f"no upgrade is under way, and the level is {was.level}: this halog knows no higher one; nothing "
                    "was changed"
                )
            now = was
            if was.level < LEVEL:
                _check_all_know(connection, LEVEL, clients=not leave_clients)
                now = raise_level(c, LEVEL, command.by, command.now_ms)
            change(c, lambda before: ended(before, command))
            if found is not None and is_open:
                cause = f"{command.by} asked for it; the level is {now.level}"
                tell_step(connection, found, "finished", cause)
    if options.format == "json":
        emit_json(
            {"level": now.level, "was": was.level, "upgrade": found.to if found is not None and is_open else None}
        )
        return
    if now.level > was.level:
        say(f"the level is {now.level}; it was {was.level}. Nobody who knows less does anything here any more")
    else:
        say(f"the level is {now.level} as before: this halog knows no higher one")
    if found is not None and is_open:
        say(f"the upgrade to halog {found.to} is over")


def _check_brought(connection: ClusterConnection, found: Upgrade) -> None:
    """Raise RefusedError while nodes of the upgrade run something else, or were not proved."""
    from halog.errors import RefusedError

    if found.back:
        raise RefusedError(
            f"the upgrade to halog {found.to} is being taken back; nothing was changed. Let `halog upgrade rollback` "
            "end, or go on with `halog upgrade start --all`"
        )
    nodes = connection.nodes
    names = hosting_names(connection)
    other = [
        f"{n} runs halog {nodes[n].version}" if n in nodes else f"{n} is not registered"
        for n in names
        if n not in nodes or nodes[n].version != found.to
    ]
    other += [f"{n} was not proved" for n in names if n not in found.done] if not other else []
    if other:
        raise RefusedError(
            f"the upgrade to halog {found.to} is not done: {'; '.join(other)}; nothing was changed. Go on with `halog "
            "upgrade start --all`",
            nodes=names,
        )


def _check_all_know(connection: ClusterConnection, level: int, *, clients: bool) -> None:
    """Raise RefusedError where somebody at any site does not know the level."""
    from halog.errors import RefusedError
    from halog.runtime.upgrade.level_raise import against, named

    found = against(level, hosting_names(connection), connection.nodes, clients=clients)
    for site in connection.config.other_sites:
        found += _against_at(connection, site, level, clients=clients)
    if found:
        raise RefusedError(
            f"the level stays as it is: {named(found)}. Nothing was changed; nodes and clients that know level {level} "
            "must run everywhere (--leave-clients: clients may be refused)",
            level=level,
            against=found,
        )


def _against_at(connection: ClusterConnection, site: str, level: int, *, clients: bool) -> list[str]:
    """Return what stands against it at another site, whose nodes read this site's logs: also that they are brought to
    another release just now, or back."""
    from halog.errors import HalogError
    from halog.metadata.nodes import read_nodes
    from halog.metadata.upgrades import under_way
    from halog.runtime.upgrade.level_raise import against, unsettled

    config = connection.config
    known = [*config.other_sites[site].nodes, *(n for n, v in config.all_sites.nodes.items() if v.site == site)]
    try:
        remote = connection.adapters.reach(site)
        try:
            infos = read_nodes(remote.coordinator, remote.coordinator.children("nodes"))
            found = under_way(remote.coordinator)
        finally:
            remote.close()
    except HalogError as e:
        return [f"site {site} cannot be asked: {e}"]
    return unsettled(found, site) + against(level, dict.fromkeys(known), infos, site, clients=clients)
