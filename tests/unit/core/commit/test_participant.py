"""The active node's part in transactions over several partitions: what it may say, and when (T3, T6, T7)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.commit.outcome_answers import became_of
from halog.core.commit.participant import SPREAD_AT_ONCE, Participant
from halog.core.log import records
from halog.core.log.outcomes import Outcomes
from halog.core.log.transactions import Decision, Ledger
from halog.core.settings import Settings
from tests.unit.core.kit import A, B, Core, create, delete

pytestmark = pytest.mark.feature("D4", "D5")

FEW = Settings(max_outcomes=10)


def tx(stamp: int) -> bytes:
    return stamp.to_bytes(8, "big") + bytes(8)


def test_a_horizon_on_its_way_to_the_log_settles_nothing() -> None:
    """It may never get there; who took its word for an abort would contradict the first partition (review, W1)."""
    core = Core(settings=FEW).active()
    for i in range(12):
        core.step(ev.DecideAsked(100 + i, tx(1_000 + i), commit=False, decides=True))
        core.acknowledge()
    core.step(ev.Ticked(), after_ms=FEW.doubt_ms)
    assert type(records.decode(core.one(fx.Append).data)) is records.Horizon
    core.step(ev.DecideAsked(55, tx(5), commit=False, decides=True))
    assert [type(r) for r in core.replies()] == [res.Unknown]
    assert core.of(fx.Append) == [], "an outcome behind the horizon would be void"
    core.step(ev.PrepareAsked(56, tx(5), "p", ("p", "q"), b"d", (), (create(),), {}))
    (refused,) = core.replies()
    assert isinstance(refused, res.ExpiredId), "a vote is refused in either case"
    assert refused.horizon >= tx(5)[:8]
    core.acknowledge()
    core.step(ev.DecideAsked(57, tx(5), commit=False, decides=True))
    assert [type(r) for r in core.replies()] == [res.ExpiredId]


def test_a_key_whose_object_may_be_deleted_already_is_not_taken_yet() -> None:
    """Who was told that the deletion happened creates the key anew before the outcome has come here: it waits."""
    core = Core().active()
    core.step(ev.PrepareAsked(1, tx(1_000), "o", ("o", "p"), b"d", (), (delete(b"k", 1),), {b"k": 1}))
    core.acknowledge()
    assert [type(r) for r in core.replies()] == [res.Success]
    core.step(ev.Submitted(2, tx(1_001), (), (create(b"k"),), {b"k": 1}))
    assert core.replies() == [res.LockConflict(b"k", tx(1_000))]
    core.step(ev.PrepareAsked(3, tx(1_002), "o", ("o", "p"), b"d", (), (create(b"k"),), {b"k": 1}))
    assert core.replies() == [res.LockConflict(b"k", tx(1_000))]
    core.step(ev.Submitted(4, tx(1_003), (), (create(b"other"),), {b"other": 1}))
    assert core.replies() == [res.DuplicateKey(b"other")]


def asked(token: int, its: bytes) -> ev.PrepareAsked:
    return ev.PrepareAsked(token, its, "a", ("a", "p"), b"d", (), (create(b"k"),), {})


def test_an_abort_that_comes_while_it_is_prepared_is_behind_the_vote_in_the_log() -> None:
    """The first partition tells it once, so that it would be in doubt, and hold its objects, until it asks."""
    core = Core().active()
    core.step(asked(1, tx(1_000)))
    vote = core.one(fx.Append)
    core.step(ev.DecideAsked(2, tx(1_000), commit=True, decides=False))
    assert [type(r) for r in core.replies()] == [res.Unknown], "no first partition commits without this vote"
    core.step(ev.DecideAsked(3, tx(1_000), commit=False, decides=False))
    assert core.replies() == []
    abort = core.one(fx.Append)
    record = records.decode(abort.data)
    assert isinstance(record, records.Outcome)
    assert not record.commit
    core.acknowledge(vote.tag)
    core.acknowledge(abort.tag)
    assert not core.p.state.ledger.undecided
    assert not core.p.state.ledger.locks
    core.step(ev.Submitted(4, tx(1_001), (), (create(b"k"),), {}))
    assert type(records.decode(core.one(fx.Append).data)) is records.Commit


def test_a_commit_without_a_vote_here_is_not_confirmed() -> None:
    """Whoever is told that it is in this log forgets it."""
    core = Core().active()
    core.step(ev.DecideAsked(1, tx(1_000), commit=True, decides=False))
    assert core.replies() == [res.Refusal("it is not prepared")]
    assert core.of(fx.Append) == []


def test_an_abort_that_comes_before_the_vote_is_asked_for() -> None:
    """It was on its way longer: the vote is refused, for nobody would tell again that there is no need of it."""
    core = Core(settings=FEW).active()
    core.step(ev.DecideAsked(1, tx(1_000), commit=False, decides=False))
    assert core.replies() == [res.Refusal("it is not prepared")]
    core.step(asked(2, tx(1_000)))
    assert core.replies() == [res.OppositeDecision(0)]
    assert core.of(fx.Append) == []
    core.step(ev.DecideAsked(3, tx(1_001), commit=True, decides=False))
    core.step(asked(4, tx(1_001)))
    assert type(records.decode(core.one(fx.Append).data)) is records.Prepare
    core.acknowledge()
    core.step(ev.Ticked(), after_ms=FEW.doubt_ms)
    core.step(asked(5, tx(1_000)))
    assert core.one(fx.Reply).result == res.LockConflict(b"k", tx(1_001)), "it is not remembered for ever"


def last(token: int, its: bytes, digest: bytes = b"d", first: str = "p") -> ev.PrepareAsked:
    return ev.PrepareAsked(token, its, first, ("p", "q"), digest, (), (create(b"k"),), {}, last=True)


def test_the_last_vote_is_a_vote_and_the_decision() -> None:
    """The first partition's, behind all others: one request, and one answer, when the log has both."""
    core = Core().active()
    core.step(last(1, tx(1_000)))
    vote, outcome = core.of(fx.Append)
    assert [type(records.decode(a.data)) for a in (vote, outcome)] == [records.Prepare, records.Outcome]
    core.step(last(2, tx(1_000)))
    assert core.of(fx.Append) == [], "asked again it is the same transaction"
    core.acknowledge(vote.tag)
    assert core.replies() == []
    core.step(last(3, tx(1_000)))
    core.step(last(4, tx(1_000), digest=b"other"))
    assert core.replies() == [res.Refusal("another transaction has this id")]
    core.acknowledge(outcome.tag)
    lsn = core.p.state.ledger.decided[tx(1_000)].lsn
    assert core.replies() == [res.Success(lsn)] * 3
    assert core.one(fx.Spread) == fx.Spread(tx(1_000), True, ("q",))
    assert not core.p.state.ledger.locks
    core.step(last(5, tx(1_000)))
    assert core.replies() == [res.Success(lsn)]


