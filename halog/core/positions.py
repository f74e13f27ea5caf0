"""What a copy tells a candidate of itself: how recent it is, and what it holds beyond the log (E1, E3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core import events as ev, records
from halog.core.held import MAX_BYTES
from halog.core.roles import Role
from halog.core.tail import Tail

if TYPE_CHECKING:
    from halog.core.partition import Partition


def position_asked(p: Partition, e: ev.PositionAsked) -> None:
    """Publishing a position seals the epochs known now."""
    p.seal()
    willing = p.eligible and p.now >= p.campaign.not_before and not p.campaign.log.stands
    p.out.append(ev.TellPosition(e.node, e.round, p.position, willing, _tail_told(p), p.tail.stood))


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
