"""Who runs the log's delivery reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from halog.ports import Delivery, TopicPartition
from halog.runtime.replica.delivery_reports import DeliveryReports
from halog.testing.cluster import wait_until

pytestmark = pytest.mark.feature("R1")


class Session:
    """Reports are due when told; remembers which threads polled."""

    failed: str | None = None

    def __init__(self) -> None:
        self.polled_by: set[str] = set()
        self.due: list[Callable[[], None]] = []
        self.inside = 0
        self.most_inside = 0

    def poll(self, timeout_s: float) -> int:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.polled_by.add(threading.current_thread().name)
        end = time.monotonic() + timeout_s
        while not self.due and time.monotonic() < end:
            time.sleep(0.001)
        due = self.due
        self.due = []
        for report in due:
            report()
        self.inside -= 1
        return len(due)

    def append(self, tp: TopicPartition, data: bytes, done: Delivery, *, patience_s: float = 0.0) -> None:
        raise AssertionError("deliveries append nothing")

    def abandon(self) -> None:
        raise AssertionError("deliveries abandon nothing")


class Copy:
    """Appends are numbers; what was reported is taken in order."""

    def __init__(self, session: Session) -> None:
        self.session: Session | None = session
        self.appended = self.delivered = 0
        self.taken: list[int] = []
        self.later = False
        """Nobody waits for what was appended last."""
        self.busy: Callable[[], None] = lambda: None
        """What its loop has to do when it has taken its reports."""

    @property
    def awaited(self) -> int:
        return self.appended - self.later

    def report(self, deliveries: DeliveryReports, tag: int) -> Callable[[], None]:
        def report() -> None:
            self.delivered = tag
            deliveries.reported(self)

        return report

    def take_reports(self) -> None:
        self.taken.append(self.delivered)
        self.busy()


class Rig:
    def __init__(self, **how: Any) -> None:
        self.session = Session()
        self.copy = Copy(self.session)
        self.copies = [self.copy]
        self.deliveries = DeliveryReports(lambda: self.session, lambda: self.copies, **how)
        self.closing = threading.Event()
        self.kept = threading.Thread(target=self.deliveries.run, args=(self.closing,), name="kept", daemon=True)

    def serve(self, tag: int, settled: Callable[[], bool] = lambda: False, seconds: float = 5.0) -> None:
        self.deliveries.serve(self.copy, tag, settled, time.monotonic() + seconds)

    def report(self, tag: int) -> None:
        self.session.due.append(self.copy.report(self.deliveries, tag))


SOON_S = 0.3


@pytest.fixture(name="rig")
def hurried() -> Iterator[Rig]:
    yield from ending(Rig())


@pytest.fixture
def idle() -> Iterator[Rig]:
    """The kept thread polls only where it is expected to."""
    yield from ending(Rig(idle_s=60.0))


@pytest.fixture
def patient() -> Iterator[Rig]:
    """As `idle`, and what is for soon is left for a minute."""
    yield from ending(Rig(soon_s=60.0, idle_s=60.0))


@pytest.fixture
def unhurried() -> Iterator[Rig]:
    """As `idle`, and there is time to see who else polls."""
    rig = Rig(soon_s=SOON_S, idle_s=60.0)
    rig.copy.appended, rig.copy.later = 1, True
    rig.kept.start()
    yield from ending(rig)


def ending(rig: Rig) -> Iterator[Rig]:
    yield rig
    rig.closing.set()
    rig.deliveries.expect()
    if rig.kept.is_alive():
        rig.kept.join(60)


def test_the_committing_thread_polls_until_its_own_append_is_reported(rig: Rig) -> None:
    rig.copy.appended = 1
    rig.report(1)
    rig.serve(1)
    assert rig.copy.taken == [1]
    assert rig.session.polled_by == {threading.current_thread().name}


def test_it_stops_when_its_answer_came_another_way(rig: Rig) -> None:
    rig.copy.appended = 1
    begin = time.monotonic()
    rig.serve(1, settled=lambda: time.monotonic() > begin + 0.01)
    assert rig.copy.taken == []


def test_it_stops_when_its_time_is_up(rig: Rig) -> None:
    rig.copy.appended = 1
    rig.serve(1, seconds=0.02)
    assert rig.copy.delivered == 0


def test_without_a_session_there_is_nothing_to_wait_for(rig: Rig) -> None:
    rig.copy.appended, rig.copy.session = 1, None
    rig.serve(1)
    assert rig.session.polled_by == set()


def test_one_thread_polls_and_the_kept_one_goes_on_for_those_who_still_wait(rig: Rig) -> None:
    rig.kept.start()
    rig.copy.appended = 1
    server = threading.Thread(target=rig.serve, args=(1,), name="first")
    server.start()
    wait_until(lambda: "first" in rig.session.polled_by, "nobody polls")
    rig.copy.appended = 2
    rig.serve(2)  # another one polls: back at once
    rig.report(1)
    server.join(60)
    rig.report(2)
    wait_until(lambda: rig.copy.delivered == 2, "nobody went on")
    assert rig.session.polled_by == {"first", "kept"}
    assert rig.session.most_inside == 1


def test_appends_nobody_serves_are_the_kept_threads(rig: Rig) -> None:
    rig.kept.start()
    rig.copy.appended = 1
    rig.deliveries.expect()
    rig.report(1)
    wait_until(lambda: rig.copy.taken == [1], "not taken")
    assert rig.session.polled_by == {"kept"}


def test_reports_made_outside_a_poll_are_handed_over_by_flush(rig: Rig) -> None:
    rig.copy.report(rig.deliveries, 7)()
    rig.copy.report(rig.deliveries, 8)()
    rig.deliveries.flush()
    assert rig.copy.taken[-1] == 8
    rig.deliveries.flush()
    assert rig.copy.taken[-1] == 8


def test_who_follows_up_takes_what_is_reported_and_leaves_the_rest_to_the_kept_thread(rig: Rig) -> None:
    rig.copy.appended = 2
    rig.report(1)
    rig.deliveries.turn()
    assert rig.copy.taken == [1]
    rig.kept.start()
    rig.report(2)
    wait_until(lambda: rig.copy.taken == [1, 2], "not taken")
    assert rig.session.polled_by == {threading.current_thread().name, "kept"}


def test_the_kept_thread_lets_go_when_somebody_follows_up(rig: Rig) -> None:
    rig.copy.appended = 2
    rig.kept.start()
    rig.deliveries.expect()

    def answered() -> None:
        rig.copy.report(rig.deliveries, 1)()
        rig.deliveries.followed = True

    rig.session.due.append(answered)
    wait_until(lambda: rig.copy.taken == [1], "not taken")
    wait_until(lambda: not rig.deliveries._polling.locked(), "it polls on")
    rig.report(2)
    rig.deliveries.turn()
    assert rig.copy.taken == [1, 2]
    assert threading.current_thread().name in rig.session.polled_by


@contextmanager
def polling(rig: Rig) -> Iterator[None]:
    """While another thread polls for what it appended; that is reported behind."""
    rig.copy.appended = 1
    server = threading.Thread(target=rig.serve, args=(1,), name="first")
    server.start()
    wait_until(lambda: "first" in rig.session.polled_by, "nobody polls")
    yield
    rig.report(1)
    server.join(60)


def test_a_turn_that_finds_somebody_polling_makes_sure_that_somebody_goes_on(idle: Rig) -> None:
    """He may be about to leave it to whoever comes: exactly this one."""
    with polling(idle):
        idle.deliveries.turn()
    assert "kept" not in idle.session.polled_by
    idle.kept.start()
    wait_until(lambda: "kept" in idle.session.polled_by, "nobody goes on")


def test_a_commit_the_log_answers_is_followed_by_its_own_thread(rig: Rig) -> None:
    rig.copy.appended = 1
    rig.report(1)
    rig.deliveries.follow(rig.copy, 1, lambda: False, time.monotonic() + 5)
    assert rig.copy.taken == [1]


def test_nothing_appended_is_nothing_to_follow(rig: Rig) -> None:
    rig.deliveries.follow(rig.copy, 0, lambda: False, time.monotonic() + 5)
    assert rig.session.polled_by == set()


@pytest.mark.feature("R6")
def test_a_commit_the_replicas_answer_is_pushed_at_once_and_polled_by_the_kept_thread() -> None:
    pushed: list[str] = []
    rig = Rig()
    rig.copy.appended = 1
    rig.deliveries = DeliveryReports(lambda: rig.session, lambda: [rig.copy], lambda: pushed.append("now"))
    rig.deliveries.follow(rig.copy, 0, lambda: False, time.monotonic() + 5)
    assert pushed == ["now"]
    assert rig.session.polled_by == set()


@pytest.mark.feature("R6")
def test_a_turn_sends_the_pushes_also_where_another_thread_polls() -> None:
    """He may be waiting for the log, which replicas are not to be told behind."""
    pushed: list[str] = []
    rig = Rig(push=lambda: pushed.append(threading.current_thread().name))
    with polling(rig):
        assert threading.current_thread().name not in pushed
        rig.deliveries.turn()
        assert threading.current_thread().name in pushed


# --- what nobody waits for ---


def test_what_nobody_waits_for_is_reported_with_the_next_one(unhurried: Rig) -> None:
    """By the thread that waits for that; the kept one stays away."""
    rig = unhurried
    rig.deliveries.expect(SOON_S)
    rig.copy.appended, rig.copy.later = 2, False
    rig.report(1), rig.report(2)
    rig.serve(2)
    time.sleep(2 * SOON_S)
    assert rig.session.polled_by == {threading.current_thread().name}
    assert rig.copy.delivered == 2


def test_it_is_the_kept_threads_if_nobody_polls_meanwhile(unhurried: Rig) -> None:
    rig = unhurried
    rig.deliveries.expect(SOON_S)
    rig.report(1)
    wait_until(lambda: rig.copy.delivered == 1, "nobody polled")
    assert rig.session.polled_by == {"kept"}


def test_who_leaves_behind_what_nobody_waits_for_leaves_it_for_soon(unhurried: Rig) -> None:
    rig = unhurried
    rig.copy.appended = 2
    rig.report(1)
    left = time.monotonic()
    rig.serve(1)
    wait_until(lambda: "kept" in rig.session.polled_by, "nobody polls")
    assert time.monotonic() - left >= SOON_S, "whoever comes next had time to poll for it"


def test_who_leaves_behind_what_is_waited_for_leaves_it_at_once(patient: Rig) -> None:
    rig = patient
    rig.kept.start()
    rig.copy.appended = 2
    rig.report(1)
    rig.serve(1)
    wait_until(lambda: "kept" in rig.session.polled_by, "nobody polls")


def test_one_who_is_in_a_hurry_does_not_wait_for_one_who_is_not(unhurried: Rig) -> None:
    rig = unhurried
    rig.deliveries.expect(60.0)
    rig.deliveries.expect()
    rig.report(1)
    wait_until(lambda: rig.copy.delivered == 1, "nobody polled")


def test_what_was_told_in_a_turn_of_a_loop_that_is_busy_then_is_polled_for(
    idle: Rig,
) -> None:
    """The loop will take another turn, but not soon: who meets what was told is another one's client."""
    rig, told = idle, Copy(idle.session)
    rig.copies.append(told)
    rig.kept.start()
    rig.copy.appended = 1

    def busy() -> None:
        told.appended, told.later = 1, True
        rig.deliveries.expect(0.001)
        time.sleep(0.005)
        rig.deliveries.followed = True

    rig.copy.busy = busy
    rig.report(1)
    rig.deliveries.turn()
    rig.session.due.append(told.report(rig.deliveries, 1))
    wait_until(lambda: told.taken == [1], "nobody polls")


def test_a_session_that_has_failed_is_told_though_nobody_waits_for_it() -> None:
    """What failed may be of an epoch that was given up."""
    told: list[tuple[object, str]] = []
    session = Session()
    deliveries = DeliveryReports(lambda: session, list, failed=lambda failed, why: told.append((failed, why)))
    deliveries.turn()
    assert not told
    session.failed = "refused"
    deliveries.turn()
    assert told == [(session, "refused")]
