"""A plan is a rebalance as an operator makes it: looked at first, then done a few partitions at a time (P13).

The plan stands in the coordinator (`plan`), so whoever applies it may stop, die, or be another operator. The tables
show what is done, and the next `apply` does the rest. Each move is an ordinary migration (`migration.py`), which the
nodes finish by themselves.

    plan                 Plan as JSON, changed by compare-and-set only; deflated if it would be too large for a znode
    plans/<when>-<id>    the same, never changed: plans that were replaced after something of them had been done
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from halog.config import Config
from halog.core import tolerant
from halog.core.placement.drain import MoveProposal
from halog.core.placement.rebalance import PolicyDemand, place_by_hand, rebalance
from halog.core.table.table import PartitionTable, Target
from halog.core.tolerant import TolerantDecoder, TolerantStruct
from halog.errors import (
    ConfigError,
    CoordinatorError,
    DeadlineError,
    HalogError,
    NothingToDoError,
    OutcomeUnknownError,
    RefusedError,
    UnknownNameError,
    VersionError,
)
from halog.metadata.cas import attempts, write
from halog.metadata.drains import DrainMarkError, drained_at
from halog.metadata.partition_tables import TableReport
from halog.ports import MAX_ZNODE_BYTES, Coordinator, UnknownResult
from halog.runtime.placement.bootstrap import by_hand
from halog.runtime.placement.definitions import check_lists
from halog.runtime.placement.initial_placement import copies_of, zone_of
from halog.runtime.placement.migration import brought, is_there, migrate
from halog.runtime.rpc.router import Router

PATH = "plan"

OLD = "plans"

KEPT = 10
"""So many replaced plans are kept to be rolled back: the changes of weeks, tens of kB each."""

LOOK_S = 0.2
"""A caller who applies a plan looks for progress this often, if nothing tells of a change."""

WAITING, MOVING, DONE, CHANGED = "waiting", "moving", "done", "changed since"
REFUSED, UNKNOWN = "refused", "not known"


class PlannedMove(TolerantStruct, frozen=True):
    """A `PlannedMove` is one partition's part of a plan. `version`: the table's `config_version` when it was planned.
    `given_up`: the target it was moving to then, and could not reach. `sync`: its sync replicas then; absent if an
    older halog planned it."""

    partition: str
    before: tuple[str, ...]
    target: Target
    version: int
    why: str
    given_up: Target | None = None
    sync: int | None = None

    @property
    def came_from(self) -> Target:
        """Return where the cluster had the partition before: where it was, or was moving to."""
        most = max(0, len(self.before) - 1)
        return self.given_up or Target(
            self.before, min(self.target.sync_replicas if self.sync is None else self.sync, most)
        )


class Plan(TolerantStruct, frozen=True):
    """The znode holds a `Plan`. `made_ms`: since 1970, by the clock of its maker. `stay`: partitions that cannot move,
    and why. `made_for`: the policy for which a node made the plan by itself, and carries it out; `why`: the reason.
    Both are empty for an operator's plan. `undoes`: the plan that this one rolls back. `drained`: the nodes that were
    drained by then, and when; copies that the plan brings them are intended."""

    id: str
    made_ms: int
    moves: tuple[PlannedMove, ...]
    stay: dict[str, str] = msgspec.field(default_factory=dict)
    cancelled: bool = False
    made_for: str = ""
    why: str = ""
    undoes: str = ""
    drained: dict[str, int] = msgspec.field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the znode's content; thousands of moves are deflated to a twentieth."""
        data = tolerant.encode(self)
        return data if len(data) <= MAX_ZNODE_BYTES else zlib.compress(data)

    @staticmethod
    def from_bytes(data: bytes) -> Plan:
        """Decode a plan; fields of newer versions are kept. CoordinatorError for anything else."""
        try:
            return _DECODER.decode(data if data[:1] == b"{" else zlib.decompress(data))
        except (msgspec.MsgspecError, UnicodeDecodeError, zlib.error) as e:
            raise CoordinatorError(f"znode {PATH} holds no plan: {e}") from e


_DECODER = TolerantDecoder(Plan)


