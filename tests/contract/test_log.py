"""The Log port: order, exact offsets, three-valued outcomes, tails that never lie. Memory and Kafka alike."""

from __future__ import annotations

import itertools
import random
import threading
import time

import pytest

from halog.adapters.kafka.conf import MAX_BYTES, MAX_QUEUED
from halog.errors import ClosedError, OverloadedError, RecordTooLargeError
from halog.ports import Entry, LogTail, OutOfRange, TopicPartition
from tests.contract.rigs import LogRig, Outcomes, appended, collect, new_topic, offsets, poll_until, values
from tests.contract.rigs_coordinator import wait_for

pytestmark = pytest.mark.feature("P1")

LONG_S = 60.0
"""What is allowed where nothing is to be waited for."""
SOON_S = 20.0
"""Long before that, on a busy machine too."""
SLACK_MS = 1_000
"""Two programs read the same clock, and round."""


def test_appends_land_in_order_at_consecutive_offsets(logs: LogRig) -> None:
    """Many appends in flight are answered in append order, each with the next offset, and are read back so."""
    log = logs.log()
    tp, session, tail = new_topic(log), log.session(), log.tail()
    tail.follow(tp, 0)
    wanted = [b"%d" % n for n in range(500)]
    assert appended(session, tp, *wanted) == list(range(500))
    found = collect(tail, 500)
    assert values(found) == wanted
    assert offsets(found) == list(range(500))
    session.abandon()
    tail.close()


def test_deliveries_come_only_from_poll(logs: LogRig) -> None:
    """`append` returns before any callback ran, even when the log has answered long since."""
    log = logs.log()
    tp, session, outcomes = new_topic(log), log.session(), Outcomes()
    session.append(tp, b"x", outcomes)
    time.sleep(0.1)
    assert outcomes == []
    poll_until(session, lambda: bool(outcomes))
    assert outcomes == [(0, None)]
    session.abandon()


def test_partitions_are_apart_and_each_in_order(logs: LogRig) -> None:
    """A tail that follows two of three partitions gets each in its own order, and nothing of the third."""
    log = logs.log()
    first = new_topic(log, 3)
    parts = [TopicPartition(first.topic, n) for n in range(3)]
    session, tail, outcomes = log.session(), log.tail(), Outcomes()
    tail.follow(parts[0], 0)
    tail.follow(parts[2], 5)
    for n in range(60):
        session.append(parts[n % 3], b"%d" % n, outcomes)
    poll_until(session, lambda: len(outcomes) == 60)
    found = collect(tail, 35)
    assert tail.poll(0.1) == []
    assert [(e.tp, e.offset) for e in found if e.tp == parts[0]] == [(parts[0], n) for n in range(20)]
    assert [e.offset for e in found if e.tp == parts[2]] == list(range(5, 20))
    assert {e.tp for e in found} == {parts[0], parts[2]}
    session.abandon()
    tail.close()


def test_an_append_of_another_node_is_seen_with_the_brokers_time(logs: LogRig) -> None:
    """Two nodes share the log; an entry carries the time at which it was appended."""
    a, b = logs.log(), logs.log()
    tp, session, tail = new_topic(a), a.session(), b.tail()
    tail.follow(tp, 0)
    before = time.time() * 1000
    appended(session, tp, b"x")
    after = time.time() * 1000
    (entry,) = collect(tail, 1)
    assert isinstance(entry, Entry)
    assert before - SLACK_MS <= entry.timestamp_ms <= after + SLACK_MS
    session.abandon()
    tail.close()


def test_poll_waits_no_longer_than_asked_and_wake_ends_it(logs: LogRig) -> None:
    """An idle poll returns empty in time, and at once when woken from another thread."""
    log = logs.log()
    tp, tail = new_topic(log), log.tail()
    tail.follow(tp, 0)
    started = time.monotonic()
    assert tail.poll(0.2) == []
    assert 0.15 < time.monotonic() - started < SOON_S
    threading.Timer(0.1, tail.wake).start()
    started = time.monotonic()
    assert tail.poll(LONG_S) == []
    assert time.monotonic() - started < SOON_S
    tail.close()


