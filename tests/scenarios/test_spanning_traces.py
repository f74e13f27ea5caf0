"""The traces of the protocol that are about transactions over several partitions (T1-T7), told in a calm bank."""

from __future__ import annotations

import pytest

from halog.core import events as ev, results as res
from halog.core.log.records import UPDATE, Change
from halog.core.log.transactions import Decision
from tests.sim import trimmed
from tests.sim.ballots import finish
from tests.sim.bank import SEEDS
from tests.sim.bank_world import ACCOUNTS, REF, Bank
from tests.sim.belated import reappend
from tests.sim.node import Process
from tests.sim.teller import Deal, Teller

pytestmark = pytest.mark.feature("D4", "D5")

FIRST, OTHER = "p0", "p1"
KEY = ACCOUNTS[0]


def plain(keep: int) -> Bank:
    """A bank without local NO_SYNC, quorums or leases."""
    for seed in SEEDS:
        bank = Bank(seed, calm=True, worlds=2, nodes=2)
        settings = [w.settings for w in bank.worlds.values()]
        if bank.keep == keep and not any(
            w.unlogged or w.leased or s.min_stay_ms for w, s in zip(bank.worlds.values(), settings)
        ):
            return bank
    raise AssertionError


class Story:
    """Two partitions with an account each, and an initiator that does as it is told."""

    def __init__(self, keep: int = 10_000) -> None:
        self.bank = bank = plain(keep)
        for world in bank.worlds.values():
            world.nature.abandoned_lost = 0.0
            for name in world.nodes:
                world.start(name)
        self.run(300)
        self.teller = Teller(bank, "teller0", quota=1)
        bank.tellers.append(self.teller)
        while any(self.active(n).value(KEY) is None for n in bank.names):
            self.teller.quota = 1
            self.teller.begin()
            self.run(100)
        self.settled()
        self.deals: list[Deal] = []

    def run(self, ms: float = 30.0) -> None:
        self.bank.engine.run(self.bank.engine.now + ms)

    def settled(self) -> None:
        self.run(300)
        while self.teller.deal is not None:
            self.run(50)

    def active(self, name: str) -> Process:
        process = self.bank.worlds[name].active()
        assert process is not None
        return process

    def deal(self) -> Deal:
        """One from the first partition's account to the other's."""
        deal = self.teller.make("spread")
        for name, amount in ((FIRST, -1), (OTHER, 1)):
            p = self.active(name)
            value = p.value(KEY)
            assert value is not None
            deal.changes[name] = [Change(UPDATE, REF, KEY, b"%d" % (int(value) + amount), p.version(KEY))]
        self.teller.done.append(deal)
        return deal

    def prepare(self, deal: Deal, at: str, ms: float = 30.0) -> list[res.Result]:
        said: list[res.Result] = []
        token = self.bank.token(at, lambda r, _: said.append(r))
        p = self.active(at)
        asked = ev.PrepareAsked(token, deal.id, FIRST, (FIRST, OTHER), deal.digest, [], deal.changes[at], {})
        p.submit(asked, p.partition.state.chain.state.led)
        self.run(ms)
        return said

    def decide(self, deal: Deal, at: str, *, commit: bool, ms: float = 30.0) -> list[res.Result]:
        said: list[res.Result] = []
        token = self.bank.token(at, lambda r, _: said.append(r))
        self.active(at).deliver(ev.DecideAsked(token, deal.id, commit, at == FIRST))
        self.run(ms)
        return said

    def locked(self, at: str) -> bool:
        p = self.active(at).partition
        assert p.leading is not None
        return bool(p.state.ledger.locks or p.leading.writer.locks)

    def forget(self, deal: Deal) -> None:
        """Others come and go, until the first partition's horizon has passed it."""
        while not self.active(FIRST).partition.state.ledger.expired(deal.id):
            other = self.deal()
            assert happened(self.prepare(other, FIRST))
            assert happened(self.decide(other, FIRST, commit=False, ms=50))
            other.told = False

    def append_again(self, deal: Deal, at: str) -> None:
        """What E5 is for: the active appends the abort as its own, and the log has it."""
        p = self.active(at)
        assert p.partition.leading is not None
        lsn = p.partition.state.chain.state.lsn
        reappend(p, deal.id)
        self.run()
        assert p.partition.state.chain.state.lsn > lsn

    def remembered(self, at: str) -> list[tuple[dict[bytes, Decision], bytes]]:
        """The decisions and the horizon that each copy knows, the active one's first."""
        processes = sorted(self.bank.worlds[at].processes(), key=lambda p: not p.partition.leading is not None)
        return [(dict(p.partition.state.ledger.decided), p.partition.state.ledger.horizon) for p in processes]

    def well(self) -> None:
        """Everything is decided in the end, the same everywhere."""
        self.bank.heal()
        self.bank.settle()
        finish(self.bank)


