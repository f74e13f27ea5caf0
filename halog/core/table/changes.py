"""This module says what the active node tells operators about its node list: who was added, who was removed and why,
that there are too few replicas, and what changed about the group or the partition's nodes.

It compares what the znode holds with what was told of it before. Whoever changes the group, or where the partition is
to be, tells of it: that process saw both tables. Nodes need not be up for such a change, and those that are may see two
changes as one. So nodes tell the history only what nobody else tells: that an override or a migration has ended. The
rest stands in a node's log file. This module decides nothing: the sync set (`sync_set.py`) and the wait set are the
same whether or not anybody reads about them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from halog.core.ids import Member
from halog.core.table.group import LEVELS, could_fork, priority, without
from halog.core.table.table import DISABLED, ENABLED, SYNC, Group, PartitionTable, Replica, Target
from halog.core.table.tell import Tell
from halog.events import ADDED, DESIGNATED, MIGRATED, MIGRATION, MINIMUM, PRIORITY, REMOVED, TOO_FEW

_ASKS = {ENABLED: "enabled its definition", DISABLED: "disabled it"}


class NodeList:
    """A `NodeList` is the node list of one epoch as it was told. `before`: the table it replaced; `lost`: why its
    active node is gone."""

    def __init__(self, before: PartitionTable, me: Member, lost: str) -> None:
        self._told = {r.member for r in before.replicas} | ({before.active} if before.active else set())
        self._told.discard(me)
        self._why: dict[Member, str] = {}
        if before.active is not None and lost:
            self.because(before.active, lost)
        self._last_why = ""
        self._short: tuple[int, int] | None = None
        """(sync replicas, configured), while there are too few."""
        self._short_since: int | None = None
        self._complained = False

    def because(self, m: Member, why: str) -> None:
        """Note why `m` is about to leave the node list."""
        self._why[m] = why.removeprefix(f"{m.node}: ")

    def changed(self, table: PartitionTable) -> Iterator[Tell]:
        """Tell what is new in `table`, which the znode holds now."""
        now = {r.member: r for r in table.replicas}
        for m in sorted(self._told - now.keys()):
            self._last_why = self._why.pop(m, "it is not up")
            yield Tell(REMOVED, m.node, self._last_why)
        for m, replica in now.items():
            if m not in self._told:
                yield _added(replica)
        self._told = set(now)
        have = sum(r.kind == SYNC for r in table.replicas)
        self._short = (have, table.sync_replicas) if have < table.sync_replicas else None

    def ticked(self, now: int, patience_ms: int) -> Iterator[Tell]:
        """Tell once that there have been too few replicas for longer than a node needs to take its place. It is told
        again only after there were enough."""
        if self._short is None:
            self._short_since = None
            self._complained = False
            return
        if self._short_since is None:
            self._short_since = now
        if now - self._short_since >= patience_ms and not self._complained:
            self._complained = True
            have, want = self._short
            yield Tell(TOO_FEW, "", self._last_why or "no other replica has caught up", {"have": have, "want": want})


def _added(replica: Replica) -> Tell:
    return Tell(ADDED, replica.node, "it has caught up", {"kind": replica.kind})


def told_by(
    me: Member, alive: frozenset[Member], before: PartitionTable, now: PartitionTable, over: Collection[int]
) -> Iterator[Tell]:
    """Tell that an operator changed the group, or where the partition is to be.

    The active node tells it, or without one the first node that is up. What the operator's command has told already
    goes to this node's log file only. `over`: when overrides end whose time is over.
    """
    if now.group != before.group or now.target != before.target:
        up = {m.node for m in alive}
        first = [*([now.active.node] if now.active else []), *now.configured]
        if next((n for n in first if n in up), None) == me.node:
            known = [*group_changes(before, now, over), *migration_asked(before, now)]
            yield from (msgspec.structs.replace(told, logged=True) for told in known)
            if not now.owner:
                yield from migration_over(before, now)


def migration_asked(before: PartitionTable, now: PartitionTable) -> Iterator[Tell]:
    """Tell what changed about where the partition is to be: a migration begins, or gets another target. Whoever made
    `now` of `before` tells it. Where another site serves the partition, the migration is over at once."""
    moved = before.target is not None or _place(before) != _place(now)
    at_once = bool(now.owner) and now.target is None and moved
    to = _place(now) if at_once else now.target
    if to is not None and to != before.target:
        more = {"to": ", ".join(to.nodes), "sync": to.sync_replicas}
        yield Tell(MIGRATION, "", _asked(before, now), more)
    if at_once:
        cause = "another site serves it: new copies are made of the log"
        yield Tell(MIGRATED, "", cause, {"to": ", ".join(now.configured)})


def _place(table: PartitionTable) -> Target:
    return Target(table.configured, table.sync_replicas)


def migration_over(before: PartitionTable, now: PartitionTable) -> Iterator[Tell]:
    """Tell that a migration is over. Whoever made the last step tells it."""
    if now.target is None and before.target is not None:
        yield Tell(MIGRATED, "", "every copy is where it is to be", {"to": ", ".join(now.configured)})


def _asked(before: PartitionTable, now: PartitionTable) -> str:
    """Return who asked for the move. What a node says of a partition (P7) is set together with its target."""
    for node, said in now.definitions.items():
        was = before.definitions.get(node)
        if said.said in _ASKS and (was is None or was.said != said.said):
            return f"{node} {_ASKS[said.said]}"
    return "an operator's command"


def ended(table: PartitionTable, over: Collection[int]) -> Iterator[Tell]:
    """Tell that the overrides of `table` that end at these times are over.

    Each copy ends them by itself, and the first one takes them out of the znode, so other copies may never see them
    end. Every copy that sees an end tells it, and it counts once.
    """
    for until in sorted(over):
        rest = msgspec.structs.replace(table, group=without(table.group, {until}))
        for told in group_changes(table, rest, {until}):
            yield msgspec.structs.replace(told, once=f"{table.name}/{told.kind.code}/{until}")
        table = rest


def group_changes(before: PartitionTable, now: PartitionTable, over: Collection[int] = ()) -> Iterator[Tell]:
    """Tell what an operator changed, with the reason given, or what has ended by itself, as `over` says."""
    was, group = before.group, now.group
    asked = "an operator's command"
    levels = {level: name for name, level in LEVELS.items()}
    for node in now.hosts:
        if priority(before, node) != priority(now, node):
            yield Tell(PRIORITY, node, asked, {"level": levels[priority(now, node)]})
    if _required(was) != _required(group):
        more = {"required": group.required or now.quorum or 1, "was": was.required or before.quorum or 1}
        if could_fork(now, group.required):
            more["may_fork"] = True
        if group.required_until_ms:
            more["until_ms"] = group.required_until_ms
        ended = _ended("the override has ended", was.required_until_ms in over, group.required_reason)
        yield Tell(MINIMUM, "", (group.required_reason or asked) if group.required else ended, more)
    if _designated(was) != _designated(group):
        alone: dict[str, object] = {"to": group.designated or "nobody"}
        if group.designated_until_ms:
            alone["until_ms"] = group.designated_until_ms
        no_more = f"{was.designated} is designated no more"
        ended = _ended(no_more, was.designated_until_ms in over, group.designated_reason)
        cause = (group.designated_reason or asked) if group.designated else ended
        yield Tell(DESIGNATED, "", cause, alone)


def _required(group: Group) -> tuple[object, ...]:
    """Return all that an operator says of the override, if there is one."""
    return (group.required, group.required_until_ms, group.required_reason) if group.required else ()


def _designated(group: Group) -> tuple[object, ...]:
    return (group.designated, group.designated_until_ms, group.designated_reason) if group.designated else ()


def _ended(what: str, over: bool, reason: str) -> str:
    """Say that it ended by itself, or that an operator ended it; only an operator gives a reason."""
    if over and not reason:
        return f"{what}: its time is over"
    return f"{what}: an operator took it back" + (f": {reason}" if reason else "")
