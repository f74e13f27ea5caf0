"""Makes plans on nodes, without an operator, when members come or go, or when a version of the configuration changes a
policy's placement (P2, P3, P13); `[policies.P] rebalance = "auto"`. For static policies only the latter counts.

The first node by name does it, of those of a policy's zone that are up. Two that both take themselves for the first do
no harm: the plan and the list of nodes it counts on are changed by compare-and-set, and each move is an ordinary
migration. If that node dies, the next one finds the plan where it was. A node that is alone behind a cut network does
not see ZooKeeper, or sees that the others are registered: it plans nothing.

    rebalanced/<policy>    RebalanceState as JSON: the nodes the last plan counted on, and the placement it was made for
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from halog.config import Config
from halog.core import tolerant
from halog.core.placement.rebalance import in_need
from halog.core.placement.turnover import NodeTurnover, Turnover
from halog.core.table.definitions import DifferingLists, differing
from halog.core.table.table import PartitionTable, Target
from halog.core.tolerant import TolerantDecoder, TolerantStruct
from halog.errors import CoordinatorError, HalogError, RefusedError, VersionError
from halog.events import DIFFERING, REBALANCE
from halog.metadata.drains import drained_at
from halog.metadata.upgrades import STEPS_ASIDE, under_way
from halog.ports import Coordinator, UnknownResult, Versioned
from halog.runtime.events.history import History
from halog.runtime.events.reporter import migration_told
from halog.runtime.membership.members import Membership
from halog.runtime.placement import plan as plans
from halog.runtime.placement.bootstrap import by_hand
from halog.runtime.rpc.router import Router
from halog.runtime.support.clock import monotonic_ms

logger = logging.getLogger("halog.rebalancing")


class RebalancePaces(NamedTuple):
    """Holds the paces of a node that rebalances by itself."""

    look_s: float = 0.5
    """The first node looks this often, in seconds: moves take longer, and each look reads three znodes."""
    at_once: int = 2
    """So many partitions move at the same time, as with `halog plan apply`."""


PACES: Final = RebalancePaces()


class RebalanceState(TolerantStruct, frozen=True, omit_defaults=True):
    """The znode holds a `RebalanceState`. `version`: the latest version of the configuration that was planned for.
    `placement`: its mark, as the function `placement` gives it; absent if an older halog wrote this. `left`: partitions
    that could not go there yet."""

    nodes: tuple[str, ...]
    version: int = 0
    placement: str = ""
    left: tuple[str, ...] = ()


_DECODER = TolerantDecoder(RebalanceState)


def placement(config: Config, policy: str) -> str:
    """Return a mark of everything that says where copies of the policy's partitions belong; equal settings have equal
    marks."""
    asked, hosts = config.policies[policy], config.hosts_of(policy)
    said = {
        "nodes": sorted((n, config.nodes[n].failure_domain) for n in hosts),
        "backup": sorted(config.backups_of(policy)),
        "copies": (asked.sync_replicas, asked.async_replicas),
        "by hand": [(p, t.nodes, t.sync_replicas) for p, t in sorted(by_hand(asked).items())],
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


class AutoRebalance:
    """An `AutoRebalance` is a hosting node's; it makes plans for the policies that ask for it."""

    def __init__(
        self,
        config: Callable[[], Config],
        active_version: Callable[[], int],
        coordinator: Coordinator,
        router: Router,
        members: Membership,
        history: History,
        clock: Callable[[], int] = monotonic_ms,
        paces: RebalancePaces = PACES,
    ) -> None:
        self._clock = clock
        self._paces = paces
        self._configured = config
        self._active_version = active_version
        self._coordinator = coordinator
        self._router = router
        self._members = members
        self._history = history
        now = config()
        times = {name: now.timing_of(name) for name, p in now.policies.items() if p.rebalance == "auto"}
        self._turnovers = {name: Turnover(t.join_settle_ms, t.replace_after_ms) for name, t in times.items()}
        self._refused: dict[str, dict[str, str]] = {}
        """By plan: its partitions that cannot move now; others go first."""
        self._in_vain: dict[tuple[str, str], object] = {}
        """By policy and purpose: what was seen when nothing could be done. Planning again takes long where there is
        much."""
        self._forget_ms = now.timing.replace_after_ms
        self._waiting = "", 0
        """An operator's plan that has not begun, and since when this node has seen it so."""
        self._differing: dict[str, list[DifferingLists]] = {}
        """By policy: the node lists that were found to differ when it was last planned (P10)."""
        self._said: dict[str, str] = {}
        """By activity: what is in its way, as it was last logged."""

    @property
    def wanted(self) -> bool:
        """Does any policy ask for it?"""
        return bool(self._turnovers)

    def turn(self, pause: Callable[[float], bool]) -> None:
        """Look once at all policies, after a pause."""
        if pause(self._paces.look_s):
            return
        mine, alive = self._mine()
        if mine and not self._try("nothing is rebalanced yet", self._check_upgrade):
            mine = []
        for policy, turnover in self._turnovers.items():
            what = f"policy {policy} is not rebalanced yet"
            if policy not in mine or not self._try(what, partial(self._look, policy, alive)):
                turnover.forget()
        if mine:
            self._try("no plan is carried out now", partial(self._carry_on, mine))

    def _mine(self) -> tuple[list[str], set[str]]:
        """Return the policies that this node looks after now, and the nodes that are up."""
        if self._members.offline or not self._members.coordinated():
            return [], set()
        me, alive = self._members.me.node, {m.node for m in self._members.alive}
        return [p for p in self._turnovers if me == min(alive.intersection(self._zone(p)), default="")], alive

    def _check_upgrade(self) -> None:
        """Raise RefusedError while nodes are being upgraded, or run several releases (U1): they stop and come back, and
        nobody is to be replaced for that."""
        upgrade = under_way(self._coordinator)
        if upgrade is not None and upgrade.state in STEPS_ASIDE:
            raise RefusedError(f"the nodes are brought to halog {upgrade.to}: plans wait until that is done")
        releases = sorted({n.version for n in self._router.nodes.values() if n.hosts})
        if len(releases) > 1:
            raise RefusedError(f"the nodes run halog {', '.join(releases)}: plans wait until all run one release")

    def _try(self, what: str, work: Callable[[], None]) -> bool:
        try:
            work()
        except (HalogError, VersionError, UnknownResult) as e:
            self._say(what, str(e))
            return False
        self._said.pop(what, None)
        return True

    def _say(self, what: str, why: str) -> None:
        """Log the obstacle once, for as long as it stays the same."""
        if self._said.get(what) != why:
            self._said[what] = why
            logger.warning("%s: %s", what, why)

    def _zone(self, policy: str) -> tuple[str, ...]:
        return self._configured().hosts_of(policy)

    # --- planning ---

    def _look(self, policy: str, alive: set[str]) -> None:
        version = self._active_version()  # read before the configuration, so that this version is not newer than it
        asked, zone = placement(self._configured(), policy), self._zone(policy)
        up = alive.intersection(zone)
        path = f"rebalanced/{policy}"
        found = self._coordinator.get(path)
        if found is None:
            hosts = {n for t in self._theirs(policy) for n in t.hosts}
            first = RebalanceState(tuple(sorted(up | hosts.intersection(zone))), version, asked)
            self._coordinator.create(path, tolerant.encode(first))
            return
        stored = _counted(path, found)
        known = set(stored.nodes).intersection(zone)  # a node that left the zone counts as new when it is put back
        change = self._turned(policy, known, up)
        if change is not None:
            known = known.union(change.came).difference(change.gone)
        absent, newer = set(zone) - known, version > stored.version
        otherwise = newer and stored.placement not in ("", asked)
        if change is not None or otherwise:
            whys = f"version {version} of the configuration places it otherwise" if otherwise else "", _why(change)
            made = self._plan(policy, up, absent, "; ".join(filter(None, whys)))
            left = self._left(made, absent)
            left = left if otherwise else left.intersection(stored.left)
        else:
            left = self._go_on(policy, up, absent, stored)
            self._replace(policy, up, absent - up)
        mark = asked if newer or not stored.placement else stored.placement
        now = msgspec.structs.replace(
            stored,
            nodes=tuple(sorted(known)),
            version=max(version, stored.version),
            placement=mark,
            left=tuple(sorted(left)),
        )
        if now != stored:
            self._coordinator.set(path, tolerant.encode(now), found.version)

    def _theirs(self, policy: str) -> list[PartitionTable]:
        return [table for _, table in self._router.tables.values() if table.policy == policy]

    def _turned(self, policy: str, known: set[str], up: set[str]) -> NodeTurnover | None:
        """Return which nodes came or went for good; None for a static policy, where that moves nothing."""
        if self._configured().policies[policy].static:
            return None
        down = set(self._zone(policy)) - up - set(self._members.registered)
        return self._turnovers[policy].look(known, up, down, self._clock())

    def _plan(self, policy: str, up: set[str], absent: set[str], why: str) -> plans.Plan:
        """Place all partitions anew. RefusedError while an operator's plan is not done: the next look tries again."""
        made = self._made(policy, up, absent, plans.read(self._coordinator))
        self._store(msgspec.structs.replace(made, why=why))
        return made

    def _left(self, made: plans.Plan, absent: set[str]) -> set[str]:
        """Return the partitions that will not be where the configuration has them once this plan is done."""
        policy = made.made_for
        wanted = min(self._copies(policy), len(set(self._zone(policy)) - absent))
        then = {t.name: _nodes(t.target) or t.configured for t in self._theirs(policy)}
        then |= {m.partition: m.target.nodes for m in made.moves}
        return set(made.stay) | {p for p, nodes in then.items() if len(nodes) < wanted}

    def _copies(self, policy: str) -> int:
        """Return the number of copies of each partition; 0 if each one has its own list."""
        asked = self._configured().policies[policy]
        return 0 if asked.static else 1 + asked.sync_replicas + asked.async_replicas

    def _go_on(self, policy: str, up: set[str], absent: set[str], stored: RebalanceState) -> set[str]:
        """Plan again for the partitions that could not go where a version asks: a node was down, or an operator's move
        was under way. Partitions that an operator has rolled back meanwhile are left out (X10). Return those that are
        still left."""
        back = self._rolled_back() if stored.left else set()
        theirs = [t for t in self._theirs(policy) if t.name in stored.left and t.name not in back]
        return self._again(policy, up, absent, theirs, f"version {stored.version} of the configuration goes on")

    def _rolled_back(self) -> set[str]:
        """Return the partitions whose last move was a rollback."""
        last: dict[str, plans.Plan] = {}
        for plan in plans.known(self._coordinator):  # the newest first
            for move in plan.moves:
                last.setdefault(move.partition, plan)
        return {partition for partition, plan in last.items() if plan.undoes}

    def _replace(self, policy: str, up: set[str], absent: set[str]) -> None:
        """Plan again what no plan could replace when the node went: others were down, or an override stood against
        it."""
        theirs = [] if self._configured().policies[policy].static else self._theirs(policy)
        if any(n in absent for t in theirs for n in t.hosts):
            needy = in_need(theirs, absent, _targets(plans.read(self._coordinator), policy))
            self._again(policy, up, absent, [t for t in theirs if t.name in needy])

    def _again(
        self, policy: str, up: set[str], absent: set[str], tables: list[PartitionTable], why: str = ""
    ) -> set[str]:
        """Plan for these partitions alone, and return those that stay as they are. Nothing is planned that an operator
        has cancelled, nor before the last plan has begun, nor before something has changed since planning was in
        vain."""
        names, purpose = {t.name for t in tables}, (policy, why)
        last = plans.read(self._coordinator) if tables else None
        if last is not None and last.made_for == policy and (last.cancelled or self._waits(last)):
            return names
        seen = (
            frozenset(up),
            {t.name: (t.config_version, t.configured, t.target, t.group, t.definitions) for t in tables},
        )
        if not tables or self._in_vain.get(purpose) == seen:
            return names
        made = self._made(policy, up, absent, last)
        moves = tuple(m for m in made.moves if m.partition in names)
        if not moves:
            self._in_vain[purpose] = seen
        else:
            gone = ", ".join(sorted(absent.intersection(n for m in moves for n in (*m.before, *_nodes(m.given_up)))))
            self._store(msgspec.structs.replace(made, moves=moves, why=why or f"{gone} is still to be replaced"))
        return names.intersection(self._left(made, absent))

    def _waits(self, plan: plans.Plan) -> bool:
        """Does a move of this plan wait to be begun that was not refused?"""
        return plans.WAITING in self._states(plan).values()

    def _made(self, policy: str, up: set[str], absent: set[str], last: plans.Plan | None) -> plans.Plan:
        """Return a plan without moves to fewer copies than are asked for, and without moves that would give up what an
        operator asked for: those partitions stay."""
        drained = drained_at(self._coordinator)  # read first: nodes that are drained meanwhile are not meant
        config, ours, copies = self._configured(), _targets(last, policy), self._copies(policy)
        tables = [table for _, table in self._router.tables.values()]
        running = {n.name for n in self._router.nodes.values() if n.hosts}
        made = plans.make(config, tables, up, running, [policy], replaced=absent, drained=drained)
        self._tell_lists(policy, [d for t in tables if t.policy == policy for d in differing(t, running)])
        moves, stay = [], dict(made.stay)
        for m in made.moves:
            if len(m.target.nodes) < min(copies, len(_nodes(m.given_up) or m.before)):
                stay[m.partition] = "it would have fewer copies"
            elif m.given_up not in (None, ours.get(m.partition)):
                stay[m.partition] = f"it is moving to {', '.join(_nodes(m.given_up))}, as an operator wished"
            else:
                moves.append(m)
        return msgspec.structs.replace(made, moves=tuple(moves), stay=stay, made_for=policy)

    def _tell_lists(self, policy: str, found: list[DifferingLists]) -> None:
        """Report each node list that differs once, for as long as it does: its partition stays, and no command is there
        to get the error."""
        known = self._differing.get(policy, [])
        self._differing[policy] = found
        for d in found:
            if d not in known:
                more = {"policy": policy, "defined": ", ".join(d.defined), "listed": ", ".join(d.listed)}
                cause = f"found at a rebalance; the partition stays until {d.node} enables or changes its definition"
                self._history.tell(DIFFERING, cause, node=d.node, more=more, partition=d.partition)

    def _store(self, made: plans.Plan) -> None:
        if made.moves:
            tables = [table for _, table in self._router.tables.values()]
            plans.store(self._coordinator, made, tables, self._overdue())
        more = {"policy": made.made_for, "moves": len(made.moves), "plan": made.id if made.moves else ""}
        self._history.tell(REBALANCE, made.why, more=more)

    # --- carrying out ---

    def _overdue(self) -> str:
        """Return an operator's plan that has waited for as long as a node may be gone: it was only made to be looked
        at."""
        plan, since = self._waiting
        return plan if plan and self._clock() - since >= self._forget_ms else ""

    def _carry_on(self, mine: list[str]) -> None:
        """Go on with a plan that a node made. An operator's plan is left to the operator, until it is overdue."""
        plan = plans.read(self._coordinator)
        theirs = plan.id if plan is not None and not plan.made_for and not plan.cancelled else ""
        if theirs != self._waiting[0]:
            self._waiting = theirs, self._clock()
        if plan is None or plan.cancelled or plan.made_for not in mine:
            return
        states = self._states(plan)
        if plans.WAITING not in states.values():
            self._refused.clear()  # these may be possible now
            return
        told = partial(migration_told, self._history, cause=f"plan {plan.id}, of a node for policy {plan.made_for}")
        c, r = self._coordinator, self._router
        met = plans.begin_some(c, self._configured(), r, plan, states, self._paces.at_once, told=told)
        self._refused.setdefault(plan.id, {}).update(met.refused)
        for partition, why in (met.refused | met.marked).items():
            self._say(f"plan {plan.id}: beginning with partition {partition}", why)

    def _states(self, plan: plans.Plan) -> dict[str, str]:
        refused = self._refused.get(plan.id, {})
        return plans.unless_begun(plans.states_of(plan, (t for _, t in self._router.tables.values())), refused)


def _targets(plan: plans.Plan | None, policy: str) -> dict[str, Target]:
    """Return the targets of the last plan, by partition, if nodes made it for this policy."""
    return {} if plan is None or plan.made_for != policy else {m.partition: m.target for m in plan.moves}


def _nodes(target: Target | None) -> tuple[str, ...]:
    return () if target is None else target.nodes


def _why(change: NodeTurnover | None) -> str:
    if change is None:
        return ""
    came = f"{', '.join(change.came)} came" if change.came else ""
    gone = f"{', '.join(change.gone)} has been gone for long" if change.gone else ""
    return "; ".join(filter(None, (came, gone)))


def _counted(path: str, found: Versioned) -> RebalanceState:
    try:
        return _DECODER.decode(found.data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise CoordinatorError(f"znode {path} cannot be read: {e}; delete it to begin anew") from e
