"""Makes one attempt at a vote or a decision of a transaction over several partitions, here or at another node.

The initiator (`halog.runtime.client.two_phase`) and the partitions among each other
(`halog.runtime.client.outcome_delivery`) use it. Each request carries the transaction's id, so asking again is
harmless. This module decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from halog.core import events as ev, results as res
from halog.core.keys.directory import ID_BYTES
from halog.core.log.transactions import UndecidedTransaction
from halog.errors import HalogError, PartitionUnavailableError
from halog.runtime.client.caller import Asker, Waiter
from halog.runtime.replica.driver import Copy
from halog.runtime.replica.presented import presented
from halog.runtime.replica.requests import Answer
from halog.runtime.rpc import frames
from halog.runtime.rpc.pages import PAGE_BYTES, pieces
from halog.runtime.rpc.request import HERE, OpenCommit, check_here
from halog.runtime.rpc.result_errors import to_error

R = TypeVar("R", bound=frames.Reply)
COMMITTED, ABORTED, EXPIRED, UNKNOWN = "committed", "aborted", "expired", "unknown"


def prepare(copy: Copy, r: frames.PrepareRequest, answer: Answer, *, exact: bool = False) -> int:
    """Ask the copy to vote, in its epoch only if `exact`; returns as `Copy.submit` does."""

    def asked(token: int) -> ev.Event:
        changes, found = presented(r.work, copy.objects, keeps_before=copy.keeps_before)
        w = r.work
        return ev.PrepareAsked(
            token,
            r.tx,
            r.first,
            r.participants,
            r.digest,
            w.reads,
            changes,
            found,
            r.epoch,
            w.mapping,
            r.last,
            exact,
            w.moves,
        )

    return copy.question(answer, asked, served=True)


def decide(copy: Copy, r: frames.Decide, answer: Answer) -> int:
    """Ask the copy to decide, or to take over what was decided; returns as `Copy.submit` does."""
    return copy.question(
        answer, lambda token: ev.DecideAsked(token, r.tx, r.commit, r.decides, r.participants), served=True
    )


def stands(result: res.Result, *, commit: bool) -> str | None:
    """Return how a transaction stands, by a copy's answer to the request for `commit`; None if the answer does not
    say."""
    match result:
        case res.Success():
            return COMMITTED if commit else ABORTED
        case res.OppositeDecision():
            return ABORTED if commit else COMMITTED
        case res.ExpiredId():
            return EXPIRED
        case res.Unknown() | res.Refusal():
            return UNKNOWN
        case _:
            return None


def votes(copy: Copy, r: frames.Votes, room: int = PAGE_BYTES) -> frames.VotesReply:
    """Return what the copy knows, for operators: one page of what is in doubt, of at most `room` bytes."""
    with copy.lock:
        ledger = copy.core.state.ledger
        undecided, decided = list(ledger.undecided.values()), dict(ledger.decided)
    latest = sorted(decided, key=lambda tx: decided[tx].lsn)[-r.latest :] if r.latest else []
    found = dict.fromkeys([*(tx for tx in r.ids if tx in decided), *latest])
    left = sorted((u for u in undecided if u.tx > r.behind), key=lambda u: u.tx)
    doubts = next(pieces(map(_doubt, left), _size_of, room), [])  # the changes of the transactions on this page only
    told = [(tx, decided[tx].commit, decided[tx].lsn) for tx in found]
    return frames.VotesReply(doubts, told, end=len(doubts) == len(left))


def _doubt(u: UndecidedTransaction) -> frames.Doubt:
    p = u.prepare
    types = tuple(sorted({bytes(c.value[:ID_BYTES]) for c in p.changes if c.value is not None}))
    return frames.Doubt(u.tx, p.first, p.participants, p.digest, p.header.lsn, len(p.reads), len(p.changes), types)


def _size_of(doubt: frames.Doubt) -> int:
    return 100 + sum(len(name) + 5 for name in doubt.participants) + (ID_BYTES + 2) * len(doubt.types)


class Ballots:
    """Asks for votes and decisions on behalf of one node."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def prepare(self, r: frames.PrepareRequest, until: float, open_: OpenCommit | None = None) -> int:
        """Return the lsn of the vote; of the last vote it is the lsn of the commit. Raises what was answered;
        NotActiveError if the role moved meanwhile. `open_`: see `Router.ask`."""
        copy = self._asker.serving(r.partition)
        if copy is None:
            return self._elsewhere(r, until, frames.CommitReply, r.work.site, open_).lsn
        check_here(r.partition, r.work.site, self._asker.router)
        r.epoch = self._asker.router.epoch(r.partition)
        if open_ is not None:
            open_.presented = True
        result = self._here(copy, lambda answer: prepare(copy, r, answer), until)
        if isinstance(result, res.Success):
            return result.lsn
        raise to_error(result, r.partition)

    def tell(self, r: frames.Decide, told: Callable[[str | None], None]) -> bool:
        """Tell a partition that this node serves how its transaction was decided, without waiting. False: this node
        does not serve it, or the copy is busy. `told` hears how it stands there, as `stands` returns it."""
        copy = self._asker.serving(r.partition)
        return copy is not None and copy.question_later(
            lambda result: told(stands(result, commit=r.commit)),
            lambda token: ev.DecideAsked(token, r.tx, r.commit, r.decides, r.participants, patient=True),
        )

    def serves(self, partition: str) -> bool:
        """Say whether this node is active for it."""
        return self._asker.serving(partition) is not None

    def decide(self, r: frames.Decide, until: float, site: str | None = HERE) -> tuple[str, int]:
        """Return how it stands there, and its lsn; raises any other answer. `site`: only this site is asked."""
        copy = self._asker.serving(r.partition)
        if copy is None:
            reply = self._elsewhere(r, until, frames.OutcomeReply, site)
            return reply.outcome, reply.lsn
        check_here(r.partition, site, self._asker.router)
        result = self._here(copy, lambda answer: decide(copy, r, answer), until)
        how = stands(result, commit=r.commit)
        if how is None:
            raise to_error(result, r.partition)
        return how, lsn_of(result)

    def _elsewhere(
        self,
        r: frames.PrepareRequest | frames.Decide,
        until: float,
        kind: type[R],
        site: str | None,
        open_: OpenCommit | None = None,
    ) -> R:
        reply = self._asker.ask(r.partition, r, until, site, open_)
        if reply is None:
            raise to_error(res.InactiveCopy(None), r.partition)
        assert isinstance(reply, kind)
        return reply

    def _here(self, copy: Copy, begin: Callable[[Answer], int], until: float) -> res.Result:
        waiter = Waiter()
        tag = begin(waiter)
        copy.node.deliveries.follow(copy, tag, waiter.settled, until)
        return waiter.wait(until - time.monotonic()) or res.Unknown("no answer in time")


def lsn_of(result: res.Result) -> int:
    """Return the lsn of the record that says so; 0 if the answer has none."""
    return result.lsn if isinstance(result, res.Success | res.OppositeDecision) else 0


def attempt(ballots: Ballots, r: frames.Decide, within_s: float, site: str | None = HERE) -> str | None:
    """Ask once, at this site, how the transaction stands. UNKNOWN: it is not settled yet. None: nobody is there to
    answer."""
    until = time.monotonic() + within_s
    try:
        outcome = ballots.decide(r, until, site)[0]
    except PartitionUnavailableError:
        return None
    except HalogError:
        outcome = UNKNOWN
    return None if outcome == UNKNOWN and time.monotonic() >= until else outcome


def decided_here(ballots: Ballots, r: frames.Decide, within_s: float = 1.0) -> str:
    """Return how the transaction stands in a partition that this node serves; "": it serves it no more, or nobody can
    say yet."""
    return (attempt(ballots, r, within_s) or "") if ballots.serves(r.partition) else ""
