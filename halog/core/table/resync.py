"""This module copies replicas anew while the partition works (P12, "force replication"): one after the other, each from
the state topic and the log, as after a restart with an empty disk.

The wish stands in the znode (`PartitionTable.resync`), so any active node goes on with it. A replica whose turn it is
leaves the node list first. That is an ordinary step that shrinks the sync set (S2), so no commit waits for it. Then it
drops its copy and says so in the znode; then it catches up and counts again, like one that was restarted.
Acknowledgements of the old copy count for nothing from the moment it is out, however late they arrive. The new copy is
in the same run of its node; it is known by an lsn that was given out after the old one was gone.

The law has three parts. A replica leaves only while every other node that is up is in the node list, so two are never
out at once. The others must be enough for a quorum, so commits go on. And others must have taken its place in the sync
set, if there are any.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from halog.core.table.group import counts, needed
from halog.core.table.table import EMPTY, OUT, SYNC, WAITING, PartitionTable, Replica, Resync
from halog.core.tolerant import carrying


def why_not(table: PartitionTable, nodes: Sequence[str]) -> str | None:
    """Return what speaks against copying these replicas anew, or None. Replicas that are already to be copied are not
    judged again."""
    name = table.name
    nodes = [n for n in nodes if table.resync is None or n not in table.resync.nodes]
    if table.active is None:
        return f"{name} has no active node: there is nobody who could go on while a replica is copied"
    if table.target is not None:
        return f"{name} is moving to {', '.join(table.target.nodes)}: every copy it needs is made by that"
    if not nodes and table.resync is None:
        return f"{name} has no replica in its node list ({', '.join(table.node_list)})"
    if wrong := [n for n in nodes if n not in table.node_list]:
        return f"{', '.join(wrong)} is not in the node list of {name}: {', '.join(table.node_list)}"
    if table.active.node in nodes:
        return f"{table.active.node} is active for {name}: its copy is what the others are compared with"
    return next((why for n in nodes if (why := _why_too_few(table, n))), None)


def _why_too_few(table: PartitionTable, node: str, nodes: Sequence[str] = ()) -> str | None:
    """Return why the other ones of these nodes would not be enough. Without `nodes`, they are those in the node
    list."""
    assert table.active is not None
    need = needed(table, table.active.node)
    left = [n for n in nodes or table.node_list if n != node and (n == table.active.node or counts(table, n))]
    if len(left) >= need:
        return None
    return f"without {node} only {', '.join(left)} would count for {table.name}, {need} are needed: commits would stop"


def wished(table: PartitionTable, nodes: Sequence[str]) -> PartitionTable:
    """Return the table with that wish, behind what is left of an earlier one."""
    before = () if table.resync is None else table.resync.nodes
    passed = () if table.resync is None else tuple(n for n in table.passed_over if n not in nodes)
    phase = WAITING if table.resync is None else table.resync.phase
    added = tuple(n for n in nodes if n not in before)
    if not added:
        return table
    return msgspec.structs.replace(
        table,
        resync=carrying(Resync((*before, *added), phase), table.resync),
        passed_over=passed,
        config_version=table.config_version + 1,
    )


def replicas(table: PartitionTable) -> tuple[str, ...]:
    """Return all replicas, async ones first: no commit waits for them."""
    return tuple(r.node for r in sorted(table.replicas, key=lambda r: r.kind == SYNC))


def next_table(table: PartitionTable, up: Collection[str]) -> PartitionTable | None:
    """Return the table after the active node's next step; None: no step is possible just now. `up`: nodes it hears."""
    assert table.resync is not None
    assert table.active is not None
    node, phase = table.resync.nodes[0], table.resync.phase
    if node not in up or node == table.active.node or node not in table.configured:
        return _rest(table, passed=phase != EMPTY)  # a node that comes back copies as much as it needs anyway
    if phase == WAITING and (node not in table.node_list or _why_too_few(table, node, table.configured)):
        # Its copy may have stopped with an error, and would never be dropped; an override that let it begin has ended.
        return _rest(table, passed=True)
    kept = tuple(r for r in table.replicas if r.node != node)
    if phase == WAITING and _all_others(table, node, up) and _enough(table, kept) and not _why_too_few(table, node):
        return msgspec.structs.replace(table, replicas=kept, resync=msgspec.structs.replace(table.resync, phase=OUT))
    if phase == EMPTY and node in table.node_list:
        return _rest(table)
    return None


def _all_others(table: PartitionTable, node: str, up: Collection[str]) -> bool:
    return all(n in table.node_list for n in table.present if n in up and n != node)


def _enough(table: PartitionTable, kept: Sequence[Replica]) -> bool:
    """Say whether as many sync replicas stay as are wanted, or all that stay are sync."""
    return sum(r.kind == SYNC for r in kept) >= min(table.sync_replicas, len(kept))


def _rest(table: PartitionTable, *, passed: bool = False) -> PartitionTable:
    """Return the table without the first replica, whose turn is over; `passed`: it still has the copy it had."""
    assert table.resync is not None
    first, *nodes = table.resync.nodes
    over = (*table.passed_over, first) if passed else table.passed_over
    left = carrying(Resync(tuple(nodes)), table.resync) if nodes else None
    return msgspec.structs.replace(table, resync=left, passed_over=over)


def begun(table: PartitionTable) -> Resync | None:
    """Return the part of the wish that goes on when a migration takes its place."""
    if table.resync is None or table.resync.phase == WAITING:
        return None
    return msgspec.structs.replace(table.resync, nodes=table.resync.nodes[:1])


def emptied(table: PartitionTable, node: str) -> PartitionTable:
    """Return the table after `node`, whose turn it is, has dropped its copy."""
    if table.away != node:
        return table
    assert table.resync is not None
    return msgspec.structs.replace(table, resync=msgspec.structs.replace(table.resync, phase=EMPTY))


def left(table: PartitionTable) -> tuple[str, ...]:
    """Return what is still to do, for people; empty: nothing is."""
    if table.resync is None:
        return ()
    first, *others = table.resync.nodes
    now = {WAITING: "waits for the other replicas", OUT: "drops its copy", EMPTY: "is copied anew and catches up"}
    return (f"{first} {now[table.resync.phase]}", *(f"{n} waits for its turn" for n in others))


def empty_one(table: PartitionTable) -> str:
    """Return the node that has dropped its copy and makes it anew; "": none has."""
    return table.resync.nodes[0] if table.resync is not None and table.resync.phase == EMPTY else ""
