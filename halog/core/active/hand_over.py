"""A planned hand-over of the active role, as the one who gives sees it: rules H1-H4.

Drain: nothing new is taken, what is in flight is logged and answered. Prove: the successor has applied it all. Fence:
`HandedOver` is the last record of the epoch. Until that was given to the producer the hand-over can be called off;
behind it the epoch takes no commit, whatever becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from halog.core import effects as fx, events as ev, results as res
from halog.core.active.lease import Lease
from halog.core.commit.participant import Participant
from halog.core.commit.writer import Writer
from halog.core.ids import EpochId, Member
from halog.core.log import records
from halog.core.roles import Role
from halog.core.sites.sync_sites import SyncSites
from halog.core.state.copy_state import CopyState
from halog.core.table.group import priority
from halog.core.table.preference import NEVER
from halog.core.table.tell import Tell
from halog.events import TRANSFER

NOBODY = -2
"""The token of a hand-over that nobody waits for."""


class PlannedHandOver(NamedTuple):
    """The hand-over that was asked for. To this very node where the epoch only ends
    (`halog.core.active.epoch_merge`)."""

    token: int
    to: str
    deadline: int
    to_site: bool = False
    """Not to a node, but to those of another site (F1): who of them has it all is theirs to know."""


class HandOverCallbacks(NamedTuple):
    """Whom a hand-over tells how it ends."""

    step_down: Callable[[str, str], None]
    """Of the epoch: it is over, by this happening and for this reason."""
    called_off: Callable[[int], None]
    """The hand-over of this token was called off: the epoch goes on."""
    handed_over: Callable[[PlannedHandOver], None]
    """The last record is in the log: the epoch is over."""


class HandOver:
    """Of one epoch."""

    def __init__(
        self,
        copy: CopyState,
        epoch: EpochId,
        writer: Writer,
        votes: Participant,
        sites: SyncSites,
        lease: Lease,
        applied: Mapping[Member, int],
        ends: HandOverCallbacks,
    ) -> None:
        """`applied`: how far each replica says it has read the log; it changes while the epoch lasts."""
        self._copy = copy
        self._epoch = epoch
        self._writer = writer
        self._votes = votes
        self._sites = sites
        self._lease = lease
        self._applied = applied
        self._ends = ends
        self.now: PlannedHandOver | None = None
        self._leave_by = 0
        """Until then what is in doubt is waited for."""

    def begin(self, e: ev.HandOverAsked) -> None:
        """Stop taking commits; refused where it could not end well."""
        copy = self._copy
        target = next((r.member for r in copy.table.replicas if r.node == e.to), None)
        if target is None or target not in copy.alive:
            self._refuse(e.token, f"{e.to} is not an available replica of {copy.table.name}")
        elif priority(copy.table, e.to) == NEVER:
            self._refuse(e.token, f"{e.to} has priority never: it cannot be active for {copy.table.name}")
        else:
            copy.out.append(Tell(TRANSFER, "", e.why, {"to": e.to}))
            self.now = PlannedHandOver(e.token, e.to, copy.now + copy.settings.drain_ms)
            copy.become("hand over", f"hands over to {e.to}")
            self.progress()

    def leave(self) -> None:
        """Another site is to serve the partition: end the epoch as in any hand-over, with everything logged; and, if
        that comes soon, with nothing in doubt: over there somebody would have to ask this site. By a site that has
        taken it over by votes it is ended as it is: one record more would be one that the other site has not."""
        copy, site, votes = self._copy, self._copy.table.owner, self._votes
        if self._sites.quorum.is_lost:
            self._ends.step_down("deposed", f"site {site} serves it, by the votes of sites")
            return
        if not votes.closed:
            votes.closed = True
            self._leave_by = copy.now + copy.settings.drain_ms
        settled = not votes.unsettled or copy.now >= self._leave_by
        if copy.role is Role.ACTIVE and self.now is None and settled:
            copy.out.append(Tell(TRANSFER, "", f"site {site} is to serve it", {"to": site}))
            self.now = PlannedHandOver(NOBODY, site, copy.now + copy.settings.drain_ms, to_site=True)
            copy.become("hand over", f"hands over to site {site}")
            self.progress()

    def renew(self) -> None:
        """End the epoch, and begin another one here."""
        copy = self._copy
        self.now = PlannedHandOver(NOBODY, copy.me.node, copy.now + copy.settings.drain_ms)
        copy.become("hand over", "begins another epoch")
        self.progress()

    def _refuse(self, token: int, why: str) -> None:
        self._copy.out.append(fx.Reply(token, res.Refused(why)))

    def progress(self) -> None:
        """Everything logged and answered, and the successor has it all: give the log our last record. What waits for a
        site that is away nobody can answer: it is unknown."""
        copy, writer = self._copy, self._writer
        if self.now is None or copy.role is not Role.DRAINING or writer.queue:
            return
        if writer.waiting and self._sites.short() is None:
            return
        if self.now.to_site and self._sites.quorum.is_lost:  # `leave` ends it
            return
        to = self.now.to
        has_it = self.now.to_site or to == copy.me.node
        if not has_it and not any(m.node == to and lsn >= writer.last_lsn for m, lsn in self._applied.items()):
            return
        copy.become("drained", f"hands over to {to}")
        self._lease.give_up()
        header = records.Header(copy.chain.state.log_id, self._epoch, writer.last_lsn + 1, writer.last_hash)
        writer.append(records.HandedOver(header, to), copy.now, copy.out)
        copy.tag = writer.tag

    def done(self) -> None:
        """Our last record is in the log: the epoch is over."""
        assert self.now is not None
        copy, under_way = self._copy, self.now
        copy.out.append(fx.Reply(under_way.token, res.Happened(copy.chain.state.lsn)))
        self._writer.abandon("handed over before all that it waits for had it", copy.out)
        self.now = None
        self._ends.handed_over(under_way)

    def members_gone(self, gone: Collection[Member]) -> None:
        """A successor that dies while we drain is not waited for."""
        now = self._draining
        if now is not None and not now.to_site and any(m.node == now.to for m in gone):
            self._call_off()

    def overdue(self) -> bool:
        """Called off because it takes too long?"""
        late = self._draining is not None and self._copy.now >= self._draining.deadline
        if late:
            self._call_off()
        return late

    @property
    def _draining(self) -> PlannedHandOver | None:
        return self.now if self._copy.role is Role.DRAINING else None

    def _call_off(self) -> None:
        assert self.now is not None
        token, to, *_ = self.now
        self.now = None
        self._copy.become("call off", f"{to} did not catch up in time")
        self._ends.called_off(token)
        self._refuse(token, f"{to} did not catch up in time")

    def abandon(self, why: str) -> None:
        """The epoch ended otherwise: the successor may be quicker than our acknowledgement."""
        if self.now is not None:
            copy, (token, to, *_) = self._copy, self.now
            if copy.table.active is not None and copy.table.active.node == to:
                result: res.Result = res.Happened(self._writer.last_lsn)
            else:
                result = res.Unknown(why) if copy.role is Role.HANDING else res.Refused(why)
            copy.out.append(fx.Reply(token, result))
