"""S1-S5 as a Hypothesis state machine: a coordinator that lands, loses and delays sets around the real SyncSet."""

from __future__ import annotations

import msgspec
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from halog.core.commit.sync_set import SyncSet
from halog.core.ids import Member
from halog.core.table.table import ASYNC, SYNC, PartitionTable, Replica
from tests.unit.core.kit import table

POOL = [Member("B", 1), Member("C", 1), Member("D", 1)]


class SyncSetMachine(RuleBasedStateMachine):
    """`known` is the table the active node knows, `znode` what the coordinator holds."""

    def __init__(self) -> None:
        super().__init__()
        self.known: PartitionTable = table(sync=2, replicas=(Replica("B", 1, SYNC), Replica("C", 1, ASYNC)))
        self.znode = self.known
        self.version = 0
        self.znode_version = 0
        self.sync = SyncSet(self.known)
        self.usable = POOL[:2]
        self.acks: dict[Member, int] = {}
        self.waited_at: dict[Member, int] = {}
        """The last lsn given out when the node last began to wait for a member."""
        self.last_lsn = 5
        self.asked: tuple[Replica, ...] | None = None
        self.loose: list[tuple[int, tuple[Replica, ...]]] = []
        """Sets told to be unknown which may still land: (version expected, node list)."""

    # --- what happens around it ---

    @rule(n=st.integers(1, 3))
    def lsns_are_given_out(self, n: int) -> None:
        self.last_lsn += n

    @rule(member=st.sampled_from(POOL), behind=st.integers(0, 4))
    def a_member_confirms(self, member: Member, behind: int) -> None:
        self.acks[member] = max(self.acks.get(member, 0), self.last_lsn - behind)

    @rule(member=st.sampled_from(POOL))
    def a_channel_breaks(self, member: Member) -> None:
        self.acks.pop(member, None)
        self.usable = [m for m in self.usable if m != member]

    @rule(member=st.sampled_from(POOL))
    def a_member_becomes_usable(self, member: Member) -> None:
        self.usable = [m for m in POOL if m == member or m in self.usable]

    # --- sets, one at a time ---

    @precondition(lambda self: self.asked is None)
    @rule()
    def reconcile(self) -> None:
        before = self.sync.wait_set()
        plan = self.sync.plan(self.known, self.usable, self.acks, self.last_lsn, self.known.sync_replicas)
        for m in self.sync.wait_set() - before:
            self.waited_at[m] = self.last_lsn
        if plan is not None:
            for r in plan:
                if r.kind == SYNC and r.member not in self.known.sync_set:
                    confirmed = self.acks.get(r.member, -1)
                    assert confirmed >= self.waited_at[r.member], f"S3: {r} has confirmed {confirmed} only"
            self.sync.proposed(plan)
            self.asked = plan

    def _land(self, expected: int, replicas: tuple[Replica, ...]) -> bool:
        if expected != self.znode_version:
            return False
        self.znode = msgspec.structs.replace(self.znode, replicas=replicas)
        self.znode_version += 1
        return True

    @precondition(lambda self: self.asked is not None)
    @rule()
    def the_set_is_answered(self) -> None:
        assert self.asked is not None
        if self._land(self.version, self.asked):
            self.version = self.znode_version
            self.known = self.znode
            self.sync.settled(self.known)
        else:
            self.sync.unknown()
        self.asked = None

    @precondition(lambda self: self.asked is not None)
    @rule(fate=st.sampled_from(["landed", "lost", "late"]))
    def the_set_is_not_answered(self, fate: str) -> None:
        assert self.asked is not None
        if fate == "landed":
            self._land(self.version, self.asked)
        elif fate == "late":
            self.loose.append((self.version, self.asked))
        self.sync.unknown()
        self.asked = None

    @precondition(lambda self: self.loose)
    @rule()
    def a_late_set_arrives(self) -> None:
        self._land(*self.loose.pop(0))

    @rule()
    def the_znode_is_seen(self) -> None:
        if self.znode_version > self.version:
            self.version = self.znode_version
            self.known = self.znode
            self.asked = None
            self.sync.settled(self.known)

    # --- the law ---

    @invariant()
    def whatever_the_znode_holds_or_may_come_to_hold_is_waited_for(self) -> None:
        may = [self.znode.sync_set]
        may += [frozenset(r.member for r in rs if r.kind == SYNC) for v, rs in self.loose if v == self.znode_version]
        if self.asked is not None and self.version == self.znode_version:
            may.append(frozenset(r.member for r in self.asked if r.kind == SYNC))
        for members in may:
            assert members <= self.sync.wait_set(), f"S1: {members} is not waited for"


TestSyncSet = SyncSetMachine.TestCase
TestSyncSet.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
