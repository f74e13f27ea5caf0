"""Commits on the active copy, here or on another node, until an answer says what became of the commit (R5).

A commit carries its transaction id, so presenting it again is harmless: it happens once. This module decides nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NoReturn

from halog.backend import Work
from halog.core import results as res
from halog.core.ids import ABSENT
from halog.errors import (
    ClosedError,
    DuplicateKeyError,
    FrameError,
    HalogError,
    LockedError,
    NotActiveError,
    OutcomeUnknownError,
    OverloadedError,
    PartitionUnavailableError,
    QuorumError,
    RefusedError,
    SwitchedError,
    TransactionError,
    ZoneQuorumError,
)
from halog.runtime.client.caller import Asker, Waiter
from halog.runtime.replica.delivery_reports import DeliveryReports
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames
from halog.runtime.rpc.request import HERE, OpenCommit, check_here
from halog.runtime.rpc.result_errors import clock_behind, closed_meanwhile, perhaps_done, to_error

PERHAPS: Final = 0
"""There is no lsn: the commit may be in the log, and is to be asked for again."""

RETRY_S = 0.002
"""Pause before a commit is tried again after this node stopped being active: the election goes on meanwhile."""

OVERLOADED_S = 0.005
"""Pause while too many commits are in flight, or too few nodes are up: some have been answered, or are back, by
then."""

ANSWER_S = 0.05
"""A commit that was refused is not tried again with less time than this: its answer would come too late, and nobody
would know what was known before."""


class Commits:
    """Gives transaction ids and commits, in two ways: waiting for the answer, or being called with it. Thread-safe."""

    def __init__(
        self, asker: Asker, location: int, waits: Callable[[str], bool], deliveries: DeliveryReports | None = None
    ) -> None:
        """Make commits through `asker`. `deliveries` are those of the copies hosted here, if any are."""
        self._asker = asker
        self._location = location.to_bytes(8, "big")
        self._waits = waits
        """Does a commit to this partition wait while there is no quorum?"""
        self._deliveries = deliveries
        self._stamp = 0
        self._unsent: set[bytes] = set()
        """Holds ids that were given and not sent yet: for them "too old" means that they did not happen."""
        self._lock = threading.Lock()

    def new_id(self) -> bytes:
        """See Backend."""
        with self._lock:
            self._stamp = max(self._stamp + 1, time.time_ns())
            tx = self._stamp.to_bytes(8, "big") + self._location
            self._unsent.add(tx)
            return tx

    def sent(self, tx: bytes) -> None:
        """Note that another class presents this transaction, over several partitions."""
        self._unsent.discard(tx)

    def catch_up(self, stamp: int) -> None:
        """Give ids above `stamp` from now on, whatever this machine's clock says."""
        with self._lock:
            self._stamp = max(self._stamp, stamp)

    def commit(self, partition: str, tx: bytes, work: Work) -> int:
        """See Backend."""
        open_ = OpenCommit(presented=tx not in self._unsent)
        try:
            if open_.presented:
                open_.seen(self._asker.epoch(partition))
            return self._commit(partition, tx, work, open_)
        except OutcomeUnknownError as error:  # with this evidence the caller can ask what became of it
            error.evidence |= {"tx": tx.hex(), "epoch": open_.epoch}
            error.evidence.setdefault("partition", partition)
            missing = "" if "expired" in error.evidence else self._asker.router.missing(partition)
            if missing and missing not in error.message:
                error.message += f": {missing}"
            raise
        except HalogError:
            raise
        except BaseException:  # interrupted
            if not open_.presented:
                self.withdrawn(tx)
            raise

    def withdrawn(self, tx: bytes) -> None:
        """Note that the commit was interrupted before anybody had it: nobody will act on it."""
        self._unsent.add(tx)

    def unsent(self, tx: bytes) -> bool:
        """See Backend."""
        if tx not in self._unsent:
            return False
        self._unsent.discard(tx)
        return True

    def _commit(self, partition: str, tx: bytes, work: Work, open_: OpenCommit) -> int:
        first = not open_.presented
        self._check_open(first=first)
        until, locked = time.monotonic() + self._asker.call_of(partition), 0.0
        self._unsent.discard(tx)
        perhaps = not first  # it was begun before by a caller who did not wait: its outcome is not known here
        while True:
            try:
                lsn = self._once(partition, tx, work, until, open_)
            except (OverloadedError, QuorumError, LockedError) as e:
                locked = locked or time.monotonic() + self._asker.locked_of(partition)
                out = "may_arrive" in e.evidence
                first, perhaps = first and not out, perhaps or out  # these count whatever ends the next attempt
                limit = min(locked, until) if isinstance(e, LockedError) else until
                doubtful = out or (isinstance(e, ZoneQuorumError) and not first)
                self._wait_out(partition, e, limit, until - ANSWER_S, doubtful=doubtful)
                continue
            except OutcomeUnknownError as e:
                if first and e.evidence.get("expired") and "asked_before" not in e.evidence:
                    self.catch_up(e.evidence["horizon"])
                    raise clock_behind(e) from None
                raise
            except (ClosedError, PartitionUnavailableError, NotActiveError, SwitchedError) as e:
                _give_up(partition, e, perhaps=perhaps, first=first)
            except HalogError as e:
                if says_nothing(e, perhaps=perhaps):
                    raise perhaps_done(partition, e) from e
                raise
            if lsn:
                return lsn
            first, perhaps = first and not open_.presented, perhaps or lsn is PERHAPS

    def _check_open(self, *, first: bool) -> None:
        """Raise if this node is closed, or does not know the cluster's level and was not asked for this commit
        before."""
        if self._asker.closed and not first:
            raise OutcomeUnknownError("the node was closed while this commit was under way")
        self._asker.check_open()
        if first:
            self._asker.check_level()

    def _wait_out(self, partition: str, error: HalogError, until: float, latest: float, *, doubtful: bool) -> None:
        """Sleep a moment if there may be another attempt: none begins after `latest`, since nobody would hear how it
        ends. Else raise the error of the last one; or, if `doubtful`, that the outcome is unknown: an earlier attempt
        may still arrive, or whoever refused cannot know."""
        if isinstance(error, OverloadedError | LockedError) or self._waits(partition):
            time.sleep(max(0.0, min(OVERLOADED_S, until - time.monotonic())))
            if time.monotonic() < min(until, latest):
                return
            time.sleep(max(0.0, until - time.monotonic()))
        if doubtful:
            raise perhaps_done(partition, error) from error
        raise error

    def _once(self, partition: str, tx: bytes, work: Work, until: float, open_: OpenCommit) -> int | None:
        """Make one attempt, here or elsewhere, and return the lsn. None: this node is active no more and nothing
        happened, so try again. PERHAPS: the same, but the log may have it."""
        copy = self._asker.serving(partition)
        if copy is None:
            frame = frames.Submit(partition, tx, work)
            reply = self._asker.ask(partition, frame, until, open_=open_)
            if reply is None:
                return PERHAPS if open_.presented else None
            assert isinstance(reply, frames.CommitReply)
            return reply.lsn
        check_here(partition, work.site, self._asker.router)
        led = (
            copy.core.state.chain.state.epoch.number
        )  # read before the commit: it is answered in this epoch or a later one
        result = self._here(copy, tx, work, until, open_)
        if isinstance(result, res.Success):
            return result.lsn
        error = to_error(result or res.Unknown("no answer in time"), partition)
        if open_.may_arrive(HERE, led):
            error.evidence["may_arrive"] = True
        again = isinstance(error, NotActiveError | OutcomeUnknownError) and not error.evidence.get("expired")
        if not again or time.monotonic() >= until or self._asker.closed:
            raise error
        time.sleep(RETRY_S)
        return PERHAPS if isinstance(error, OutcomeUnknownError) else None

    def _here(self, copy: Copy, tx: bytes, work: Work, until: float, open_: OpenCommit) -> res.Result | None:
        waiter = Waiter()
        before, open_.presented = open_.presented, True
        tag = copy.submit(tx, work, waiter, self._asker.router.epoch(copy.name))
        epoch = self._asker.epoch(copy.name)
        if self._deliveries is not None:
            self._deliveries.follow(copy, tag, waiter.settled, until)
        result = waiter.wait(until - time.monotonic())
        if type(result) is res.InactiveCopy:
            open_.presented = before
        else:
            open_.seen(epoch)
        return result

    def begin(self, partition: str, tx: bytes, work: Work, done: Callable[[int | None], bool]) -> bool:
        """See Backend."""
        copy, deliveries = self._asker.serving(partition), self._deliveries
        if copy is None or self._asker.closed or deliveries is None or work.site:
            return False

        logged = not copy.answers_early(work.durability)

        def answered(result: res.Result) -> None:
            if type(result) is res.ExpiredId:  # it was refused before it was sent: `commit` is to take it for new
                self._unsent.add(tx)
            lsn = result.lsn if type(result) is res.Success else None
            if not logged:  # the replicas answered; the log's reports are left to the kept thread
                done(lsn)
                return
            deliveries.followed = True  # set first: the caller may take his turn before this thread goes on
            if not done(lsn):
                deliveries.followed = False

        self._unsent.discard(tx)
        copy.submit(tx, work, answered, self._asker.router.epoch(partition))
        return True

    def follow_up(self) -> None:
        """See Backend."""
        if self._deliveries is not None:
            self._deliveries.turn()


