"""Classes that several processes publish at the same moment: of each start all new definitions are there, or none (U2,
U3)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from halog.adapters.memory import MemoryBroker, MemoryLog
from halog.errors import (
    HalogError,
    LogError,
    OutcomeUnknownError,
    OverloadedError,
    RefusedError,
    SchemaChangedError,
    UnreachableError,
)
from halog.ports import LogTransaction, TopicPartition
from halog.runtime.topics.schema_compatibility import Runs
from halog.runtime.topics.schema_publication import publish
from halog.runtime.topics.schemas import Definitions
from halog.schema import Registry, managed

pytestmark = pytest.mark.feature("U2", "U3")

TOPIC = "c.schemas"
TP = TopicPartition(TOPIC, 0)


def classes(**fields: Any) -> Registry:
    """Classes of these names, each with a key and one field of this type."""
    made = Registry()
    for name, kind in fields.items():
        body = {"__module__": __name__, "__annotations__": {"k": str, "f": kind}}
        managed(key="k", registry=made)(type(name, (), body))
    return made


def ids(registry: Registry) -> set[bytes]:
    return {i.type_id for i in registry.by_name.values()}


def runs(registry: Registry) -> frozenset[str]:
    return frozenset(i.hex() for i in ids(registry))


OURS = {"Airport": str, "Gate": int, "Plane": str}
"""Published by the one start, three at once; the second of them is what others see differently."""


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    MemoryLog(broker).ensure_topic(TOPIC, 1, compacted=True)
    return broker


def stored(broker: MemoryBroker) -> set[bytes]:
    return {d.type_id for d in Definitions(MemoryLog(broker), TOPIC).all()}


def published(broker: MemoryBroker, registry: Registry) -> None:
    publish(MemoryLog(broker), TOPIC, registry)


class Hooked(MemoryLog):
    """`judged` happens once when our writer is there and all is judged, `fenced` just before we make it, `committed`
    behind the first transaction."""

    def __init__(self, broker: MemoryBroker, **hooks: Callable[[], None]) -> None:
        super().__init__(broker)
        self.hooks = hooks

    def at(self, moment: str) -> None:
        self.hooks.pop(moment, lambda: None)()

    def transaction(self, transactional_id: str) -> Any:
        self.at("fenced")
        return Writer(self, super().transaction(transactional_id))


class Writer:
    def __init__(self, log: Hooked, real: LogTransaction) -> None:
        self.log = log
        self.real = real

    def write(self, tp: TopicPartition, items: Iterable[Any]) -> None:
        self.log.at("judged")
        self.real.write(tp, items)
        self.log.at("committed")

    def close(self) -> None:
        self.real.close()


@pytest.mark.parametrize("moment", ["fenced", "judged"])
def test_whoever_publishes_at_the_same_moment_wins_and_nothing_of_ours_was_there(
    broker: MemoryBroker, moment: str
) -> None:
    ours, theirs = classes(**OURS), classes(Gate=str, Crew=str)
    seen: list[set[bytes]] = []
    broker.listen(TP, lambda: seen.append(stored(broker)))
    log = Hooked(broker, **{moment: lambda: published(broker, theirs)})
    with pytest.raises(SchemaChangedError, match=r"Gate\.f.*Nothing was published"):
        publish(log, TOPIC, ours)
    assert stored(broker) == ids(theirs)
    assert seen, "each change of the topic was looked at"
    assert all(not now & ids(ours) for now in seen)


@pytest.mark.parametrize("moment", ["fenced", "judged"])
def test_what_lives_with_ours_stands_beside_it(broker: MemoryBroker, moment: str) -> None:
    """Also if both bring a class of the same definition."""
    ours, theirs = classes(**OURS), classes(Gate=int, Crew=str)
    log = Hooked(broker, **{moment: lambda: published(broker, theirs)})
    found = publish(log, TOPIC, ours)
    assert stored(broker) == ids(ours) | ids(theirs)
    assert all(found.has(i) for i in ids(ours) | ids(theirs))


def test_what_another_one_brought_first_is_not_ours_to_take_back(broker: MemoryBroker) -> None:
    """It has the same classes, was faster, and is judged by itself: it is killed before it looks."""
    older, ours = classes(Gate=int), classes(**(OURS | {"Gate": float}))
    publish(MemoryLog(broker), TOPIC, older)
    running: dict[str, frozenset[str]] = {}

    def faster() -> None:
        published(broker, ours)
        running["A"] = runs(older)

    publish(Hooked(broker, judged=faster), TOPIC, ours, lambda: dict(running))
    assert stored(broker) == ids(older) | ids(ours)


def test_all_of_ours_go_at_once_where_a_writer_that_fences_nobody_was_faster(broker: MemoryBroker) -> None:
    """As a process of an older halog is, or another site's definitions that are brought here."""
    ours, theirs = classes(**OURS), classes(Gate=str)
    (their,) = theirs.by_name.values()
    seen: list[set[bytes]] = []
    broker.listen(TP, lambda: seen.append(stored(broker) & ids(ours)))
    log = Hooked(broker, judged=lambda: MemoryLog(broker).put(TP, their.type_id, their.definition.encode()))
    with pytest.raises(SchemaChangedError):
        publish(log, TOPIC, ours)
    assert stored(broker) == ids(theirs)
    assert all(now in (set(), ids(ours)) for now in seen), "none of them, or all"


