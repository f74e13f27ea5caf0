"""An upgrade is put into words and documents here, from its record and from what nodes have registered (U1)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from halog.metadata.cluster_level import ClusterLevel
from halog.metadata.nodes import NodeInfo
from halog.metadata.upgrades import Upgrade
from halog.runtime.upgrade.order import release_for
from halog.runtime.upgrade.record import to_come


def upgrade_text(upgrade: Upgrade, driven: str) -> str:
    """Return how far an upgrade is, on one line."""
    count = f"{len(upgrade.done)} of {len(upgrade.order)}"
    what = f"back from {upgrade.to} under way" if upgrade.back else f"to {upgrade.to} under way"
    said = f"{what} ({count}), {upgrade.state}"
    if upgrade.state == "running" and not driven:
        said += ", and no command is at it: go on with `halog upgrade start` or `halog upgrade rollback`"
    return said + (f": {upgrade.why}" if upgrade.why else "")


def status_document(
    upgrade: Upgrade | None, driven: str, level: ClusterLevel, nodes: Mapping[str, NodeInfo], back: str
) -> dict[str, Any]:
    """Return what `halog upgrade status` says as a document; `back`: what stands against going back."""
    hosts = {n: i for n, i in nodes.items() if i.hosts}
    names = dict.fromkeys((*(() if upgrade is None else upgrade.order), *hosts))
    return {
        "upgrade": None if upgrade is None else _upgrade_document(upgrade, driven),
        "level": {"level": level.level, "floor": level.floor, "since_ms": level.since_ms, "by": level.by},
        "may_go_back": not back,
        "why_not_back": back or None,
        "nodes": [node_document(n, upgrade, hosts.get(n)) for n in names],
    }


def _upgrade_document(upgrade: Upgrade, driven: str) -> dict[str, Any]:
    left = [] if upgrade.over else to_come(upgrade)
    return {
        "to": upgrade.to,
        "state": upgrade.state,
        "back": upgrade.back,
        "driven_by": driven or None,
        "node": upgrade.node or None,
        "why": upgrade.why or None,
        "done": list(upgrade.done),
        "next": left[0] if left else None,
        "since_ms": upgrade.since_ms,
        "at_ms": upgrade.at_ms,
        "by": upgrade.by,
    }


def node_document(name: str, upgrade: Upgrade | None, info: NodeInfo | None) -> dict[str, Any]:
    """Return what a node runs, knows and should run."""
    wanted = None if upgrade is None or upgrade.over else release_for(upgrade, name) or None
    return {
        "node": name,
        "runs": None if info is None else info.version,
        "wanted": wanted,
        "before": None if upgrade is None else upgrade.before.get(name),
        "level": None if info is None else info.level,
        "protocols": None if info is None else list(info.protocols),
        "done": upgrade is not None and name in upgrade.done,
    }


def protocols_text(info: NodeInfo) -> str:
    """Return the protocols that a node speaks."""
    lowest, highest = info.protocols
    return f"{highest}" if lowest == highest else f"{lowest} to {highest}"


def day_text(ms: int) -> str:
    """Return a time as tables show it."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
