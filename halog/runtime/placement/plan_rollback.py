"""Makes the rollback of a plan (X10): it brings the partitions that the plan moved to where the cluster had them
before.

A rollback is a plan like any other (`halog.runtime.placement.plan`). It is stored, carried out, interrupted, resumed
and cancelled as such, and can itself be rolled back. Only partitions go back that are where the plan brought them, or
still on their way there. A partition that was moved on since stays: it is named, and nothing goes back unless it is
left out. This module changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from halog.config import Config
from halog.core.table.definitions import differing
from halog.core.table.table import PartitionTable, Target
from halog.errors import NothingToDoError, RefusedError, UnknownNameError
from halog.ports import Coordinator
from halog.runtime.placement import plan as plans
from halog.runtime.placement.migration import brought, going
from halog.runtime.placement.plan import Plan, PlannedMove


class Situation(NamedTuple):
    """Holds what a rollback is made from. `serving`: nodes that may get copies; `running`: nodes that could move
    theirs; `others`: the plans that are known, the newest first; `told`: what the event history says of who moved a
    partition to these nodes; `drained`: the nodes that are drained."""

    config: Config
    tables: Mapping[str, PartitionTable]
    serving: Collection[str]
    running: Collection[str]
    others: Sequence[Plan]
    told: Callable[[str, tuple[str, ...]], str] = lambda partition, nodes: ""
    drained: Collection[str] = ()


def chosen(coordinator: Coordinator, tables: Sequence[PartitionTable], name: str = "") -> tuple[Plan, list[Plan]]:
    """Return the plan to be rolled back, the last one without a `name`, and all that are known, the newest first. If
    the last one is itself a rollback, it is chosen only by name: so a command that is given again does not undo the
    rollback by accident. NothingToDoError: that rollback is done; RefusedError says what else there is."""
    last = plans.read(coordinator)
    if last is None and name:
        raise UnknownNameError.of("plan", name, ())
    if last is None:
        raise NothingToDoError("there is no plan, so there is nothing to roll back")
    plans.check_replaced(last, plans.new((), {}), tables)
    known = plans.known(coordinator)
    if not name and last.undoes:
        states = set(plans.states_of(last, tables).values())
        which = f"plan {last.id} was the last one"
        if states == {plans.DONE}:
            again = f"rolled back plan {last.undoes}: `halog plan rollback {last.id}` moves all there again"
            raise NothingToDoError(f"{which}, and {again}; nothing was changed")
        again = f"has not rolled back all of plan {last.undoes} yet: `halog plan rollback {last.undoes}` goes on"
        raise RefusedError(f"{which}, and {again}; nothing was changed")
    for plan in known:
        if plan.id == (name or last.id):
            return plan, known
    raise UnknownNameError.of("plan", name, [p.id for p in known])


def under_way(
    coordinator: Coordinator, tables: Iterable[PartitionTable], name: str = "", only: Collection[str] = ()
) -> Plan | None:
    """Return a rollback of that plan that was begun and is not done: a second request goes on with it. None if there is
    none, or if it is for other partitions."""
    last = plans.read(coordinator)
    if last is None or not last.undoes or last.cancelled or name not in ("", last.undoes):
        return None
    states = plans.states_of(last, tables)
    open_ = any(s in (plans.WAITING, plans.MOVING) for s in states.values())
    return last if open_ and (not only or set(only) == set(states)) else None


def roll_back(plan: Plan, now: Situation, only: Collection[str] = ()) -> Plan:
    """Return the rollback of `plan`, only of the partitions `only` if there are any. `stay` says of partitions why they
    cannot go back: if there are any, nothing is to be moved. What the plan did not move, or is back already, is left
    out. NothingToDoError if it moved nothing and will not either. RefusedError if it has yet to move something, or if
    it does not know one of the partitions."""
    if unknown := sorted(set(only) - {m.partition for m in plan.moves}):
        raise RefusedError(f"plan {plan.id} moves no {', '.join(unknown)}; it has {_named(plan.moves)}")
    wanted = [m for m in plan.moves if not only or m.partition in only]
    went = [m for m in wanted if _went(m, now.tables.get(m.partition))]
    if not went:
        raise _nothing_went(plan, wanted, now, " of that" if only else "")
    stay = {m.partition: why for m in went if (why := _why_it_stays(plan, m, now))}
    back = [m for m in went if m.partition not in stay]
    moves = tuple(
        plans.planned_from(t, t.configured, m.came_from, f"as before plan {plan.id}")
        for m, t in ((m, now.tables[m.partition]) for m in back)
    )
    return plans.new(moves, stay, undoes=plan.id)


def _nothing_went(plan: Plan, wanted: Sequence[PlannedMove], now: Situation, of_that: str) -> RefusedError:
    """Return the error for a plan that moved nothing: it says so if the plan has yet to do something."""
    states = plans.states_of(plan, now.tables.values())
    waiting = [m for m in wanted if states[m.partition] == plans.WAITING]
    if waiting and not plan.cancelled and plan.id in [last.id for last in now.others[:1]]:
        return RefusedError(
            f"plan {plan.id} has moved nothing{of_that} yet, and whoever applies it moves {_named(waiting)}: "
            "`halog plan cancel` ends it; nothing was changed"
        )
    return NothingToDoError(
        f"plan {plan.id} has moved nothing{of_that} that is not back where it was: there is nothing to roll back; "
        "`halog plan list` shows the plans that are known"
    )


def _named(moves: Iterable[PlannedMove]) -> str:
    return ", ".join(m.partition for m in moves) or "no partitions"


def _went(move: PlannedMove, table: PartitionTable | None) -> bool:
    """Did the plan move this partition, and is it elsewhere than before? Each request adds one to the table's version:
    a partition that was moved once, and to another place, was not moved by the plan. It does not matter who brought it
    to where the plan has it."""
    if table is None:
        return True
    if _place(table) == move.came_from or table.config_version == move.version:
        return False
    return _place(table) == move.target or table.config_version > move.version + 1


def _place(table: PartitionTable) -> Target:
    return table.target or Target(table.configured, table.sync_replicas)


def _why_it_stays(plan: Plan, move: PlannedMove, now: Situation) -> str:
    """Return what speaks against moving it back; "" if nothing does."""
    table = now.tables.get(move.partition)
    if table is None:
        return f"there is no partition {move.partition} any more"
    if _place(table) != move.target:
        where = ", ".join(_place(table).nodes)
        return f"it is on {where} now, and not where plan {plan.id} had it: {_who_moved(move, table, now)}"
    if undecided := differing(table, now.running):
        return str(undecided[0])
    back = move.came_from
    try:
        going(now.config, table, back, now.running, replace=True, stood=table)
    except RefusedError as e:
        return e.message
    if absent := [n for n in back.nodes if n not in table.configured and n not in now.serving]:
        return f"{', '.join(absent)} was to have it again, and cannot get a copy now: start it first"
    if drained := [n for n in brought(table, back.nodes) if n in now.drained]:
        undo = ", ".join(f"`halog drain {n} --undo`" for n in drained)
        return f"{', '.join(drained)} was to have it again, and was drained since: say {undo} first"
    return ""


def _who_moved(move: PlannedMove, table: PartitionTable, now: Situation) -> str:
    """Return who moved the partition to where it is, as far as plans, definitions and the event history tell."""
    place = _place(table)
    for other in now.others:
        theirs = (m for m in other.moves if m.version > move.version)
        if any((m.partition, m.target) == (table.name, place) for m in theirs):
            return f"plan {other.id}{_of(other)} moved it since"
    if off := [n for n in move.target.nodes if n in table.disabled_on]:
        return f"{', '.join(off)} disabled it since"
    told = now.told(table.name, place.nodes)
    by_hand = f"`halog partition migrate`, `halog drain` or a definition; see `halog events --partition {table.name}`"
    return f"it was moved by no plan ({told or by_hand})"


def _of(plan: Plan) -> str:
    if plan.undoes:
        return f", which rolled back plan {plan.undoes},"
    return f", made by a node for policy {plan.made_for} since {plan.why}," if plan.made_for else ""


def copies_of(moves: Iterable[PlannedMove]) -> dict[str, tuple[str, ...]]:
    """Return, by partition, the nodes that make a copy of it on its way."""
    return {m.partition: tuple(n for n in m.target.nodes if n not in m.before) for m in moves}
