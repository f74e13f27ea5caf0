"""This module ends an epoch for a merge, and asks for what the next one opens with, on the active node (F5).

First it settles: no new votes are cast, and all that is in doubt here is decided and confirmed. Then it drains and ends
the epoch, as in a hand-over to this very node. Between `EpochStarted` and the record that opens the next epoch the core
asks for a merge of where the history ends now (`MergeMade`). It gets the parts of a merge and the `EpochMerged` that
opens the epoch with them; or nothing, and the epoch opens like any other. Whatever fails in between leaves an epoch
that was never opened, and nothing of the merge.
"""

from __future__ import annotations

from typing import Final

import msgspec

from halog.core import effects as fx, events as ev, results as res
from halog.core.active.hand_over import HandOver
from halog.core.commit.participant import Participant
from halog.core.ids import EpochId
from halog.core.log.record_types import EpochMerged, Record
from halog.core.log.transactions import Applied
from halog.core.roles import Role
from halog.core.state.copy_state import CopyState

MAKE_MS: Final = 60_000
"""For so long the partition waits for what is to be appended. Triggers of the application may be slow, and all callers
wait meanwhile. If it takes longer, something hangs."""


class EpochMerge:
    """An `EpochMerge` is the merge that one copy was asked for."""

    def __init__(self, copy: CopyState) -> None:
        self._copy = copy
        self._wanted: ev.MergeAsked | None = None
        self._deadline = 0
        self._leads = False
        """Whether the epoch before is still led."""

    @property
    def floor(self) -> int:
        """Return the epoch that the next one must be above: it is of another branch."""
        return 0 if self._wanted is None else self._wanted.floor

    def asked(self, e: ev.MergeAsked, votes: Participant, hand_over: HandOver) -> None:
        """Begin to settle the epoch that is led here."""
        copy = self._copy
        if copy.role is not Role.ACTIVE:
            copy.out.append(fx.Reply(e.token, res.InactiveCopy(None)))
        elif self._wanted is not None or hand_over.now is not None or copy.table.owner:
            copy.out.append(fx.Reply(e.token, res.Refusal("it is handed over, or merged, already")))
        else:
            self._wanted = e
            self._leads = True
            self._deadline = copy.now + copy.settings.drain_ms
            votes.closed = True
            self.progress(votes, hand_over)

    def progress(self, votes: Participant, hand_over: HandOver) -> None:
        """Drain once all is settled. To be called while the epoch before is led."""
        copy = self._copy
        if self._wanted is None or not self._leads or copy.role is not Role.ACTIVE:
            return
        left = votes.unsettled
        if not left and hand_over.now is None:
            hand_over.renew()
        elif copy.now >= self._deadline:
            why = f"{left} transactions over several partitions are in doubt, or not confirmed"
            self.over(res.Refusal(why if left else "it is being handed over"))

    @property
    def settles(self) -> bool:
        """Say whether nothing new may be voted on."""
        return self._wanted is not None and self._leads

    def ends(self) -> None:
        """Note that the epoch before has ended as it should."""
        self._leads = False
        self._deadline = self._copy.now + self._copy.settings.start_deadline_ms

    def ticked(self) -> None:
        """Give up after a while: another node may have been quicker."""
        if self.is_due and self._copy.role is Role.FOLLOWING and self._copy.now >= self._deadline:
            self.over(res.Unknown("another epoch began"))

    @property
    def is_due(self) -> bool:
        """Say whether a merge is to open the epoch that was started now."""
        return self._wanted is not None and not self._leads

    def ask(self, epoch: EpochId) -> int:
        """Ask what is to open `epoch`: the log was read to the end. Return until when the answer is waited for."""
        copy, ledger = self._copy, self._copy.ledger
        decided = tuple((tx, d.commit) for tx, d in ledger.decided.items())
        assert self._wanted is not None
        where = self._wanted.token, epoch, copy.chain.state, copy.next_offset
        copy.out.append(fx.MergeDue(*where, ledger.horizon, ledger.mapping, decided))
        return copy.now + MAKE_MS

    def made(self, e: ev.MergeMade, epoch: EpochId) -> bool:
        """Return whether `e` is what `epoch`, which is claimed here, is to be opened with."""
        wanted = self._wanted
        if wanted is None or wanted.token != e.token or self._copy.role is not Role.OPENING or e.epoch != epoch:
            return False
        if not e.records:
            self.over(res.Refusal("nothing came of it"))
        return True

    def opened(self) -> None:
        """Finish: the epoch is open, and the merge happened."""
        if self.is_due:
            self.over(res.Success(self._copy.chain.state.lsn))

    def over(self, result: res.Result) -> None:
        """Finish with `result`, and answer the caller."""
        wanted = self._wanted
        self._wanted = None
        if wanted is not None:
            self._copy.out.append(fx.Reply(wanted.token, result))

    def read(self, record: Record) -> Applied:
        """Return what a record that opens an epoch, and counts, means for the keeper of the objects."""
        copy, found = self._copy, self._copy.chain.merged
        if type(record) is not EpochMerged or found is None:
            return record
        unknown = tuple(tx for tx in found.happened if copy.outcomes.get(tx) is None)
        for tx in unknown:
            copy.outcomes.add(tx, found.header.lsn)
        return copy.ledger.merged(msgspec.structs.replace(found, happened=unknown), copy.next_offset - 1)
