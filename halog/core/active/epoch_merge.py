"""An epoch that is ended for the sake of a merge, and opened again by it, as the node sees it that does so (F5).

Settle: votes are not cast any more, and all that is in doubt here is decided and confirmed. Drain and end the epoch, as
in a hand-over, in favour of this very node. Then, between `EpochStarted` and the record that opens the epoch, whoever
asked is told where the history ends now, and makes of it what is to be appended (`MergeMade`): the parts of a merge
and the `EpochMerged` that opens the epoch with them; or nothing, and the epoch opens as any other. Whatever fails in
between leaves an epoch that was never opened, and nothing of the merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from halog.core import events as ev
from halog.core.ids import EpochId
from halog.core.log.record_types import EpochMerged, Record
from halog.core.log.transactions import Applied
from halog.core.roles import Role

if TYPE_CHECKING:
    from halog.core.partition import Partition

MAKE_MS: Final = 60_000
"""How long the partition waits for what is to be appended: triggers of the application may be slow, and everybody waits
meanwhile; where it takes longer something hangs."""


class Merging:
    """Of one copy."""

    def __init__(self, p: Partition) -> None:
        self._p = p
        self._wanted: ev.MergeAsked | None = None
        self._deadline = 0
        self._leads = False
        """It is still the epoch before."""

    @property
    def floor(self) -> int:
        """The epoch that is to open must be above this one: it is of another branch."""
        return 0 if self._wanted is None else self._wanted.floor

    def asked(self, e: ev.MergeAsked) -> None:
        """Begin to settle."""
        p = self._p
        leading = p.leading
        if leading is None or p.role is not Role.ACTIVE:
            p.out.append(ev.Reply(e.token, ev.NotServing(None)))
        elif self._wanted is not None or leading.hand_over.now is not None or p.table.owner:
            p.out.append(ev.Reply(e.token, ev.Refused("it is handed over, or merged, already")))
        else:
            self._wanted = e
            self._leads = True
            self._deadline = p.now + p.settings.drain_ms
            leading.votes.closed = True
            self.progress()

    def progress(self) -> None:
        """Settled? Then drain. Called while the epoch before is led."""
        p, leading = self._p, self._p.leading
        if self._wanted is None or not self._leads or leading is None or p.role is not Role.ACTIVE:
            return
        left = leading.votes.unsettled
        if not left and leading.hand_over.now is None:
            leading.hand_over.renew()
        elif p.now >= self._deadline:
            why = f"{left} transactions over several partitions are in doubt, or not confirmed"
            self.over(ev.Refused(why if left else "it is being handed over"))

    @property
    def settles(self) -> bool:
        """Is nothing new to be voted on?"""
        return self._wanted is not None and self._leads

    def ends(self) -> None:
        """The epoch before has ended as it should."""
        self._leads = False
        self._deadline = self._p.now + self._p.settings.start_deadline_ms

    def ticked(self) -> None:
        """Another node was quicker, perhaps."""
        if self.is_due and self._p.role is Role.FOLLOWING and self._p.now >= self._deadline:
            self.over(ev.Unknown("another epoch began"))

    @property
    def is_due(self) -> bool:
        """Is the epoch that was started now to be opened by a merge?"""
        return self._wanted is not None and not self._leads

    def ask(self, epoch: EpochId) -> int:
        """The log was read to the end: what is to open `epoch`? Until when that is waited for."""
        p, ledger = self._p, self._p.ledger
        decided = tuple((tx, d.commit) for tx, d in ledger.decided.items())
        assert self._wanted is not None
        where = self._wanted.token, epoch, p.chain.state, p.next_offset
        p.out.append(ev.MergeDue(*where, ledger.horizon, ledger.mapping, decided))
        return p.now + MAKE_MS

    def made(self, e: ev.MergeMade) -> None:
        """Append it, or open as any other epoch does."""
        p, wanted = self._p, self._wanted
        if wanted is None or wanted.token != e.token or p.role is not Role.OPENING or e.epoch != p.campaign.epoch:
            return
        if not e.records:
            self.over(ev.Refused("nothing came of it"))
        p.campaign.opening.open_with(e.records)

    def opened(self) -> None:
        """The epoch is open."""
        if self.is_due:
            self.over(ev.Happened(self._p.chain.state.lsn))

    def over(self, result: ev.Result) -> None:
        """Whatever became of it."""
        wanted = self._wanted
        self._wanted = None
        if wanted is not None:
            self._p.out.append(ev.Reply(wanted.token, result))

    def read(self, record: Record) -> Applied:
        """A record that opens an epoch, and counts: what it means to whoever keeps the objects."""
        p, found = self._p, self._p.chain.merged
        if type(record) is not EpochMerged or found is None:
            return record
        unknown = tuple(tx for tx in found.happened if p.outcomes.get(tx) is None)
        for tx in unknown:
            p.outcomes.add(tx, found.header.lsn)
        return p.ledger.merged(msgspec.structs.replace(found, happened=unknown), p.next_offset - 1)