def test_a_poll_takes_no_more_than_its_limit_and_loses_nothing(logs: LogRig) -> None:
    """Entries come in portions of at most the limit, without a gap between them."""
    log = logs.log()
    tp, session, tail = new_topic(log), log.session(), log.tail()
    appended(session, tp, *[b"x"] * 100)
    tail.follow(tp, 0)
    portions: list[list[Entry | OutOfRange]] = []
    while sum(len(p) for p in portions) < 100:
        portions.append(list(tail.poll(1, limit=7)))
    assert max(len(p) for p in portions) <= 7
    assert [e.offset for p in portions for e in p] == list(range(100))
    session.abandon()
    tail.close()


def test_unfollow_drops_what_was_fetched(logs: LogRig) -> None:
    """Nothing of a partition is delivered after unfollow, though it had been fetched already."""
    log = logs.log()
    tp, session, tail = new_topic(log), log.session(), log.tail()
    appended(session, tp, *[b"x"] * 100)
    tail.follow(tp, 0)
    assert len(tail.poll(LONG_S, limit=1)) == 1
    tail.unfollow(tp)
    assert tail.poll(0.3) == []
    tail.unfollow(tp)
    session.abandon()
    tail.close()


def test_follow_again_moves_the_place(logs: LogRig) -> None:
    """A second follow of a partition delivers from the new offset on, back and forward, and nothing else."""
    log = logs.log()
    tp, session, tail = new_topic(log), log.session(), log.tail()
    appended(session, tp, *[b"%d" % n for n in range(100)])
    for place in (50, 0, 99, 30):
        tail.follow(tp, place)
        found = collect(tail, 100 - place)
        assert offsets(found) == list(range(place, 100))
    session.abandon()
    tail.close()


def test_a_move_during_a_poll_never_mixes_two_follows(logs: LogRig) -> None:
    """While one thread polls, another moves the place: entries run on without a gap or jump to a place asked for."""
    log = logs.log()
    tp, session, tail = new_topic(log), log.session(), log.tail()
    appended(session, tp, *[b"x" * 100] * 3000)
    seen: list[int] = []
    stop = threading.Event()
    poller = threading.Thread(target=_poll_all, args=(tail, seen, stop))
    rng = random.Random(7)
    places = [*(rng.randrange(1, 3000) for _ in range(80)), 0]  # no follow but the last can end with all 3,000
    tail.follow(tp, 1)
    poller.start()
    for place in places:
        tail.follow(tp, place)
        time.sleep(rng.choice((0, 0.002, 0.02)))
    deadline = time.monotonic() + LONG_S
    wanted = list(range(3000))
    while seen[-len(wanted) :] != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    stop.set()
    poller.join()
    assert seen[-len(wanted) :] == wanted
    left = iter(places)
    for before, after in itertools.pairwise(seen):
        if after != before + 1:
            assert any(place == after for place in left), f"{after} after {before}: nobody asked for it"
    session.abandon()
    tail.close()


def _poll_all(tail: LogTail, seen: list[int], stop: threading.Event) -> None:
    while not stop.is_set():
        seen.extend(e.offset for e in tail.poll(0.05, limit=500) if isinstance(e, Entry))


@pytest.mark.feature("P1", "P6")
def test_a_trimmed_log_is_said_to_be_out_of_range(logs: LogRig) -> None:
    """A place before the log's begin or behind its end is reported once with both, never silently corrected."""
    log = logs.log()
    tp, session, tail = new_topic(log), log.session(), log.tail()
    appended(session, tp, *[b"%d" % n for n in range(50)])
    log.trim(tp, 20)
    assert log.bounds(tp) == (20, 50)
    tail.follow(tp, 5)
    assert collect(tail, 1) == [OutOfRange(tp, 5, 20, 50)]
    assert tail.poll(0.2) == []
    tail.follow(tp, 60)
    assert collect(tail, 1) == [OutOfRange(tp, 60, 20, 50)]
    tail.follow(tp, 20)
    assert offsets(collect(tail, 30)) == list(range(20, 50))
    session.abandon()
    tail.close()


