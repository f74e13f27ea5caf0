"""This module answers what became of a transaction, as far as one copy may say it (R4)."""

from __future__ import annotations

from halog.core import events as ev, results as res
from halog.core.commit.writer import Writer
from halog.core.state.copy_state import CopyState


def became_of(copy: CopyState, writer: Writer | None, e: ev.Asked) -> res.Result:
    """Return the answer of this copy. Where reads may rest on a lease, only the active node says "happened": the commit
    may not be visible yet to a node that holds a lease. Where commits wait for other sites' logs, or for votes, the
    active node says so once it has those."""
    lsn, decision = copy.outcomes.get(e.tx), copy.ledger.decided.get(e.tx)
    if lsn is None and decision is not None and decision.commit:
        lsn = decision.lsn  # the ledger remembers its own for longer
    waits_abroad = copy.settings.sites.names or copy.settings.votes.binding
    if lsn is not None:
        if writer is None and (copy.settings.lease_ms or waits_abroad):
            return res.Unknown("only the active node may say")
        if writer is not None and waits_abroad and lsn > writer.acknowledged():
            return res.Unknown("not everybody whom it waits for has confirmed it")
        return res.Success(lsn)
    if writer is not None and (answered := writer.answered(e.tx)):
        return res.Success(answered)
    if e.tx in copy.ledger.undecided:
        return res.Unknown("it is in doubt: its first partition says what becomes of it")
    if decision is not None:
        return res.Abort()
    if copy.outcomes.expired(e.tx):
        return res.ExpiredId(copy.outcomes.horizon)
    if copy.chain.state.led > e.attempt and (writer is None or not writer.knows(e.tx)):
        return res.Abort()
    return res.Unknown("no higher epoch has opened yet")
