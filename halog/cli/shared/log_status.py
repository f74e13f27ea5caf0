"""`halog status` tells here of a log that does not answer: this command itself, or nodes that have met it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from halog.runtime.node.wiring import addresses
from halog.runtime.rpc.missing_server import log_missing

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection

ASK_S = 1.0


class KafkaView(msgspec.Struct, frozen=True):
    """Describes a log that does not answer. `nodes` are those that say so; `here` says whether it does not answer this
    command either."""

    address: str
    why: str
    here: bool
    nodes: tuple[str, ...]
    since_ms: int | None
    """When the first of the nodes met it."""
    partitions: tuple[str, ...]
    """The partitions that take no commits: they have no active node, or wait for the log on some node."""

    def text(self) -> str:
        """Return it as text for people."""
        since = ""
        if self.since_ms is not None:
            since = f" since {datetime.fromtimestamp(self.since_ms / 1000, UTC).strftime('%Y-%m-%d %H:%M:%SZ')}"
        whom = "" if self.here else f" to {', '.join(self.nodes)}"
        count = len(self.partitions)
        what = f"; {count} partition{'s' if count != 1 else ''} without it" if count else ""
        return f"{self.address} does not answer{whom}{since}{what}: no commits"


def kafka_view(
    connection: ClusterConnection, said: Mapping[str, Mapping[str, Any]], without_active: Iterable[str]
) -> KafkaView | None:
    """Return the log's view, or None if it answers this command and no node says otherwise."""
    idle = list(without_active)
    tables = sorted(connection.tables, key=lambda t: t.name not in idle)
    why = log_missing(connection.adapters.log, tables[0] if tables else None, min(ASK_S, connection.timeout_s))
    told = {node: s["log"] for node, s in said.items() if s.get("log")}
    if not why and not told:
        return None
    since = min((log["since_ms"] for log in told.values()), default=None)
    waiting = {p for log in told.values() for p in log["partitions"]}
    first = why or next(iter(told.values()))["why"]
    partitions = tuple(sorted({*idle, *waiting}))
    return KafkaView(addresses(connection.config)[0], first, bool(why), tuple(sorted(told)), since, partitions)
