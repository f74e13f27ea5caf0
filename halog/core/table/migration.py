"""This module moves a partition to other nodes while it works (P12): make before break, one compare-and-set after the
other.

The wish stands in the znode (`PartitionTable.target`), so any active node goes on with it, whichever other node died. A
node that joins makes a copy and follows the log; it does not count yet. Once it is close behind it becomes one of the
configured nodes, and so an ordinary replica. When every wanted node is in the node list, with as many sync replicas
among them as are wanted, the role goes to the preferred node by a planned hand-over, and the others leave.

The law that keeps a quorum one (R7): the configured nodes change by one at a time, so any two quorums, before and
after, have a node in common. And they change only after a quorum of the present ones has confirmed everything that was
given out before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from halog.core.table import resync
from halog.core.table.group import majority, priority, why_no_quorum
from halog.core.table.holders import holders
from halog.core.table.preference import NEVER
from halog.core.table.table import DEFINED, ENABLED, SYNC, PartitionTable, Target

# --- the wish ---


def why_not(table: PartitionTable, target: Target, *, replace: bool = False) -> str | None:
    """Return what speaks against moving to `target`, or None. `replace`: give up a migration under way for it."""
    nodes, name = target.nodes, table.name
    if wrong := no_list(name, target):
        return wrong
    if off := [n for n in nodes if n in table.disabled_on]:
        return f"{name} is disabled on {', '.join(off)}: enable it there first (`halog partition enable {name}`)"
    if all(priority(table, n) == NEVER for n in nodes):
        return f"{', '.join(nodes)} have priority never for {name}: nobody could be active; raise one of them first"
    if too_few := why_no_quorum(table, nodes):
        return too_few
    if held := overridden(table):
        return f"{name} cannot move while {held}: take that back first (`halog partition require|designate`)"
    if table.target is not None and table.target != target and not replace:
        return (
            f"{name} is moving to {', '.join(table.target.nodes)} already; `halog partition migrate --replace` "
            "gives that up for this"
        )
    return None


def no_list(name: str, target: Target) -> str | None:
    """Return why this can be no partition's node list, or None."""
    nodes = target.nodes
    twice = sorted({n for n in nodes if nodes.count(n) > 1})
    if not nodes:
        return f"{name} needs at least one node: name those that shall host it, the preferred one first"
    if twice:
        return f"{', '.join(twice)} is named twice for {name}: name each node once, the preferred one first"
    if not 0 <= target.sync_replicas < len(nodes):
        most = len(nodes) - 1
        return f"{name} on {', '.join(nodes)} can have {most} sync replicas at most, not {target.sync_replicas}"
    return None


def moving(table: PartitionTable, target: Target, rate: int = 0) -> PartitionTable:
    """Return the table with that wish; it is unchanged if the wish stands there, or is fulfilled. `rate`: see
    `copy_rate`."""
    wished = msgspec.structs.replace(_with(table, target), copy_rate=rate)
    as_it_is = table.target is None and table.sync_replicas == target.sync_replicas and _fulfilled(wished)
    return table if as_it_is or target == table.target else wished


def paced(table: PartitionTable, rate: int) -> PartitionTable:
    """Return the table with another rate for the copies of the migration under way, and the same wish."""
    return table if table.target is None else msgspec.structs.replace(table, copy_rate=rate)


def copy_rate(table: PartitionTable, node: str) -> int:
    """Return how many bytes a second `node` may read to make its copy; 0: as fast as it can.

    Only a copy that nothing but a migration asks for may take its time. The copy of a member may not, nor may one that
    is made while a member is missing from the node list.
    """
    target = table.target
    if target is None or node in table.configured or not all(n in table.node_list for n in table.configured):
        return 0
    return table.copy_rate


def assigned(table: PartitionTable, target: Target) -> PartitionTable:
    """Return the table as if the partition had always been on `target`. Where none of its nodes is up, nobody could
    move it. The log is then all there is, and any node that can read the log may win an election (E2).

    The table still names the active node. It may be alive and only have lost its session: so its lease is waited for
    (R5), and if it comes back first, it gives the role away.
    """
    quorum = majority(len(target.nodes)) if table.quorum else 0
    return msgspec.structs.replace(
        _with(table, target), configured=target.nodes, sync_replicas=target.sync_replicas, quorum=quorum, replicas=()
    )


def why_not_assigned(table: PartitionTable, *, unlogged: bool) -> str | None:
    """Return what speaks against `assigned`, or None. `unlogged`: commits of its policy do not wait for the log (R6),
    so the log may lack what its nodes have."""
    if not table.configured:
        return None  # no node has had it yet
    away = ", ".join(table.configured)
    if table.quorum and not table.present:
        return (
            f"{table.name} has not been enabled by a majority of {away} since they were started, and it asks for a "
            "quorum of them: define it there as it was, and enable it, first"
        )
    if table.quorum:
        return f"none of {away} is running, and {table.name} asks for a quorum of them: start a majority first"
    if unlogged and (wanted := holders(table)):
        names = ", ".join(sorted(m.node for m in wanted))
        return (
            f"none of {away} is running, and {names} may have commits of {table.name} that its log lacks: start one of "
            f"them, or give that up with `halog partition accept-loss {table.name}`"
        )
    return None