@pytest.mark.parametrize("also", [set(), {"Plane"}], ids=["nobody else", "somebody runs one of ours"])
def test_who_only_registered_at_the_same_moment_keeps_what_it_runs(broker: MemoryBroker, also: set[str]) -> None:
    """Its older class is stored, so it publishes nothing. What a third process found there, and runs, stays."""
    older, ours = classes(Gate=int), classes(**(OURS | {"Gate": float}))
    publish(MemoryLog(broker), TOPIC, older)
    running: dict[str, frozenset[str]] = {}

    def come() -> None:
        running["A"] = runs(older)
        running["B"] = frozenset(i.type_id.hex() for n, i in ours.by_name.items() if n in also)

    told = "was taken back, but for Plane, which others run by now" if also else "What this start wrote was taken back"
    with pytest.raises(SchemaChangedError, match=rf"Gate\.f: .*theirs.*{told}\. Declare"):
        publish(Hooked(broker, committed=come), TOPIC, ours, lambda: dict(running))
    kept = {i.type_id for n, i in ours.by_name.items() if n in also}
    assert stored(broker) == ids(older) | kept


def test_what_a_process_began_to_run_while_it_was_taken_back_is_there_again(broker: MemoryBroker) -> None:
    older, ours = classes(Gate=int), classes(**(OURS | {"Gate": float}))
    publish(MemoryLog(broker), TOPIC, older)
    airport = next(i for n, i in ours.by_name.items() if n == "Airport")
    looks: list[Runs] = [
        {"A": runs(older), "B": frozenset({airport.type_id.hex()})},
        {"A": runs(older)},
        {"A": runs(older)},
        {},
        {},
    ]
    with pytest.raises(SchemaChangedError):
        publish(MemoryLog(broker), TOPIC, ours, lambda: looks.pop() if len(looks) > 1 else looks[0])
    assert stored(broker) == ids(older) | {airport.type_id}


@pytest.mark.parametrize("error", [OutcomeUnknownError("nobody answers"), LogError("UNKNOWN: Unknown broker error")])
@pytest.mark.parametrize("landed", [True, False])
def test_an_answer_that_was_lost_is_looked_up(broker: MemoryBroker, landed: bool, error: Exception) -> None:
    """A broker may call it an error of its own that a newer writer came."""
    ours = classes(**OURS)

    def lost() -> None:
        raise error

    publish(Hooked(broker, **{"committed" if landed else "judged": lost}), TOPIC, ours)
    assert stored(broker) == ids(ours)
    assert len(list(MemoryLog(broker).read_keyed(TP))) == len(OURS)


