"""This module tells a candidate what a copy has: how recent it is, and what it holds beyond the log (E1, E3)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from halog.core import effects as fx, events as ev
from halog.core.log import records
from halog.core.replica.pushed_store import is_holder
from halog.core.roles import Role
from halog.core.state.copy_state import CopyState
from halog.core.state.held import MAX_BYTES
from halog.core.state.tail import Tail
from halog.core.table.group import priority
from halog.core.table.holders import holders
from halog.core.table.preference import Candidate


class PositionRound:
    """A `PositionRound` is what nodes have answered whom a candidate asked how recent they are."""

    def __init__(self, own: Iterable[Candidate] = (), asked: Collection[str] = (), *, withheld: bool = False) -> None:
        """Begin with the candidate itself; `withheld`: it is a holder that cannot tell its tail."""
        self.told = {c.node: c for c in own}
        self.asked = frozenset(asked)
        self.tails: dict[str, Sequence[bytes]] = {}
        """What the nodes that answered hold beyond the log."""
        self.withheld = set(self.told) if withheld else set()
        """Holders that answered without their tail."""

    def take(self, copy: CopyState, e: ev.PositionTold) -> None:
        """Take an answer."""
        mine = is_holder(e.node, (e.incarnation, *e.stood), holders(copy.table))
        holder = copy.unlogged and e.tail is not None and mine
        if mine and not holder:
            self.withheld.add(e.node)
        self.told[e.node] = Candidate(e.node, e.position, priority(copy.table, e.node), e.eligible, holder)
        self.tails[e.node] = e.tail or ()

    def is_complete(self, up: Collection[str]) -> bool:
        """Has everybody answered who was asked and is up?"""
        return all(n in self.told or n not in up for n in self.asked)


def position_asked(copy: CopyState, e: ev.PositionAsked, *, may_stand: bool) -> None:
    """Tell a candidate how recent this copy is, and whether it is a candidate itself: only where it `may_stand`.
    Publishing a position seals the epochs known now."""
    copy.seal()
    willing = copy.eligible and may_stand
    tail, stood = _tail_told(copy), copy.tail.stood
    if lacking := lacking_holders(copy):  # this copy is a holder that cannot tell its tail
        tail, stood = None, (*stood, *lacking)
    copy.out.append(fx.TellPosition(e.node, e.round, copy.position, willing, tail, stood))


def lacking_holders(copy: CopyState) -> tuple[int, ...]:
    """Return the incarnations of this node that are holders and whose stored records nobody can tell: their store was
    set aside, and the present one stands for none of them (decision 49); or a later version of halog wrote them
    (U1)."""
    named = holders(copy.table)
    if copy.unlogged and copy.tail.unread:
        return copy.tail.lacks(copy.me.node, named)
    if not copy.unlogged or not copy.settings.stores_pushed:
        return ()
    if is_holder(copy.me.node, (copy.me.incarnation, *copy.tail.stood), named):
        return ()
    return copy.tail.lacks(copy.me.node, named)


def _tail_told(copy: CopyState) -> tuple[bytes, ...] | None:
    """Return the tail that goes with a position. A copy that may acknowledge more, or has more than a frame takes,
    returns None. So does one that has yet to read the log, unless it brought a tail along or stands for a holder: no
    other copy may have that."""
    brought = copy.role is Role.LOADING and copy.unlogged and (copy.tail.run or copy.tail.stood)
    if copy.role is not Role.FOLLOWING and copy.role is not Role.ELECTING and not brought:
        return None
    if not copy.unlogged:
        return ()
    told = Tail()
    told.run = copy.tail.run
    if copy.held.joined(copy.chain.state):  # the tail it adopted when it stood may be less than what it holds
        told.keep((held.record for held in copy.held.run), copy.chain.state)
    tail = tuple(records.encode(record) for record in told.run)
    return tail if sum(map(len, tail)) <= MAX_BYTES else None
