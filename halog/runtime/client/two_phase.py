"""Commits a transaction over several partitions, on the node of the application (D4).

All participants but the first vote at once. When they have voted, the first one votes and decides in one step, and
tells the others itself. A participant that fails over is waited for, and those that have voted hear meanwhile that this
node lives. The rule: only this node asks to commit, and only once. So until it has asked, any failure means that
nothing happened, whether the participants hear of the abort or not. From then on only the first partition knows the
outcome, and is asked for it by transaction id until it answers.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, wait
from functools import partial
from typing import Final

import msgspec

from halog.backend import Work
from halog.errors import (
    AvailabilityError,
    ClosedError,
    ConflictError,
    DeadlineError,
    HalogError,
    NotActiveError,
    OutcomeUnknownError,
    OverloadedError,
    PartitionUnavailableError,
    QuorumError,
    RefusedError,
    TransactionError,
    VersionMismatchError,
)
from halog.runtime.client.caller import Asker
from halog.runtime.client.commits import OVERLOADED_S, PERHAPS, RETRY_S, Commits
from halog.runtime.client.heartbeat import SHARE, InitiatorHeartbeat, LiveTransaction
from halog.runtime.client.vote_calls import ABORTED, COMMITTED, EXPIRED, Ballots, attempt
from halog.runtime.rpc import frames
from halog.runtime.rpc.request import HERE, OpenCommit, switched
from halog.runtime.rpc.result_errors import clock_behind
from halog.runtime.support.keyed_executor import Errands, Lanes

logger = logging.getLogger("halog.node")

EACH, THREADS = 16, 256
"""So many votes are asked for at once, of one partition and of all. Each takes a round trip to the log, so this is some
thousand transactions a second."""

STEP_S = 2.0
"""A participant is asked for so long in one go; between two goes it is checked whether another one has refused."""

ABORTS_EACH, ABORTS = 2, 32
"""The same limits for aborts."""

ABORT_S: Final = 1.0
"""An abort is offered to the first partition for so long. Participants in doubt ask for it themselves."""


SWITCHES_S, LOOK_S = 2.0, 0.02
"""All partitions switch to another site within about a second, but one by one; the second value is how often it is
looked."""

REFUSALS = (
    TransactionError,
    OverloadedError,
    QuorumError,
    PartitionUnavailableError,
    RefusedError,
    VersionMismatchError,
    ClosedError,
)
"""A node that answers one of these did nothing. After any other error nobody knows."""


class TwoPhaseCommits:
    """A `TwoPhaseCommits` is shared by all threads of a node."""

    def __init__(
        self,
        asker: Asker,
        ballots: Ballots,
        waits: Callable[[str], bool],
        commits: Commits,
        doubt_s: float,
        abort_s: float = ABORT_S,
    ) -> None:
        """Make what commits over several partitions. `abort_s`: see ABORT_S."""
        self._abort_s = abort_s
        self._asker = asker
        self._ballots = ballots
        self._waits = waits
        self._commits = commits
        self._votes = Lanes("halog-votes", EACH, THREADS)
        self._aborts = Errands("halog-aborts", ABORTS_EACH, ABORTS)
        self._doubt_s = doubt_s
        self._initiating = InitiatorHeartbeat(ballots.prepare, asker.shortest_doubt(doubt_s) / SHARE / 2)

    def close(self) -> None:
        """Stop, and tell those who still wait for votes; nothing of their transactions happens."""
        self._initiating.close()
        self._votes.close()
        self._aborts.close()

    def commit(self, tx: bytes, works: Mapping[str, Work]) -> Mapping[str, int]:
        """See Backend."""
        self._asker.check_open()
        self._asker.check_level()
        self._commits.sent(tx)
        participants = tuple(sorted(works))
        began = time.monotonic()
        works = self._at_one_site(works, began + min(self._asker.call_s, SWITCHES_S))
        digest = hashlib.blake2b(
            msgspec.msgpack.encode((participants, [works[p] for p in participants])), digest_size=16
        ).digest()
        first = participants[0]
        last, *others = [
            frames.PrepareRequest(p, tx, first, participants, digest, works[p], last=p == first) for p in participants
        ]
        doubt_s = min(self._asker.doubt_of(p, self._doubt_s) for p in participants)
        with self._initiating.living(tx, doubt_s / SHARE) as living:
            try:
                lsns = self._all_vote(others, began, living)
            except BaseException as error:
                self._given_up(last, error)
                raise
            return lsns | {first: self._decided(last, began, living)}

    def _given_up(self, last: frames.PrepareRequest, error: BaseException) -> None:
        """Abort a transaction that nobody was or will be asked to commit."""
        if not isinstance(error, HalogError):  # it was interrupted: the caller asks for the outcome
            self._commits.withdrawn(last.tx)
        self._abort(last)

    def _until(self, partition: str, began: float) -> float:
        """Return until when a failover of this partition is waited for: as long as for an answer of it."""
        return began + self._asker.call_of(partition)

    def _at_one_site(self, works: Mapping[str, Work], until: float) -> Mapping[str, Work]:
        """Return the works, bound to the site that serves their partitions; wait until `until` for all to be at one
        site. RefusedError if several sites serve them: a participant in doubt would hold its objects for as long as a
        line is down. SwitchedError if only what was read is of several sites."""
        router = self._asker.router
        while len(set((now := {p: router.site_of(p) for p in works}).values())) > 1 and time.monotonic() < until:
            time.sleep(LOOK_S)
        at = {p: now[p] if w.site is None else w.site for p, w in works.items()}
        if len(set(at.values())) > 1:
            if len(set(now.values())) == 1:
                p = next(p for p in at if at[p] != now[p])
                raise switched(p, at[p] or router.site, now[p] or router.site)
            said = ", ".join(f"{p} by site {site or router.site}" for p, site in at.items())
            raise RefusedError(
                f"the transaction is over partitions that several sites serve ({said}), and one must serve them all; "
                "nothing was done; see `halog site promote`",
                partitions=list(at),
            )
        if not any(at.values()):
            return works
        return {p: msgspec.structs.replace(w, site=at[p]) for p, w in works.items()}

    # --- votes ---

    def _all_vote(self, asked: list[frames.PrepareRequest], began: float, living: LiveTransaction) -> dict[str, int]:
        """Return the lsn of each vote. The first failure is enough: nobody waits for the other votes. A single vote
        needs no thread of its own."""
        failed = threading.Event()
        if len(asked) == 1:
            return {asked[0].partition: self._vote(asked[0], began, living, failed)}
        try:
            votes = {
                self._votes.submit(r.partition, partial(self._vote, r, began, living, failed)): r.partition
                for r in asked
            }
            done, _ = wait(votes, return_when=FIRST_EXCEPTION)
        except BaseException:
            failed.set()
            raise
        errors = []
        for vote in done:
            error = vote.exception()
            if isinstance(error, HalogError):
                errors.append(error)
            elif error is not None and not isinstance(error, _VoteStop):
                errors.append(HalogError(f"the vote of {votes[vote]} failed: {error!r}"))
        if errors:
            raise min(errors, key=lambda e: isinstance(e, AvailabilityError) * 2 + isinstance(e, ConflictError))
        return {partition: vote.result() for vote, partition in votes.items()}

    def _vote(self, r: frames.PrepareRequest, began: float, living: LiveTransaction, failed: threading.Event) -> int:
        """Return the lsn of one participant's vote, waiting until its deadline. _Stopped once another one has failed;
        ConflictError once the transaction was given up. A vote whose turn comes behind its deadline is not asked
        for."""
        until = self._until(r.partition, began)
        try:
            if not failed.is_set() and time.monotonic() >= until:
                raise OverloadedError(
                    f"votes have waited too long for partition {r.partition}; nothing happened; try again later",
                    partition=r.partition,
                )
            while not failed.is_set():
                living.check()
                lsn = self._vote_once(r, until)
                if lsn:
                    living.voted.append(r)
                    return lsn
        except BaseException as error:
            failed.set()
            if isinstance(error, HalogError):
                error.evidence.setdefault("partition", r.partition)
            raise
        raise _VoteStop

    def _vote_once(self, r: frames.PrepareRequest, until: float, open_: OpenCommit | None = None) -> int | None:
        """Return the lsn of the vote. None: ask again, nothing happened. PERHAPS: ask again, the request may have
        arrived."""
        limit = min(until, time.monotonic() + max(STEP_S, self._asker.router.attempt_s))
        try:
            return self._ballots.prepare(r, limit, open_)
        except PartitionUnavailableError as e:
            if limit <= time.monotonic() < until:  # no node is active yet
                return _asked_before(e)
            raise _nobody(r.partition, e) from None
        except (OverloadedError, QuorumError) as e:
            waits = isinstance(e, OverloadedError) or self._waits(r.partition)
            if not waits or time.monotonic() >= until:
                raise
            time.sleep(OVERLOADED_S)
            return _asked_before(e)
        except NotActiveError:  # perhaps the error of another node than the one that was asked
            if time.monotonic() >= until:
                raise
            time.sleep(RETRY_S)
            return PERHAPS
        except OutcomeUnknownError as e:
            if e.evidence.get("expired"):
                if r.last and "asked_before" in e.evidence:  # it may have happened, and be forgotten
                    raise
                self._commits.catch_up(e.evidence["horizon"])
                raise clock_behind(e) from None
            self._check_time(r.partition, until)
            time.sleep(RETRY_S)
            return PERHAPS

    def _check_time(self, partition: str, until: float) -> None:
        if time.monotonic() >= until or self._asker.closed:
            raise DeadlineError(
                f"partition {partition} did not answer within {self._asker.call_of(partition):g} s; nothing happened; "
                "run the transaction again",
                partition=partition,
            ) from None

    def _abort(self, last: frames.PrepareRequest) -> None:
        """Ask the first partition to abort, so that no participant is in doubt for long."""
        ask = partial(attempt, self._ballots, _aborting(last), self._abort_s, _site(last))
        self._aborts.go(last.first, last.tx, lambda: ask() is not None)

    # --- the decision ---

    def _decided(self, last: frames.PrepareRequest, began: float, living: LiveTransaction) -> int:
        """Return the lsn of the commit in the first partition. If it is refused before any request can have arrived
        there, it did not happen. From then on only that partition knows: it is asked to abort, and says how the
        transaction stands. A participant that has copied its decision to abort says so, too."""
        until = max(self._until(last.partition, began), time.monotonic() + self._asker.router.attempt_s)
        perhaps, open_ = False, OpenCommit()
        while True:
            living.check()
            try:
                lsn = self._vote_once(last, until, open_)
            except HalogError as error:
                error.evidence.setdefault("partition", last.partition)
                perhaps = perhaps or "asked_before" in error.evidence
                if perhaps or not isinstance(error, REFUSALS):
                    return self._settled(last, error, open_)
                self._abort(last)
                raise
            except BaseException as error:
                if not open_.presented:
                    self._given_up(last, error)
                raise
            if lsn:
                return lsn
            perhaps = perhaps or lsn is PERHAPS

    def _settled(self, last: frames.PrepareRequest, error: HalogError, open_: OpenCommit) -> int:
        """Return the lsn of the commit if it has happened; raise `error` if it has not and will not."""
        try:
            outcome, lsn = self._ballots.decide(_aborting(last), time.monotonic() + self._abort_s, _site(last))
        except HalogError:
            outcome, lsn = "", 0
        if outcome == COMMITTED:
            return lsn
        if outcome == ABORTED:
            raise error
        raise OutcomeUnknownError(
            f"partition {last.first} did not say what became of transaction {last.tx.hex()}; ask with "
            "`node.outcome(tx)`, or see `halog txn list`",
            tx=last.tx.hex(),
            partition=last.first,
            participants=list(last.participants),
            expired=outcome == EXPIRED,
            epoch=open_.epoch if last.work.site else max(open_.epoch, self._asker.epoch(last.first)),
        ) from error


def _asked_before(error: HalogError) -> int | None:
    return PERHAPS if "asked_before" in error.evidence else None


def _nobody(partition: str, error: HalogError) -> PartitionUnavailableError:
    return PartitionUnavailableError(
        f"no node is active for partition {partition}; nothing happened; run the transaction again when "
        "there is one (`halog partition show`)",
        partition=partition,
        active=error.evidence.get("active"),
        **{name: True for name in ("asked_before",) if name in error.evidence},
    )


def _aborting(last: frames.PrepareRequest) -> frames.Decide:
    """Return the request to the first partition to abort the transaction, whether it has heard of it or not."""
    return frames.Decide(last.first, last.tx, False, True, last.participants)


def _site(last: frames.PrepareRequest) -> str:
    """Return the site where the transaction was voted on."""
    return last.work.site or HERE


class _VoteStop(Exception):
    """Is raised when nobody needs this vote any more."""
