"""What one copy of a partition knows, and what all parts of its core share.

It is never more than the log and the znode told the copy: the log decides who may write (`chain`), the znode who should
(`table`). A part is given this state, and whatever else it needs; only `halog.core.partition` knows all parts.
"""

from __future__ import annotations

from halog.core import effects as fx
from halog.core.ids import Member, Position
from halog.core.log.chain import Chain, ChainState
from halog.core.log.outcomes import Outcomes
from halog.core.log.transactions import Ledger
from halog.core.roles import OUT, Role, next_role
from halog.core.settings import Settings, Sync
from halog.core.state.held import Held
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
        """Members that are not heard, and have answered a challenge."""
        self.role = Role.LOADING
        self.now = now
        self.out: list[fx.Effect] = []
        """The effects of the event that is being taken."""
        self.tag = 0
        """The last append tag given out."""
        self.round = 0
        self.held = Held()
        self.tail = tail or Tail()
        self.shown = 0
        """The last lsn that a follower shows before the log has it, until an epoch opens; 0: it shows none."""

    def become(self, happening: str, why: str = "") -> None:
        """Change the role by the table of roles."""
        self.role = next_role(self.role, happening)
        self.out.append(fx.RoleChanged(self.role.value, why or happening))

    def next_round(self) -> int:
        """Return a number for the next question that is asked, so that late answers are recognised."""
        self.round += 1
        return self.round

    def seal(self) -> None:
        """Hold nothing more of the epochs known now: a position is about to be published, or stood on (E1)."""
        self.held.seal(max(self.table.epoch.number, self.chain.state.epoch.number))

    @property
    def position(self) -> Position:
        """How recent this copy is: what it could bring into the log counts (Q2)."""
        s = self.chain.state
        return s.position if not self.unlogged else Position(s.led, max(s.lsn, self.tail.tip, self.held.tip(s)))

    @property
    def serving(self) -> bool:
        """Whether this copy answers commits and reads."""
        return self.role is Role.ACTIVE or self.role is Role.VERIFYING

    @property
    def unlogged(self) -> bool:
        """Whether commits may have been acknowledged that the log does not have."""
        return self.settings.local_sync is Sync.NO_SYNC

    @property
    def eligible(self) -> bool:
        """Whether this copy may take part in an election as a candidate."""
        if self.role is Role.LOADING or self.role in OUT or self.me.node not in self.table.configured:
            return False
        return not self.table.owner and priority(self.table, self.me.node) != NEVER

    @property
    def epoch_ours(self) -> bool:
        """Whether the znode names this incarnation as active."""
        return self.table.active == self.me

    @property
    def listed(self) -> set[Member]:
        """The members of the node list, as the znode has it."""
        return {r.member for r in self.table.replicas}
