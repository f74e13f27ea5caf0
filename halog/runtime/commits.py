"""A node's commits: presented to the active copy, here or elsewhere, until somebody says what became of them (R5).

A commit carries its transaction id, so presenting it again is harmless: it happens once. This module decides nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from halog.backend import Work
from halog.core import events as ev
from halog.errors import NotActiveError, OutcomeUnknownError, OverloadedError, QuorumError, ZoneQuorumError
from halog.runtime import frames
from halog.runtime.asking import Asker, Waiter
from halog.runtime.copy import Copy
from halog.runtime.deliveries import Deliveries
from halog.runtime.results import clock_behind, perhaps_done, to_error

RETRY_S = 0.002
"""Pause before a commit is tried again after this node stopped being active: the election moves on meanwhile."""

OVERLOADED_S = 0.005
"""Pause while too many commits are in flight, or too few nodes there: some have been answered, or are back, by then."""


class Commits:
    """Transaction ids, and the two ways to commit: waiting, and being told. Thread-safe."""

    def __init__(self, asker: Asker, location: int, waits: Callable[[str], bool]) -> None:
        self._asker, self._location = asker, location.to_bytes(8, "big")
        self._waits = waits
        """Does a commit to this partition wait while there is no quorum?"""
        self.deliveries: Deliveries | None = None
        """Of the copies hosted here."""
        self._stamp = 0
        self._unsent: set[bytes] = set()
        """Ids given and not yet sent: of those, "too old" means that they did not happen."""
        self._lock = threading.Lock()

    def new_id(self) -> bytes:
        """See Backend."""
        with self._lock:
            self._stamp = max(self._stamp + 1, time.time_ns())
            tx = self._stamp.to_bytes(8, "big") + self._location
            self._unsent.add(tx)
            return tx

    def _catch_up(self, stamp: int) -> None:
        """Give ids above `stamp` from now on, whatever this machine's clock says."""
        with self._lock:
            self._stamp = max(self._stamp, stamp)

    def commit(self, partition: str, tx: bytes, work: Work) -> int:
        """See Backend."""
        first = tx in self._unsent
        if self._asker.closed and not first:
            raise OutcomeUnknownError("the node was closed while this commit was under way")
        self._asker.check_open()
        until = time.monotonic() + self._asker.call_s
        self._unsent.discard(tx)
        while True:
            try:
                lsn = self._once(partition, tx, work, until)
            except (OverloadedError, QuorumError) as e:
                waits = isinstance(e, OverloadedError) or self._waits(partition)
                if not waits or time.monotonic() >= until:
                    if isinstance(e, ZoneQuorumError) and not first:  # said by one who does not know
                        raise perhaps_done(partition, e) from e
                    raise
                time.sleep(OVERLOADED_S)
                continue
            except OutcomeUnknownError as e:
                if first and e.evidence.get("expired") and e.evidence.get("first", True):
                    self._catch_up(e.evidence["horizon"])
                    raise clock_behind(e) from None
                raise
            if lsn is not None:
                return lsn
            first = False

    def _once(self, partition: str, tx: bytes, work: Work, until: float) -> int | None:
        """One attempt here or elsewhere; None: the active moved here or away meanwhile, go round again."""
        copy = self._asker.serving(partition)
        if copy is None:
            reply = self._asker.ask(partition, frames.Submit(partition, tx, work), until)
            if reply is None:
                return None
            assert isinstance(reply, frames.Committed)
            return reply.lsn
        result = self._here(copy, tx, work, until)
        if isinstance(result, ev.Happened):
            return result.lsn
        error = to_error(result or ev.Unknown("no answer in time"), partition)
        again = isinstance(error, NotActiveError | OutcomeUnknownError) and not error.evidence.get("expired")
        if not again or time.monotonic() >= until or self._asker.closed:
            raise error
        time.sleep(RETRY_S)
        return None

    def _here(self, copy: Copy, tx: bytes, work: Work, until: float) -> ev.Result | None:
        waiter = Waiter()
        tag = copy.submit(tx, work, waiter, self._asker.router.epoch(copy.name))
        if self.deliveries is not None:
            self.deliveries.follow(copy, tag, waiter.settled, until)
        return waiter.wait(until - time.monotonic())

    def begin(self, partition: str, tx: bytes, work: Work, done: Callable[[int | None], bool]) -> bool:
        """See Backend."""
        copy, deliveries = self._asker.serving(partition), self.deliveries
        if copy is None or self._asker.closed or deliveries is None:
            return False

        def answered(result: ev.Result) -> None:
            if isinstance(result, ev.Expired):  # refused before anything was sent: `commit` is to see it as new
                self._unsent.add(tx)
            deliveries.followed = True  # first: who is told may have had his turn before this thread goes on
            if not done(result.lsn if isinstance(result, ev.Happened) else None):
                deliveries.followed = False

        self._unsent.discard(tx)
        if not copy.submit(tx, work, answered, self._asker.router.epoch(partition)):
            deliveries.push()
        return True

    def follow_up(self) -> None:
        """See Backend."""
        if self.deliveries is not None:
            self.deliveries.turn()
