"""This module leads from "the active is gone" to serving (rules E2-E5), in one small object per copy.

A suspicion may be hasty: a wrong one costs a moment, never data, since the compare-and-set has one winner and the log
takes only the highest epoch. Where commits wait for the log, any copy that can read it may win; the most recent one is
picked because it has the least to read. Where they do not, one that answered must hold what the log may lack
(`tail.py`). The winner appends `EpochStarted`, reads up to it, appends what is missing and `EpochOpened`, reads that
back accepted, and serves.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from halog.core import effects as fx, events as ev
from halog.core.active.epoch_merge import EpochMerge
from halog.core.active.lease import Predecessor
from halog.core.active.quorum_overrides import QuorumOverrides
from halog.core.election.causes import Causes, put_back
from halog.core.election.log_doubt import LogDoubt
from halog.core.election.opening import Opening
from halog.core.election.positions import PositionRound, lacking_holders
from halog.core.ids import NO_EPOCH, EpochId, Member, nonce
from halog.core.replica.pushed_store import PushedStore, is_holder
from halog.core.roles import Role
from halog.core.state.copy_state import CopyState
from halog.core.table.changes import NodeList, told_by
from halog.core.table.group import counts, needed, priority
from halog.core.table.holders import are_gone, holders, with_holders
from halog.core.table.preference import Candidate, pick
from halog.core.table.table import SYNC, PartitionTable, Replica, arrange
from halog.core.table.tell import Tell
from halog.events import NO_QUORUM, UNLOGGED_AWAY, UNLOGGED_LOST


class Campaign:
    """A `Campaign` is one copy's part in elections."""

    def __init__(
        self,
        copy: CopyState,
        overrides: QuorumOverrides,
        merging: EpochMerge,
        predecessor: Predecessor,
        pushed_store: PushedStore,
        *,
        step_down: Callable[[str, str], None],
        lost: Callable[[str], None],
        lead: Callable[[NodeList], None],
    ) -> None:
        """Take the parts of the copy. `step_down` is called with the happening and the reason where an attempt comes to
        nothing; `lost` where the copy cannot go on; `lead` where the epoch is open and is to be served."""
        self._copy = copy
        self._overrides = overrides
        self._merging = merging
        self._predecessor = predecessor
        self._pushed_store = pushed_store
        self._step_down = step_down
        self._lead = lead
        now = copy.now
        self.round = 0
        self.answers = PositionRound()
        self.deadline = 0
        self.patience = copy.settings.first_election_ms
        self.grace_until = now + copy.settings.start_grace_ms
        self.not_before = now
        self.epoch: EpochId = NO_EPOCH
        self.causes = Causes(copy)
        self.why = ""
        self.by_hand_over = False
        """Why `claim` was made."""
        self.claims = 0
        self.claim = copy.table
        """The table that this node tries to set, or set last; `replaced` is the one before it."""
        self.replaced = copy.table
        self.unanswered = False
        """Whether a set of `claim` was sent whose result is unknown."""
        self.short = False
        """Whether operators were told that too few are there."""
        self.waits_for: frozenset[Member] = frozenset()
        """The members that operators were told are needed."""
        self.gone: tuple[frozenset[Member], int] = frozenset(), 0
        """Members whose nodes are known to have been started anew, and since when."""
        self.lossy = False
        """Whether this claim gives up what the log may lack."""
        self.session_lost = False
        """Whether the session was lost since the last claim; a lease of its epoch must know."""
        self.waits = False
        """Whether our epoch has opened, but others may still read under leases."""
        self.ahead_since: int | None = None
        """Since when the log shows a later epoch than the znode. If only for a moment, a watch is late."""
        self.opening = Opening(copy, self, merging, step_down, lost)
        self.log = LogDoubt(copy)

    # --- when to stand ---

    def witnessed(self, why: str) -> None:
        """Note that the active node died while this node watched: no grace is due."""
        self.grace_until = self._copy.now
        self.causes.witnessed(why)

    def watch(self, table: PartitionTable) -> None:
        """Note that the znode is about to become `table`."""
        self.causes.watch(table)
        self.log.watch(table)
        copy = self._copy
        copy.out += told_by(copy.me, copy.alive, copy.table, table, self._overrides.passed())

    def pause(self) -> None:
        """Let others go first for a moment: this node just gave up an epoch."""
        self.not_before = self._copy.now + self._copy.settings.retry_ms

    def gave_up(self, why: str, since_ms: int, *, opened: bool) -> None:
        """Note that this node ended an epoch of its own. `since_ms`: since when the log had said nothing."""
        self.causes.gave_up(why)
        if not opened:
            self.log.not_opened()
        self.not_before = max(self.not_before, self.log.claims_from)
        self.log.begin(since_ms)
        self.release()

    def release(self) -> None:
        """Say in the znode that this node's epoch is over. This node is up, so to the others its epoch looks alive, and
        only this node would ever stand. It might stand back for them, or be the one that cannot reach the log."""
        copy = self._copy
        if copy.epoch_ours and any(m.node in copy.table.present for m in copy.alive if m != copy.me):
            replicas = copy.table.replicas
            if copy.unlogged and copy.table.sync_set and self._holds():
                replicas = (*replicas, Replica(copy.me.node, copy.me.incarnation, SYNC))
            table = msgspec.structs.replace(copy.table, active=None, replicas=replicas)
            copy.out.append(fx.SetTable(copy.next_round(), copy.version, table))

    def _holds(self) -> bool:
        """Say whether this node has what the log did not take. Nobody asks a node that failed; but it brings what it
        leaves on its disk along when it is started anew, which is waited for."""
        return (
            self._copy.role is not Role.FAILED
            or bool(self._copy.tail.run)
            or self._copy.me.incarnation in self._copy.tail.stood
        )

    def handed_over(self) -> None:
        """Let the successor claim first, and at once: the current epoch ended in its favour."""
        self.not_before = self._copy.now + self._copy.settings.handed_ms
        if self._copy.role in (Role.FOLLOWING, Role.ELECTING) and self._copy.eligible and self._mine_by_hand_over():
            self._copy.become("handed over to me")
            self._claim()

    def settled(self) -> None:
        """Stand back: another node's compare-and-set went through."""
        if self._copy.role is Role.ELECTING:
            self._copy.become("deposed", "the znode changed")

    def _wanted(self) -> bool:
        """Say whether the partition is without an active node, as far as this copy knows."""
        copy = self._copy
        if copy.role is not Role.FOLLOWING or not copy.eligible:
            return False
        gone = copy.table.active is None or copy.table.active not in copy.alive | self._living() or copy.epoch_ours
        if not gone:
            self.patience = copy.settings.election_ms
            if copy.chain.state.opened and copy.chain.state.epoch == copy.table.epoch:
                self.log.served()
        return gone or self._closed() or self._outdated()

    def _living(self) -> frozenset[Member]:
        """Return the active node if it is silent but stays, since it answers challenges. With a quorum it stays as long
        as it has that through others: the node list is as it set it, and it reaches the coordinator, since it answers
        there."""
        copy, active = self._copy, self._copy.table.active
        if active not in copy.answering or active is None:
            return frozenset()
        others = (
            r.member for r in copy.table.replicas if r.member in copy.alive | copy.answering and r.member != copy.me
        )
        have = 1 + sum(counts(copy.table, m.node) for m in others)
        return frozenset({active}) if have >= needed(copy.table, active.node) else frozenset()

    def _outdated(self) -> bool:
        """Say whether the log has been in a later epoch than the znode for some time. Then the znode was put back to an
        older one, and names a node that only an append would tell. With a quorum that node may refuse commits for ever
        instead (E4)."""
        copy = self._copy
        if copy.chain.state.epoch.number <= copy.table.epoch.number:
            self.ahead_since = None
        elif self.ahead_since is None:
            self.ahead_since = copy.now
        return self.ahead_since is not None and copy.now - self.ahead_since >= copy.settings.silent_ms

    def _closed(self) -> bool:
        s = self._copy.chain.state
        return bool(s.closed_for) and s.epoch == self._copy.table.epoch

    def _mine_by_hand_over(self) -> bool:
        return self._closed() and self._copy.chain.state.closed_for == self._copy.me.node

    def consider(self) -> None:
        """Stand for election if one is due."""
        copy = self._copy
        if not self._wanted():
            return
        if self._mine_by_hand_over():
            copy.become("handed over to me")
            self._claim()
        elif self.log.stands or copy.now < self.not_before:
            return
        elif (copy.now >= self.grace_until or self._all_up()) and self._enough() and self.log.take():
            self._stand()

    def _enough(self) -> bool:
        """Say whether there is a quorum. With fewer nodes there is no election; that is told once (Q2)."""
        copy = self._copy
        up = {m.node for m in copy.alive if m.node in copy.table.present}
        need = needed(copy.table, copy.me.node)
        short = self.short
        self.short = len(up) < need
        if self.short and not short:
            copy.out.append(Tell(NO_QUORUM, "", "no election", {"have": len(up), "needed": need}))
        return not self.short

    def _all_up(self) -> bool:
        up = {m.node for m in self._copy.alive}
        return all(n in up for n in self._copy.table.present)

    def _stand(self) -> None:
        copy = self._copy
        copy.become("active gone")
        copy.seal()
        self.round = copy.next_round()
        holder = copy.unlogged and is_holder(copy.me.node, (copy.me.incarnation, *copy.tail.stood), holders(copy.table))
        own = Candidate(copy.me.node, copy.position, priority(copy.table, copy.me.node), holder=holder)
        others = {m.node for m in copy.alive if m.node in copy.table.present and m != copy.me}
        self.answers = PositionRound([own], others, withheld=bool(lacking_holders(copy)))
        self.deadline = copy.now + self.patience
        if others:
            copy.out.append(fx.AskPositions(self.round, tuple(sorted(others))))
        else:
            self._decide()

    def position_told(self, e: ev.PositionTold) -> None:
        if self._copy.role is not Role.ELECTING or e.round != self.round or e.node not in self.answers.asked:
            return
        self.answers.take(self._copy, e)
        self._decide_if_complete()

    def alive_changed(self) -> None:
        if self._copy.role is Role.ELECTING:
            self._decide_if_complete()

    def _decide_if_complete(self) -> None:
        if self.answers.is_complete({m.node for m in self._copy.alive}):
            self._decide()

    def _answer_itself(self) -> None:
        """Set this node's own position now, as late as the others did. Else two nodes that read meanwhile would each
        find the other one more recent, and both stand back."""
        copy, told = self._copy, self.answers.told
        told[copy.me.node] = told[copy.me.node]._replace(position=copy.position)

    def _decide(self) -> None:
        copy = self._copy
        need = needed(copy.table, copy.me.node)
        self._answer_itself()
        if pick(self.answers.told.values(), copy.table.configured) != copy.me.node:
            self._stand_back("a better candidate answered")
        elif (voices := self._voices()) < need:
            self._stand_back(f"{voices} nodes answered, {need} are needed")
        elif self._whole():
            copy.become("won")
            self._claim()
        else:
            self._stand_back("what was acknowledged may be with nodes that are not there")

    def _whole(self) -> bool:
        """Say whether whatever was acknowledged is at hand (E2, E3). Where commits do not wait for the log, a node that
        answered must hold it, unless it cannot come back."""
        copy, wanted = self._copy, holders(self._copy.table)
        if not copy.unlogged or self._closed():
            return True
        if not wanted or any(c.holder for c in self.answers.told.values()):
            self._adopt()
            return True
        names = ", ".join(sorted(m.node for m in wanted))
        if are_gone(wanted, copy.alive):
            unheard = {m.node for m in wanted} - self.answers.told.keys()
            if unheard and self._is_young(wanted):
                return False
            if not (self.answers.withheld or (copy.settings.stores_pushed and unheard & set(copy.table.configured))):
                self._give_up(names)
                return True
        waits = self.waits_for
        self.waits_for = wanted
        if waits != wanted:
            where = "" if copy.settings.stores_pushed else " in memory"
            silent = ", ".join(sorted(self.answers.withheld))
            cannot = "its store was set aside, or a later version wrote it, or it leads soon"
            why = f"{silent} cannot tell it: {cannot}" if silent else "do not answer"
            copy.out.append(Tell(UNLOGGED_AWAY, "", f"{names} may have it{where}, and {why}"))
        return False

    def _give_up(self, names: str) -> None:
        """Give up what the log lacks: it does not come back, except for what is on disks."""
        copy = self._copy
        self._adopt()
        self.lossy = True
        had = (
            "had it, and were started anew without"
            if copy.settings.stores_pushed
            else "had it in memory, and were started anew"
        )
        why = f"{names} {had}"
        if copy.tail.run:
            why += f"; lsn {copy.tail.run[0].header.lsn} to {copy.tail.tip} a copy that stopped had left on its disk"
        copy.out.append(Tell(UNLOGGED_LOST, "", why))

    def _is_young(self, wanted: frozenset[Member]) -> bool:
        """Say whether the disk of one of these, which were started anew, may still have something. A node is up before
        its copies are opened. It is waited for as long as that takes, since it may not host this partition any more."""
        now = self._copy.now
        if self.gone[0] != wanted:
            self.gone = wanted, now
        return now - self.gone[1] < self._copy.settings.start_grace_ms

    def _adopt(self) -> None:
        """Take over what those who answered hold beyond the log (E3)."""
        for tail in self.answers.tails.values():
            self._copy.tail.adopt(tail, self._copy.chain.state)

    def _voices(self) -> int:
        """Return how many nodes answered and are still there, this one included."""
        up = {m.node for m in self._copy.alive}
        return sum(n in up for n in self.answers.told)

    def _stand_back(self, why: str) -> None:
        copy = self._copy
        copy.become("stand back", why)
        self.not_before = copy.now + copy.settings.stand_back_ms
        self.release()

    # --- the compare-and-set ---

    def _claim(self) -> None:
        copy = self._copy
        self.by_hand_over = self._mine_by_hand_over()
        self.replaced = copy.table
        self.why = self.causes.because(handed_over=self.by_hand_over)
        self.claims = self.claims + 1
        self.session_lost = False
        s = copy.chain.state
        highest = max(copy.table.epoch.number, s.epoch.number, s.led, self._merging.floor)
        self.epoch = EpochId(highest + 1, s.site, nonce(copy.me, self.claims))
        usable = [r.member for r in copy.table.replicas if r.member in copy.alive]
        if copy.table.active is not None and copy.table.active in copy.alive:
            usable.append(copy.table.active)
        replicas = arrange(copy.table.configured, copy.me.node, usable, copy.table.sync_replicas, copy.table.replicas)
        if copy.unlogged and not self._closed() and not self.lossy:
            replicas = with_holders(replicas, copy.table, copy.me)
        self._pushed_store.claims(() if self._closed() else holders(copy.table), lossy=self.lossy)
        self.lossy = False
        self.waits_for = frozenset()
        self.gone = (frozenset(), 0)
        self.claim = msgspec.structs.replace(copy.table, epoch=self.epoch, active=copy.me, replicas=replicas)
        self.unanswered = False
        self._predecessor.claiming(copy.table)
        self._send()

    def _send(self) -> None:
        copy = self._copy
        self.round = copy.next_round()
        self.deadline = copy.now + copy.settings.start_deadline_ms
        copy.out.append(fx.SetTable(self.round, copy.version, self.claim))

    def cas_done(self, e: ev.CasDone) -> None:
        if e.round != self.round:
            return
        copy = self._copy
        if e.result is ev.Cas.OK:
            copy.version, copy.table = e.version, self._overrides.of(self.claim)
            self._claimed()
        elif e.result is ev.Cas.CONFLICT and not self.unanswered:
            self._step_down("deposed", "another node took the epoch")
            copy.out.append(fx.Refresh())
        else:
            self.unanswered = True
            copy.out.append(fx.Refresh())

    def table_seen(self, moved: bool) -> None:
        """Take the znode while claiming: it tells whether an unanswered set went through. If not, the same set is sent
        again, so that at most one of them can land. Where the log was in doubt its answer is old by now, so it is asked
        again."""
        copy = self._copy
        if copy.table.epoch == self.epoch and copy.epoch_ours:
            self._claimed()
        elif moved:
            self._step_down("deposed", "another node took the epoch")
        elif self.unanswered and self.log.take():
            self._send()

    def log_answered(self, e: ev.LogAnswered) -> None:
        """Take an answer of the log: an epoch may be claimed, again or for the first time."""
        if not self.log.answered(e):
            return
        if self._copy.role is not Role.CLAIMING:
            self.consider()
        elif self.unanswered and self.log.take():
            self._send()

    def _claimed(self) -> None:
        copy = self._copy
        copy.become("claimed")
        self._predecessor.claimed()
        self._predecessor.named(copy.table)
        self.waits = False
        if copy.unlogged:
            copy.out += put_back(copy.chain.state, self.replaced)
        self.opening.start()

    # --- starting and opening ---

    def opened(self) -> None:
        """Note that our epoch is open in the log."""
        self.log.opened(here=True)
        self._merging.opened()
        self.waits = True
        self.serve_if_over()

    def merge_made(self, e: ev.MergeMade) -> None:
        """Open the epoch with what was made of a merge, or like any other epoch."""
        if self._merging.made(e, self.epoch):
            self.opening.open_with(e.records)

    def died(self, e: ev.Died) -> None:
        """Note that the host of this incarnation says that it died: its lease need not be waited for."""
        self._predecessor.died(e.member)
        self.serve_if_over()

    def serve_if_over(self) -> None:
        """Serve callers, once no other node may read under a lease."""
        if self.waits and self._copy.role is Role.OPENING and self._predecessor.over():
            self._serve()

    def _serve(self) -> None:
        copy = self._copy
        copy.become("opened", self.why)
        copy.out.append(fx.StopReading())
        lost = "" if self.by_hand_over else self.why  # a node that handed over is not removed for it
        self.patience = copy.settings.election_ms
        self._lead(NodeList(self.replaced, copy.me, lost))

    def append_failed(self, e: ev.AppendFailed) -> None:
        copy = self._copy
        if e.tag != -1 and e.tag < self.opening.first_tag:
            return
        if e.tag != -1:
            copy.out.append(fx.EndSession(e.why))
            self.log.refused(e.why)
        self._step_down("epoch ended", f"could not open epoch {self.epoch.number}: {e.why}")

    def ticked(self) -> None:
        copy = self._copy
        if copy.role is Role.ELECTING and copy.now >= self.deadline:
            self._decide()
        elif copy.role is Role.CLAIMING and copy.now >= self.deadline:
            self.deadline = copy.now + copy.settings.start_deadline_ms
            self.unanswered = True
            copy.out.append(fx.Refresh())
        elif copy.role is Role.OPENING and self.waits:
            copy.out += self._predecessor.told()
            self.serve_if_over()
        elif copy.role in (Role.STARTING, Role.OPENING) and copy.now >= self.deadline:
            # The session goes on: other epochs are bound to it. What lands late is of a lower epoch than the next one.
            why = "the log did not answer in time"
            self.log.unheard(why)
            self._step_down("epoch ended", why)
        elif copy.role is Role.FAILED and copy.now >= self.not_before:
            self.pause()
            self.release()  # again: the set before may have come to nothing
        else:
            self.consider()
