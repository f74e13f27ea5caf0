"""This module says whether nodes may stop now (X4): for each partition they host, which node serves it afterwards, and
whether that node has all it needs.

A partition survives the stop if a node is left that may be active, gets everything that was acknowledged, and finds the
quorum its policy asks for. A node gets everything if it is active now, or a sync replica that is close behind, or an
async one where no sync replica is asked for: then the log has it. Where commits do not wait for the log, it may lack
what only the active node and the sync replicas hold (E2). An async replica follows then only where the table names no
sync replica, since commits wait for the log in that case. It is arithmetic only; the caller has asked what copies are
really like.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from halog.core.settings import Settings
from halog.core.table.group import counts, priority
from halog.core.table.holders import holders
from halog.core.table.preference import NEVER
from halog.core.table.table import ASYNC, SYNC, PartitionTable

ACTIVE = "active"

CLOSE = Settings().ready_lag
"""Records behind. With fewer a copy takes over within milliseconds, and the active node counts it as caught up."""


class CopyFact(NamedTuple):
    """A `CopyFact` is one copy that runs, without an error, as its node said a moment ago."""

    node: str
    kind: str
    """active, sync or async, as the table has it."""
    lag: int
    """Records behind the active node."""


class StopVerdict(NamedTuple):
    """A `StopVerdict` is on one partition. `heir`: the node that serves it afterwards, "" if none may."""

    partition: str
    safe: bool
    heir: str
    why: str


def judge(
    table: PartitionTable, stopping: Collection[str], copies: Iterable[CopyFact], *, unlogged: bool = False
) -> StopVerdict:
    """Return what becomes of a partition when `stopping` stop. `unlogged`: commits of its policy do not wait for the
    log."""
    copies = list(copies)
    left = [c for c in copies if c.node not in stopping and c.node in table.configured]
    if table.owner:
        names = ", ".join(c.node for c in left)
        why = f"site {table.owner} serves it; {names or 'no node'} would keep a copy here"
        return StopVerdict(table.name, bool(left), "", why)
    if not any(c.kind == ACTIVE for c in copies):
        return StopVerdict(table.name, False, "", "it has no active node now")
    heir, why = _heir(table, left, unlogged=unlogged)
    if heir is None:
        return StopVerdict(table.name, False, "", why)
    have, need = _quorum(table, left, heir.node)
    if have < need:
        nodes = "1 node" if have == 1 else f"{have} nodes"
        return StopVerdict(table.name, False, "", f"{nodes} would be left, commits and elections need {need}")
    backed = any(c.kind == SYNC and c.node != heir.node for c in left)
    alone = "" if backed or not table.sync_replicas else ", without a sync replica until one is back"
    return StopVerdict(table.name, True, heir.node, f"{heir.node} {_becomes(heir)}{alone}")


def _becomes(heir: CopyFact) -> str:
    if heir.kind == ACTIVE:
        return "stays active"
    if heir.kind == SYNC or not heir.lag:
        return "takes over, it has everything"
    return f"takes over when it has read {heir.lag:,} records more from the log"


def _heir(table: PartitionTable, left: Sequence[CopyFact], *, unlogged: bool) -> tuple[CopyFact | None, str]:
    """Return the active node if it stays, else the first that could follow it; or None, and what is missing."""
    held = unlogged and bool(holders(table))
    kinds = (ACTIVE, SYNC) if table.sync_replicas or held else (ACTIVE, SYNC, ASYNC)
    whole = [c for c in left if c.kind in kinds]
    able = [c for c in whole if priority(table, c.node) != NEVER]
    close = [c for c in able if c.lag <= CLOSE]
    if not left:
        return None, "no copy would be left"
    if not whole:
        lacks = ", and the log may lack what the others hold" if held else ""
        return None, f"only {_names(left)} would be left, and no commit waits for an async replica{lacks}"
    if not able:
        return None, f"only {_names(whole)} would be left, with priority never"
    if not close:
        behind = ", ".join(f"{c.node} is {c.lag:,} records behind" for c in able)
        return None, f"{behind}: wait until it has caught up"
    return min(close, key=lambda c: c.kind != ACTIVE), ""


def _names(copies: Sequence[CopyFact]) -> str:
    return ", ".join(f"{c.node} ({c.kind})" for c in copies)


def _quorum(table: PartitionTable, left: Sequence[CopyFact], heir: str) -> tuple[int, int]:
    """Return how many nodes would count, and how many are needed (R7, Q3)."""
    if table.group.designated == heir:
        return 1, 1
    need = table.group.required or table.quorum or 1
    return sum(c.node == heir or counts(table, c.node) for c in left), need
