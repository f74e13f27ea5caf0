"""Log implementations under test, with the faults each can be made to show. Nothing here asserts."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.log import KafkaLog
from halog.adapters.memory import MemoryBroker, MemoryLog
from halog.embedded import EmbeddedSite
from halog.errors import HalogError
from halog.ports import Entry, Log, LogSession, LogTail, OutOfRange, TopicPartition
from tests.contract.rigs_coordinator import wait_for

_numbers = itertools.count()
WELL_S = 60.0
COME_S = 90.0
"""What is allowed for what is certain to come."""


class LogRig(Protocol):
    """What the log suite needs of an implementation."""

    def log(self) -> Log:
        """A node's own view of the shared log."""

    def hold(self, tp: TopicPartition) -> None:
        """Appends sent from now on are on the wire, but do not land."""

    def sent(self, size: int) -> None:
        """Wait until so many bytes of a held append have left its process."""

    def release(self, tp: TopicPartition) -> None:
        """They land now."""

    def end(self) -> None: ...


class MemoryLogRig:
    def __init__(self) -> None:
        self.broker = MemoryBroker()

    def log(self) -> MemoryLog:
        return MemoryLog(self.broker)

    def hold(self, tp: TopicPartition) -> None:
        self.broker.hold(tp)

    def sent(self, size: int) -> None:
        """An append leaves at once."""

    def release(self, tp: TopicPartition) -> None:
        self.broker.release(tp)

    def end(self) -> None:
        """Nothing outlives the test."""


class KafkaRig:
    """A held append is one in the socket of a broker that was stopped by SIGSTOP."""

    def __init__(self, site: EmbeddedSite, access: KafkaAccess | None = None) -> None:
        self.site = site
        self.access = access or KafkaAccess(site.info.bootstrap)
        self._logs: list[KafkaLog] = []
        self._held = self._was_held = False

    def log(self) -> KafkaLog:
        made = KafkaLog(self.access)
        self._logs.append(made)
        return made

    def hold(self, tp: TopicPartition) -> None:
        self.site.pause("kafka")
        self._held = self._was_held = True

    def sent(self, size: int) -> None:
        port = int(self.site.info.bootstrap.rpartition(":")[2])
        wait_for(lambda: _unread(port) >= size)

    def release(self, tp: TopicPartition) -> None:
        self.site.resume("kafka")
        self._held = False

    def end(self) -> None:
        if self._held:
            self.site.resume("kafka")
        if "kafka" not in self.site.info.pids:  # a test has failed in between
            self.site.start_server("kafka")
        if self._was_held:
            self._await_well()
        for made in self._logs:
            made.close()

    def _await_well(self) -> None:
        """A broker that stood still for longer than its session with its controller makes no topics until it is let in
        again: that is not the next test's time."""
        until = time.monotonic() + WELL_S
        while True:
            try:
                new_topic(self.log())
                return
            except HalogError:
                if time.monotonic() > until:
                    raise


def _unread(port: int) -> int:
    """Return how much the kernel holds at most of one connection for the server at this port, which has not read it."""
    most = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, _, queues, *_ = line.split()
            if int(local.rpartition(":")[2], 16) == port:
                most = max(most, int(queues.rpartition(":")[2], 16))
    return most


def new_topic(log: Log, partitions: int = 1, *, compacted: bool = False) -> TopicPartition:
    """Partition 0 of a topic nobody used before."""
    topic = f"c{os.getpid()}-{next(_numbers)}"
    log.ensure_topic(topic, partitions, compacted=compacted)
    return TopicPartition(topic, 0)


class Outcomes(list[tuple[int | None, str | None]]):
    """The deliveries of one or several appends, in the order they came."""

    def __call__(self, offset: int | None, why: str | None) -> None:
        self.append((offset, why))

    @property
    def offsets(self) -> list[int | None]:
        return [offset for offset, _ in self]


def appended(session: LogSession, tp: TopicPartition, *values: bytes, timeout_s: float = COME_S) -> list[int | None]:
    """Append and wait: the offsets."""
    outcomes = Outcomes()
    for value in values:
        session.append(tp, value, outcomes)
    poll_until(session, lambda: len(outcomes) == len(values), timeout_s)
    return outcomes.offsets


def poll_until(session: LogSession, done: Callable[[], bool], timeout_s: float = COME_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline, "no delivery in time"
        session.poll(0.1)


def collect(tail: LogTail, count: int, timeout_s: float = COME_S) -> list[Entry | OutOfRange]:
    """At least `count` things from the tail."""
    found: list[Entry | OutOfRange] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} came: {found[-3:]}"
        found.extend(tail.poll(0.1))
    return found


def values(entries: Sequence[Entry | OutOfRange]) -> list[bytes]:
    return [e.value for e in entries if isinstance(e, Entry)]


def offsets(entries: Sequence[Entry | OutOfRange]) -> list[int]:
    return [e.offset for e in entries if isinstance(e, Entry)]
