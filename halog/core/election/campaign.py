"""From "the active is gone" to serving: rules E2-E5, in one small object per copy.

A suspicion may be hasty: a wrong one costs a moment, never data, since the compare-and-set has one winner and the log
takes only the highest epoch. Where commits wait for the log any copy that can read it may win; the most recent one is
picked because it has the least to read. Where they do not, somebody who answered must hold what the log may lack
(`tail.py`). The winner appends `EpochStarted`, reads up to it, appends what is missing and `EpochOpened`, reads that
back accepted, and serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from halog.core import events as ev
from halog.core.active.leader import Leading
from halog.core.election.causes import Causes, put_back
from halog.core.election.log_doubt import LogDoubt
from halog.core.election.opening import Opening
from halog.core.election.positions import lacking_holders
from halog.core.ids import NO_EPOCH, EpochId, Member, nonce
from halog.core.replica.pushed_store import is_holder
from halog.core.roles import Role
from halog.core.table.changes import NodeList, told_by
from halog.core.table.group import counts, needed, priority
from halog.core.table.holders import are_gone, holders, with_holders
from halog.core.table.preference import Candidate, pick
from halog.core.table.table import SYNC, PartitionTable, Replica, arrange
from halog.events import NO_QUORUM, UNLOGGED_AWAY, UNLOGGED_LOST

if TYPE_CHECKING:
    from halog.core.partition import Partition


class Campaign:
    """Elections as one copy sees them."""

    def __init__(self, p: Partition, now: int) -> None:
        self.p = p
        self.round = 0
        self.told: dict[str, Candidate] = {}
        self.asked: frozenset[str] = frozenset()
        self.deadline = 0
        self.patience = p.settings.first_election_ms
        self.grace_until = now + p.settings.start_grace_ms
        self.not_before = now
        self.epoch: EpochId = NO_EPOCH
        self.causes = Causes(p)
        self.why = ""
        self.by_hand_over = False
        """Why `claim` was made."""
        self.claims = 0
        self.claim = p.table
        """The table this node tries to set, or set last; `replaced` is the one before it."""
        self.replaced = p.table
        self.unanswered = False
        """A set of `claim` was sent and nobody knows whether it landed."""
        self.short = False
        """It was said that too few are there."""
        self.tails: dict[str, Sequence[bytes]] = {}
        """What those who answered hold beyond the log."""
        self.withheld: set[str] = set()
        """Holders that answered without it."""
        self.waits_for: frozenset[Member] = frozenset()
        """It was said that these are needed."""
        self.gone: tuple[frozenset[Member], int] = frozenset(), 0
        """Since when the nodes of these are known to have been started anew."""
        self.lossy = False
        """What the log may lack is given up with this claim."""
        self.session_lost = False
        """Since the last claim; a lease of its epoch must know."""
        self.waits = False
        """Our epoch has opened, and others may still read under leases."""
        self.ahead_since: int | None = None
        """Since when the log shows a later epoch than the znode: for a moment that is a watch that is late."""
        self.opening = Opening(self)
        self.log = LogDoubt(p)

    # --- when to stand ---

    def witnessed(self, why: str) -> None:
        """The active died while this node watched: no grace is due."""
        self.grace_until = self.p.now
        self.causes.witnessed(why)

    def watch(self, table: PartitionTable) -> None:
        """The znode is about to become `table`."""
        self.causes.watch(table)
        self.log.watch(table)
        p = self.p
        p.out += told_by(p.me, p.alive, p.table, table, p.overrides.passed())

    def pause(self) -> None:
        """This node just gave up an epoch: let others go first for a moment."""
        self.not_before = self.p.now + self.p.settings.retry_ms

    def gave_up(self, why: str, since_ms: int, *, opened: bool) -> None:
        """This node ended an epoch of its own. `since_ms`: since when the log had said nothing."""
        self.causes.gave_up(why)
        if not opened:
            self.log.not_opened()
        self.not_before = max(self.not_before, self.log.claims_from)
        self.log.begin(since_ms)
        self.release()

    def release(self) -> None:
        """This node is up, so to the others its epoch looks alive: say in the znode that it is over, or nobody but this
        node would ever stand, and it might stand back for them (or be the one that cannot reach the log)."""
        p = self.p
        if p.epoch_ours and any(m.node in p.table.present for m in p.alive if m != p.me):
            replicas = p.table.replicas
            if p.unlogged and p.table.sync_set and self._holds():
                replicas = (*replicas, Replica(p.me.node, p.me.incarnation, SYNC))
            table = msgspec.structs.replace(p.table, active=None, replicas=replicas)
            p.out.append(ev.SetTable(p.next_round(), p.version, table))

    def _holds(self) -> bool:
        """Has this node what the log did not take? One that failed is asked by nobody; but what it leaves on its disk
        it brings along when it is started anew, which is waited for."""
        return self.p.role is not Role.FAILED or bool(self.p.tail.run) or self.p.me.incarnation in self.p.tail.stood

    def handed_over(self) -> None:
        """The current epoch ended in favour of a successor: its turn first, and at once."""
        self.not_before = self.p.now + self.p.settings.handed_ms
        if self.p.role in (Role.FOLLOWING, Role.ELECTING) and self.p.eligible and self._mine_by_hand_over():
            self.p.become("handed over to me")
            self._claim()

    def settled(self) -> None:
        """Somebody's compare-and-set went through: stand back."""
        if self.p.role is Role.ELECTING:
            self.p.become("deposed", "the znode changed")

    def _wanted(self) -> bool:
        """Is the partition without an active node, as far as this copy knows?"""
        p = self.p
        if p.role is not Role.FOLLOWING or not p.eligible:
            return False
        gone = p.table.active is None or p.table.active not in p.alive | self._living() or p.epoch_ours
        if not gone:
            self.patience = p.settings.election_ms
            if p.chain.state.opened and p.chain.state.epoch == p.table.epoch:
                self.log.served()
        return gone or self._closed() or self._outdated()

    def _living(self) -> frozenset[Member]:
        """Who is not heard, and stays all the same, since it answers. With a quorum it stays as long as it has that
        through others: the node list is as it set it, and it reaches the coordinator, since it answers there."""
        p, active = self.p, self.p.table.active
        if active not in p.answering or active is None:
            return frozenset()
        others = (r.member for r in p.table.replicas if r.member in p.alive | p.answering and r.member != p.me)
        have = 1 + sum(counts(p.table, m.node) for m in others)
        return frozenset({active}) if have >= needed(p.table, active.node) else frozenset()

    def _outdated(self) -> bool:
        """Has the log been in a later epoch than the znode for some time? Then the znode was put back to an older one,
        and names a node that only an append would tell: with a quorum it may refuse commits for ever instead (E4)."""
        p = self.p
        if p.chain.state.epoch.number <= p.table.epoch.number:
            self.ahead_since = None
        elif self.ahead_since is None:
            self.ahead_since = p.now
        return self.ahead_since is not None and p.now - self.ahead_since >= p.settings.silent_ms

    def _closed(self) -> bool:
        s = self.p.chain.state
        return bool(s.closed_for) and s.epoch == self.p.table.epoch

    def _mine_by_hand_over(self) -> bool:
        return self._closed() and self.p.chain.state.closed_for == self.p.me.node

    def consider(self) -> None:
        """Stand for election if one is due."""
        p = self.p
        if not self._wanted():
            return
        if self._mine_by_hand_over():
            p.become("handed over to me")
            self._claim()
        elif self.log.stands or p.now < self.not_before:
            return
        elif (p.now >= self.grace_until or self._all_up()) and self._enough() and self.log.take():
            self._stand()

    def _enough(self) -> bool:
        """Fewer than quorum: no election, wait (Q2). Said once."""
        p = self.p
        up = {m.node for m in p.alive if m.node in p.table.present}
        need = needed(p.table, p.me.node)
        short = self.short
        self.short = len(up) < need
        if self.short and not short:
            p.out.append(ev.Tell(NO_QUORUM, "", "no election", {"have": len(up), "needed": need}))
        return not self.short

    def _all_up(self) -> bool:
        up = {m.node for m in self.p.alive}
        return all(n in up for n in self.p.table.present)

    def _stand(self) -> None:
        p = self.p
        p.become("active gone")
        p.seal()
        self.round = p.next_round()
        holder = p.unlogged and is_holder(p.me.node, (p.me.incarnation, *p.tail.stood), holders(p.table))
        self.told = {p.me.node: Candidate(p.me.node, p.position, priority(p.table, p.me.node), holder=holder)}
        self.tails = {}
        self.withheld = {p.me.node} if lacking_holders(p) else set()
        others = {m.node for m in p.alive if m.node in p.table.present and m != p.me}
        self.asked = frozenset(others)
        self.deadline = p.now + self.patience
        if others:
            p.out.append(ev.AskPositions(self.round, tuple(sorted(others))))
        else:
            self._decide()

    def position_told(self, e: ev.PositionTold) -> None:
        if self.p.role is not Role.ELECTING or e.round != self.round or e.node not in self.asked:
            return
        p = self.p
        mine = is_holder(e.node, (e.incarnation, *e.stood), holders(p.table))
        holder = p.unlogged and e.tail is not None and mine
        if mine and not holder:
            self.withheld.add(e.node)
        self.told[e.node] = Candidate(e.node, e.position, priority(self.p.table, e.node), e.eligible, holder)
        self.tails[e.node] = e.tail or ()
        self._decide_if_complete()

    def alive_changed(self) -> None:
        if self.p.role is Role.ELECTING:
            self._decide_if_complete()

    def _decide_if_complete(self) -> None:
        up = {m.node for m in self.p.alive}
        if all(n in self.told or n not in up for n in self.asked):
            self._decide()

    def _answer_itself(self) -> None:
        """As late as the others did: two that read meanwhile would each find the other one more recent, and both stand
        back."""
        p = self.p
        self.told[p.me.node] = self.told[p.me.node]._replace(position=p.position)

    def _decide(self) -> None:
        p = self.p
        need = needed(p.table, p.me.node)
        self._answer_itself()
        if pick(self.told.values(), p.table.configured) != p.me.node:
            self._stand_back("a better candidate answered")
        elif (voices := self._voices()) < need:
            self._stand_back(f"{voices} nodes answered, {need} are needed")
        elif self._whole():
            p.become("won")
            self._claim()
        else:
            self._stand_back("what was acknowledged may be with nodes that are not there")

    def _whole(self) -> bool:
        """Is whatever was acknowledged at hand (E2, E3)? Where commits do not wait for the log, somebody who answered
        must hold it; unless it cannot come back."""
        p, wanted = self.p, holders(self.p.table)
        if not p.unlogged or self._closed():
            return True
        if not wanted or any(c.holder for c in self.told.values()):
            self._adopt()
            return True
        names = ", ".join(sorted(m.node for m in wanted))
        if are_gone(wanted, p.alive):
            unheard = {m.node for m in wanted} - self.told.keys()
            if unheard and self._is_young(wanted):
                return False
            if not (self.withheld or (p.settings.stows and unheard & set(p.table.configured))):
                self._give_up(names)
                return True
        waits = self.waits_for
        self.waits_for = wanted
        if waits != wanted:
            where = "" if p.settings.stows else " in memory"
            silent = ", ".join(sorted(self.withheld))
            why = f"{silent} cannot tell it: its store was set aside, or it leads soon" if silent else "do not answer"
            p.out.append(ev.Tell(UNLOGGED_AWAY, "", f"{names} may have it{where}, and {why}"))
        return False

    def _give_up(self, names: str) -> None:
        """What the log lacks does not come back, but for what is on disks."""
        p = self.p
        self._adopt()
        self.lossy = True
        had = "had it, and were started anew without" if p.settings.stows else "had it in memory, and were started anew"
        why = f"{names} {had}"
        if p.tail.run:
            why += f"; lsn {p.tail.run[0].header.lsn} to {p.tail.tip} a copy that stopped had left on its disk"
        p.out.append(ev.Tell(UNLOGGED_LOST, "", why))

    def _is_young(self, wanted: frozenset[Member]) -> bool:
        """May the disk of one of these, which were started anew, have something yet? A node is up before its copies are
        opened; it is waited for as long as that takes, since it may host this partition no more."""
        now = self.p.now
        if self.gone[0] != wanted:
            self.gone = wanted, now
        return now - self.gone[1] < self.p.settings.start_grace_ms

    def _adopt(self) -> None:
        """Take over what those who answered hold beyond the log (E3)."""
        for tail in self.tails.values():
            self.p.tail.adopt(tail, self.p.chain.state)

    def _voices(self) -> int:
        """Nodes that answered and are still there, this one included."""
        up = {m.node for m in self.p.alive}
        return sum(n in up for n in self.told)

    def _stand_back(self, why: str) -> None:
        p = self.p
        p.become("stand back", why)
        self.not_before = p.now + p.settings.stand_back_ms
        self.release()

    # --- the compare-and-set ---

    def _claim(self) -> None:
        p = self.p
        self.by_hand_over = self._mine_by_hand_over()
        self.replaced = p.table
        self.why = self.causes.because(handed_over=self.by_hand_over)
        self.claims = self.claims + 1
        self.session_lost = False
        s = p.chain.state
        highest = max(p.table.epoch.number, s.epoch.number, s.led, p.merging.floor)
        self.epoch = EpochId(highest + 1, s.site, nonce(p.me, self.claims))
        usable = [r.member for r in p.table.replicas if r.member in p.alive]
        if p.table.active is not None and p.table.active in p.alive:
            usable.append(p.table.active)
        replicas = arrange(p.table.configured, p.me.node, usable, p.table.sync_replicas)
        if p.unlogged and not self._closed() and not self.lossy:
            replicas = with_holders(replicas, p.table, p.me)
        p.following.stowing.claims(() if self._closed() else holders(p.table), lossy=self.lossy)
        self.lossy = False
        self.waits_for = frozenset()
        self.gone = (frozenset(), 0)
        self.claim = msgspec.structs.replace(p.table, epoch=self.epoch, active=p.me, replicas=replicas)
        self.unanswered = False
        p.predecessor.claiming(p.table)
        self._send()

    def _send(self) -> None:
        p = self.p
        self.round = p.next_round()
        self.deadline = p.now + p.settings.start_deadline_ms
        p.out.append(ev.SetTable(self.round, p.version, self.claim))

    def cas_done(self, e: ev.CasDone) -> None:
        if e.round != self.round:
            return
        p = self.p
        if e.result is ev.Cas.OK:
            p.version, p.table = e.version, p.overrides.of(self.claim)
            self._claimed()
        elif e.result is ev.Cas.CONFLICT and not self.unanswered:
            p.step_down("deposed", "another node took the epoch")
            p.out.append(ev.Refresh())
        else:
            self.unanswered = True
            p.out.append(ev.Refresh())

    def table_seen(self, moved: bool) -> None:
        """While claiming: the znode tells whether an unanswered set went through; if not, the same set is sent again,
        so that at most one of them can land. Where the log was in doubt its answer is old by now: it is asked anew."""
        p = self.p
        if p.table.epoch == self.epoch and p.epoch_ours:
            self._claimed()
        elif moved:
            p.step_down("deposed", "another node took the epoch")
        elif self.unanswered and self.log.take():
            self._send()

    def log_answered(self) -> None:
        """It may be claimed again, or for the first time."""
        if self.p.role is not Role.CLAIMING:
            self.consider()
        elif self.unanswered and self.log.take():
            self._send()

    def _claimed(self) -> None:
        p = self.p
        p.become("claimed")
        p.predecessor.claimed()
        p.predecessor.named(p.table)
        self.waits = False
        if p.unlogged:
            p.out += put_back(p.chain.state, self.replaced)
        self.opening.start()

    # --- starting and opening ---

    def opened(self) -> None:
        """Our epoch is open in the log."""
        self.log.opened(here=True)
        self.p.merging.opened()
        self.waits = True
        self.serve_if_over()

    def died(self, e: ev.Died) -> None:
        """Its host says so: whoever waits for its lease need not."""
        self.p.predecessor.died(e.member)
        self.serve_if_over()

    def serve_if_over(self) -> None:
        """Open to callers, once nobody else may read under a lease."""
        if self.waits and self.p.role is Role.OPENING and self.p.predecessor.over():
            self._serve()

    def _serve(self) -> None:
        p = self.p
        p.become("opened", self.why)
        p.out.append(ev.StopReading())
        lost = "" if self.by_hand_over else self.why  # who handed over is not removed for that
        p.leading = Leading(p, self.epoch, NodeList(self.replaced, p.me, lost))
        self.patience = p.settings.election_ms
        p.leading.begin()
        if self.session_lost:
            p.leading.lease.heard(ev.SessionLost())

    def append_failed(self, e: ev.AppendFailed) -> None:
        p = self.p
        if e.tag != -1 and e.tag < self.opening.first_tag:
            return
        if e.tag != -1:
            p.out.append(ev.EndSession(e.why))
            self.log.refused(e.why)
        p.step_down("epoch ended", f"could not open epoch {self.epoch.number}: {e.why}")

    def ticked(self) -> None:
        p = self.p
        if p.role is Role.ELECTING and p.now >= self.deadline:
            self._decide()
        elif p.role is Role.CLAIMING and p.now >= self.deadline:
            self.deadline = p.now + p.settings.start_deadline_ms
            self.unanswered = True
            p.out.append(ev.Refresh())
        elif p.role is Role.OPENING and self.waits:
            p.out += p.predecessor.told()
            self.serve_if_over()
        elif p.role in (Role.STARTING, Role.OPENING) and p.now >= self.deadline:
            # The session goes on: other epochs are bound to it. What lands late is of a lower epoch than the next one.
            why = "the log did not answer in time"
            self.log.unheard(why)
            p.step_down("epoch ended", why)
        elif p.role is Role.FAILED and p.now >= self.not_before:
            self.pause()
            self.release()  # again: the set before may have come to nothing
        else:
            self.consider()
