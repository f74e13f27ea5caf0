"""What must hold, checked while the world runs and once more at its end (architecture.md, Promises 1, 2, 3, 5).

The checks look from outside: at effects, at the znode, at disks, at what clients were told, and at the log as the dumb
twin reads it. The one look inside is S1, since what an active node waits for is visible nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from halog.core import effects as fx, results as res
from halog.core.ids import ABSENT, EpochId, Member, digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.log.provisional import lsn_of
from halog.core.log.transactions import Applied
from halog.core.roles import Role
from halog.core.settings import Sync
from halog.core.table.group import counts, needed, priority
from halog.core.table.preference import NEVER
from halog.core.table.table import PartitionTable
from halog.core.table.tell import Tell
from halog.events import DISCARDED, UNLOGGED_LOST
from tests.sim import asked, lasting, leases, lives, moves, outages, pushed_store, stopping, zones
from tests.sim.store import Held
from tests.sim.twin import Accepted, history
from tests.sim.violation import Violation, demand

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.sim.client import Transaction
    from tests.sim.node import Process
    from tests.sim.world import World


class Fact(NamedTuple):
    """What the first copy that applied an lsn made of it; every other copy must agree."""

    digest: bytes
    state_hash: int


class Checks:
    """The invariants of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.held = Held()
        self.facts: dict[int, Fact] = {}
        self.sync_set: frozenset[Member] = frozenset()
        self.epoch: EpochId | None = None
        self.answered = 0
        """The highest lsn any client was told of."""
        self.acknowledged = 0
        """The highest lsn a commit returned with (others may say earlier that it happened: R4)."""
        self.told: dict[bytes, int] = {}
        """tx → lsn of every "it happened" ever said, by anyone."""
        self.last: dict[Member, ChainState] = {}
        self.discarded: dict[bytes, int] = {}
        """tx → number of the epoch an attempt of it was said to be discarded with."""
        self.put_back = False
        """Was the znode put back to an older state?"""
        self.lost = False
        """Was what the log lacked given up, since nobody who had it could come back?"""
        self.flushed: dict[Member, int] = {}
        """How far the store of each incarnation was flushed."""
        self.flush_told: dict[int, int] = {}
        """By lsn, on how many replicas' disks it was said to be."""
        self.may_stop: Collection[str] = ()
        """Nodes that do not know all records of the log (tests/sim/later.py)."""
        self.sealed: dict[Member, range] = {}
        """The epoch numbers of which an incarnation must hold nothing more."""

    # --- while it runs ---

    def started(self, p: Process) -> None:
        chain = p.node.disk.chain
        self.held.holds(p.me, chain.lsn)
        self.last[p.me] = chain
        self._same_state(p, chain, "after a restart")

    def _same_state(self, p: Process, chain: ChainState, when: str) -> None:
        fact = self.facts.setdefault(chain.lsn, Fact(chain.hash, p.copy.hash))
        demand(fact.digest == chain.hash, f"P2: {p.me.node} {when} holds another record as lsn {chain.lsn}")
        demand(fact.state_hash == p.copy.hash, f"P2: {p.me.node} {when} has another state at lsn {chain.lsn}")

    def applied(self, p: Process, record: Applied, state: ChainState) -> None:
        before = self.last[p.me]
        demand(state.lsn == before.lsn + 1, f"P2: {p.me.node} applied lsn {state.lsn} behind {before.lsn}")
        demand(record.header.prev == before.hash, f"P2: the hash chain of {p.me.node} breaks at {state.lsn}")
        self.kept(p, state)
        self.held.holds(p.me, state.lsn)
        self._same_state(p, state, "applying")

    def said_to_hold(self, p: Process, e: fx.SendAck) -> None:
        """E7 and the law of core/held.py: an unbroken run of the epoch it follows, right behind its history."""
        state, run = self.last[p.me], list(p.partition.state.held.run)
        demand(e.epoch == state.epoch and state.opened and not state.void, f"E1: {p.me.node} holds for a dead epoch")
        demand(e.epoch.number not in self.sealed.get(p.me, ()), f"E1: {p.me.node} told its position, then held a push")
        few = e.lsn < state.lsn + len(run) and self.world.settings.remote_sync is Sync.SYNC  # the disk is slower
        said = f"P1: {p.me.node} says it holds {e.lsn}: {state.lsn} and {len(run)} more"
        demand(e.lsn == state.lsn + len(run) or few, said)
        self._unbroken(p, state)
        self.held.holds_pushed(p.me, {r.lsn: r.digest for r in run if r.lsn <= e.lsn})
        self.world.cover.hit("held before read")

    def said_to_have(self, p: Process, e: fx.SendAck) -> None:
        """R6: what an acknowledgement says of a record."""
        if not e.applied and self.world.settings.stores_pushed:
            pushed_store.is_stored(p, e.lsn)
        elif self.world.settings.remote_sync is not Sync.NO_SYNC:
            stored = p.node.disk.chain.lsn
            demand(stored >= e.lsn, f"R6: {p.me.node} acknowledged lsn {e.lsn}, its disk has {stored}")
        flushed = self.flushed.get(p.me, 0)
        demand(flushed >= e.flushed, f"R6: {p.me.node} said lsn {e.flushed} is on its disk, that has {flushed}")

    def stored(self, p: Process, e: fx.Save) -> None:
        """R6: a store was written before an acknowledgement."""
        if e.flush:
            self.flushed[p.me] = p.node.disk.chain.lsn

    def _unbroken(self, p: Process, state: ChainState) -> None:
        lsn, prev = state.lsn, state.hash
        for r in p.partition.state.held.run:
            h = records.decode(r.data).header
            demand((h.lsn, h.prev) == (lsn + 1, prev), f"P1: what {p.me.node} holds does not continue lsn {lsn}")
            demand(h.epoch == state.epoch, f"E1: {p.me.node} holds lsn {h.lsn} of epoch {h.epoch.number}")
            lsn, prev = h.lsn, digest(r.data)

    def published(self, p: Process) -> None:
        """E1: a position was told."""
        known = max(p.partition.state.table.epoch.number, self.last[p.me].epoch.number)
        self.sealed[p.me] = range(known + 1)

    def kept(self, p: Process, state: ChainState) -> None:
        before = self.last[p.me]
        if state.epoch != before.epoch or state.void:
            self.held.epoch_over(p.me)
        demand(state.epoch.number >= before.epoch.number, f"P3: the epoch fell on {p.me.node}")
        demand(state.led >= before.led, f"P3: the led epoch fell on {p.me.node}")
        if state.lsn > before.lsn and state.opened and not before.opened:
            self._same_state(p, state, "opening")
        self.last[p.me] = state

    def stepped(self, p: Process) -> None:
        """S1, and no copy ever fails where no log was lost."""
        leading = p.partition.leading
        if leading is not None and leading.epoch == self.epoch:
            missing = self.sync_set - leading.writer.wait_set
            if missing:
                raise Violation(f"S1: {p.me.node} does not wait for {missing} which the znode holds")
        self.world.shown.stepped(p)
        if lives.are_kept(self.world):
            lives.looked(self.world, p)
        self.world.upgrade.stepped(p)
        if p.partition.state.role is Role.FAILED and p.name not in {*self.may_stop, *self.world.upgrade.may_stop}:
            raise Violation(f"P2: {p.me.node} believes it diverged; no log was lost here")
        run = p.partition.state.held.run
        if run:
            state = self.last[p.me]
            own = run[0].record.header.epoch == state.epoch and not state.void
            demand(own, f"E1: {p.me.node} still holds records of an epoch that is over")
        if self.held.lsn(p.me) > (run[-1].lsn if run else self.last[p.me].lsn):
            raise Violation(f"P1: {p.me.node} forgot what it said to hold")

    def replied(self, p: Process, e: fx.Reply) -> None:
        wrong = self.world.reader.answered(p, e.token, e.result)
        demand(not wrong, wrong)
        if not isinstance(e.result, res.Success):
            return
        request = self.world.requests.get(e.token)
        if request is None:
            return
        tx, lsn = request.tx, e.result.lsn
        self._visible(p, tx, lsn)
        if lsn > p.partition.state.chain.state.lsn and not self.world.unlogged:
            asked.told_early(self, p, request, lsn)
            return
        asked.told_flushed(self, p, request, lsn)
        before = self.told.setdefault(tx.id, lsn)
        demand(self.lost or before == lsn, f"P1: {tx.name} was said to have happened at {before} and at {lsn}")
        self.answered = max(self.answered, lsn)
        self.world.reader.told(lsn)
        leases.nobody_reads_less(self.world, p, lsn)
        if request.asked:
            return
        self.acknowledged = max(self.acknowledged, lsn)
        if p.partition.leading is None or p.partition.leading.epoch != self.epoch:
            return
        self.is_held(p, lsn, self._digest(p, lsn))

    def is_held(self, p: Process, lsn: int, digest: bytes) -> None:
        """S1, R7: whoever is waited for has it."""
        self._quorum_has(p, lsn, digest)
        for m in self.sync_set:
            demand(
                self._has(m, lsn, digest), f"P1: lsn {lsn} was acknowledged by {p.me.node}, but {m} does not hold it"
            )

    def _has(self, m: Member, lsn: int, hash_: bytes) -> bool:
        """Or keeps it for the next epoch (E6): it found this one void while its acknowledgement was on its way."""
        if self.held.has(m, lsn, hash_):
            return True
        tails = (p.partition.state.tail.run for p in self.world.processes() if p.me == m)
        return any(r.header.lsn == lsn and digest(records.encode(r)) == hash_ for tail in tails for r in tail)

    def _visible(self, p: Process, tx: Transaction, lsn: int) -> None:
        """W7: who says that it happened shows it, or what became of it later."""
        for key in {c.key for c in tx.changes if c.op != records.DELETE}:
            seen = lsn_of(p.version(key))
            demand(seen in (ABSENT, lsn) or seen > lsn, f"W7: {p.me.node} said lsn {lsn} happened, shows {seen}")

    def _digest(self, p: Process, lsn: int) -> bytes:
        """Of the record that is acknowledged: applied, or, where commits do not wait for the log, on its way to it."""
        fact = self.facts.get(lsn)
        if p.partition.state.chain.state.lsn >= lsn and fact is not None:
            return fact.digest
        demand(self.world.unlogged, f"P1: lsn {lsn} was acknowledged by {p.me.node} before the log had it")
        demand(bool(self.sync_set), f"R6: lsn {lsn} was acknowledged by {p.me.node}: nobody else has it, nor the log")
        assert p.partition.leading is not None
        return next(i.digest for i in p.partition.leading.writer.queue if i.lsn == lsn)

    def _quorum_has(self, p: Process, lsn: int, digest: bytes) -> None:
        """R7: so many nodes of the group, the active included, had what it acknowledges (some may have died since).
        An override whose time is over is none (Q3)."""
        for table in moves.judging(self, p):
            need = needed(lasting.judged(p, table), p.name)
            others = [m for m in self.last if m.node != p.name and counts(table, m.node)]
            have = 1 + len({m.node for m in others if self._has(m, lsn, digest)})
            if have >= need:
                break
        demand(have >= need, f"R7: lsn {lsn} was acknowledged by {p.me.node}: {have} nodes hold it, {need} are needed")
        if need > 1:
            self.world.cover.hit("acknowledged by a quorum")

    def told_of(self, p: Process, e: Tell) -> None:
        """An operator reads this."""
        self.world.outages.told(e)
        if e.kind is UNLOGGED_LOST:
            self.given_up()
        if e.kind is DISCARDED:
            for t in e.more["transactions"]:
                tx = bytes.fromhex(t["tx"])
                self.discarded[tx] = max(e.more["of_epoch"], self.discarded.get(tx, 0))
                self._nothing_else_known(p, tx)
                if isinstance(records.decode(t["record"]) if "record" in t else None, records.Prepare):
                    (self.world.bank or self.world).cover.hit("a lost vote told")

    def _nothing_else_known(self, p: Process, tx: bytes) -> None:
        """Its own copy does not say that it happened, or may."""
        decision = p.partition.state.ledger.decided.get(tx)
        happened = p.partition.state.outcomes.get(tx) is not None or (decision is not None and decision.commit)
        demand(not happened, f"Q4: {p.me.node} told {tx.hex()} discarded, and knows that it happened")
        demand(
            tx not in p.partition.state.ledger.undecided, f"Q4: {p.me.node} told {tx.hex()} discarded, and is in doubt"
        )

    def given_up(self, *, by_operator: bool = False) -> None:
        """What the log lacks does not come back: what was said of it is not held against anybody."""
        on_a_disk = stopping.given(self.world.seed) or pushed_store.has_it(self.world)
        if by_operator or not on_a_disk:
            self.lost = True
            self.acknowledged = 0

    def sets(self, p: Process, e: fx.SetTable) -> None:
        """A node asks for this table."""
        self.world.outages.claims_epoch(p, e)

    def table_set(self, old: PartitionTable, new: PartitionTable) -> None:
        """A compare-and-set went through."""
        self.world.parted.table_set(old, new)
        if new.epoch != old.epoch:
            demand(new.epoch.number > old.epoch.number, f"P3: the znode's epoch went {old.epoch} → {new.epoch}")
            demand(new.active is not None, "E2: an epoch without an active node")
            self._elected_by_enough(new)
        else:
            demand(new.active in (old.active, None), "P3: another node under the same epoch")
            if self.epoch is not None:
                had_it_all = {old.active} if new.active is None else set()
                self._sync_set_changed(old.sync_set, new.sync_set - had_it_all)
        moves.check_step(self, old, new)
        lives.check_step(self, old, new)
        nodes = [r.node for r in new.replicas] + ([new.active.node] if new.active else [])
        demand(len(set(nodes)) == len(nodes), f"a node stands twice in the node list: {nodes}")
        if new.epoch != old.epoch or self.epoch is not None:
            self.epoch = new.epoch
            self.sync_set = new.sync_set
        for process in self.world.processes():
            self.stepped(process)

    def _elected_by_enough(self, table: PartitionTable) -> None:
        """Q2: fewer than quorum, no election; unless the last active handed the role over."""
        p = next((p for p in self.world.processes() if p.me == table.active), None)
        if p is None or p.partition.state.chain.state.closed_for == p.name:
            return
        stepped_down = zones.given(self.world.seed) or outages.given(self.world.seed)
        if stepped_down and p.partition.state.role is not Role.CLAIMING:
            return  # it landed late, when its claimant had given it up: it counts votes of another election by now
        told, need = len(p.partition.campaign.answers.told), needed(table, p.name)
        demand(told >= need, f"Q2: {p.name} was elected by {told} nodes, {need} are needed")
        demand(priority(table, p.name) != NEVER, f"Q2: {p.name} never is to be active")

    def dropped(self, member: Member) -> None:
        """Its copy is no more: whatever comes next begins with nothing."""
        self.held.epoch_over(member)
        self.sealed.pop(member, None)
        for m in [m for m in self.flushed if m.node == member.node]:
            del self.flushed[m]
        asked.still_flushed(self, member)

    def table_restored(self) -> None:
        """The znode was put back by hand: it says nothing until the next claim."""
        self.epoch = None
        self.sync_set = frozenset()
        self.put_back = True
        self.flush_told.clear()  # it may name other hosts, and those that it does not name drop their copies

    def _sync_set_changed(self, old: frozenset[Member], new: frozenset[Member]) -> None:
        if new - old:
            self.world.cover.hit("sync set grown")
        if old - new:
            self.world.cover.hit("sync set shrunk")
        for m in new - old:
            held = self.held.lsn(m)
            upto = self.acknowledged
            demand(held >= upto, f"S3: {m} joins the sync set at lsn {held}, but {upto} was acknowledged")

    # --- at the end ---

    def finish(self) -> None:
        """The whole log against everything anybody was told or applied."""
        accepted = history(self.world.log.entries)
        by_tx = self.exactly_once(accepted)
        self.one_writer_per_epoch(accepted)
        self.copies_agree(accepted)
        self.world.upgrade.finish(accepted)
        if self.lost:
            self.world.cover.hit("unlogged commits given up")
            return
        for tx in self.world.transactions():
            self._told_the_truth(tx, by_tx.get(tx.id))
        for id_, lsn in self.told.items():
            demand(by_tx.get(id_) == lsn, f"P1: {id_.hex()} was said to be lsn {lsn}, the log has {by_tx.get(id_)}")
        self._serialisable(accepted)
        self.world.shown.finish(accepted)
        self.discarded_is_nowhere(accepted)

    def discarded_is_nowhere(self, accepted: list[Accepted]) -> None:
        """Nor is a vote: without it no transaction over several partitions commits (T2)."""
        for a in accepted:
            h = a.record.header
            told = self.discarded.get(h.tx, 0)
            demand(h.epoch.number > told, f"Q4: {h.tx.hex()} was told discarded with epoch {told}, it is lsn {h.lsn}")

    def exactly_once(self, accepted: list[Accepted]) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        for a in accepted:
            if isinstance(a.record, records.Commit):
                h = a.record.header
                demand(h.tx not in found, f"P5: {h.tx.hex()} committed at lsn {found.get(h.tx)} and {h.lsn}")
                found[h.tx] = h.lsn
        return found

    def one_writer_per_epoch(self, accepted: list[Accepted]) -> None:
        writers: dict[int, tuple[EpochId, int]] = {}
        for a in accepted:
            epoch = a.record.header.epoch
            first = writers.setdefault(epoch.number, (epoch, a.entry.session))
            demand(first == (epoch, a.entry.session), f"P3: epoch {epoch.number} was written by two sessions")
        numbers = [a.record.header.epoch.number for a in accepted]
        demand(numbers == sorted(numbers), "P3: epochs fall in the accepted history")

    def copies_agree(self, accepted: list[Accepted]) -> None:
        for a in accepted:
            lsn = a.record.header.lsn
            fact = self.facts.get(lsn)
            demand(fact is None or fact.digest == a.digest, f"P2: what was applied as lsn {lsn} is not the log's")
        beyond = [lsn for lsn in self.facts if lsn > len(accepted)]
        demand(not beyond, f"P1: copies applied lsns the log never accepted: {beyond}")

    def _told_the_truth(self, tx: Transaction, lsn: int | None) -> None:
        if tx.told_early:
            asked.told_the_truth(self, tx, lsn)
        elif tx.happened is not None:
            demand(lsn == tx.happened, f"P1: {tx.name} was acknowledged at lsn {tx.happened}, the log has {lsn}")
            demand(tx.happened > tx.floor, f"P4: {tx.name} began after lsn {tx.floor} was answered, got {tx.happened}")
        elif tx.denied:
            demand(lsn is None, f"P5: {tx.name} was said not to have happened ({tx.denied}); it is lsn {lsn}")

    def _serialisable(self, accepted: list[Accepted]) -> None:
        now: dict[bytes, int] = {}
        values: dict[bytes, bytes | None] = {}
        by_id = {tx.id: tx for tx in self.world.transactions()}
        for a in accepted:
            if not isinstance(a.record, records.Commit):
                continue
            if not a.record.changes:  # for readers: nobody's transaction
                continue
            tx, lsn = by_id[a.record.header.tx], a.record.header.lsn
            for key, version in tx.reads:
                found = now.get(key, ABSENT)
                holds = lsn_of(version) == found
                demand(holds, f"P4: {tx.name} (lsn {lsn}) read {key!r} at {version}, not {found}")
            for key, value in tx.seen.items():
                demand(values.get(key) == value, f"P4: {tx.name} (lsn {lsn}) read {value!r} as {key!r}")
            for c in a.record.changes:
                found = now.get(c.key, ABSENT)
                demand(found == c.replaced, f"P4: lsn {lsn} replaces {c.key!r} at {c.replaced}, not {found}")
                now[c.key] = ABSENT if c.op == records.DELETE else lsn
                values[c.key] = c.value
