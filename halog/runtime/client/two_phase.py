"""A transaction over several partitions, as the node of the application drives it (D4).

All participants but the first vote at once; when they have, the first votes and decides in one go, and tells the others
itself. One that fails over is waited for, and those that have voted hear meanwhile that this node lives. Law: only this
node asks to commit, and only once. So until it has asked, whatever goes wrong means that nothing happened, whether
anybody hears of the abort or not; from then on only the first partition knows, and is asked by id until it answers.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, wait
from functools import partial

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
)
from halog.runtime.client.caller import Asker
from halog.runtime.client.commits import OVERLOADED_S, PERHAPS, RETRY_S, Commits
from halog.runtime.client.heartbeat import SHARE, Initiating, Living
from halog.runtime.client.vote_calls import ABORTED, COMMITTED, EXPIRED, Ballots, attempt
from halog.runtime.rpc import frames
from halog.runtime.rpc.request import HERE, Open, switched
from halog.runtime.rpc.result_errors import clock_behind
from halog.runtime.support.keyed_executor import Errands, Lanes

logger = logging.getLogger("halog.node")

EACH, THREADS = 16, 256
"""Votes asked for at once, of one partition and of all: each takes a round trip to the log, so this is some thousand
transactions a second."""

STEP_S = 2.0
"""How long a participant is asked in one go: between two it is looked whether another one has refused."""

ABORTS_EACH, ABORTS, ABORT_S = 2, 32, 1.0
"""The same for aborts, and how long one is offered to the first partition; participants in doubt ask for it
themselves."""


SWITCHES_S, LOOK_S = 2.0, 0.02
"""All partitions switch to another site within about a second, but one by one; and how often it is looked."""

REFUSALS = (
    TransactionError,
    OverloadedError,
    QuorumError,
    PartitionUnavailableError,
    RefusedError,
    ClosedError,
)
"""Whoever is told one of these did nothing. Of all else nobody knows."""


class Spanning:
    """Shared by all threads of a node."""

    def __init__(
        self,
        asker: Asker,
        ballots: Ballots,
        waits: Callable[[str], bool],
        commits: Commits,
        doubt_s: float,
    ) -> None:
        self._asker = asker
        self._ballots = ballots
        self._waits = waits
        self._commits = commits
        self._votes = Lanes("halog-votes", EACH, THREADS)
        self._aborts = Errands("halog-aborts", ABORTS_EACH, ABORTS)
        self._doubt_s = doubt_s
        self._initiating = Initiating(ballots.prepare, asker.shortest_doubt(doubt_s) / SHARE / 2)

    def close(self) -> None:
        """Whoever still waits for votes is told; nothing of it happens."""
        self._initiating.close()
        self._votes.close()
        self._aborts.close()

    def commit(self, tx: bytes, works: Mapping[str, Work]) -> Mapping[str, int]:
        """See Backend."""
        self._asker.check_open()
        self._commits.sent(tx)
        participants = tuple(sorted(works))
        began = time.monotonic()
        works = self._at_one_site(works, began + min(self._asker.call_s, SWITCHES_S))
        digest = hashlib.blake2b(
            msgspec.msgpack.encode((participants, [works[p] for p in participants])), digest_size=16
        ).digest()
        first = participants[0]
        last, *others = [
            frames.Prepare(p, tx, first, participants, digest, works[p], last=p == first) for p in participants
        ]
        doubt_s = min(self._asker.doubt_of(p, self._doubt_s) for p in participants)
        with self._initiating.living(tx, doubt_s / SHARE) as living:
            try:
                lsns = self._all_vote(others, began, living)
            except BaseException as error:
                self._given_up(last, error)
                raise
            return lsns | {first: self._decided(last, began, living)}

    def _given_up(self, last: frames.Prepare, error: BaseException) -> None:
        """Nobody was asked to commit it, nor will be."""
        if not isinstance(error, HalogError):  # interrupted: it is asked what became of it
            self._commits.withdrawn(last.tx)
        self._abort(last)

    def _until(self, partition: str, began: float) -> float:
        """A failover is waited out for as long as an answer of this partition is."""
        return began + self._asker.call_of(partition)

    def _at_one_site(self, works: Mapping[str, Work], until: float) -> Mapping[str, Work]:
        """The same, asked for where they are served now, or by `until`. RefusedError where that is at several sites:
        whoever is in doubt would hold its objects for as long as a line is down. SwitchedError where only what was read
        is of several."""
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

    def _all_vote(self, asked: list[frames.Prepare], began: float, living: Living) -> dict[str, int]:
        """The lsn of each vote. The first that fails is enough: nobody waits for the others. A single one needs no
        thread of its own."""
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
            elif error is not None and not isinstance(error, _Stopped):
                errors.append(HalogError(f"the vote of {votes[vote]} came to nothing: {error!r}"))
        if errors:
            raise min(errors, key=lambda e: isinstance(e, AvailabilityError) * 2 + isinstance(e, ConflictError))
        return {partition: vote.result() for vote, partition in votes.items()}

    def _vote(self, r: frames.Prepare, began: float, living: Living, failed: threading.Event) -> int:
        """One participant's vote, waited for until its deadline; _Stopped once another one has failed, ConflictError
        once it was given up. A vote whose turn comes only behind its deadline is not asked for."""
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
        raise _Stopped

    def _vote_once(self, r: frames.Prepare, until: float, open_: Open | None = None) -> int | None:
        """None: ask again, nothing happened; PERHAPS: ask again, it may have arrived."""
        limit = min(until, time.monotonic() + max(STEP_S, self._asker.router.attempt_s))
        try:
            return self._ballots.prepare(r, limit, open_)
        except PartitionUnavailableError as e:
            if limit <= time.monotonic() < until:  # nobody is active yet
                return _asked_before(e)
            raise _nobody(r.partition, e) from None
        except (OverloadedError, QuorumError) as e:
            waits = isinstance(e, OverloadedError) or self._waits(r.partition)
            if not waits or time.monotonic() >= until:
                raise
            time.sleep(OVERLOADED_S)
            return _asked_before(e)
        except NotActiveError:  # perhaps of another one than was asked
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

    def _abort(self, last: frames.Prepare) -> None:
        """So that nobody is in doubt for long."""
        abort = _aborting(last)
        self._aborts.go(last.first, last.tx, lambda: attempt(self._ballots, abort, ABORT_S, _site(last)) is not None)

    # --- the decision ---

    def _decided(self, last: frames.Prepare, began: float, living: Living) -> int:
        """The lsn of the commit in the first partition. What is refused before anything may have arrived there did not
        happen; from then on only that partition knows: it is asked to abort, and says how it stands. So does whoever
        has copied its decision to abort."""
        until = max(self._until(last.partition, began), time.monotonic() + self._asker.router.attempt_s)
        perhaps, open_ = False, Open()
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

    def _settled(self, last: frames.Prepare, error: HalogError, open_: Open) -> int:
        """The lsn of the commit, if it has happened; raises `error` if it has not and will not."""
        try:
            outcome, lsn = self._ballots.decide(_aborting(last), time.monotonic() + ABORT_S, _site(last))
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


def _aborting(last: frames.Prepare) -> frames.Decide:
    """What asks its first partition to abort it, whether that has heard of it or not."""
    return frames.Decide(last.first, last.tx, False, True, last.participants)


def _site(last: frames.Prepare) -> str:
    """Where it was voted on."""
    return last.work.site or HERE


class _Stopped(Exception):
    """Nobody needs this vote any more."""