def _with(table: PartitionTable, target: Target) -> PartitionTable:
    """Return the table with the wish. Definitions in effect, and those of nodes that do not host it, follow (P8, P9).
    Of the replicas to be copied anew, only the one that may have dropped its copy goes on."""
    known = dict(table.definitions)
    for node, d in known.items():
        if d.said == ENABLED or (d.said == DEFINED and node not in d.nodes):
            known[node] = msgspec.structs.replace(d, nodes=target.nodes, sync_replicas=target.sync_replicas)
    return msgspec.structs.replace(
        table,
        target=target,
        config_version=table.config_version + 1,
        definitions=known,
        resync=resync.begun(table),
        copy_rate=0,
    )


# --- its steps ---


def preferred(table: PartitionTable) -> str | None:
    """Return the node that is to be active when the migration is over: by priority, then by place."""
    assert table.target is not None
    able = [n for n in table.target.nodes if priority(table, n) != NEVER]
    return max(able, key=lambda n: priority(table, n), default=None)


def next_table(table: PartitionTable, ready: Collection[str]) -> PartitionTable | None:
    """Return the table after the next step; None: no step is possible just now. `ready`: nodes whose copy is close
    behind."""
    target = table.target
    if target is None or not is_moving(table):
        return None
    members = list(table.configured)
    joining = [n for n in target.nodes if n not in members and n in ready]
    leaving = [n for n in members if n not in target.nodes and _may_leave(table, n)]
    if joining:
        members.append(joining[0])
    elif leaving:  # dead nodes first: while they are members, a quorum needs more of the living ones
        members.remove(min(leaving, key=lambda n: n in table.node_list))
    after = _placed(table, members, target)
    if _fulfilled(after):
        return msgspec.structs.replace(after, target=None, sync_replicas=target.sync_replicas, copy_rate=0)
    return None if after == table else after


def _placed(table: PartitionTable, members: Sequence[str], target: Target) -> PartitionTable:
    """Return the table with these members: the wanted nodes first, in their order, then those that are to leave."""
    wanted = [n for n in target.nodes if n in members]
    levels = {n: level for n, level in table.group.priorities.items() if n in members or n in target.nodes}
    return msgspec.structs.replace(
        table,
        configured=(*wanted, *(n for n in members if n not in wanted)),
        sync_replicas=max(table.sync_replicas, target.sync_replicas),
        quorum=majority(len(members)) if table.quorum else 0,
        replicas=tuple(r for r in table.replicas if r.node in members),
        group=msgspec.structs.replace(table.group, priorities=levels),
    )


def overridden(table: PartitionTable) -> str:
    """Return the override that holds a migration up, or "". Overrides say how many nodes, and which, an operator relies
    on."""
    group = table.group
    if group.designated:
        return f"{group.designated} is designated"
    return f"{group.required} nodes are required" if group.required else ""


def is_moving(table: PartitionTable) -> bool:
    """Say whether a migration is under way that no override holds up."""
    return table.target is not None and not overridden(table)


def _is_whole(table: PartitionTable) -> bool:
    """Say whether every wanted node is in the node list, with as many sync replicas among them as wanted."""
    assert table.target is not None
    nodes = table.target.nodes
    have = sum(r.kind == SYNC and r.node in nodes for r in table.replicas)
    there = table.active is not None and all(n in table.configured and n in table.node_list for n in nodes)
    return there and have >= table.target.sync_replicas


def _may_leave(table: PartitionTable, node: str) -> bool:
    """Say whether the node may leave now. The active node hands over first; see `role_return.py`."""
    return _is_whole(table) and table.active is not None and table.active.node != node


def _fulfilled(table: PartitionTable) -> bool:
    """Say whether everything is as wanted, the role included."""
    target = table.target
    assert target is not None
    at_home = table.active is not None and table.active.node == preferred(table)
    return table.configured == target.nodes and at_home and _is_whole(table) and not overridden(table)


def left(table: PartitionTable) -> tuple[str, ...]:
    """Return what a migration still has to do, for people; empty: none is under way."""
    target = table.target
    if target is None:
        return ()
    if held := overridden(table):
        return (f"it stands still while {held}",)
    steps = [f"{n} makes its copy{_at_most(table, n)}" for n in target.nodes if n not in table.configured]
    steps += [f"{n} catches up" for n in target.nodes if n in table.configured and n not in table.node_list]
    if table.active is None:
        steps.append("a node becomes active")
    elif (best := preferred(table)) is not None and table.active.node != best:
        steps.append(f"{table.active.node} hands over to {best}")
    steps += [f"{n} leaves" for n in table.configured if n not in target.nodes]
    return tuple(steps) or ("the last step is confirmed",)


def _at_most(table: PartitionTable, node: str) -> str:
    rate = copy_rate(table, node)
    return f" at {rate:,} bytes a second at most" if rate else ""


# --- who does them ---
