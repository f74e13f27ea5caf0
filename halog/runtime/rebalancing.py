"""Plans that nodes make by themselves when members come or go (P2, P13); `[policies.P] rebalance = "auto"`.

The first node by name of those of a policy's zone that are up does it. Two that take themselves for the first do no
harm: the plan and the list of nodes it counts on are changed by compare-and-set, and each move is an ordinary
migration. If it dies, the next one finds the plan where it was. A node that is alone behind a cut network does not see
ZooKeeper, or sees that the others are registered: it plans nothing.

rebalanced/<policy>    Counted as JSON: who the last plan counted on
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from halog.config import Config
from halog.core.rebalancing import in_need
from halog.core.table import Target
from halog.core.turnover import Change, Turnover
from halog.errors import CoordinatorError, HalogError, VersionError
from halog.events import REBALANCE
from halog.ports import Coordinator, UnknownResult, Versioned
from halog.runtime import plans
from halog.runtime.clock import monotonic_ms
from halog.runtime.history import History
from halog.runtime.members import Membership
from halog.runtime.router import Router

logger = logging.getLogger("halog.rebalancing")

LOOK_S = 0.5
"""How often the first node looks: moves take longer, and each look reads two znodes."""

AT_ONCE = 2
"""Partitions that move at the same time, as with `halog plan apply`."""


class Counted(msgspec.Struct, frozen=True):
    """What the znode holds."""

    nodes: tuple[str, ...]


class Rebalancing:
    """Of one hosting node."""

    def __init__(
        self,
        configured: Callable[[], Config],
        coordinator: Coordinator,
        router: Router,
        members: Membership,
        history: History,
    ) -> None:
        self._configured, self._coordinator, self._router = configured, coordinator, router
        self._members, self._history = members, history
        config = configured()
        settle_ms, replace_ms = config.timing.join_settle_ms, config.timing.replace_after_ms
        self._turnovers = {
            name: Turnover(settle_ms, replace_ms)
            for name, p in config.policies.items()
            if p.rebalance == "auto" and not p.static
        }
        self._refused: dict[str, dict[str, str]] = {}
        """Plan → its partitions that cannot move now: others go first."""
        self._in_vain: dict[str, object] = {}
        """Policy → what was seen when nothing could be replaced: planning again takes seconds where there is much."""
        self._said: dict[str, str] = {}
        """What is in the way of what, as it was last said."""

    @property
    def wanted(self) -> bool:
        """Has any policy asked for it?"""
        return bool(self._turnovers)

    def turn(self, pause: Callable[[float], bool]) -> None:
        """One look, after a pause."""
        if pause(LOOK_S):
            return
        mine, alive = self._mine()
        for policy, turnover in self._turnovers.items():
            what = f"policy {policy} is not rebalanced yet"
            if policy not in mine or not self._try(what, partial(self._look, policy, alive)):
                turnover.forget()
        if mine:
            self._try("no plan is carried out now", partial(self._carry_on, mine))

    def _mine(self) -> tuple[list[str], set[str]]:
        """The policies this node looks after now, and who is up."""
        if self._members.offline or not self._members.coordinated():
            return [], set()
        me, alive = self._members.me.name, {m.node for m in self._members.alive}
        return [p for p in self._turnovers if me == min(alive.intersection(self._zone(p)), default="")], alive

    def _try(self, what: str, work: Callable[[], None]) -> bool:
        try:
            work()
        except (HalogError, VersionError, UnknownResult) as e:
            self._say(what, str(e))
            return False
        self._said.pop(what, None)
        return True

    def _say(self, what: str, why: str) -> None:
        """Once, as long as it is so."""
        if self._said.get(what) != why:
            self._said[what] = why
            logger.warning("%s: %s", what, why)

    def _zone(self, policy: str) -> tuple[str, ...]:
        return self._configured().hosts_of(policy)

    # --- planning ---

    def _look(self, policy: str, alive: set[str]) -> None:
        zone = self._zone(policy)
        up = alive.intersection(zone)
        path = f"rebalanced/{policy}"
        found = self._coordinator.get(path)
        if found is None:
            hosts = {n for _, t in self._router.tables.values() if t.policy == policy for n in t.hosts}
            self._coordinator.create(path, _packed(up | hosts.intersection(zone)))
            return
        stored = _counted(path, found)
        known = stored.intersection(zone)  # who was taken out of it comes anew when put back
        down = set(zone) - up - set(self._members.registered)
        change = self._turnovers[policy].look(known, up, down, monotonic_ms())
        if change is not None:
            known = known.union(change.came).difference(change.gone)
            self._plan(policy, up, set(zone) - known, _why(change))
        else:
            self._replace(policy, up, set(zone) - known - up)
        if known != stored:
            self._coordinator.set(path, _packed(known), found.version)

    def _plan(self, policy: str, up: set[str], absent: set[str], why: str) -> None:
        """Spread all anew. RefusedError while an operator's plan is not done: it is looked at again."""
        made = self._made(policy, up, absent, plans.read(self._coordinator))
        self._store(msgspec.structs.replace(made, why=why))

    def _replace(self, policy: str, up: set[str], absent: set[str]) -> None:
        """Again, what no plan could replace when the node went: others were down, or an override stood against it. Not
        what an operator has cancelled, and not before what is planned has begun."""
        theirs = [table for _, table in self._router.tables.values() if table.policy == policy]
        if not any(n in absent for t in theirs for n in t.hosts):
            return
        last = plans.read(self._coordinator)
        if last is not None and last.made_for == policy and (last.cancelled or self._waits(last)):
            return
        needy = in_need(theirs, absent, _targets(last, policy))
        seen = (frozenset(up), {t.name: (t.config_version, t.group, t.definitions) for t in theirs if t.name in needy})
        if not needy or self._in_vain.get(policy) == seen:
            return
        made = self._made(policy, up, absent, last)
        moves = tuple(m for m in made.moves if m.partition in needy)
        if moves:
            gone = ", ".join(sorted(absent.intersection(n for m in moves for n in (*m.before, *_nodes(m.given_up)))))
            self._store(msgspec.structs.replace(made, moves=moves, why=f"{gone} is still to be replaced"))
        else:
            self._in_vain[policy] = seen

    def _waits(self, plan: plans.Plan) -> bool:
        """Is anything of it to be begun that was not refused?"""
        return plans.WAITING in self._states(plan).values()

    def _made(self, policy: str, up: set[str], absent: set[str], last: plans.Plan | None) -> plans.Plan:
        """Without moves to fewer copies, and without those that would give up what an operator wished."""
        config, ours = self._configured(), _targets(last, policy)
        tables = [table for _, table in self._router.tables.values()]
        running = {n.name for n in self._router.nodes.values() if n.hosts}
        made = plans.make(config, tables, up, running, [policy], replaced=absent)
        copies = 1 + config.policies[policy].sync_replicas + config.policies[policy].async_replicas
        moves = tuple(
            m
            for m in made.moves
            if len(m.target.nodes) >= min(copies, len(_nodes(m.given_up) or m.before))
            and m.given_up in (None, ours.get(m.partition))
        )
        return msgspec.structs.replace(made, moves=moves, made_for=policy)

    def _store(self, made: plans.Plan) -> None:
        if made.moves:
            plans.store(self._coordinator, made, [table for _, table in self._router.tables.values()])
        more = {"policy": made.made_for, "moves": len(made.moves), "plan": made.id if made.moves else ""}
        self._history.tell(REBALANCE, made.why, more=more)

    # --- carrying out ---

    def _carry_on(self, mine: list[str]) -> None:
        """With a plan that a node made; an operator's is the operator's."""
        plan = plans.read(self._coordinator)
        if plan is None or plan.cancelled or plan.made_for not in mine:
            return
        states = self._states(plan)
        if plans.WAITING not in states.values():
            self._refused.clear()  # perhaps not any more
            return
        refused = plans.begin_some(self._coordinator, self._configured(), self._router, plan, states, AT_ONCE)
        self._refused.setdefault(plan.id, {}).update(refused)
        for partition, why in refused.items():
            self._say(f"plan {plan.id}: partition {partition} does not move", why)

    def _states(self, plan: plans.Plan) -> dict[str, str]:
        refused = self._refused.get(plan.id, {})
        return plans.states_of(plan, (t for _, t in self._router.tables.values())) | refused


def _targets(plan: plans.Plan | None, policy: str) -> dict[str, Target]:
    """Where the last plan that nodes made for this policy moves partitions to."""
    return {} if plan is None or plan.made_for != policy else {m.partition: m.target for m in plan.moves}


def _nodes(target: Target | None) -> tuple[str, ...]:
    return () if target is None else target.nodes


def _why(change: Change) -> str:
    came = f"{', '.join(change.came)} came" if change.came else ""
    gone = f"{', '.join(change.gone)} has been gone for long" if change.gone else ""
    return "; ".join(filter(None, (came, gone)))


def _packed(nodes: set[str]) -> bytes:
    return msgspec.json.encode(Counted(tuple(sorted(nodes))))


def _counted(path: str, found: Versioned) -> set[str]:
    try:
        return set(msgspec.json.decode(found.data, type=Counted).nodes)
    except msgspec.MsgspecError as e:
        raise CoordinatorError(f"znode {path} cannot be read: {e}; delete it to begin anew") from e