def test_what_was_written_without_an_answer_is_taken_back_where_it_does_not_fit(broker: MemoryBroker) -> None:
    older, ours = classes(Gate=int), classes(**(OURS | {"Gate": float}))
    publish(MemoryLog(broker), TOPIC, older)
    running: dict[str, frozenset[str]] = {}

    def lost() -> None:
        running["A"] = runs(older)
        raise OutcomeUnknownError("nobody answers")

    with pytest.raises(SchemaChangedError):
        publish(Hooked(broker, committed=lost), TOPIC, ours, lambda: dict(running))
    assert stored(broker) == ids(older)


FENCED = RefusedError("a newer writer holds transactional id halog-publishing")


@pytest.mark.parametrize("came", [False, True], ids=["nobody came", "an older class came"])
def test_whoever_is_fenced_behind_its_own_commit_looks_who_came(broker: MemoryBroker, came: bool) -> None:
    """The answer was lost, and the client asks again when a newer writer is there: fenced, it says."""
    older, ours = classes(Gate=int), classes(**(OURS | {"Gate": float}))
    publish(MemoryLog(broker), TOPIC, older)
    running: dict[str, frozenset[str]] = {}
    unread: list[str] = []

    def fenced() -> None:
        running.update({"A": runs(older)} if came else {})
        raise FENCED

    def start() -> None:
        log = Hooked(broker, committed=fenced)
        publish(log, TOPIC, ours, lambda: dict(running), unread=lambda new, old: unread.append(new.name))

    if came:
        with pytest.raises(SchemaChangedError, match="What this start wrote was taken back"):
            start()
    else:
        start()
    assert stored(broker) == ids(older) | (set() if came else ids(ours))
    assert unread == ([] if came else ["Gate"])


class Late(MemoryLog):
    """Our first transaction has no answer. It ends, landed or not, when a newer writer comes: `landed`. From `away` on
    (the number of a writer) nobody answers any more."""

    def __init__(self, broker: MemoryBroker, unanswered: Callable[[], None], *, landed: bool = True, away: int = 99):
        super().__init__(broker)
        self.unanswered = unanswered
        self.landed = landed
        self.away = away
        self.pending: list[tuple[TopicPartition, list[Any]]] = []
        self.writers = 0

    def transaction(self, transactional_id: str) -> Any:
        self.writers += 1
        if self.writers >= self.away:
            raise UnreachableError("Kafka does not answer")
        pending = self.pending
        self.pending = []
        for tp, items in pending if self.landed else ():
            super().transaction(transactional_id).write(tp, items)
        found: Any = super().transaction(transactional_id)
        return LateWriter(self, found) if self.writers == 1 else found


class LateWriter:
    def __init__(self, log: Late, real: LogTransaction) -> None:
        self.log = log
        self.real = real

    def write(self, tp: TopicPartition, items: Iterable[Any]) -> None:
        self.log.pending.append((tp, list(items)))
        self.log.unanswered()
        raise OutcomeUnknownError("nobody answers")

    def close(self) -> None:
        self.real.close()


@pytest.mark.parametrize("landed", [True, False])
def test_what_was_written_without_an_answer_and_comes_late_is_taken_back_where_the_start_is_refused(
    broker: MemoryBroker, landed: bool
) -> None:
    older, ours = classes(Gate=int), classes(**(OURS | {"Gate": float}))
    publish(MemoryLog(broker), TOPIC, older)
    running: dict[str, frozenset[str]] = {}
    log = Late(broker, lambda: running.update({"A": runs(older)}), landed=landed)
    told = "What this start wrote was taken back" if landed else "Nothing was published"
    with pytest.raises(SchemaChangedError, match=rf"Gate\.f: .*{told}\. Declare"):
        publish(log, TOPIC, ours, lambda: dict(running))
    assert not log.pending, "a newer writer has ended it"
    assert stored(broker) == ids(older)