def happened(said: list[res.Result]) -> bool:
    return [type(r) for r in said] == [res.Success]


def test_trace_9_an_abort_asked_for_while_the_commit_is_on_the_wire() -> None:
    """It is not answered from what is in flight; once the log has it, it stands."""
    story = Story()
    deal = story.deal()
    assert happened(story.prepare(deal, FIRST))
    assert happened(story.prepare(deal, OTHER))
    session = story.active(FIRST).session
    assert session is not None
    session.freeze()
    assert story.decide(deal, FIRST, commit=True) == []
    assert [type(r) for r in story.decide(deal, FIRST, commit=False)] == [res.Unknown]
    session.thaw()
    story.run(50)
    assert [type(r) for r in story.decide(deal, FIRST, commit=False)] == [res.OppositeDecision]
    deal.told = True
    story.well()


def test_trace_27_the_first_partition_fails_over_and_then_the_decision_arrives() -> None:
    """Nobody says that it did not happen; its locks are there, and the commit goes through."""
    story = Story()
    deal = story.deal()
    assert happened(story.prepare(deal, FIRST))
    assert happened(story.prepare(deal, OTHER))
    world = story.bank.worlds[FIRST]
    attempt = story.active(FIRST).partition.state.chain.state.led
    world.crash(story.active(FIRST).name)
    while world.active() is None:
        story.run(1.0)
    new, said = story.active(FIRST), list[res.Result]()
    new.deliver(ev.Asked(story.bank.token(FIRST, lambda r, _: said.append(r)), deal.id, attempt))
    story.run(5)
    assert [type(r) for r in said] == [res.Unknown]
    assert story.locked(FIRST)
    assert happened(story.decide(deal, FIRST, commit=True, ms=60))
    deal.told = True
    story.well()


def test_trace_28_an_abort_of_what_a_participant_has_not_seen_is_confirmed_by_nobody() -> None:
    """Its Prepare comes afterwards, and is refused; to another node, which was told nothing: then it is freed by asking
    the first partition."""
    story = Story()
    deal = story.deal()
    assert happened(story.decide(deal, FIRST, commit=False))
    assert [type(r) for r in story.decide(deal, OTHER, commit=False)] == [res.Refusal]
    assert [type(r) for r in story.prepare(deal, OTHER)] == [res.OppositeDecision]
    assert not story.locked(OTHER)
    world = story.bank.worlds[OTHER]
    world.crash(story.active(OTHER).name)
    while world.active() is None:
        story.run(1.0)
    assert happened(story.prepare(deal, OTHER))
    assert story.locked(OTHER)
    story.run(400)
    assert not story.locked(OTHER)
    deal.told = False
    story.well()


def test_trace_29_what_is_forgotten_is_not_taken_for_never_seen() -> None:
    """A Prepare that comes once more, behind the horizon, locks nothing."""
    story = Story(keep=3)
    old = story.deal()
    assert happened(story.prepare(old, FIRST))
    assert happened(story.decide(old, FIRST, commit=False))
    for _ in range(6):
        story.run(20)
        deal = story.deal()
        assert happened(story.prepare(deal, FIRST))
        assert happened(story.decide(deal, FIRST, commit=False))
    story.run(100)
    assert story.active(FIRST).partition.state.ledger.expired(old.id)
    assert [type(r) for r in story.prepare(old, FIRST)] == [res.ExpiredId]
    assert not story.locked(FIRST)
    assert [type(r) for r in story.decide(old, FIRST, commit=True)] == [res.ExpiredId]
    story.well()


def test_trace_30_an_outcome_that_comes_behind_the_horizon_means_nothing() -> None:
    """An abort is held on its way to the log, and its writer replaced. What it would have ended is committed, confirmed
    and forgotten. Nobody says "aborted" then: not when the held record lands, nor when it is appended again."""
    story = Story(keep=3)
    deal = story.deal()
    assert happened(story.prepare(deal, FIRST))
    assert happened(story.prepare(deal, OTHER))
    world, replaced = story.bank.worlds[FIRST], story.active(FIRST)
    held = replaced.session
    assert held is not None
    held.freeze()
    assert story.decide(deal, FIRST, commit=False) == []
    world.members.everybody_doubts(replaced.name)
    while (active := world.active()) is None or active is replaced:
        story.run(1.0)
    world.members.everybody_trusts(replaced.name)
    assert happened(story.decide(deal, FIRST, commit=True, ms=60))
    deal.told = True
    story.forget(deal)
    landed, kept = len(world.log.entries), story.remembered(FIRST)
    held.thaw()
    story.run(50)
    assert len(world.log.entries) > landed
    assert story.remembered(FIRST) == kept
    assert [type(r) for r in story.decide(deal, FIRST, commit=False)] == [res.ExpiredId]
    story.append_again(deal, FIRST)
    assert story.remembered(FIRST) == kept
    assert [type(r) for r in story.decide(deal, FIRST, commit=False)] == [res.ExpiredId]
    assert not story.locked(FIRST)
    story.well()


