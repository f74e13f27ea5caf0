"""Asks the partition that decides what became of a commit that got no answer (R4, R5, T7).

Within one partition its active node knows, or a later epoch will know. Over several partitions the first one decides:
it is asked to abort, and says how the transaction stands. So there is an answer as soon as that partition is served.
This module decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, cast

from halog.backend import Outcome
from halog.errors import HalogError
from halog.runtime.client.caller import Asker
from halog.runtime.client.vote_calls import ABORTED, COMMITTED, EXPIRED, Ballots
from halog.runtime.rpc import frames
from halog.runtime.rpc.result_errors import settled

AGAIN_S: Final = 0.05
"""Pause between two questions: a decision that is on its way to the log is there by then."""

_OVER: Final[dict[str, Outcome]] = {COMMITTED: "happened", ABORTED: "did not happen", EXPIRED: "expired"}


class OutcomeQuery:
    """An `OutcomeQuery` asks for the outcomes of one node's transactions."""

    def __init__(self, asker: Asker, ballots: Ballots) -> None:
        self._asker = asker
        self._ballots = ballots

    def outcome(self, partition: str, tx: bytes, epoch: int, participants: Sequence[str] = ()) -> Outcome:
        """See Backend."""
        until = time.monotonic() + self._asker.call_of(partition)
        while True:
            said: Outcome = "unknown"
            error: HalogError | None = None
            try:
                said = self._once(partition, tx, epoch, participants, until)
            except HalogError as e:
                error = e
            if said != "unknown":
                return said
            self._asker.check_open()
            if time.monotonic() + AGAIN_S >= until:
                if error is not None and error.happened is False:
                    raise error
                return said
            time.sleep(AGAIN_S)

    def _once(self, partition: str, tx: bytes, epoch: int, participants: Sequence[str], until: float) -> Outcome:
        if len(participants) > 1:
            ask = frames.Decide(partition, tx, False, True, tuple(participants))
            return _OVER.get(self._ballots.decide(ask, until, site=None)[0], "unknown")
        return self.one(partition, tx, epoch, until)

    def one(self, partition: str, tx: bytes, attempt: int, until: float | None = None) -> Outcome:
        """Ask the partition once, for a transaction of this partition alone."""
        reply = self._asker.ask(partition, frames.AskOutcome(partition, tx, attempt), until)
        if reply is None:
            copy = self._asker.copies[partition]
            reply = settled(self._asker.wait(partition, lambda answer: copy.ask_outcome(tx, attempt, answer)))
        assert isinstance(reply, frames.OutcomeReply)
        return cast("Outcome", reply.outcome)
