"""Does the log answer? A copy that has reason to doubt it claims nothing before it does (W1, W4).

An epoch that its writer gave up ended because the log said nothing, or nothing that could be believed; whoever claims
the next one at once would wait for the same log in vain, give up, and so would the next: epoch after epoch for as long
as it is away. So who gave up, and who sees in the znode that somebody did, asks the log first. A log that is there
answers within ms; one that is away answers when it is back, and the next claim follows that very answer: no pause, no
timer. An answer is good for one attempt: where that comes to nothing, for want of the coordinator or since others
seemed better, the next one has an answer of its own. Nobody asks where the active died: a log that is away as well
costs one epoch then.

An answer proves that the log can be read. Where it can be read and takes nothing (too few replicas in sync) the epoch's
first record waits for it, each time twice as long: it lands as soon as it is taken. Where it refuses that record the
producer session ends, and every epoch of the node that is bound to it: so the next claims are made ever more rarely,
and those of all such partitions of a node at the same moments.
"""

from __future__ import annotations

from typing import Final

from halog.core import effects as fx, events as ev
from halog.core.state.copy_state import CopyState
from halog.core.table.table import PartitionTable
from halog.core.table.tell import Tell
from halog.events import NOT_TAKEN

MOST_DOUBLINGS: Final = 3
"""An epoch that cannot be opened is waited for 24 s at most, by default: then another node may try."""

REFUSED_MS: Final = 1_000
MOST_REFUSED: Final = 6
"""The second epoch in a row that the log refuses is followed by the next in the next second, each one after it in the
next two, four, … up to 64 seconds: each may end all others of the node."""


class LogDoubt:
    """Of one copy."""

    def __init__(self, copy: CopyState) -> None:
        self._copy = copy
        self._asked = 0
        """The round of the question that is not answered; 0: none is."""
        self.doubted = False
        """Was it asked since an epoch was opened?"""
        self._answer = False
        """Is there an answer that no election was begun by?"""
        self._unopened = 0
        """So many epochs in a row were claimed here and not opened."""
        self._refused = 0
        """And so many of them were given up since the log refused an append."""
        self._told = False
        """Was it said that the log takes nothing?"""

    @property
    def stands(self) -> bool:
        """Is the log's answer still to come?"""
        return self._asked != 0

    def begin(self, since_ms: int) -> None:
        """There is reason to ask it; `since_ms`: since when it is not known to answer."""
        self.doubted = True
        if not self._asked:
            self._asked = self._copy.next_round()
            self._copy.out.append(fx.AskLog(self._asked, since_ms))

    def answered(self, e: ev.LogAnswered) -> bool:
        """Take an answer of the log; return whether it is the one to the last question."""
        if e.round != self._asked:
            return False
        self._asked = 0
        self._answer = True
        return True

    def take(self) -> bool:
        """May an epoch be claimed now? An answer is good for one attempt: what comes of that may take long, and by the
        next one the log may be away again. So that one has an answer of its own."""
        may = self._answer or not (self.doubted or self._is_ahead)
        self._answer = False
        if not may:
            self.begin(self._copy.now)
        return may

    @property
    def _is_ahead(self) -> bool:
        """Has the log been in a later epoch than the znode shows? Then this copy would not see that it is given up."""
        return self._copy.chain.state.epoch.number > self._copy.table.epoch.number

    def watch(self, table: PartitionTable) -> None:
        """The znode is about to become `table`: has somebody given up his epoch?"""
        before = self._copy.table
        given_up = table.active is None and before.active is not None and table.epoch == before.epoch
        if given_up and before.active != self._copy.me and not table.owner:
            self.begin(self._copy.now)

    # --- epochs that do not open ---

    @property
    def open_within_ms(self) -> int:
        """How long the first records of an epoch are waited for."""
        return self._copy.settings.start_deadline_ms << min(self._unopened, MOST_DOUBLINGS)

    @property
    def claims_from(self) -> int:
        """When the next claim may be made here, after one that was refused: at whole multiples of the pause, so that
        partitions that share a session end it together."""
        if self._refused < 2:
            return self._copy.now
        pause = REFUSED_MS << min(self._refused - 2, MOST_REFUSED)
        return self._copy.now + pause - self._copy.now % pause

    def not_opened(self) -> None:
        """An epoch was claimed here, and given up before it was open."""
        self._unopened += 1

    def refused(self, why: str) -> None:
        """An epoch that is not open is about to be given up, since the log refused an append of it."""
        self._refused += 1
        self.unheard(why)

    def unheard(self, why: str) -> None:
        """The same, for want of the log. The second one in a row is told: a log that was slow once is no news."""
        if self._unopened and not self._told:
            self._told = True
            self._copy.out.append(Tell(NOT_TAKEN, "", why))

    def served(self) -> None:
        """An epoch is open, and somebody leads it."""
        self._unopened = 0
        self._refused = 0
        self._told = False

    def opened(self, *, here: bool = False) -> None:
        """The log has opened an epoch, whoever's: it may have been given up by then, in a log that is slow. `here`:
        this copy's own, which goes on. That is the best answer, and whoever leads asks for itself: the one that was
        asked for may come when nobody waits for it, or never."""
        self.doubted = False
        self._answer = False
        if here:
            self._asked = 0
            self.served()