def test_the_last_vote_is_refused_where_the_transaction_was_given_up() -> None:
    """Somebody in doubt was quicker: the tombstone stands, on its way to the log or in it."""
    core = Core().active()
    core.step(ev.DecideAsked(1, tx(1_000), commit=False, decides=True, participants=("p", "q")))
    tombstone = core.one(fx.Append)
    core.step(last(2, tx(1_000)))
    assert [type(r) for r in core.replies()] == [res.Unknown]
    core.acknowledge(tombstone.tag)
    core.step(last(3, tx(1_000)))
    assert [type(r) for r in core.replies()] == [res.OppositeDecision]
    assert core.of(fx.Append) == []


def test_only_the_first_partition_decides_with_its_vote() -> None:
    core = Core().active()
    core.step(last(1, tx(1_000), first="o"))
    assert core.replies() == [res.Refusal("its first partition is o")]
    assert core.of(fx.Append) == []


def test_a_vote_that_the_log_has_without_its_decision_is_decided_when_it_is_asked_for_again() -> None:
    """As after a failover between the two records."""
    core = Core().active()
    core.step(asked(9, tx(999)))
    core.acknowledge()
    core.step(ev.PrepareAsked(1, tx(1_000), "p", ("p", "q"), b"d", (), (create(b"j"),), {}))
    core.acknowledge()
    core.step(ev.PrepareAsked(2, tx(1_000), "p", ("p", "q"), b"d", (), (create(b"j"),), {}, last=True))
    outcome = records.decode(core.one(fx.Append).data)
    assert isinstance(outcome, records.Outcome)
    assert outcome.commit


def test_a_commit_that_only_the_ledger_remembers_happened() -> None:
    """The outcome table keeps the last ids of all commits, the ledger its own (review, W2)."""
    ledger = Ledger(
        decided=[(tx(5), Decision(True, 3, 3, "p", ("p", "q"))), (tx(6), Decision(False, 4, 4, "p", ("p", "q")))]
    )
    copy: Any = SimpleNamespace(
        outcomes=Outcomes(keep=10),
        ledger=ledger,
        settings=Settings(),
        chain=SimpleNamespace(state=SimpleNamespace(led=9)),
    )
    for i in range(20):
        copy.outcomes.add(tx(100 + i), 10 + i)
    assert became_of(copy, None, ev.Asked(1, tx(5), 1)) == res.Success(3)
    assert became_of(copy, None, ev.Asked(1, tx(6), 1)) == res.Abort()


