"""This module has what one copy of a partition knows. All parts of the copy's core share it.

The state is never more than what the log and the znode told the copy. The log decides who may write (`chain`); the
znode says who should (`table`). Each part gets this state and whatever else it needs. Only `halog.core.partition` knows
all parts.
"""

from __future__ import annotations

from halog.core import effects as fx
from halog.core.ids import Member, Position
from halog.core.log.chain import Chain, ChainState
from halog.core.log.outcomes import Outcomes
from halog.core.log.transactions import Ledger
from halog.core.roles import OUT, Role, next_role
from halog.core.settings import Settings, Sync
from halog.core.state.held import HeldRun
from halog.core.state.tail import Tail
from halog.core.table.group import priority
from halog.core.table.preference import NEVER
from halog.core.table.table import PartitionTable


class CopyState:
    """Holds what one copy knows: its role, its table, its history, and the effects of the event it takes."""

    def __init__(
        self,
        me: Member,
        table_version: int,
        table: PartitionTable,
        chain: ChainState,
        next_offset: int,
        outcomes: Outcomes,
        settings: Settings,
        now: int,
        ledger: Ledger | None = None,
        tail: Tail | None = None,
    ) -> None:
        self.me = me
        self.settings = settings
        self.outcomes = outcomes
        self.ledger = ledger or Ledger()
        self.version = table_version
        self.table = table
        self.chain = Chain(chain)
        self.next_offset = next_offset
        """The offset of the entry that is read next."""
        self.alive: frozenset[Member] = frozenset({me})
        self.answering: frozenset[Member] = frozenset()
        """Members that are silent, but have answered a challenge."""
        self.role = Role.LOADING
        self.now = now
        self.out: list[fx.Effect] = []
        """The effects of the event that is being handled."""
        self.tag = 0
        """The last append tag given out."""
        self.round = 0
        self.held = HeldRun()
        self.tail = tail or Tail()
        self.level = chain.level
        """The highest level that the coordinator or the log has named (U1)."""
        self.shown = 0
        """The last lsn that a follower shows before the log has it, until an epoch opens; 0: none."""

    def become(self, happening: str, why: str = "") -> None:
        """Change the role by the table of roles."""
        self.role = next_role(self.role, happening)
        self.out.append(fx.RoleChanged(self.role.value, why or happening))

    def next_round(self) -> int:
        """Return a number for the next question, so that late answers to earlier ones are recognised."""
        self.round += 1
        return self.round

    def seal(self) -> None:
        """Stop holding records of the epochs known now. A position is about to be published, or a candidacy stands on
        it (E1)."""
        self.held.seal(max(self.table.epoch.number, self.chain.state.epoch.number))

    @property
    def position(self) -> Position:
        """Return how recent this copy is. What it could bring into the log counts too (Q2)."""
        s = self.chain.state
        return s.position if not self.unlogged else Position(s.led, max(s.lsn, self.tail.tip, self.held.tip(s)))

    @property
    def serving(self) -> bool:
        """Say whether this copy answers commits and reads."""
        return self.role is Role.ACTIVE or self.role is Role.VERIFYING

    @property
    def unlogged(self) -> bool:
        """Say whether commits may have been acknowledged that the log does not have."""
        return self.settings.local_sync is Sync.NO_SYNC

    @property
    def eligible(self) -> bool:
        """Say whether this copy may be a candidate in an election."""
        if self.role is Role.LOADING or self.role in OUT or self.me.node not in self.table.configured:
            return False
        return not self.table.owner and priority(self.table, self.me.node) != NEVER

    @property
    def epoch_ours(self) -> bool:
        """Say whether the znode names this incarnation as active."""
        return self.table.active == self.me

    @property
    def listed(self) -> set[Member]:
        """Return the members of the node list, as the znode has it."""
        return {r.member for r in self.table.replicas}
