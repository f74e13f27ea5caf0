"""What became of a transaction, as one copy may say it (R4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core import events as ev

if TYPE_CHECKING:
    from halog.core.partition import Partition


def became_of(p: Partition, e: ev.Asked) -> ev.Result:
    """The answer of this copy. Where reads may rest on a lease only the active node says "happened": to whoever holds
    one, the commit may not be visible yet. Where commits wait for other sites' logs, or votes, it does once it
    has those."""
    lsn, leading, decision = p.outcomes.get(e.tx), p.leading, p.ledger.decided.get(e.tx)
    if lsn is None and decision is not None and decision.commit:
        lsn = decision.lsn  # the ledger remembers its own for longer
    waits_abroad = p.settings.sites.names or p.settings.votes.binding
    if lsn is not None:
        if leading is None and (p.settings.lease_ms or waits_abroad):
            return ev.Unknown("only the active node may say")
        if leading is not None and waits_abroad and lsn > leading.writer.acknowledged():
            return ev.Unknown("not everybody whom it waits for has confirmed it")
        return ev.Happened(lsn)
    if leading is not None and (acknowledged := leading.acknowledged(e.tx)):
        return ev.Happened(acknowledged)
    if e.tx in p.ledger.undecided:
        return ev.Unknown("it is in doubt: its first partition says what becomes of it")
    if decision is not None:
        return ev.NotHappened()
    if p.outcomes.expired(e.tx):
        return ev.Expired(p.outcomes.horizon)
    if p.chain.state.led > e.attempt and (leading is None or not leading.knows(e.tx)):
        return ev.NotHappened()
    return ev.Unknown("no higher epoch has opened yet")