def make(
    config: Config,
    tables: Sequence[PartitionTable],
    serving: Collection[str],
    running: Collection[str],
    policies: Iterable[str] = (),
    *,
    replaced: Collection[str] = (),
    drained: Mapping[str, int] = {},
) -> Plan:
    """Make a plan for these policies; without any, for all but static ones, which move only when they are named.
    `serving`: nodes that may get copies; `running`: nodes that could move theirs. A node that is down keeps what it
    has, unless it is to be `replaced`; a node that a static policy names is never replaced. `drained`: as in `Plan`. A
    partition stays if a running node's definition differs from the cluster's (P10). ConfigError for a policy that does
    not exist."""
    wanted = tuple(policies) or tuple(name for name, policy in config.policies.items() if not policy.static)
    moves: list[MoveProposal] = []
    known = {t.name: t for t in tables}
    for name in wanted:
        policy = config.policies.get(name)
        if policy is None:
            raise UnknownNameError.of("policy", name, config.policies, str(config.source))
        theirs = [t for t in tables if t.policy == name]
        if policy.static:
            listed = _by_hand(config, name, theirs)
            moves += place_by_hand(theirs, listed, serving, running, unlogged=policy.unlogged)
            continue
        zone = zone_of(config, name, serving, known.values(), replaced)
        shape = PolicyDemand(copies_of(config, name), policy.sync_replicas, zone, policy.unlogged)
        made = rebalance(theirs, shape, running)
        known |= {m.partition: msgspec.structs.replace(known[m.partition], target=m.target) for m in made if m.target}
        moves += made
    by_name = {t.name: t for t in tables}
    planned = tuple(planned_from(by_name[m.partition], m.before, m.target, m.why) for m in moves if m.target)
    stay = {m.partition: m.why for m in moves if m.target is None}
    return msgspec.structs.replace(new(planned, stay), drained=dict(drained))


def planned_from(table: PartitionTable, before: tuple[str, ...], target: Target, why: str) -> PlannedMove:
    """Return the move to `target` from where the partition stands now."""
    return PlannedMove(table.name, before, target, table.config_version, why, table.target, table.sync_replicas)


