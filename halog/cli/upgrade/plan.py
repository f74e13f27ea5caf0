"""`halog upgrade plan` shows what an upgrade would do, and changes nothing (U1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import say
from halog.cli.shared.output import emit
from halog.cli.upgrade.group import upgrade
from halog.cli.upgrade.scope import hosting_names, release_meant, to_option

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.runtime.upgrade.order import PlannedNode

SHOWN = 3
"""So many partitions are named that are handed over, or would be in the way."""


@upgrade.command("plan")
@to_option
@cluster_options
def plan_(to: str | None, options: ClusterOptions) -> None:
    """Show the order of the nodes, who takes over from each, and whether each is safe to stop now.

    The node that is active for the fewest partitions comes first: then there is a new one that takes over from the
    others. Whether a node is safe to stop is asked again before it is stopped. Changes nothing.

    \b
    Examples:
      halog upgrade plan
      halog upgrade plan --to 0.3.0 --format json
    """
    from halog.metadata.upgrades import read_upgrade

    with options.connect() as connection:
        found = read_upgrade(connection.coordinator)
        target = release_meant(to, found)
        documents = _documents(connection, target)
    rows = [
        (
            d["node"],
            d["runs"] or "is down",
            f"{_span(d['protocols'])}; {d['level']}" if d["runs"] else "",
            "" if d["needed"] else "runs it",
            len(d["hands_over"]),
            _takers(d["hands_over"]),
            "yes" if d["safe"] else f"no: {'; '.join(d['why_not'][:SHOWN])}",
        )
        for d in documents
    ]
    columns = ("node", "runs", "knows protocols; level", f"halog {target}", "hands over", "to", "safe to stop now")
    emit(options.format, {"to": target, "nodes": documents}, columns, rows)
    if options.format != "json" and not any(d["needed"] for d in documents):
        say(f"every node runs halog {target}; `halog upgrade finish` raises the level, if there is one to be raised")


def _documents(connection: ClusterConnection, target: str) -> list[dict[str, Any]]:
    from halog.cli.partition.safe_to_stop import judge_all
    from halog.cli.shared.survey import survey
    from halog.runtime.upgrade.order import ordered, planned

    seen, tables, nodes = survey(connection), connection.tables, connection.nodes
    order = ordered(hosting_names(connection), tables)
    documents = []
    for one in planned(order, nodes, tables, dict.fromkeys(order, target)):
        info = nodes.get(one.node)
        against = [
            f"{v.partition}: {v.why}" for v in (judge_all(connection, {one.node}, seen) if info else ()) if not v.safe
        ]
        documents.append(
            {
                "node": one.node,
                "runs": one.runs or None,
                "protocols": None if info is None else list(info.protocols),
                "level": None if info is None else info.level,
                "needed": one.needed,
                "hands_over": _moves(one),
                "safe": not against,
                "why_not": against,
            }
        )
    return documents


def _moves(one: PlannedNode) -> list[dict[str, str | None]]:
    return [{"partition": s.partition, "to": s.to or None} for s in one.successions]


def _takers(moves: list[dict[str, str | None]]) -> str:
    """Return who takes over what; the JSON names all."""
    by: dict[str | None, list[str]] = {}
    for move in moves:
        by.setdefault(move["to"], []).append(str(move["partition"]))
    return "; ".join(f"{to or 'nobody'}: {_some(names)}" for to, names in by.items())


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _span(protocols: list[int] | None) -> str:
    lowest, highest = protocols or (0, 0)
    return f"{highest}" if lowest == highest else f"{lowest} to {highest}"
