"""Leases (R5) as the core sees them: how long one lasts, and what a new active node waits for."""

from __future__ import annotations

import msgspec
import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import Member
from halog.core.roles import Role
from halog.core.table.tell import Tell
from halog.events import LEASE_AWAITED
from tests.unit.core.kit import SETTINGS, A, B, C, Core, Script, epoch, table, tx

pytestmark = pytest.mark.feature("R5")

LEASED = msgspec.structs.replace(SETTINGS, lease_ms=1_000)
WAIT_MS, LASTS_MS = LEASED.lease_wait_ms, 1_000 - LEASED.lease_margin_ms
ZOMBIE = Member("B", 2)


def leader() -> Core:
    """A leads the first epoch, and has just asked for its lease."""
    core = Core(settings=LEASED).active()
    core.step(ev.Ticked(), after_ms=20)
    return core


def ends(core: Core) -> int:
    assert core.p.leading is not None
    return core.p.leading.lease.ends


def renew(core: Core, result: ev.Cas = ev.Cas.OK, *, after_ms: int = 0) -> list[fx.Effect]:
    return core.step(ev.Renewed(core.one(fx.Renew).round, result), after_ms=after_ms)


# --- one's own ---


def test_it_is_asked_for_with_the_znodes_version_and_counts_from_the_question() -> None:
    core = leader()
    sent = core.now
    assert core.one(fx.Renew).version == core.p.state.version
    assert ends(core) == 0
    renew(core, after_ms=300)
    assert ends(core) == sent + LASTS_MS


def test_it_is_renewed_three_times_before_it_would_end() -> None:
    core = leader()
    renew(core)
    asked = []
    for _ in range(50):
        core.step(ev.Ticked(), after_ms=20)
        if core.of(fx.Renew):
            asked.append(core.now)
            renew(core)
    assert len(asked) in (2, 3)
    assert ends(core) == asked[-1] + LASTS_MS


@pytest.mark.parametrize("result", [ev.Cas.CONFLICT, ev.Cas.UNKNOWN])
def test_any_other_answer_makes_it_no_longer(result: ev.Cas) -> None:
    core = leader()
    renew(core, result)
    assert ends(core) == 0
    assert bool(core.of(fx.Refresh)) is (result is ev.Cas.CONFLICT)
    core.step(ev.Ticked(), after_ms=SETTINGS.retry_ms)
    assert core.of(fx.Renew)


def test_an_answer_that_comes_after_it_was_asked_again_counts_for_nothing() -> None:
    core = leader()
    first = core.one(fx.Renew)
    core.step(ev.Ticked(), after_ms=1_000)
    assert core.one(fx.Renew).round != first.round
    core.step(ev.Renewed(first.round, ev.Cas.OK))
    assert ends(core) == 0


def test_without_a_policy_that_asks_for_it_there_is_none() -> None:
    core = Core().active()
    core.step(ev.Ticked(), after_ms=5_000)
    assert not core.of(fx.Renew)


@pytest.mark.feature("R5", "Q5")
def test_it_is_given_up_before_handed_over_is_appended_for_good() -> None:
    """H2. Called off before that, it goes on."""
    core = Core(settings=LEASED).with_sync_replica()
    core.step(ev.Ticked(), after_ms=20)
    renew(core)
    core.submit(1)
    core.step(ev.HandOverAsked(7, "B"))
    assert core.is_now(Role.DRAINING)
    assert ends(core) > core.now
    core.acknowledge()
    core.acked_by(B, 2)
    assert core.is_now(Role.HANDING)
    assert ends(core) == 0
    core.step(ev.Ticked(), after_ms=500)
    assert not core.of(fx.Renew)


def test_after_a_lost_session_there_is_none_until_others_have_sorted_themselves_out_and_the_log_agrees() -> None:
    core = leader()
    renew(core)
    core.step(ev.SessionLost())
    assert ends(core) == 0
    core.step(ev.Ticked(), after_ms=WAIT_MS - 1)
    assert not core.of(fx.Renew)
    core.step(ev.Ticked(), after_ms=1)
    assert core.of(fx.Append)
    assert not core.of(fx.Renew)
    core.acknowledge()
    core.step(ev.Ticked(), after_ms=20)
    renew(core)
    assert ends(core) > core.now


# --- the predecessor's ---


def heir(*, known_ms: int = 60_000, active: Member | None = ZOMBIE, led: int = 1) -> Core:
    """A has replaced epoch 1, that B led, and whose table A has known for so long; its own epoch has opened."""
    script = Script()
    core = Core(A, settings=LEASED)
    core.step(ev.TableSeen(1, table(epoch=epoch(led), active=active)))
    for data in (script.started(epoch(1)), script.opened(epoch(1))):
        core.land(data)
    core.loaded()
    core.alive(B, C)
    core.now += known_ms
    core.alive(C)
    if core.role is Role.FOLLOWING:
        core.step(ev.Ticked(), after_ms=SETTINGS.start_grace_ms)
    core.step(ev.Ticked(), after_ms=core.p.campaign.patience)
    return opened(core)


