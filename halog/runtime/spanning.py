"""A transaction over several partitions, as the node of the application drives it (D4).

All participants vote at once; when all have, the first decides; it tells the others itself. Law: only this node asks to
commit, and only once. So until it has asked, whatever goes wrong means that nothing happened, whether anybody hears of
the abort or not; from then on only the first partition knows, and is asked by id until it answers.
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
    ConflictError,
    DeadlineError,
    HalogError,
    NotActiveError,
    OutcomeUnknownError,
    OverloadedError,
    PartitionUnavailableError,
    QuorumError,
)
from halog.runtime import frames
from halog.runtime.asking import Asker
from halog.runtime.ballots import ABORTED, COMMITTED, EXPIRED, Ballots, attempt
from halog.runtime.commits import OVERLOADED_S, RETRY_S, Commits
from halog.runtime.lanes import Errands, Lanes
from halog.runtime.results import clock_behind

logger = logging.getLogger("halog.node")

EACH, THREADS = 16, 256
"""Votes asked for at once, of one partition and of all: each takes a round trip to the log, so this is some thousand
transactions a second."""

ABORTS_EACH, ABORTS, ABORT_S = 2, 32, 1.0
"""The same for aborts, and how long one is offered to the first partition; participants in doubt ask for it
themselves."""


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
        self._asker, self._ballots, self._waits, self._commits = asker, ballots, waits, commits
        self._votes = Lanes("halog-votes", EACH, THREADS)
        self._aborts = Errands("halog-aborts", ABORTS_EACH, ABORTS)
        self._patience_s = max(doubt_s, asker.router.attempt_s)
        """How long a vote waits for an active node. Behind the doubt timeout the others ask for the abort anyway; an
        attempt's time is longer than a takeover takes."""

    def close(self) -> None:
        """Whoever still waits for votes is told; nothing of it happens."""
        self._votes.close()
        self._aborts.close()

    def commit(self, tx: bytes, works: Mapping[str, Work]) -> Mapping[str, int]:
        """See Backend."""
        self._asker.check_open()
        self._commits.sent(tx)
        participants = tuple(sorted(works))
        until = time.monotonic() + self._asker.call_s
        digest = hashlib.blake2b(
            msgspec.msgpack.encode((participants, [works[p] for p in participants])), digest_size=16
        ).digest()
        asked = [frames.Prepare(p, tx, participants[0], participants, digest, works[p]) for p in participants]
        lsns = self._all_vote(tx, asked, until)
        return lsns | {participants[0]: self._decided(tx, participants, until)}

    # --- votes ---

    def _all_vote(self, tx: bytes, asked: list[frames.Prepare], until: float) -> dict[str, int]:
        """The lsn of each vote. The first that fails is enough: nobody waits for the others."""
        failed = threading.Event()
        try:
            gone = min(until, time.monotonic() + self._patience_s)
            votes = {
                self._votes.submit(r.partition, partial(self._vote, r, gone, until, failed)): r.partition for r in asked
            }
            done, _ = wait(votes, return_when=FIRST_EXCEPTION)
        except BaseException:
            failed.set()
            self._abort(tx, asked)
            raise
        errors = []
        for vote in done:
            error = vote.exception()
            if isinstance(error, HalogError):
                error.evidence.setdefault("partition", votes[vote])
                errors.append(error)
            elif error is not None and not isinstance(error, _Stopped):
                errors.append(HalogError(f"the vote of {votes[vote]} came to nothing: {error!r}"))
        if errors:
            self._abort(tx, asked)
            raise min(errors, key=lambda e: isinstance(e, AvailabilityError) * 2 + isinstance(e, ConflictError))
        return {partition: vote.result() for vote, partition in votes.items()}

    def _vote(self, r: frames.Prepare, gone: float, until: float, failed: threading.Event) -> int:
        """One participant's vote; _Stopped once another one has failed. From `gone` on an active node is not waited
        for, and a vote whose turn comes only then is not asked for."""
        limit = gone
        try:
            if not failed.is_set() and time.monotonic() >= gone:
                raise OverloadedError(
                    f"votes have waited too long for partition {r.partition}; nothing happened", partition=r.partition
                )
            while not failed.is_set():
                lsn = self._vote_once(r, limit, until)
                if lsn is not None:
                    return lsn
                limit = min(until, max(gone, time.monotonic() + self._asker.router.attempt_s))
        except BaseException:
            failed.set()
            raise
        raise _Stopped

    def _vote_once(self, r: frames.Prepare, limit: float, until: float) -> int | None:
        """None: ask again."""
        try:
            return self._ballots.prepare(r, limit)
        except PartitionUnavailableError as e:
            raise PartitionUnavailableError(
                f"no node is active for partition {r.partition}; nothing happened; run the transaction again when "
                "there is one (`halog partition show`)",
                partition=r.partition,
                active=e.evidence.get("active"),
            ) from None
        except (OverloadedError, QuorumError) as e:
            waits = isinstance(e, OverloadedError) or self._waits(r.partition)
            if not waits or time.monotonic() >= until:
                raise
            time.sleep(OVERLOADED_S)
        except NotActiveError:
            if time.monotonic() >= until:
                raise
            time.sleep(RETRY_S)
        except OutcomeUnknownError as e:
            if e.evidence.get("expired"):
                self._commits.catch_up(e.evidence["horizon"])
                raise clock_behind(e) from None
            if time.monotonic() >= until or self._asker.closed:
                raise DeadlineError(
                    f"partition {r.partition} did not answer within {self._asker.call_s:g} s; nothing happened",
                    partition=r.partition,
                ) from None
            time.sleep(RETRY_S)
        return None

    def _abort(self, tx: bytes, asked: list[frames.Prepare]) -> None:
        """So that nobody is in doubt for long."""
        first, participants = asked[0].first, asked[0].participants
        abort = frames.Decide(first, tx, False, True, participants)

        self._aborts.go(first, tx, lambda: attempt(self._ballots, abort, ABORT_S) is not None)

    # --- the decision ---

    def _decided(self, tx: bytes, participants: tuple[str, ...], until: float) -> int:
        """The lsn of the commit in the first partition. ConflictError: somebody in doubt was quicker. The first
        question may arrive whatever comes back, so all else is OutcomeUnknownError."""
        first = participants[0]
        while True:
            outcome, lsn = self._ask(frames.Decide(first, tx, True, True, participants), until)
            if outcome == COMMITTED:
                return lsn
            if outcome == ABORTED:
                raise ConflictError(
                    f"the transaction took too long to prepare, and was given up in {first}; run it again",
                    partition=first,
                    settled_lsn=0,
                )
            if outcome == EXPIRED or time.monotonic() >= until or self._asker.closed:
                raise OutcomeUnknownError(
                    f"partition {first} did not say what became of transaction {tx.hex()}; see `halog txn list`",
                    partition=first,
                    expired=outcome == EXPIRED,
                )
            time.sleep(RETRY_S)

    def _ask(self, r: frames.Decide, until: float) -> tuple[str, int]:
        """How it stands, and where; "" if nobody says."""
        try:
            return self._ballots.decide(r, until)
        except HalogError:
            return "", 0


class _Stopped(Exception):
    """Nobody needs this vote any more."""
