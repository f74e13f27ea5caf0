"""`halog site list|lag|promote|demote`: which site serves what, how far mirrors are, and changing it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halog.cli.options import config_option, timeout_after, timeout_option
from halog.cli.output import emit, format_option
from halog.cli.status import DEGRADED_EXIT

if TYPE_CHECKING:
    from halog.cli.connection import Connection
    from halog.core.table import PartitionTable

SWITCH_S = 60.0
"""A switch drains, mirrors what is left and elects: a second or two; a mirror may have to catch up first."""

STALE_S = 10.0
"""A standing that is older than this says nothing of now: mirrors write theirs every two seconds."""

partition_option = click.option(
    "--partition", "names", multiple=True, metavar="NAME", help="Only this one; repeatable.  [default: all with a home]"
)


@click.group()
def site() -> None:
    """Sites: which one serves, how far the others are behind, taking over.

    \b
    Examples:
      halog site list
      halog site lag
      halog site promote
      halog site demote --to east
    """


@site.command("list")
@config_option
@format_option
@timeout_option
def list_(config_path: Path, format_: str, timeout_s: float) -> None:
    """List the sites as this one sees them: where partitions are served, and whether their histories are one.

    Exit code 4 if histories have parted, or a mirror stands still.

    \b
    Examples:
      halog site list
      halog site list --format json
    """
    from halog.cli.connection import connect
    from halog.runtime.splits import parted

    with connect(config_path, timeout_s) as connection:
        own, others = connection.config.site.name, connection.config.other_sites
        found = _mirrors(connection, with_home(connection, ()))
        serves = dict.fromkeys((own, *others), 0)
        for table in connection.tables:
            serves[table.owner or own] = serves.get(table.owner or own, 0) + 1
        both = {name: told.site for name, told in parted(connection.coordinator).items()}
        documents = [_site(connection, name, own, serves[name], found, both) for name in serves]
    rows = [(d["site"], d["state"], d["serves"], d["mirrored_here"], ", ".join(d["parted"])) for d in documents]
    emit(format_, documents, ["site", "state", "serves", "mirrored here", "parted"], rows)
    if any(d["parted"] or d["still"] for d in documents):
        raise click.exceptions.Exit(DEGRADED_EXIT)


@site.command("lag")
@partition_option
@config_option
@format_option
@timeout_option
def lag(names: tuple[str, ...], config_path: Path, format_: str, timeout_s: float) -> None:
    """Show how far this site's mirrors are behind: log entries, and the time records take from there to here.

    Exit code 4 if one stands still.

    \b
    Examples:
      halog site lag
      halog site lag --partition flights-0 --format json
    """
    from halog.cli.connection import connect

    with connect(config_path, timeout_s) as connection:
        found = _mirrors(connection, [t for t in with_home(connection, names) if t.owner])
    rows = [(m["partition"], m["site"], m["by"], m["behind"], m["lag_ms"], m["age_s"], m["why"]) for m in found]
    emit(format_, found, ["partition", "from site", "by", "entries behind", "lag ms", "told s ago", ""], rows)
    if any(m["why"] for m in found):
        raise click.exceptions.Exit(DEGRADED_EXIT)


@site.command("promote")
@partition_option
@click.option("--may-fork", is_flag=True, help="Also where nobody knows whether the other site goes on.")
@config_option
@format_option
@timeout_after(SWITCH_S, "Give up after this long; what is not taken over by then stays where it is.")
def promote(names: tuple[str, ...], may_fork: bool, config_path: Path, format_: str, timeout_s: float) -> None:
    """Make this configuration's site serve partitions that another one serves.

    The other site's nodes end their epochs with everything logged, this one mirrors the rest, and takes over: nothing
    is lost. If the other site cannot be reached it is refused with exit code 5, unless --may-fork says that two
    histories are better than none; they can be told apart later, and never mix.

    \b
    Examples:
      halog site promote
      halog site promote --partition flights-0 --partition flights-1
      halog site promote --may-fork
    """
    from halog.cli.connection import connect
    from halog.runtime.switching import Switching

    with connect(config_path, timeout_s) as connection:
        here, reach = connection.config.site.name, connection.adapters.reach
        wanted = [t.name for t in with_home(connection, names)]
        switching = Switching(connection.coordinator, here, reach, timeout_s)
        switches = switching.promote(wanted, may_fork=may_fork, done=lambda s: _say(s.partition, here))
    documents = [
        {"partition": s.partition, "site": here, "from": s.taken_over_from, "may_fork": s.may_fork} for s in switches
    ]
    rows = [(d["partition"], d["from"] or "was here", "perhaps" if d["may_fork"] else "no") for d in documents]
    emit(format_, documents, ["partition", "taken over from", "forked"], rows)


@site.command("demote")
@click.option("--to", "to", required=True, metavar="SITE", help="The site that is to serve them.")
@partition_option
@config_option
@format_option
@timeout_option
def demote(to: str, names: tuple[str, ...], config_path: Path, format_: str, timeout_s: float) -> None:
    """Stop serving here what another site has taken over, and mirror it from now on.

    To be asked for at a site that came back and still serves: its nodes end their epochs. If the other site has all of
    its history it mirrors that site; if not, both have gone on, `halog site list` shows it, and neither is changed.

    \b
    Examples:
      halog site demote --to east
    """
    from halog.cli.connection import connect
    from halog.errors import ConfigError
    from halog.runtime.switching import Switching

    with connect(config_path, timeout_s) as connection:
        config = connection.config
        if to not in config.other_sites:
            known = ", ".join(config.other_sites) or "none"
            raise ConfigError(f"{config.source}: {to} is no other site; [sites] has {known}", site=to)
        wanted = [t.name for t in with_home(connection, names)]
        switching = Switching(connection.coordinator, config.site.name, connection.adapters.reach, timeout_s)
        changed = switching.demote(wanted, to)
    documents = [{"partition": name, "to": to, "changed": name in changed} for name in wanted]
    rows = [(name, to, "stops here" if name in changed else "was not served here") for name in wanted]
    emit(format_, documents, ["partition", "to", ""], rows)


# --- what is known ---


def with_home(connection: Connection, names: Iterable[str]) -> list[PartitionTable]:
    """The partitions named, or all whose policy has a home; ConfigError for one that has none."""
    from halog.errors import ConfigError

    config = connection.config
    wanted = [connection.table(name) for name in names] or [
        t for t in connection.tables if t.policy in config.policies and config.policies[t.policy].home
    ]
    for table in wanted:
        if not config.policies[table.policy].home:
            raise ConfigError(
                f"{config.source}: partition {table.name} is of this site alone: policies.{table.policy} has no home",
                partition=table.name,
            )
    return wanted


def _mirrors(connection: Connection, tables: Iterable[PartitionTable]) -> list[dict[str, Any]]:
    from halog.runtime.sites import standing

    found = []
    for table in tables:
        now = standing(connection.coordinator, table.name)
        age_s = 0.0 if now is None else max(0.0, time.time() - now.at_ms / 1000)
        why = ""
        if table.owner and (now is None or now.site != table.owner):
            why = "not begun"
        elif now is not None and now.error:
            why = now.error
        elif table.owner and age_s > STALE_S:
            why = "nobody mirrors it: is a node with a copy up?"
        found.append({
            "partition": table.name,
            "site": table.owner,
            "by": "" if now is None else now.by,
            "behind": None if now is None else now.behind,
            "lag_ms": None if now is None else now.lag_ms,
            "age_s": round(age_s, 1),
            "parted": now is not None and now.parted,
            "why": why if table.owner else "",
        })  # fmt: skip
    return found


def _site(
    connection: Connection, name: str, own: str, serves: int, found: list[dict[str, Any]], both: dict[str, str]
) -> dict[str, Any]:
    mine = [m for m in found if m["site"] == name]
    return {
        "site": name,
        "state": "this one" if name == own else _reached(connection, name),
        "serves": serves,
        "mirrored_here": len(mine),
        "parted": [m["partition"] for m in mine if m["parted"]] + [p for p, site in both.items() if site == name],
        "still": [m["partition"] for m in mine if m["why"]],
    }


def _reached(connection: Connection, name: str) -> str:
    from halog.errors import HalogError

    try:
        connection.adapters.reach(name).close()
    except HalogError as e:
        return f"cannot be reached: {e}"
    return "reached"


def _say(partition: str, site: str) -> None:
    click.echo(f"partition {partition}: served by site {site}", err=True)
