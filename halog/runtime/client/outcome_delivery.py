"""Delivers decisions about transactions over several partitions between their partitions, and asks for them (T3-T6).

There is one attempt for each time the core asks. The core asks again as long as it needs to, so a request that is under
way is not begun again, and one that waits for a partition which nobody serves is dropped. A participant is told of a
commit until it confirms; a participant in doubt asks the first partition. Where the node that serves a partition lives,
and the line to it is cut, both go by the coordinator. This module decides nothing.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from halog.core import effects as fx, events as ev
from halog.core.ids import Member
from halog.runtime.client.vote_calls import ABORTED, COMMITTED, EXPIRED, Ballots, attempt
from halog.runtime.rpc import frames
from halog.runtime.support.keyed_executor import Errands

if TYPE_CHECKING:
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.partition")

EACH, THREADS = 2, 64
"""So many requests are under way at once, for one partition and for all: each waits a few ms for another partition's
log."""

ATTEMPT_S = 1.0


class Detour(Protocol):
    """A `Detour` reaches nodes that live and are not heard."""

    def to(self, partition: str) -> Member | None:
        """Return the run that serves this partition, if it is such a one."""

    def ask(self, other: Member, r: frames.Decide, within_s: float) -> str | None:
        """Return how the transaction stands at this run; None: it has not said within this time, in seconds."""


class DecisionDelivery:
    """A `DecisionDelivery` serves one hosting node. `ballots` is set once the node has joined."""

    def __init__(self, ballots: Ballots, detour: Detour) -> None:
        self._ballots = ballots
        self._detour = detour
        self._errands = Errands("halog-settling", EACH, THREADS)
        self._telling = set[tuple[str, str, bytes, bool]]()
        """Holds what partitions that this node serves were told and have not answered: by whom, which partition,
        what."""

    def close(self) -> None:
        """Stop: the next active node asks again."""
        self._errands.close()

    @property
    def pending(self) -> int:
        """Return how many messages and questions to other nodes are under way or wait."""
        return self._errands.pending()

    def spread(self, copy: Copy, e: fx.Spread) -> None:
        """Tell each of the participants. Those that this node serves are told on this very thread, once it has released
        the copy's lock."""
        for partition in e.to:
            copy.after(partial(self._tell, copy, e, partition))

    def _tell(self, copy: Copy, e: fx.Spread, partition: str) -> None:
        r = frames.Decide(partition, e.tx, e.commit, False)
        key = (copy.name, partition, e.tx, e.commit)
        if key in self._telling:
            return

        def told(outcome: str | None) -> None:
            self._telling.discard(key)
            self._told(copy, e, partition, outcome)

        self._telling.add(key)
        if not self._ballots.tell(r, told):
            self._telling.discard(key)
            what = (copy.name, e.tx, "commit" if e.commit else "abort")
            self._errands.go(partition, what, partial(self._tell_elsewhere, copy, e, r))

    def _tell_elsewhere(self, copy: Copy, e: fx.Spread, r: frames.Decide) -> bool:
        outcome = self._ask(r)
        self._told(copy, e, r.partition, outcome)
        return outcome is not None

    def _told(self, copy: Copy, e: fx.Spread, partition: str, outcome: str | None) -> None:
        if e.commit and outcome in (COMMITTED, EXPIRED):
            copy.post(ev.Confirmed(e.tx, partition))
        elif outcome is not None and outcome == (ABORTED if e.commit else COMMITTED):
            logger.error(
                "%s says that transaction %s is %s, %s has decided otherwise", partition, e.tx.hex(), outcome, copy.name
            )

    def ask_decision(self, copy: Copy, e: fx.AskDecision) -> None:
        """Ask the first partition of a transaction to abort it, and take over what that partition has decided."""
        self._errands.go(e.first, (copy.name, e.tx, "ask"), partial(self._find_out, copy, e))

    def _find_out(self, copy: Copy, e: fx.AskDecision) -> bool:
        outcome = self._ask(frames.Decide(e.first, e.tx, False, True))
        if outcome in (COMMITTED, ABORTED, EXPIRED):
            copy.post(ev.DecideAsked(0, e.tx, outcome == COMMITTED, False))
        return outcome is not None

    def _ask(self, r: frames.Decide) -> str | None:
        """Return the answer; None if no node is there to answer."""
        other = self._detour.to(r.partition)
        return attempt(self._ballots, r, ATTEMPT_S) if other is None else self._detour.ask(other, r, ATTEMPT_S)
