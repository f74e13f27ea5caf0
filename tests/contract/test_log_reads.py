"""The Log port off the commit path: topics, bounded reads, keyed writes and transactions. Memory and Kafka alike."""

from __future__ import annotations

import time

import pytest

from halog.errors import ClosedError, DeadlineError, RefusedError
from halog.ports import TopicPartition
from tests.contract.rigs import LogRig, appended, collect, new_topic, values

pytestmark = pytest.mark.feature("P1")


def test_a_topic_is_made_once_and_checked_after(logs: LogRig) -> None:
    """An existing topic is accepted as it was made; another number of partitions or clean-up is refused by name."""
    log = logs.log()
    tp = new_topic(log, 2)
    logs.log().ensure_topic(tp.topic, 2)
    with pytest.raises(RefusedError, match="2 partitions"):
        log.ensure_topic(tp.topic, 3)
    with pytest.raises(RefusedError, match=r"cleanup\.policy"):
        log.ensure_topic(tp.topic, 2, compacted=True)
    assert (log.partitions(tp.topic), log.partitions(f"{tp.topic}.not")) == (2, 0)


@pytest.mark.feature("P12")
def test_a_tail_that_fetches_little_ahead_delivers_everything_however_slowly_it_is_asked(logs: LogRig) -> None:
    """Records larger than what it fetches ahead, and more of them than it keeps."""
    log = logs.log()
    tp, session, tail = new_topic(log), log.session(), log.tail(slow=True)
    wanted = [bytes([i % 256]) * (3_000_000 if i % 20 == 10 else 2_000) for i in range(60)]
    for value in wanted:
        appended(session, tp, value)
    tail.follow(tp, 0)
    found: list[bytes] = []
    until = time.monotonic() + 60
    while len(found) < len(wanted) and time.monotonic() < until:
        some = values(tail.poll(1.0, 3))
        assert len(some) <= 3
        found += some
    assert found == wanted


def test_a_tail_knows_where_the_log_ended_when_it_was_read_last(logs: LogRig) -> None:
    log = logs.log()
    tp, session, tail = new_topic(log), log.session(), log.tail()
    assert appended(session, tp, b"1", b"2", b"3") == [0, 1, 2]
    tail.follow(tp, 0)
    collect(tail, 3)
    assert tail.known_end(tp) == 3
    assert appended(session, tp, b"4") == [3]
    collect(tail, 1)
    assert tail.known_end(tp) == 4
    tail.close()
    with pytest.raises(ClosedError):
        tail.known_end(tp)
    session.abandon()


def test_a_topic_grows_under_sessions_and_tails_that_know_it(logs: LogRig) -> None:
    """What was there stays; the new partitions are written and read at once, by whoever has used the others before."""
    log = logs.log()
    tp, session, tail = new_topic(log, 2), log.session(), log.tail()
    tail.follow(tp, 0)
    assert appended(session, tp, b"before") == [0]
    assert values(collect(tail, 1)) == [b"before"]
    logs.log().grow_topic(tp.topic, 4)
    log.grow_topic(tp.topic, 3)
    log.ensure_topic(tp.topic, 3)
    new = TopicPartition(tp.topic, 3)
    tail.follow(new, 0)
    assert appended(session, new, b"new") == [0]
    assert appended(session, tp, b"old") == [1]
    assert sorted(values(collect(tail, 2))) == [b"new", b"old"]
    assert log.bounds(new) == (0, 1)
    assert session.failed is None
    session.abandon()
    tail.close()


def test_read_gives_exactly_the_range(logs: LogRig) -> None:
    """[start, end) comes in order and ends by itself, again and again; what was trimmed is missing."""
    log = logs.log()
    tp, session = new_topic(log), log.session()
    appended(session, tp, *[b"%d" % n for n in range(30)])
    assert [e.value for e in log.read(tp, 10, 20)] == [b"%d" % n for n in range(10, 20)]
    assert [e.offset for e in log.read(tp, 0, 30)] == list(range(30))
    assert list(log.read(tp, 30, 30)) == []
    log.trim(tp, 25)
    assert [e.offset for e in log.read(tp, 0, 30)] == list(range(25, 30))
    session.abandon()


def test_read_behind_the_end_says_so_in_time(logs: LogRig) -> None:
    """Entries that do not come are a DeadlineError, not a hang and not an empty answer."""
    log = logs.log()
    tp, session = new_topic(log), log.session()
    appended(session, tp, b"x")
    started = time.monotonic()
    with pytest.raises(DeadlineError):
        list(log.read(tp, 0, 5, timeout_s=0.5))
    assert time.monotonic() - started < 20
    session.abandon()


def test_keyed_writes_are_read_back_in_order(logs: LogRig) -> None:
    """Writes and transactions of a compacted topic come back with keys and deletions, later ones last."""
    log = logs.log()
    tp = new_topic(log, compacted=True)
    assert list(log.read_keyed(tp)) == []
    log.put(tp, b"a", b"1")
    writer = log.transaction(f"{tp.topic}-w")
    writer.write(tp, [(b"b", b"2", {"lsn": b"7"}), (b"a", None, {})])
    writer.write(tp, [(b"c", b"3", {})])
    assert list(log.read_keyed(tp)) == [
        (b"a", b"1"),
        (b"b", b"2"),
        (b"a", None),
        (b"c", b"3"),
    ]
    assert list(log.read_headers(tp)) == [(b"a", {}), (b"b", {"lsn": b"7"}), (b"a", {}), (b"c", {})]
    writer.close()


def test_a_newer_transaction_writer_fences_the_older(logs: LogRig) -> None:
    """The second writer of a transactional id refuses the first; nothing of the refused transaction is read."""
    log = logs.log()
    tp = new_topic(log, compacted=True)
    old = log.transaction(f"{tp.topic}-w")
    old.write(tp, [(b"a", b"1", {})])
    new = logs.log().transaction(f"{tp.topic}-w")
    with pytest.raises(RefusedError, match="newer writer"):
        old.write(tp, [(b"b", b"2", {})])
    new.write(tp, [(b"c", b"3", {})])
    assert [k for k, _ in log.read_keyed(tp)] == [b"a", b"c"]


def test_a_transaction_whose_items_fail_leaves_nothing(logs: LogRig) -> None:
    """If the iterable raises half-way, nothing it gave is ever read."""
    log = logs.log()
    tp = new_topic(log, compacted=True)
    writer = log.transaction(f"{tp.topic}-w")

    def items() -> object:
        yield b"a", b"1", {}
        raise ValueError("broken source")

    with pytest.raises(ValueError, match="broken source"):
        writer.write(tp, items())  # type: ignore[arg-type]
    log.put(tp, b"z", b"9")
    assert [k for k, _ in log.read_keyed(tp)] == [b"z"]