def opened(core: Core) -> Core:
    assert core.is_now(Role.CLAIMING)
    core.step(ev.CasDone(core.one(fx.SetTable).round, ev.Cas.OK, 2))
    core.land()
    core.land()
    return core


def test_it_serves_nothing_until_every_lease_has_ended() -> None:
    """Not a commit, not a barrier; nor does it say "happened" of what it found."""
    core = heir()
    assert core.is_now(Role.OPENING)
    core.submit(1)
    assert core.replies() == [res.InactiveCopy(None)]
    core.step(ev.BarrierAsked(5))
    assert core.replies() == [res.InactiveCopy(None)]
    core.p.state.outcomes.add(tx(9), 2)
    core.step(ev.Asked(6, tx(9), 1))
    assert core.replies() == [res.Unknown("only the active node may say")]
    core.step(ev.Ticked(), after_ms=WAIT_MS - 1)
    assert core.is_now(Role.OPENING)
    core.step(ev.Ticked(), after_ms=1)
    assert core.is_now(Role.ACTIVE)
    core.step(ev.Asked(7, tx(9), 1))
    assert core.replies() == [res.Success(2)]


def test_that_it_waits_is_told_once_if_it_takes_longer_than_a_moment() -> None:
    core = heir()
    core.step(ev.Ticked(), after_ms=20)
    assert not core.of(Tell)
    core.step(ev.Ticked(), after_ms=SETTINGS.retry_ms)
    (told,) = core.of(Tell)
    assert (told.kind, told.more["ms"]) == (LEASE_AWAITED, WAIT_MS - SETTINGS.retry_ms - 20)
    assert told.cause.startswith("B may still read under a lease")
    core.step(ev.Ticked(), after_ms=20)
    assert not core.of(Tell)


@pytest.mark.parametrize("lost", [True, False])
def test_a_session_lost_before_it_serves_bars_its_lease_too(lost: bool) -> None:
    core = heir()
    if lost:
        core.step(ev.SessionLost())
    core.step(ev.Ticked(), after_ms=WAIT_MS)
    assert core.is_now(Role.ACTIVE)
    core.step(ev.Ticked(), after_ms=20)
    assert bool(core.of(fx.Renew)) is not lost
    if lost:
        core.step(ev.Ticked(), after_ms=WAIT_MS - 21)
        assert not core.of(fx.Renew)
        core.step(ev.Ticked(), after_ms=21)
        assert core.of(fx.Append), "the log is asked first"


def test_its_own_deadline_to_open_does_not_end_the_wait() -> None:
    core = heir()
    core.p.state.settings = msgspec.structs.replace(LEASED, start_deadline_ms=10)
    core.step(ev.Ticked(), after_ms=500)
    assert core.is_now(Role.OPENING)


def test_the_word_of_its_host_ends_the_wait_at_once() -> None:
    core = heir()
    core.step(ev.Died(ZOMBIE._replace(incarnation=1)))
    assert core.is_now(Role.OPENING)
    core.step(ev.Died(ZOMBIE))
    assert core.is_now(Role.ACTIVE)


def test_an_epoch_that_was_given_up_in_the_znode_needs_no_wait() -> None:
    core = heir(active=None)
    assert core.is_now(Role.ACTIVE)


def test_proof_counts_only_if_the_one_that_was_replaced_had_waited_itself() -> None:
    """It took over a moment ago and died: the one before it may live, and read."""
    core = heir(known_ms=100)
    core.step(ev.Died(ZOMBIE))
    assert core.is_now(Role.OPENING)
    core.step(ev.Ticked(), after_ms=WAIT_MS)
    assert core.is_now(Role.ACTIVE)


def test_a_first_epoch_has_nobody_to_wait_for() -> None:
    assert Core(settings=LEASED).active().is_now(Role.ACTIVE)


def test_a_table_older_than_the_log_names_nobody_whose_death_would_prove_anything() -> None:
    """The znode was put back."""
    core = heir(active=None, led=0)
    assert core.is_now(Role.OPENING)


def test_handed_over_is_proof() -> None:
    script = Script()
    core = Core(A, settings=LEASED)
    core.loaded()
    core.alive(B, C)
    core.step(ev.TableSeen(1, table(epoch=epoch(1), active=ZOMBIE)))
    core.land(script.started(epoch(1)))
    core.land(script.opened(epoch(1)))
    core.land(script.handed_over(epoch(1), "A"))
    assert opened(core).is_now(Role.ACTIVE)


def test_a_replica_does_not_say_that_something_happened() -> None:
    """R4: who holds the lease may not have heard yet that the log took it."""
    core = Core(A, settings=LEASED)
    core.p.state.outcomes.add(tx(1), 3)
    core.step(ev.Asked(5, tx(1), 1))
    assert core.replies() == [res.Unknown("only the active node may say")]
    core = Core(A)
    core.p.state.outcomes.add(tx(1), 3)
    core.step(ev.Asked(5, tx(1), 1))
    assert core.replies() == [res.Success(3)]
