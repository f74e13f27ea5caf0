"""This module is a planned hand-over of the active role, on the node that gives it (rules H1-H4).

Drain: nothing new is taken; what is in flight is logged and answered. Prove: the successor has applied it all. Fence:
`HandedOver` is the last record of the epoch. Until that record is given to the producer the hand-over can be called
off. After it the epoch takes no commit, whatever becomes of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from halog.core import effects as fx, events as ev, results as res
from halog.core.active.lease import Lease
from halog.core.active.role_return import OWN
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
    """A `PlannedHandOver` is the hand-over that was asked for. It is to this very node where the epoch only ends
    (`halog.core.active.epoch_merge`)."""

    token: int
    to: str
    deadline: int
    to_site: bool = False
    """Whether it is to the nodes of another site (F1). They know which of them has it all."""


class HandOverCallbacks(NamedTuple):
    """Has the functions that are called when a hand-over ends."""

    step_down: Callable[[str, str], None]
    """Called if the epoch is over, with the happening and the reason."""
    called_off: Callable[[int], None]
    """Called if the hand-over with this token was called off: the epoch goes on."""
    handed_over: Callable[[PlannedHandOver], None]
    """Called when the last record is in the log: the epoch is over."""


class HandOver:
    """A `HandOver` gives the role of one epoch away."""

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
        """Take the parts of the epoch. `applied` says how far each replica has read the log; it changes while the epoch
        lasts."""
        self._copy = copy
        self._epoch = epoch
        self._writer = writer
        self._votes = votes
        self._sites = sites
        self._lease = lease
        self._applied = applied
        self._ends = ends
        self.now: PlannedHandOver | None = None
        self._awaiting: list[tuple[ev.HandOverAsked, int]] = []
        """What was asked for while its node is up and not in the node list yet, and how long each is waited for."""
        self._leave_by = 0
        """Until then it waits for what is in doubt."""

    def begin(self, e: ev.HandOverAsked) -> None:
        """Stop taking commits. It is refused where it could not end well. A node that has just come up, and is about to
        be in the node list, is waited for as long as a drain may take; commits go on meanwhile."""
        copy = self._copy
        if priority(copy.table, e.to) == NEVER:
            self._refuse(e.token, f"{e.to} has priority never: it cannot be active for {copy.table.name}")
        elif self._is_available(e.to):
            self._drain(e)
        elif e.token != OWN and self._is_coming(e.to):
            self._awaiting.append((e, copy.now + copy.settings.drain_ms))
        else:
            self._refuse_absent(e)

    def _is_available(self, node: str) -> bool:
        return any(r.node == node and r.member in self._copy.alive for r in self._copy.table.replicas)

    def _is_coming(self, node: str) -> bool:
        copy = self._copy
        return node != copy.me.node and node in copy.table.hosts and any(m.node == node for m in copy.alive)

    def look(self) -> None:
        """Begin what was waited for and can begin now; refuse what was waited for in vain."""
        waiting, self._awaiting = self._awaiting, []
        for e, until in waiting:
            if self._copy.role is Role.ACTIVE and self._is_available(e.to):
                self.begin(e)
            elif self._is_coming(e.to) and self._copy.now < until:
                self._awaiting.append((e, until))
            else:
                self._refuse_absent(e)

    def _refuse_absent(self, e: ev.HandOverAsked) -> None:
        self._refuse(e.token, f"{e.to} is not an available replica of {self._copy.table.name}")

    def _drain(self, e: ev.HandOverAsked) -> None:
        copy = self._copy
        copy.out.append(Tell(TRANSFER, "", e.why, {"to": e.to}))
        self.now = PlannedHandOver(e.token, e.to, copy.now + copy.settings.drain_ms)
        copy.become("hand over", f"hands over to {e.to}")
        self.progress()

    def leave(self) -> None:
        """End the epoch as in any hand-over, with everything logged: another site is to serve the partition. For a
        while it waits until nothing is in doubt, since the other site would have to ask this one. If a site has taken
        the partition over by votes, the epoch is ended as it is: one more record would be one that the other site has
        not."""
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

    def renew(self, why: str = "") -> None:
        """End the epoch, and begin another one here; the event history tells `why`."""
        copy = self._copy
        if why:
            copy.out.append(Tell(TRANSFER, "", why, {"to": copy.me.node}))
        self.now = PlannedHandOver(NOBODY, copy.me.node, copy.now + copy.settings.drain_ms)
        copy.become("hand over", "begins another epoch")
        self.progress()

    def _refuse(self, token: int, why: str) -> None:
        self._copy.out.append(fx.Reply(token, res.Refusal(why)))

    def progress(self) -> None:
        """Append our last record, once everything is logged and answered and the successor has it all. What waits for a
        site that is away cannot be answered: it is unknown."""
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
        """End the epoch: our last record is in the log."""
        assert self.now is not None
        copy, under_way = self._copy, self.now
        copy.out.append(fx.Reply(under_way.token, res.Success(copy.chain.state.lsn)))
        self._writer.abandon("handed over before all that it waits for had it", copy.out)
        self.now = None
        self._answer_waiting(under_way.to)
        self._ends.handed_over(under_way)

    def members_gone(self, gone: Collection[Member]) -> None:
        """Call the hand-over off if the successor died while we drain."""
        now = self._draining
        if now is not None and not now.to_site and any(m.node == now.to for m in gone):
            self._call_off()

    def overdue(self) -> bool:
        """Call the hand-over off if it takes too long, and say whether that was so."""
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
        """Give the caller an answer: the epoch ended otherwise. The successor may have been quicker than our
        acknowledgement."""
        copy, active = self._copy, self._copy.table.active
        self._answer_waiting("" if active is None else active.node)
        if self.now is not None:
            token, to, *_ = self.now
            if active is not None and active.node == to:
                result: res.Result = res.Success(self._writer.last_lsn)
            else:
                result = res.Unknown(why) if copy.role is Role.HANDING else res.Refusal(why)
            copy.out.append(fx.Reply(token, result))

    def _answer_waiting(self, successor: str) -> None:
        """Tell those that waited what came about: the epoch is over, and this node, if any, is active next."""
        waiting, self._awaiting = self._awaiting, []
        for e, _ in waiting:
            if e.to == successor:
                self._copy.out.append(fx.Reply(e.token, res.Success(self._writer.last_lsn)))
            else:
                self._refuse_absent(e)
