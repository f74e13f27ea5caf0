"""A copy that stopped, on a node that lives: nobody waits for it for ever, and it does not sit on the partition."""

from __future__ import annotations

from typing import Any

import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.roles import Role
from halog.core.table.tell import Tell
from halog.events import REMOVED
from tests.unit.core.kit import SETTINGS, B, Core, create

TICK = 20


class SlowLog(Core):
    """Its log answers when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = False

    def wait_for(self, kind: Any, ms: int) -> list[Any]:
        """So long at most, until there is one of these."""
        for _ in range(ms // TICK):
            if found := [e for e in wait(self, TICK) if isinstance(e, kind)]:
                return found
        return []


def wait(core: Core, ms: int) -> list[fx.Effect]:
    effects: list[fx.Effect] = []
    for _ in range(ms // TICK):
        effects += core.step(ev.Ticked(), after_ms=TICK)
    return effects


@pytest.mark.feature("R4")
def test_a_sync_replica_that_lives_but_acknowledges_nothing_leaves_the_node_list_and_commits_go_on() -> None:
    core = Core().with_sync_replica()
    core.submit(1)
    core.acknowledge()
    assert not core.replies()
    effects = []
    for _ in range(SETTINGS.silent_ms // SETTINGS.ack_every_ms + 2):
        core.acked_by(B, 1)  # it lives, and repeats what it has: it cannot reach the log, say
        effects += wait(core, SETTINGS.ack_every_ms)
    (shrink,) = [e for e in effects if isinstance(e, fx.SetTable)]
    assert shrink.table.replicas == ()
    assert not [e for e in effects if isinstance(e, fx.Reply)]  # S2
    core.step(ev.CasDone(shrink.round, ev.Cas.OK, 3))
    assert core.replies() == [res.Success(2)]
    (told,) = core.of(Tell)
    assert (told.kind, told.node) == (REMOVED, "B")
    assert "acknowledged nothing new" in told.cause
    core.acked_by(B, 2)
    assert core.one(fx.SetTable).table.replicas[0].member == B


@pytest.mark.feature("R4")
def test_a_replica_that_repeats_its_acknowledgement_stays() -> None:
    core = Core().with_sync_replica()
    for _ in range(3 * SETTINGS.silent_ms // SETTINGS.ack_every_ms):
        assert not wait(core, SETTINGS.ack_every_ms)
        core.acked_by(B, 1)


@pytest.mark.feature("R4")
def test_nobody_fell_silent_while_this_process_was_stopped() -> None:
    core = Core().with_sync_replica()
    assert not core.step(ev.Ticked(), after_ms=10 * SETTINGS.silent_ms)
    assert not wait(core, SETTINGS.ack_every_ms)


@pytest.mark.feature("R4")
def test_a_replica_is_not_silent_while_an_append_goes_unanswered() -> None:
    """The log stands still: it gives the replica nothing, whatever that repeats."""
    core = Core().with_sync_replica()
    core.submit(1)
    core.acknowledge()  # B has not read it when the log stops
    core.submit(2, create(b"other"))
    patience = SETTINGS.commit_deadline_ms - 2 * TICK
    assert patience > 2 * SETTINGS.silent_ms
    assert not [e for e in wait(core, patience) if isinstance(e, fx.SetTable | fx.EndSession)]
    core.acknowledge()
    core.acked_by(B, 3)
    assert len(core.replies()) == 2
    assert core.p.state.table.replicas


@pytest.mark.feature("R4")
def test_before_a_replica_is_silent_the_log_is_asked_and_an_outage_of_any_length_is_one_word_of_it() -> None:
    core = Core().with_sync_replica()
    core.answers = False
    core.submit(1)
    core.acknowledge()
    (asked,) = [e for e in wait(core, 4 * SETTINGS.silent_ms) if isinstance(e, fx.SetTable | fx.AskLog)]
    assert isinstance(asked, fx.AskLog)
    core.step(ev.LogAnswered(asked.round - 1))  # not the one that was asked last
    assert not wait(core, SETTINGS.silent_ms)
    core.answers = True
    core.step(ev.LogAnswered(asked.round))  # it was away
    effects = wait(core, SETTINGS.silent_ms - 3 * SETTINGS.ack_every_ms)
    assert not [e for e in effects if isinstance(e, fx.SetTable)]
    core.acked_by(B, 2)
    assert not [e for e in wait(core, SETTINGS.silent_ms // 2) if isinstance(e, fx.SetTable)]


@pytest.mark.feature("R4")
@pytest.mark.parametrize("repeats", [True, False])
def test_a_replica_is_silent_behind_a_log_that_is_slow_with_every_answer(repeats: bool) -> None:
    """It is slow, and not away: fifteen answers are enough, however long each of them takes."""
    core, answer_ms = SlowLog().with_sync_replica(), 1_200
    core.submit(1)
    core.acknowledge()
    answers = 0
    while core.p.state.table.replicas:
        (asked,) = core.wait_for(fx.AskLog | fx.SetTable, 4 * SETTINGS.ack_every_ms)
        if isinstance(asked, fx.SetTable):
            core.step(ev.CasDone(asked.round, ev.Cas.OK, asked.version + 1))
            break
        assert not core.wait_for(fx.AskLog | fx.SetTable, answer_ms), "it is asked one question at a time"
        answers += 1
        core.step(ev.LogAnswered(asked.round))
        if repeats:
            core.acked_by(B, 1)
    assert not core.p.state.table.replicas
    assert answers == SETTINGS.silent_ms // SETTINGS.ack_every_ms


@pytest.mark.feature("R4")
def test_a_replica_is_silent_behind_a_log_that_has_something_to_acknowledge_all_the_time() -> None:
    """Each append takes longer than `ack_every_ms`, and the next ones are under way."""
    core, late = Core().with_sync_replica(), 2 * SETTINGS.ack_every_ms
    flying: list[tuple[int, int]] = []
    for n in range(1, 3 * SETTINGS.silent_ms // TICK):
        core.submit(n, create(b"%d" % n))
        flying.append((core.now, core.one(fx.Append).tag))
        if flying[0][0] <= core.now - late:
            core.acknowledge(flying.pop(0)[1])
        core.acked_by(B, 1)
        if set_ := [e for e in wait(core, TICK) if isinstance(e, fx.SetTable)]:
            assert n * TICK < 2 * SETTINGS.silent_ms
            assert set_[0].table.replicas == ()
            return
    raise AssertionError("it holds up commits for ever")


@pytest.mark.feature("R4")
def test_a_replica_that_is_as_slow_as_the_log_stays() -> None:
    core, answer_ms = SlowLog().with_sync_replica(), 1_200
    for n in range(1, 30):
        core.submit(n, create(b"%d" % n))
        assert not [e for e in wait(core, answer_ms) if isinstance(e, fx.SetTable)]
        core.acknowledge()
        for asked in [e for e in wait(core, answer_ms) if isinstance(e, fx.SetTable | fx.AskLog)]:
            assert isinstance(asked, fx.AskLog)
            core.step(ev.LogAnswered(asked.round))
        core.acked_by(B, n + 1)


@pytest.mark.feature("R4", "R7")
def test_a_quorum_holds_while_the_log_stands_still() -> None:
    """All replicas are there: commits wait, and are not refused."""
    core = Core(quorum=2).with_sync_replica()
    core.submit(1)
    core.acknowledge()
    core.submit(2, create(b"other"))
    wait(core, 2 * SETTINGS.silent_ms)
    core.submit(3, create(b"third"))
    assert core.one(fx.Append)


@pytest.mark.feature("P10")
def test_an_active_copy_that_is_lost_says_so_in_the_znode_until_it_is_heard() -> None:
    core = Core().with_sync_replica()
    core.step(ev.LogLost("the disk is full"))
    assert core.role is Role.FAILED
    first = core.one(fx.SetTable)
    assert first.table.active is None
    assert first.table.epoch == core.p.state.table.epoch
    core.step(ev.CasDone(first.round, ev.Cas.UNKNOWN))
    (again, *_) = [e for e in wait(core, 2 * SETTINGS.retry_ms) if isinstance(e, fx.SetTable)]
    core.step(ev.TableSeen(again.version + 1, again.table))
    assert not wait(core, 2 * SETTINGS.retry_ms)
