"""The objects of a partition at a moment, read from a real log and state topic in memory, beside a plain account."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import pytest
from msgspec.structs import replace as replace_struct

from halog.adapters.memory import MemoryLog
from halog.adapters.memory.broker import TopicRow
from halog.config import SnapshotConfig
from halog.core.ids import EpochId, digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.errors import RefusedError
from halog.ports import Entry, TopicPartition
from halog.runtime.host.snapshotter import Snapshots
from halog.runtime.store.encoding import pack_object
from halog.schema import Registry, managed
from halog.testing.cluster import Cluster
from spark_jobs.history import steps_before
from spark_jobs.snapshot import NOW, Moment, Place, objects_at

COUNTERS = Registry()


@managed(key="name", registry=COUNTERS)
class Counter:
    name: str
    value: int = 0


@managed(key="name", registry=COUNTERS)
class Other:
    name: str


INFO = COUNTERS.info(Counter)
Values = dict[str, int]


class Account(NamedTuple):
    """What there was at each lsn."""

    cluster: Cluster
    at: dict[int, Values]

    @property
    def log(self) -> MemoryLog:
        return MemoryLog(self.cluster.broker)

    @property
    def place(self) -> Place:
        table = self.cluster.tables()["test-0"]
        return Place(table.name, table.index, table.topic, table.topic[:-3] + "state", table.log_id, "home")

    def read(self, moment: Moment = NOW) -> tuple[int, Values]:
        found = objects_at(self.log, self.place, INFO.family_id, moment)
        values = [INFO.decode(f.value) for f in found.found.values()]
        return found.lsn, {v["name"]: v["value"] for v in values}

    def snapshot(self) -> None:
        host = self.cluster.node(self.cluster.active_for(Counter, "a")).runtime.host
        assert host is not None
        Snapshots.take(host.snapshots, host.copies["test-0"])

    def newer_rows(self) -> None:
        """What a snapshot that was not finished leaves in the state topic: objects, and no marker; an older row of
        the same key may be compacted away at any time, and is."""
        shelf = self.cluster.broker.shelf(TopicPartition(self.place.state, 0))
        now = objects_at(self.log, self.place, b"", NOW).found
        keys = {b"k" + key for key in now}
        with self.cluster.broker.lock:
            shelf.rows[:] = [TopicRow(r.offset, None, None, {}, 0) if r.key in keys else r for r in shelf.rows]
        rows = [(b"k" + f.key, pack_object(f.version, f.ref, f.value), {}) for f in now.values()]
        self.log.transaction("another").write(TopicPartition(self.place.state, 0), rows)

    def work(self, turns: int) -> None:
        """Creates, changes, deletes, creates again; one commit each, and now and then one of two objects."""
        node = self.cluster.client()
        now = dict(self.at[max(self.at)])
        for i in range(turns):
            name = "abcdefg"[i % 7]
            with node.transaction() as tx:
                found = tx.find(Counter, name)
                if found is None:
                    tx.create(Counter(name, i))
                    now[name] = i
                elif i % 5 == 4:
                    tx.delete(found)
                    del now[name]
                else:
                    found.value = now[name] = 1000 + i
                if i % 6 == 0:
                    tx.create(Other(f"{len(self.at)}"))
            if tx.lsn is not None:  # it has changed something
                self.at[tx.lsn] = dict(now)


@contextmanager
def opened(keep: int = 100_000) -> Iterator[Account]:
    cluster = Cluster(2, partitions=1, registry=COUNTERS)
    cluster.config = replace(cluster.config, snapshot=SnapshotConfig(keep_records=keep))
    with cluster:
        yield Account(cluster, {1: {}})


def lsns(account: Account, first: int) -> Iterator[tuple[int, Values]]:
    """Every lsn from `first` on, with what there was."""
    values: Values = {}
    for lsn in range(1, max(account.at) + 1):
        values = account.at.get(lsn, values)
        if lsn >= first:
            yield lsn, values


@pytest.mark.feature("S2", "X6")
def test_as_of_every_lsn_the_objects_are_what_they_were() -> None:
    """From the log alone; with a snapshot behind, and changes behind that; in a state topic with newer rows."""
    with opened() as account:
        account.work(20)
        for snapshot in (False, True):
            if snapshot:
                account.snapshot()
                account.work(10)
            last = max(account.at)
            assert account.read() == (last, account.at[last])
            for lsn, values in lsns(account, 0):
                assert account.read(Moment(lsn=lsn)) == (lsn, values), lsn
        account.newer_rows()
        assert account.read() == (last, account.at[last])
        for lsn, values in lsns(account, 0):
            assert account.read(Moment(lsn=lsn)) == (lsn, values), lsn


@pytest.mark.feature("S2", "X6")
def test_a_trimmed_log_is_undone_as_far_as_it_goes_and_names_the_earliest_moment() -> None:
    with opened(keep=15) as account:
        account.work(30)
        account.snapshot()
        assert account.log.bounds(TopicPartition("test.test.log", 0))[0] > 0, "trimmed"
        account.work(9)
        with pytest.raises(RefusedError, match=r"lsn 0 is not kept any more in test-0: the earliest is lsn") as said:
            account.read(Moment(lsn=0))
        earliest = said.value.evidence["earliest_lsn"]
        assert 5 < earliest < max(account.at) - 15
        for lsn, values in lsns(account, earliest):
            assert account.read(Moment(lsn=lsn)) == (lsn, values), lsn
        with pytest.raises(RefusedError, match="the earliest is"):
            account.read(Moment(lsn=earliest - 1))
        with pytest.raises(RefusedError, match="is not there yet: its log ends at lsn"):
            account.read(Moment(lsn=max(account.at) + 1))


@pytest.mark.feature("S2", "X6")
def test_as_of_a_time_everything_appended_by_then_is_there_and_nothing_later() -> None:
    with opened(keep=15) as account:
        account.work(6)
        time.sleep(0.005)  # the clock is what is tested: it must move on
        between, lsn = time.time_ns() // 1_000_000, max(account.at)
        time.sleep(0.005)
        account.work(6)
        for _ in range(2):
            assert account.read(Moment(time_ms=between)) == (lsn, account.at[lsn])
            account.snapshot()
        account.work(30)
        account.snapshot()
        with pytest.raises(RefusedError, match=r"is not kept any more in test-0: the earliest is lsn \d+, or 20\d\d-"):
            account.read(Moment(time_ms=between))


@pytest.mark.feature("S2")
def test_a_log_trimmed_while_it_is_read_is_read_again_from_the_newer_snapshot() -> None:
    """What the broker no longer has is not delivered and not told: a hole must not pass for the history."""
    with opened(keep=1) as account:
        account.work(10)
        log = account.log
        real, turns = log.read_keyed, iter(range(2))

        def read_keyed(tp: TopicPartition, start: int = 0) -> Iterator[tuple[bytes, bytes | None]]:
            rows = list(real(tp, start))
            if next(turns, 9) == 0:  # behind the reader's back, once it has seen the state topic
                account.snapshot()
                account.work(3)
            return iter(rows)

        log.read_keyed = read_keyed  # type: ignore[method-assign]
        found = objects_at(log, account.place, INFO.family_id, NOW)
        assert found.lsn == max(account.at)
        assert {INFO.decode(f.value)["name"] for f in found.found.values()} == set(account.at[found.lsn])


@pytest.mark.feature("S2", "D4")
def test_a_decision_whose_vote_was_trimmed_away_ends_what_is_known() -> None:
    """Everything up to it could have been changed by it; a decision that is told twice changes nothing."""
    state = ChainState(b"l" * 16, "home")
    epoch = EpochId(1, "home", 7)
    entries: list[Entry] = []

    def add(make: Callable[[records.Header], records.Record], tx: bytes = bytes(16)) -> None:
        last = digest(entries[-1].value) if entries else bytes(16)
        header = records.Header(b"l" * 16, epoch, 10 + len(entries), last, tx)
        entries.append(Entry(TopicPartition("t", 0), len(entries), records.encode(make(header)), 1_000))

    one, other = b"1" * 16, b"2" * 16
    change = records.Change(records.CREATE, b"r" * 24, b"key", b"value", -1)
    add(lambda h: records.Commit(h, (change,)), b"3" * 16)
    add(lambda h: records.Outcome(h, True), one)
    add(lambda h: records.Prepare(h, "p-0", ("p-0", "p-1"), 0, b"", (change,)), other)
    add(lambda h: records.Outcome(h, True), other)
    add(lambda h: records.Outcome(h, True), other)
    marked = replace_struct(state, lsn=14, hash=digest(entries[-1].value))
    steps = steps_before(entries, marked)
    assert [(s.lsn, len(s.changes)) for s in steps] == [(12, 0), (13, 1), (14, 0)]
    assert steps_before(entries[:2], replace_struct(state, lsn=11, hash=digest(entries[1].value))) == []