def new(moves: tuple[PlannedMove, ...], stay: dict[str, str], undoes: str = "") -> Plan:
    """Return an operator's plan with an id of its own, made now."""
    return Plan(secrets.token_hex(4), time.time_ns() // 1_000_000, moves, stay, undoes=undoes)


def check(
    config: Config, tables: Iterable[PartitionTable], running: Collection[str], policies: Iterable[str] = ()
) -> None:
    """Check an operator's plan for these policies (P10). NodeListsError names partitions that it would have to leave
    where they are. No plan moves the partitions that the application places."""
    wanted = tuple(policies) or tuple(name for name, policy in config.policies.items() if not policy.static)
    by_hand_ = {name: by_hand(config.policies[name]) for name in wanted if name in config.policies}
    theirs = [t for t in tables if t.policy in by_hand_]
    check_lists((t for t in theirs if not config.policies[t.policy].static or t.name in by_hand_[t.policy]), running)


def _by_hand(config: Config, policy: str, tables: Iterable[PartitionTable]) -> dict[str, Target]:
    """Return where the file has these partitions. ConfigError if it does not know one of them."""
    policy_ = config.policies[policy]
    wanted = by_hand(policy_)
    unknown = [t.name for t in tables if t.name not in policy_.static]
    if unknown:
        raise ConfigError(
            f"{config.source}: policies.{policy}.partitions does not name {', '.join(unknown)}, which the cluster has: "
            "use the configuration it runs with",
            policy=policy,
        )
    return wanted


# --- where it stands ---


def read(coordinator: Coordinator) -> Plan | None:
    """Return the last plan that was stored."""
    found = coordinator.get(PATH)
    return None if found is None else Plan.from_bytes(found.data)


def known(coordinator: Coordinator) -> list[Plan]:
    """Return the last plan and those that are kept, the newest first."""
    last = read(coordinator)
    if last is None:
        return []
    found = (coordinator.get(f"{OLD}/{name}") for name in reversed(coordinator.children(OLD)))
    return [last, *(plan for f in found if f is not None and (plan := Plan.from_bytes(f.data)).id != last.id)]


def store(coordinator: Coordinator, plan: Plan, tables: Sequence[PartitionTable], overdue: str = "") -> None:
    """Store a plan, in the place of the last one. RefusedError while the last one is half done: it must be finished or
    cancelled first. An operator's plan may replace an operator's that has not begun. A node's plan may replace a node's
    for the same policy, whatever has begun: nodes know more by now. It may also replace an operator's plan that has not
    begun, if that is the `overdue` one, which was forgotten. A plan that had begun is kept before it is replaced."""
    found = coordinator.get(PATH)
    try:
        if found is not None:
            old = Plan.from_bytes(found.data)
            check_replaced(old, plan, tables, overdue)
            if old.id != plan.id and any(s != WAITING for s in states_of(old, tables).values()):
                _keep(coordinator, old)
        write(coordinator, PATH, plan.to_bytes(), -1 if found is None else found.version)
    except (VersionError, UnknownResult) as e:
        raise RefusedError("somebody else changed the plan at the same moment; look at it, and try again") from e


def check_replaced(old: Plan, plan: Plan, tables: Iterable[PartitionTable], overdue: str = "") -> None:
    """Raise RefusedError if `plan` may not take the place of `old` yet; see `store`."""
    if old.id == plan.id or old.cancelled:
        return
    states = states_of(old, tables)
    ours = not plan.made_for and not old.made_for
    begun = not (ours or old.id == overdue) or any(s in (MOVING, DONE) for s in states.values())
    same = bool(plan.made_for) and plan.made_for == old.made_for
    if begun and not same and any(s in (MOVING, WAITING) for s in states.values()):
        whose = f", made by a node for policy {old.made_for}," if old.made_for else ""
        raise RefusedError(
            f"plan {old.id}{whose} is not done: finish it with `halog plan apply`, or `halog plan cancel` it first"
        )


def _keep(coordinator: Coordinator, plan: Plan) -> None:
    """Keep a plan. A process that dies after this leaves a copy of what is still the plan, which may yet be
    cancelled."""
    path = f"{OLD}/{plan.made_ms:013}-{plan.id}"
    if not coordinator.create(path, plan.to_bytes()) and (kept := coordinator.get(path)):
        coordinator.set(path, plan.to_bytes(), kept.version)
    for name in coordinator.children(OLD)[:-KEPT]:
        coordinator.delete(f"{OLD}/{name}")


def cancel(coordinator: Coordinator) -> Plan:
    """Cancel the plan: no other move of it is begun. NothingToDoError if there is no plan, RefusedError if others keep
    changing it."""
    for attempt in attempts(coordinator, PATH, 2):
        if attempt.found is None:
            raise NothingToDoError("there is no plan; nothing was changed")
        plan = msgspec.structs.replace(Plan.from_bytes(attempt.found.data), cancelled=True)
        if attempt.write(plan.to_bytes()):
            return plan
    raise RefusedError("somebody else changes the plan at this moment; nothing was changed; see `halog plan show`")


def states_of(plan: Plan, tables: Iterable[PartitionTable]) -> dict[str, str]:
    """Return how far each partition of the plan is."""
    now = {t.name: t for t in tables}
    return {m.partition: _state(m, now.get(m.partition)) for m in plan.moves}


def _state(move: PlannedMove, table: PartitionTable | None) -> str:
    if table is None:
        return CHANGED
    if table.target == move.target:
        return MOVING
    if is_there(table, move.target):
        return DONE
    return WAITING if (table.config_version, table.target) == (move.version, move.given_up) else CHANGED


# --- carrying it out ---

Progress = Callable[[dict[str, str]], None]


def apply(
    coordinator: Coordinator,
    config: Config,
    router: Router,
    plan: Plan,
    at_once: int,
    timeout_s: float,
    progress: Progress = lambda states: None,
    *,
    told: TableReport,
    copy_rate: int | None = None,
) -> dict[str, str]:
    """Move what waits, `at_once` partitions at a time, until nothing waits or moves; return how far each partition is.
    At each look `progress` is told that; `told` and `copy_rate` as for `migrate`. Partitions that somebody else moved
    since are left alone.

    RefusedError if the plan was cancelled or replaced meanwhile, or if it would bring copies to a node that was drained
    since it was made: then nothing of it was begun. DeadlineError (exit code 6) after `timeout_s` seconds: moves that
    were begun go on by themselves, and the next `apply` goes on with the rest.
    """
    until = time.monotonic() + timeout_s
    met = BeginResult({}, {})
    check_drained(coordinator, plan, router)
    while True:
        states = unless_begun(states_of(plan, (t for _, t in router.tables.values())), met.refused)
        progress(states)
        counts = Counter(states.values())
        if not counts[WAITING] and not counts[MOVING]:
            return {p: f"{s}: {met.marked[p]}" if p in met.marked else s for p, s in states.items()}
        if time.monotonic() >= until:
            raise DeadlineError(
                f"plan {plan.id}: {counts[MOVING]} partitions are still moving and {counts[WAITING]} wait after "
                f"{timeout_s:g} s; what was begun goes on by itself, `halog plan apply` goes on with the rest"
            )
        begun = begin_some(coordinator, config, router, plan, states, at_once, told=told, copy_rate=copy_rate)
        met = BeginResult(met.refused | begun.refused, met.marked | begun.marked)
        with router.changed:
            router.changed.wait(min(LOOK_S, max(0.0, until - time.monotonic())))


class BeginResult(NamedTuple):
    """Says by partition what happened to moves that were to begin, and what to do about it. `refused`: the move was not
    begun, or nobody knows; `marked`: it was begun, and a node that gets a copy by it still counts as drained."""

    refused: dict[str, str]
    marked: dict[str, str]


def unless_begun(states: dict[str, str], refused: Mapping[str, str]) -> dict[str, str]:
    """Return how far each partition is, with refusals for those whose table has not begun to move nevertheless."""
    return {p: refused.get(p, s) if s == WAITING else s for p, s in states.items()}


def begin_some(
    coordinator: Coordinator,
    config: Config,
    router: Router,
    plan: Plan,
    states: dict[str, str],
    at_once: int,
    *,
    told: TableReport,
    copy_rate: int | None = None,
) -> BeginResult:
    """Begin waiting moves until `at_once` are under way; return what was in the way, by partition. RefusedError if the
    plan was cancelled or replaced meanwhile."""
    met = BeginResult({}, {})
    moving = sum(s == MOVING for s in states.values())
    waiting = [m for m in plan.moves if states[m.partition] == WAITING]
    for move in waiting[: max(0, at_once - moving)]:
        _check_current(coordinator, plan)
        try:
            check_drained(coordinator, plan, router, move.partition)
            _begin(coordinator, config, router, move, told, copy_rate)
        except DrainMarkError as e:
            met.marked[move.partition] = e.message
        except OutcomeUnknownError as e:
            met.refused[move.partition] = f"{UNKNOWN}: {e}"
        except HalogError as e:
            met.refused[move.partition] = f"{REFUSED}: {e}"
    return met


def _check_current(coordinator: Coordinator, plan: Plan) -> None:
    now = read(coordinator)
    if now is None or now.id != plan.id or now.cancelled:
        what = "was cancelled" if now is not None and now.id == plan.id else "was replaced by another one"
        raise RefusedError(f"plan {plan.id} {what}: partitions that are moving go on by themselves, no other is begun")


def check_drained(coordinator: Coordinator, plan: Plan, router: Router, only: str = "") -> None:
    """Raise RefusedError if a waiting move of the plan, or of the partition `only`, brings copies to a node that was
    drained since the plan was made: its maker did not know."""
    tables = {name: table for name, (_, table) in router.tables.items()}
    waiting = {p for p, s in states_of(plan, tables.values()).items() if s == WAITING and only in ("", p)}
    since = {node for node, at_ms in drained_at(coordinator).items() if plan.drained.get(node) != at_ms}
    comes = {m.partition: brought(tables[m.partition], m.target.nodes) for m in plan.moves if m.partition in waiting}
    for node in sorted(since):
        if partitions := [p for p, nodes in comes.items() if node in nodes]:
            raise RefusedError(
                f"plan {plan.id} would bring {node} copies of {', '.join(partitions)}, and {node} was drained after it "
                "was made: make the plan again (`halog plan create`, after `halog plan cancel` if some of it is done), "
                f"or have {node} take copies again (`halog drain {node} --undo`)",
                node=node,
            )


def _begin(
    coordinator: Coordinator,
    config: Config,
    router: Router,
    move: PlannedMove,
    told: TableReport,
    copy_rate: int | None,
) -> None:
    running = [n.name for n in router.nodes.values() if n.hosts]
    version, table = router.tables[move.partition]
    set_, _ = migrate(
        coordinator,
        config,
        running,
        move.partition,
        move.target.nodes,
        move.target.sync_replicas,
        told=told,
        replace=move.given_up is not None,
        copy_rate=copy_rate,
    )
    if set_.config_version > table.config_version:
        router.table_seen(move.partition, version, set_)
