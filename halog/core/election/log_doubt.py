"""This module asks whether the log answers. A copy that has reason to doubt it claims nothing before it does (W1, W4).

An epoch that its writer gave up ended because the log said nothing, or nothing that could be believed. A copy that
claimed the next one at once would wait for the same log in vain and give up, and so would the next: epoch after epoch
for as long as the log is away. So a copy that gave up, or that sees in the znode that another one did, asks the log
first. A log that is there answers within ms. One that is away answers when it is back, and the next claim follows that
answer: no pause, no timer. An answer is good for one attempt. If that comes to nothing, because of the coordinator or
since others seemed better, the next attempt needs an answer of its own. Nobody asks where the active node died: if the
log is away as well, that costs one epoch.

An answer proves that the log can be read. If it can be read but takes nothing (too few replicas in sync), the epoch's
first record waits for it, each time twice as long: it lands as soon as it is taken. If the log refuses that record, the
producer session ends, and with it every epoch of the node that is bound to it. So the next claims are made ever more
rarely, and those of all such partitions of a node at the same moments.
"""

from __future__ import annotations

from typing import Final

from halog.core import effects as fx, events as ev
from halog.core.state.copy_state import CopyState
from halog.core.table.table import PartitionTable
from halog.core.table.tell import Tell
from halog.events import NOT_TAKEN

MOST_DOUBLINGS: Final = 3
"""By default an epoch that cannot be opened is waited for 24 s at most: then another node may try."""

REFUSED_MS: Final = 1_000
MOST_REFUSED: Final = 6
"""After the second epoch in a row that the log refuses the next one follows in the next second, each later one in the
next two, four, … up to 64 seconds: each may end all others of the node."""


class LogDoubt:
    """A `LogDoubt` is one copy's doubt in the log."""

    def __init__(self, copy: CopyState) -> None:
        self._copy = copy
        self._asked = 0
        """The round of the unanswered question; 0: none."""
        self.doubted = False
        """Whether the log was asked since an epoch was opened."""
        self._answer = False
        """Whether there is an answer that began no election yet."""
        self._unopened = 0
        """How many epochs in a row were claimed here and not opened."""
        self._refused = 0
        """How many of them were given up since the log refused an append."""
        self._told = False
        """Whether operators were told that the log takes nothing."""

    @property
    def stands(self) -> bool:
        """Say whether the log's answer is still to come."""
        return self._asked != 0

    def begin(self, since_ms: int) -> None:
        """Ask the log: there is reason to. `since_ms`: since when it is not known to answer."""
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
        """Say whether an epoch may be claimed now. An answer is good for one attempt: that may take long, and by the
        next one the log may be away again. So the next attempt needs an answer of its own."""
        may = self._answer or not (self.doubted or self._is_ahead)
        self._answer = False
        if not may:
            self.begin(self._copy.now)
        return may

    @property
    def _is_ahead(self) -> bool:
        """Say whether the log has been in a later epoch than the znode shows. Then this copy would not see that it is
        given up."""
        return self._copy.chain.state.epoch.number > self._copy.table.epoch.number

    def watch(self, table: PartitionTable) -> None:
        """Ask the log if the znode, which is about to become `table`, says that another node has given up its epoch."""
        before = self._copy.table
        given_up = table.active is None and before.active is not None and table.epoch == before.epoch
        if given_up and before.active != self._copy.me and not table.owner:
            self.begin(self._copy.now)

    # --- epochs that do not open ---

    @property
    def open_within_ms(self) -> int:
        """Return how long the first records of an epoch are waited for."""
        return self._copy.settings.start_deadline_ms << min(self._unopened, MOST_DOUBLINGS)

    @property
    def claims_from(self) -> int:
        """Return when the next claim may be made here, after one that was refused: at whole multiples of the pause, so
        that partitions that share a session end it together."""
        if self._refused < 2:
            return self._copy.now
        pause = REFUSED_MS << min(self._refused - 2, MOST_REFUSED)
        return self._copy.now + pause - self._copy.now % pause

    def not_opened(self) -> None:
        """Note that an epoch was claimed here, and given up before it was open."""
        self._unopened += 1

    def refused(self, why: str) -> None:
        """Note that the log refused an append of an epoch that is not open, and that is about to be given up."""
        self._refused += 1
        self.unheard(why)

    def unheard(self, why: str) -> None:
        """Note that such an epoch is given up because the log does not answer. Operators are told of the second one in
        a row: a log that was slow once is no news."""
        if self._unopened and not self._told:
            self._told = True
            self._copy.out.append(Tell(NOT_TAKEN, "", why))

    def served(self) -> None:
        """Note that an epoch is open, and a node leads it."""
        self._unopened = 0
        self._refused = 0
        self._told = False

    def opened(self, *, here: bool = False) -> None:
        """Note that the log has opened an epoch of any node, which may have given it up by then, if the log is slow.
        `here`: it is this copy's own, which goes on. That is the best answer, and the leader asks for itself. The
        answer to the question that is under way may come when nobody waits for it, or never."""
        self.doubted = False
        self._answer = False
        if here:
            self._asked = 0
            self.served()
