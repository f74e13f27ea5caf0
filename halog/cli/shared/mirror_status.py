"""`halog status` says here which mirrors bring nothing any more, seen from both ends, as it says which replicas are
missing (M5)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from halog.config.multi_site import is_at

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable

ENDS = "; if that lasts, `halog site promote` at {site}, or here, says who serves"
"""This text stands behind the state of a log that is compared. That lasts only where the other site does not take it,
or cannot be asked."""


def mirrors(connection: ClusterConnection, tables: Iterable[PartitionTable]) -> list[dict[str, Any]]:
    """Return how each of these partitions is mirrored; `why` says why it is not."""
    from halog.metadata.mirrors import COMPARES, standing
    from halog.metadata.sync_waits import awaited

    found = []
    for table in tables:
        now = standing(connection.coordinator, table.name)
        told = awaited(connection.coordinator, table.name, table.owner)
        age_s = 0.0 if now is None else max(0.0, time.time() - now.at_ms / 1000)
        why = ""
        if table.owner and (now is None or now.site != table.owner):
            why = "not begun"
        elif now is not None and now.error:
            why = now.error + (ENDS.format(site=table.owner) if now.error == COMPARES else "")
        elif table.owner and age_s > connection.around.mirror_stale_s:
            why = f"nobody has mirrored it for {age_s:.0f} s: is a node with a copy up, and site {table.owner} reached?"
        found.append(
            {
                "partition": table.name,
                "site": table.owner,
                "by": "" if now is None else now.by,
                "behind": None if now is None else now.behind,
                "lag_ms": None if now is None else now.lag_ms,
                "age_s": round(age_s, 1),
                "parted": now is not None and now.parted,
                "commits_wait": None if told is None else told.waits,
                "why": why if table.owner else "",
            }
        )
    return found


def standing_still(connection: ClusterConnection, tables: Iterable[PartitionTable]) -> dict[str, str]:
    """Return why nothing is mirrored, by partition that is mirrored here. Partitions whose histories have parted are
    left out: they are told as that."""
    mirrored = [t for t in tables if t.owner]
    return {m["partition"]: m["why"] for m in mirrors(connection, mirrored) if m["why"] and not m["parted"]}


def unmirrored(connection: ClusterConnection, tables: Iterable[PartitionTable]) -> dict[str, tuple[str, ...]]:
    """Return, by partition that is served here, the other sites that should mirror it and bring nothing. A site should
    mirror what it has nodes for. Where only its own file could tell that, it should mirror what it has mirrored
    before."""
    from halog.runtime.sites.mirror_audience import mirrored_at

    config = connection.config
    served = [t for t in tables if not t.owner and t.policy in config.policies]
    served = [t for t in served if config.policies[t.policy].home]
    if not served:
        return {}
    brought = mirrored_at(connection.coordinator, list(config.other_sites))
    found: dict[str, tuple[str, ...]] = {}
    for table in served:
        lacking = [s for s, names in brought.items() if table.name not in names and _is_to(connection, table, s)]
        if lacking:
            found[table.name] = tuple(lacking)
    return found


def _is_to(connection: ClusterConnection, table: PartitionTable, site: str) -> bool:
    if site in (*table.let_go, *table.overruled):  # an operator has had it go on without that site
        return False
    if connection.config.whole is not None:
        return is_at(connection.config, table.policy, site)
    return connection.coordinator.get(f"holders/{table.name}/site-{site}") is not None