def says_nothing(error: HalogError, *, perhaps: bool = False) -> bool:
    """Does this answer to a commit leave open what becomes of it? The error's evidence says whether an earlier request
    may still arrive, or one of the same turn may have happened. `perhaps`: one of another turn may have happened."""
    if type(error) is HalogError or (isinstance(error, FrameError) and "limit" not in error.evidence):
        return True  # it failed half-way, or the answer cannot be read
    if "frame" in error.evidence:  # this request was not sent, so no node has seen it
        return perhaps or "asked_before" in error.evidence or "may_arrive" in error.evidence
    if "may_arrive" in error.evidence and not _for_good(error):
        return True
    return (perhaps or "asked_before" in error.evidence) and not isinstance(error, _JUDGED)


_JUDGED: Final = (TransactionError, OverloadedError, QuorumError, RefusedError)
"""These errors come from a node that has looked first whether the commit is known already."""


def _for_good(error: HalogError) -> bool:
    """Will every request of the same commit be refused, whenever it arrives? Versions and mappings only grow. But an
    object that is in the way of a new one may go, and so may a lock."""
    if not isinstance(error, TransactionError) or isinstance(error, DuplicateKeyError | LockedError):
        return False
    return bool(error.evidence.get("expected", 0) != ABSENT)


def _give_up(partition: str, error: HalogError, *, perhaps: bool, first: bool) -> NoReturn:
    """Raise `error`, or that the outcome of an earlier attempt is unknown: there will be no other attempt."""
    if isinstance(error, ClosedError) and not first:
        raise closed_meanwhile(partition) from error
    if perhaps:
        raise perhaps_done(partition, error) from error
    raise error
