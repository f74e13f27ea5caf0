"""A planned hand-over of the active role, as the one who gives sees it: rules H1-H4.

Drain: nothing new is taken, what is in flight is logged and answered. Prove: the successor has applied it all. Fence:
`HandedOver` is the last record of the epoch. Until that was given to the producer the hand-over can be called off;
behind it the epoch takes no commit, whatever becomes of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from halog.core import events as ev
from halog.core.active.role_return import OWN
from halog.core.ids import Member
from halog.core.log import records
from halog.core.roles import Role
from halog.core.table.group import priority
from halog.core.table.preference import NEVER
from halog.events import TRANSFER

if TYPE_CHECKING:
    from halog.core.active.leader import Leading


NOBODY = -2
"""The token of a hand-over that nobody waits for."""


class UnderWay(NamedTuple):
    """The hand-over that was asked for. To this very node where the epoch only ends
    (`halog.core.active.epoch_merge`)."""

    token: int
    to: str
    deadline: int
    to_site: bool = False
    """Not to a node, but to those of another site (F1): who of them has it all is theirs to know."""


class HandOver:
    """Of one epoch."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading
        self._p = leading.p
        self.now: UnderWay | None = None
        self._leave_by = 0
        """Until then what is in doubt is waited for."""

    def begin(self, e: ev.HandOverAsked) -> None:
        """Stop taking commits; refused where it could not end well."""
        p = self._p
        target = next((r.member for r in p.table.replicas if r.node == e.to), None)
        if target is None or target not in p.alive:
            self._refuse(e.token, f"{e.to} is not an available replica of {p.table.name}")
        elif priority(p.table, e.to) == NEVER:
            self._refuse(e.token, f"{e.to} has priority never: it cannot be active for {p.table.name}")
        else:
            p.out.append(ev.Tell(TRANSFER, "", e.why, {"to": e.to}))
            self.now = UnderWay(e.token, e.to, p.now + p.settings.drain_ms)
            p.become("hand over", f"hands over to {e.to}")
            self.progress()

    def leave(self) -> None:
        """Another site is to serve the partition: end the epoch as in any hand-over, with everything logged; and, if
        that comes soon, with nothing in doubt: over there somebody would have to ask this site. By a site that has
        taken it over by votes it is ended as it is: one record more would be one that the other site has not."""
        p, site, votes = self._p, self._p.table.owner, self._leading.votes
        if self._leading.sites.quorum.is_lost:
            p.step_down("deposed", f"site {site} serves it, by the votes of sites")
            return
        if not votes.closed:
            votes.closed = True
            self._leave_by = p.now + p.settings.drain_ms
        settled = not votes.unsettled or p.now >= self._leave_by
        if p.role is Role.ACTIVE and self.now is None and settled:
            p.out.append(ev.Tell(TRANSFER, "", f"site {site} is to serve it", {"to": site}))
            self.now = UnderWay(NOBODY, site, p.now + p.settings.drain_ms, to_site=True)
            p.become("hand over", f"hands over to site {site}")
            self.progress()

    def renew(self) -> None:
        """End the epoch, and begin another one here."""
        p = self._p
        self.now = UnderWay(NOBODY, p.me.node, p.now + p.settings.drain_ms)
        p.become("hand over", "begins another epoch")
        self.progress()

    def _refuse(self, token: int, why: str) -> None:
        self._p.out.append(ev.Reply(token, ev.Refused(why)))

    def progress(self) -> None:
        """Everything logged and answered, and the successor has it all: give the log our last record. What waits for a
        site that is away nobody can answer: it is unknown."""
        p, writer = self._p, self._leading.writer
        if self.now is None or p.role is not Role.DRAINING or writer.queue:
            return
        if writer.waiting and self._leading.sites.short() is None:
            return
        if self.now.to_site and self._leading.sites.quorum.is_lost:  # `leave` ends it
            return
        to = self.now.to
        has_it = self.now.to_site or to == p.me.node
        if not has_it and not any(m.node == to and lsn >= writer.last_lsn for m, lsn in self._leading.applied.items()):
            return
        p.become("drained", f"hands over to {to}")
        self._leading.lease.give_up()
        header = records.Header(p.chain.state.log_id, self._leading.epoch, writer.last_lsn + 1, writer.last_hash)
        writer.append(records.HandedOver(header, to), p.now, p.out)
        p.tag = writer.tag

    def done(self) -> None:
        """Our last record is in the log: the epoch is over."""
        assert self.now is not None
        p, under_way = self._p, self.now
        p.out.append(ev.Reply(under_way.token, ev.Happened(p.chain.state.lsn)))
        self._leading.writer.abandon("handed over before all that it waits for had it", p.out)
        self.now = None
        self._leading.barriers.abandon()
        p.leading = None
        p.out.append(ev.Read(p.next_offset))
        p.become("handed over", f"handed over to {under_way.to}")
        p.merging.ends()
        if under_way.to_site:  # nobody here will take its place in the znode
            p.out.append(ev.SetTable(p.next_round(), p.version, msgspec.structs.replace(p.table, active=None)))
        p.campaign.handed_over()

    def members_gone(self, gone: Collection[Member]) -> None:
        """A successor that dies while we drain is not waited for."""
        now = self._draining
        if now is not None and not now.to_site and any(m.node == now.to for m in gone):
            self._call_off()

    def overdue(self) -> bool:
        """Called off because it takes too long?"""
        late = self._draining is not None and self._p.now >= self._draining.deadline
        if late:
            self._call_off()
        return late

    @property
    def _draining(self) -> UnderWay | None:
        return self.now if self._p.role is Role.DRAINING else None

    def _call_off(self) -> None:
        assert self.now is not None
        token, to, *_ = self.now
        self.now = None
        if token == OWN:
            self._leading.returning.failed(self._leading.awake_ms)
        self._p.become("call off", f"{to} did not catch up in time")
        self._p.merging.over(ev.Refused("the epoch did not end in time"))
        self._refuse(token, f"{to} did not catch up in time")

    def abandon(self, why: str) -> None:
        """The epoch ended otherwise: the successor may be quicker than our acknowledgement."""
        if self.now is not None:
            p, (token, to, *_) = self._p, self.now
            if p.table.active is not None and p.table.active.node == to:
                result: ev.Result = ev.Happened(self._leading.writer.last_lsn)
            else:
                result = ev.Unknown(why) if p.role is Role.HANDING else ev.Refused(why)
            p.out.append(ev.Reply(token, result))