def test_trace_31_a_prepare_behind_a_tombstone_takes_no_locks() -> None:
    story = Story()
    deal = story.deal()
    assert happened(story.decide(deal, FIRST, commit=False))
    assert [type(r) for r in story.prepare(deal, FIRST)] == [res.OppositeDecision]
    assert not story.locked(FIRST)
    deal.told = False
    story.well()


@pytest.mark.parametrize("decided", ["before it starts", "after it has started"])
def test_trace_32_a_node_that_starts_from_a_snapshot_finds_the_prepare_that_an_outcome_is_about(decided: str) -> None:
    """Its disk is empty. The snapshot was taken between the two, and what it reads of the log begins with the marker:
    nothing but a row of the snapshot tells it what the Outcome commits, and whose locks it ends."""
    story = Story()
    deal = story.deal()
    assert happened(story.prepare(deal, FIRST))
    assert happened(story.prepare(deal, OTHER))
    world, before = story.bank.worlds[OTHER], decided == "before it starts"
    active = story.active(OTHER)
    replica = next(p.name for p in world.processes() if p is not active)
    trimmed.take(world, active)
    snapshot, prepared = world.snapshot, active.partition.state.ledger.undecided[deal.id].offset
    assert snapshot is not None
    assert snapshot.first == prepared < snapshot.next_offset, "the log is kept from the Prepare on"
    world.crash(replica)
    if before:
        assert happened(story.decide(deal, FIRST, commit=True))
    world.start(replica, wipe=True)
    again = world.nodes[replica].process
    assert again is not None
    assert again.node.disk.next_offset == snapshot.next_offset
    assert again.partition.state.ledger.locks.writer(KEY) == deal.id
    if not before:
        assert happened(story.decide(deal, FIRST, commit=True))
    story.run(100)
    assert again.value(KEY) == story.active(OTHER).value(KEY) == deal.changes[OTHER][0].value
    assert not again.partition.state.ledger.locks
    deal.told = True
    story.well()


def test_trace_32_a_restarted_node_finds_the_prepare_that_an_outcome_is_about() -> None:
    """It was killed between the two, and goes on from its disk."""
    story = Story()
    deal = story.deal()
    assert happened(story.prepare(deal, FIRST))
    assert happened(story.prepare(deal, OTHER))
    world = story.bank.worlds[OTHER]
    replica = next(p for p in world.processes() if p.name != story.active(OTHER).name)
    story.run(40)
    world.crash(replica.name)
    assert happened(story.decide(deal, FIRST, commit=True))
    world.start(replica.name)
    story.run(100)
    again = world.nodes[replica.name].process
    assert again is not None
    assert again.value(KEY) == story.active(OTHER).value(KEY) == deal.changes[OTHER][0].value
    deal.told = True
    story.well()


@pytest.mark.feature("Q4")
@pytest.mark.parametrize("lost", [FIRST, OTHER])
@pytest.mark.parametrize("again", [False, True])
def test_a_vote_that_never_landed_is_told_unless_it_is_given_again(lost: str, again: bool) -> None:
    """Its writer is replaced while it is on its way. Given again it is in the log, and commits; else its initiator says
    that nothing happened, and who had it in flight tells what it was."""
    story = Story()
    deal, world = story.deal(), story.bank.worlds[lost]
    assert happened(story.prepare(deal, OTHER if lost == FIRST else FIRST))
    replaced, session = story.active(lost), story.active(lost).session
    assert session is not None
    session.freeze()
    assert story.prepare(deal, lost) == []
    world.members.everybody_doubts(replaced.name)
    while (active := world.active()) is None or active is replaced:
        story.run(1.0)
    world.members.everybody_trusts(replaced.name)
    assert deal.id not in world.checks.discarded, "a caller may try again"
    if again:
        assert happened(story.prepare(deal, lost))
    assert happened(story.decide(deal, FIRST, commit=again))
    story.run(1_000)
    assert (deal.id in world.checks.discarded) is not again
    session.thaw()
    deal.told = again
    story.well()