@pytest.mark.feature("P1", "P2")
def test_a_held_append_is_unknown_and_may_land_later(logs: LogRig) -> None:
    """Abandoning a session fails what is in flight as unknown, at once; the append can land all the same."""
    log = logs.log()
    tp, session, outcomes = new_topic(log), log.session(), Outcomes()
    assert appended(session, tp, b"before") == [0]
    logs.hold(tp)
    held = b"held" * 5_000  # more than whatever else is under way
    session.append(tp, held, outcomes)
    logs.sent(len(held))
    session.poll(0)
    assert outcomes == []
    started = time.monotonic()
    session.abandon()
    assert time.monotonic() - started < SOON_S, "the log stands still until it is released"
    assert outcomes.offsets == [None]
    assert session.failed
    logs.release(tp)
    wait_for(lambda: log.bounds(tp)[1] == 2)
    other = log.session()
    assert appended(other, tp, b"after") == [2]
    assert [e.value for e in log.read(tp, 0, 3)] == [b"before", held, b"after"]
    assert len(outcomes) == 1
    other.abandon()


def test_a_failed_session_appends_no_more(logs: LogRig) -> None:
    """The first append that fails for good fails the session: all behind it are refused, none lands."""
    log = logs.log()
    tp, session, outcomes = new_topic(log), log.session(), Outcomes()
    appended(session, tp, b"x")
    session.append(TopicPartition(tp.topic, 77), b"nowhere", outcomes)
    poll_until(session, lambda: len(outcomes) == 1)
    assert session.failed
    session.append(tp, b"y", outcomes)
    poll_until(session, lambda: len(outcomes) == 2)
    assert outcomes.offsets == [None, None]
    assert all(why for _, why in outcomes)
    assert log.bounds(tp) == (0, 1)
    session.abandon()


def test_a_callback_that_raises_harms_nobody_else(logs: LogRig) -> None:
    """An exception in one delivery is logged; the others are delivered and the session lives."""
    log = logs.log()
    tp, session, outcomes = new_topic(log), log.session(), Outcomes()

    def bad(offset: int | None, why: str | None) -> None:
        raise ValueError("a bug of the caller")

    session.append(tp, b"x", bad)
    session.append(tp, b"y", outcomes)
    poll_until(session, lambda: bool(outcomes))
    assert outcomes == [(1, None)]
    assert session.failed is None
    session.abandon()


@pytest.mark.feature("R8")
def test_a_record_over_the_limit_is_refused_and_nothing_changes(logs: LogRig) -> None:
    """5 MB pass; more than the log's limit is refused by name before it is queued, and the session goes on."""
    log = logs.log()
    tp, session, outcomes = new_topic(log), log.session(), Outcomes()
    with pytest.raises(RecordTooLargeError, match=str(MAX_BYTES)):
        session.append(tp, bytes(MAX_BYTES + 1), outcomes)
    assert appended(session, tp, bytes(5_000_000)) == [0]
    assert outcomes == []
    assert [len(e.value) for e in log.read(tp, 0, 1)] == [5_000_000]
    session.abandon()


def test_a_full_queue_is_overloaded_not_blocked(logs: LogRig) -> None:
    """With the log standing still, appends are taken up to the limit, then refused; abandoning answers them all."""
    log = logs.log()
    tp, session, outcomes = new_topic(log), log.session(), Outcomes()
    appended(session, tp, b"x")
    logs.hold(tp)
    for _ in range(MAX_QUEUED):
        session.append(tp, b"x", outcomes)
    with pytest.raises(OverloadedError):
        session.append(tp, b"x", outcomes)
    assert outcomes == []
    started = time.monotonic()
    session.abandon()
    assert time.monotonic() - started < SOON_S
    assert len(outcomes) == MAX_QUEUED
    assert set(outcomes.offsets) == {None}


def test_closing_ends_a_waiting_poll(logs: LogRig) -> None:
    """A poll that waits when the tail is closed by another thread ends soon, with ClosedError."""
    log = logs.log()
    tp, tail = new_topic(log), log.tail()
    tail.follow(tp, 0)
    threading.Timer(0.1, tail.close).start()
    started = time.monotonic()
    with pytest.raises(ClosedError):
        tail.poll(LONG_S)
    assert time.monotonic() - started < SOON_S
    with pytest.raises(ClosedError):
        tail.follow(tp, 0)
    tail.close()