def test_a_horizon_that_stands_still_is_not_looked_at_with_every_tick() -> None:
    """One participant that does not confirm keeps every later decision (review, S4)."""
    waiting = ("p", "dead")
    items = [(tx(1_000 + i), Decision(True, i + 1, i + 1, "p", waiting if i == 0 else ("p",))) for i in range(30)]
    looked: list[int] = []
    writer: Any = SimpleNamespace(settings=FEW, full=lambda: looked.append(1), short=None)
    voting = Participant(writer, Ledger(decided=items, horizon=tx(999)[:8]), "p", 0)
    out: list[fx.Effect] = []
    for now in range(20, FEW.doubt_ms, 20):
        voting.ticked(now, out, serving=True)
    assert len(looked) == 1
    assert [e for e in out if isinstance(e, fx.Append)] == []


def test_what_an_earlier_epoch_decided_is_told_as_soon_as_this_one_serves_the_latest_first() -> None:
    """Most of it is confirmed, and nobody knows which; the objects of the last ones may still be held."""
    waiting = ("p", "q")
    items = [(tx(1_000 + i), Decision(True, i + 1, i + 1, "p", waiting)) for i in range(SPREAD_AT_ONCE + 3)]
    writer: Any = SimpleNamespace(settings=Settings(), full=lambda: None, short=None)
    voting = Participant(writer, Ledger(decided=items), "p", 500)
    out: list[fx.Effect] = []
    voting.ticked(510, out, serving=False)
    assert out == []
    voting.ticked(520, out, serving=True)
    assert [e.tx for e in out if isinstance(e, fx.Spread)] == [id_ for id_, _ in reversed(items)][:SPREAD_AT_ONCE]
    out.clear()
    voting.ticked(530, out, serving=True)
    assert out == [], "and again when its time has come, the others first"
    voting.ticked(520 + Settings().doubt_ms, out, serving=True)
    assert [e.tx for e in out if isinstance(e, fx.Spread)][:4] == [tx(1_002), tx(1_001), tx(1_000), items[-1][0]]


def test_a_replica_reads_promptly_while_votes_come() -> None:
    """They are acknowledged when they are read (review, C2)."""
    core = Core(B, settings=Settings(remote_sync=FEW.remote_sync)).loaded()
    following = core.p.following
    following._told_at = core.now
    core.p.state.held.sealed = -1
    following._asked_at = core.now - 10_000
    assert core.p.state.me != A
    core.p.state.ledger.undecided[tx(5)] = None  # type: ignore[assignment]
    assert not following.is_patient
    del core.p.state.ledger.undecided[tx(5)]
    assert following.is_patient
    core.p.state.ledger.decided[tx(5)] = Decision(True, 3, 3)
    core.step(ev.Taken(), after_ms=1)
    assert not following.is_patient, "more are expected"


def test_who_is_asked_for_its_vote_again_is_not_in_doubt() -> None:
    """Its initiator lives, and waits for another participant; once nobody asks any more the doubt begins anew."""
    core = Core().active()
    ms = Settings().doubt_ms

    def ask(token: int) -> None:
        core.step(ev.PrepareAsked(token, tx(1_000), "o", ("o", "p"), b"d", (), (create(),), {}))

    ask(1)
    core.acknowledge()
    for token in range(2, 10):
        assert not [e for e in core.step(ev.Ticked(), after_ms=ms // 2) if isinstance(e, fx.AskDecision)]
        ask(token)
        assert [type(r) for r in core.replies()] == [res.Success]
        assert core.of(fx.Append) == [], "one vote is enough"
    asked = [e for e in core.step(ev.Ticked(), after_ms=ms) if isinstance(e, fx.AskDecision)]
    assert [(e.tx, e.first) for e in asked] == [(tx(1_000), "o")]


def test_another_transaction_of_the_same_id_renews_nothing() -> None:
    core = Core().active()
    ms = Settings().doubt_ms
    core.step(ev.PrepareAsked(1, tx(1_000), "o", ("o", "p"), b"d", (), (create(),), {}))
    core.acknowledge()
    core.step(ev.Ticked(), after_ms=ms // 2)
    core.step(ev.PrepareAsked(2, tx(1_000), "o", ("o", "p"), b"other", (), (create(),), {}))
    assert [type(r) for r in core.replies()] == [res.Refusal]
    assert [e for e in core.step(ev.Ticked(), after_ms=ms // 2) if isinstance(e, fx.AskDecision)]