def test_a_log_that_is_away_before_it_is_known_what_was_written_is_told_so(broker: MemoryBroker) -> None:
    """Whether the start is refused for that, or for an older class that came."""
    ours = classes(**OURS)
    with pytest.raises(UnreachableError, match=r"Kafka does not answer\. What this start wrote may be there"):
        publish(Late(broker, lambda: None, away=2), TOPIC, ours)
    older, running = classes(Gate=str), dict[str, frozenset[str]]()

    def came() -> None:
        published(broker, older)
        running["A"] = runs(older)

    with pytest.raises(SchemaChangedError, match=r"Gate\.f.*What this start wrote may be there"):
        publish(Late(broker, came, away=2), TOPIC, ours, lambda: dict(running))


@pytest.mark.parametrize("fails", [2, 3], ids=["at the look", "at the change"])
def test_a_log_that_fails_for_a_moment_behind_the_refusal_keeps_nothing_there(broker: MemoryBroker, fails: int) -> None:
    older, ours = classes(Gate=int), classes(**(OURS | {"Gate": float}))
    published(broker, older)
    running: dict[str, frozenset[str]] = {}

    class Failing(Late):
        def transaction(self, transactional_id: str) -> Any:
            if self.writers + 1 == fails:
                self.writers += 1
                raise LogError("UNKNOWN: Unknown broker error")
            return super().transaction(transactional_id)

    log = Failing(broker, lambda: running.update({"A": runs(older)}))
    with pytest.raises(SchemaChangedError, match="was taken back"):
        publish(log, TOPIC, ours, lambda: dict(running))
    assert stored(broker) == ids(older)


def test_of_many_at_once_the_first_ones_classes_are_there_whole_and_all_others_nothing(broker: MemoryBroker) -> None:
    """Every second process runs the same classes; each says whether it may start."""
    kinds = (str, int, bool, bytes)
    registries = [classes(Gate=kinds[n % 4], Airport=str, **{f"Only{n % 4}": int}) for n in range(12)]
    barrier, started, refused = threading.Barrier(len(registries)), [], []
    seen: list[set[bytes]] = []
    broker.listen(TP, lambda: seen.append(stored(broker)))

    def start(n: int) -> None:
        barrier.wait()
        try:
            publish(MemoryLog(broker), TOPIC, registries[n])
            started.append(n)
        except SchemaChangedError:
            refused.append(n)

    threads = [threading.Thread(target=start, args=(n,)) for n in range(len(registries))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted([*started, *refused]) == [*range(12)]
    won = ids(registries[started[0]])
    assert {n % 4 for n in started} == {started[0] % 4}
    assert len(started) == 3
    assert stored(broker) == won
    assert all(now in (set(), won) for now in seen)


def test_eight_come_through_where_a_transaction_takes_far_longer_than_the_pause(
    broker: MemoryBroker,
) -> None:
    """As on a broker that has much to do: each waits until the others may have ended theirs."""

    class Slow(Hooked):
        def at(self, moment: str) -> None:
            time.sleep(0.1 if moment == "judged" else 0)

    failed: list[HalogError] = []

    def start(n: int) -> None:
        try:
            publish(Slow(broker), TOPIC, classes(**{f"Only{n}": str}), pause_s=0.01)
        except HalogError as error:
            failed.append(error)

    threads = [threading.Thread(target=start, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert {d.name for d in Definitions(MemoryLog(broker), TOPIC).all()} == {f"Only{n}" for n in range(8)}


def test_a_log_that_takes_nothing_is_named_in_the_end(broker: MemoryBroker) -> None:
    class Closed(MemoryLog):
        def transaction(self, transactional_id: str) -> Any:
            raise LogError("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")

    with pytest.raises(LogError, match="AUTHORIZATION"):
        publish(Closed(broker), TOPIC, classes(**OURS), pause_s=0.0)
    assert stored(broker) == set()


def test_who_is_fenced_at_every_attempt_gives_up_with_nothing_written(
    broker: MemoryBroker,
) -> None:
    class Busy(MemoryLog):
        def transaction(self, transactional_id: str) -> Any:
            found = super().transaction(transactional_id)
            super().transaction(transactional_id)
            return found

    began = "other processes began to publish .* nothing was published; start again"
    with pytest.raises(OverloadedError, match=began):
        publish(Busy(broker), TOPIC, classes(**OURS), pause_s=0.0)
    assert stored(broker) == set()
