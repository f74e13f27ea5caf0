"""A cluster of three nodes in virtual time, for a command that upgrades them: what goes wrong is said before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from halog.core.ids import Member
from halog.core.table.table import ASYNC, SYNC, PartitionTable, Replica
from halog.errors import RefusedError
from halog.metadata.nodes import NodeInfo
from halog.runtime.upgrade.fleet import CopyStanding, StateMarks

OLD, NEW = "0.2.0", "0.3.0"
BOOT_S = 3.0
"""A node is back this long after its restart."""
LEVEL_S = 1.0
"""It has caught up this long after it is back."""


def node(name: str, release: str = OLD, incarnation: int = 1, level: int = 1) -> NodeInfo:
    return NodeInfo(name, incarnation, "", ord(name[0]), True, 0, release, level=level)


def table(name: str, active: str, *replicas: str, sync: int = 1) -> PartitionTable:
    kinds = [SYNC if i < sync else ASYNC for i in range(len(replicas))]
    return PartitionTable(
        name=name,
        log_id="",
        topic="t",
        index=int(name[2:]),
        policy="p",
        configured=(active, *replicas),
        sync_replicas=sync,
        active=Member(active, 1),
        replicas=tuple(Replica(node=n, incarnation=1, kind=k) for n, k in zip(replicas, kinds, strict=True)),
    )


class Killed(BaseException):
    """The command died: nothing of it runs any more."""


class FakeFleet:
    """Nodes A, B and C; A is active for two partitions, B for one. It implements `UpgradedFleet`."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeInfo] = {n: node(n) for n in "ABC"}
        self._tables = {
            t.name: t for t in (table("p-0", "A", "B", "C"), table("p-1", "A", "C", "B"), table("p-2", "B", "A", "C"))
        }
        self.now = 0.0
        self.by_hook = True
        self.did: list[str] = []
        """What the command asked for, in order."""
        self.refusals: dict[str, Sequence[str]] = {}
        """By node, why it is not safe to stop."""
        self.comes_back: dict[str, str | None] = {}
        """By node, the release that it comes back with; None: it does not."""
        self.hook_fails: set[str] = set()
        self.stays_behind: set[str] = set()
        self.too_old: set[str] = set()
        self.other_state: set[str] = set()
        self.rotten: set[str] = set()
        """Nodes whose stores do not hold what they should."""
        self.silent: set[str] = set()
        """Partitions whose copies have no lsn in common."""
        self.unseen: set[str] = set()
        """Partitions of which no other copy tells anything."""
        self.single: set[str] = set()
        """Partitions that have one copy."""
        self.sticks: set[str] = set()
        """Partitions that nobody takes over."""
        self.dies_at = ""
        """The command dies as it is about to do this."""
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._level_at: dict[str, float] = {}

    @property
    def tables(self) -> Sequence[PartitionTable]:
        return list(self._tables.values())

    def _do(self, what: str) -> None:
        if self.dies_at and what.startswith(self.dies_at):
            self.dies_at = ""
            raise Killed
        self.did.append(what)

    def unsafe(self, node: str) -> Sequence[str]:
        self._do(f"prove {node}")
        return self.refusals.get(node, ())

    def lags(self, node: str) -> Mapping[str, Mapping[str, int]]:
        return {}

    def hand_over(self, partition: str, to: str) -> None:
        self._do(f"hand {partition} to {to}")
        if partition in self.sticks:
            raise RefusedError(f"{to} is not an available replica of {partition}")
        self.lead(partition, to)

    def lead(self, partition: str, to: str) -> None:
        was = self._tables[partition]
        members = (was.active, *(r.member for r in was.replicas))
        left = [m for m in members if m is not None and m.node != to]
        replicas = tuple(
            Replica(node=m.node, incarnation=m.incarnation, kind=SYNC if i == 0 else ASYNC) for i, m in enumerate(left)
        )
        active = next(m for m in members if m is not None and m.node == to)
        self._tables[partition] = msgspec.structs.replace(was, active=active, replicas=replicas)

    def restart(self, node: str, release: str) -> None:
        self._do(f"restart {node} {release}")
        if node in self.hook_fails:
            raise RefusedError(f"the hook for {node} ended with 3")
        self.stop(node)
        back = self.comes_back.get(node, release)
        if back is not None:
            self.after(BOOT_S, lambda: self.boot(node, back))

    def stop(self, name: str) -> None:
        self._gone = self.nodes.pop(name, node(name))

    def boot(self, name: str, release: str) -> None:
        incarnation = self._gone.incarnation + 1
        self.nodes[name] = node(name, release, incarnation)
        self._level_at[name] = self.now + LEVEL_S

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self._due.append((self.now + seconds, what))

    def standings(self, node: str) -> Sequence[CopyStanding]:
        found = []
        for t in self.tables:
            level = self.now >= self._level_at.get(node, 0.0) and node not in self.stays_behind
            assert t.active is not None
            active = t.active.node
            reference = active if active != node else t.replicas[0].node
            if t.name in self.unseen | self.single:
                reference = ""
            lag = 0 if level else 900
            found.append(CopyStanding(t.name, "", lag, active == node, reference, t.name in self.single))
        return found

    def marks(
        self, node: str, references: Mapping[str, str]
    ) -> Mapping[str, tuple[StateMarks | None, StateMarks | None]]:
        for partition in references:
            self._do(f"compare {partition} of {node}")
        both = {p: (self._marks(node), self._marks(other)) for p, other in references.items()}
        return {p: pair for p, pair in both.items() if p not in self.silent}

    def _marks(self, node: str) -> StateMarks | None:
        if node in self.too_old:
            return None
        state = b"other" if node in self.other_state else b"same"
        return StateMarks({64 * int(self.now): state}, node not in self.rotten)

    def rest(self, seconds: float) -> None:
        self.now += seconds
        due = [d for d in self._due if d[0] <= self.now]
        self._due = [d for d in self._due if d[0] > self.now]
        for _, what in due:
            what()

    def clock(self) -> float:
        return self.now
