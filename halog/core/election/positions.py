"""What a copy tells a candidate of itself: how recent it is, and what it holds beyond the log (E1, E3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core import events as ev
from halog.core.log import records
from halog.core.replica.held import MAX_BYTES
from halog.core.replica.pushed_store import is_holder
from halog.core.replica.tail import Tail
from halog.core.roles import Role
from halog.core.table.holders import holders

if TYPE_CHECKING:
    from halog.core.partition import Partition


def position_asked(p: Partition, e: ev.PositionAsked) -> None:
    """Publishing a position seals the epochs known now."""
    p.seal()
    willing = p.eligible and p.now >= p.campaign.not_before and not p.campaign.log.stands
    tail, stood = _tail_told(p), p.tail.stood
    if lacking := lacking_holders(p):  # it is a holder that cannot tell its tail
        tail, stood = None, (*stood, *lacking)
    p.out.append(ev.TellPosition(e.node, e.round, p.position, willing, tail, stood))


def lacking_holders(p: Partition) -> tuple[int, ...]:
    """The runs of this node that are holders, where nobody can tell what they stowed: that store was set aside, and
    this one stands for none of them (decision 49)."""
    if not p.unlogged or not p.settings.stows:
        return ()
    named = holders(p.table)
    if is_holder(p.me.node, (p.me.incarnation, *p.tail.stood), named):
        return ()
    return p.tail.lacks(p.me.node, named)


def _tail_told(p: Partition) -> tuple[bytes, ...] | None:
    """What goes with a position. None from one that may acknowledge more, or has more than a frame takes; from one
    that has yet to read the log, unless it brought something along, or the word of a holder: nobody else may have
    that."""
    brought = p.role is Role.LOADING and p.unlogged and (p.tail.run or p.tail.stood)
    if p.role is not Role.FOLLOWING and p.role is not Role.ELECTING and not brought:
        return None
    if not p.unlogged:
        return ()
    told = Tail()
    told.run = p.tail.run
    if p.held.joined(p.chain.state):  # what it adopted when it stood may be less than what it holds itself
        told.keep((held.record for held in p.held.run), p.chain.state)
    tail = tuple(records.encode(record) for record in told.run)
    return tail if sum(map(len, tail)) <= MAX_BYTES else None
