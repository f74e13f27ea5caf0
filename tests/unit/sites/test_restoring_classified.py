"""A node merges by what a job has found and by what its own site has done since, or says what does not fit (S1, M2)."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from halog.adapters.memory.coordinator import MemoryCoordinator, MemoryTree
from halog.core.log.transactions import UndecidedTransaction
from halog.errors import CoordinatorError, RefusedError, VersionError
from halog.metadata import log_holds as retention, restore_requests as restores
from halog.metadata.restore_requests import DONE, FAILED, SETTLING, RestoreRequest
from halog.ports import Coordinator, Log, TopicPartition
from halog.runtime.merge import closed_branch, restore_driver as restoring, spark_results as classified
from halog.runtime.merge.epoch_reopening import EpochLost
from halog.runtime.merge.spark_results import ClassifiedResult
from halog.runtime.support.adapters import SiteAccess
from halog.testing.cluster import Cluster, wait_until
from restore.branch import Side
from restore.compensation import Conflict, KeepSource, Replace, Verdict, by_default
from spark_jobs.branching import INITIATING, SOURCE
from spark_jobs.snapshot import Place
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_compensation import beside
from tests.unit.sites.test_restoring import PARTED, coordinator, drop, mend, note, noted, part, restore, split
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.two import east, fly, level, west
from tests.unit.spark_jobs.following import RUN, Job

pytestmark = [pytest.mark.feature("S1", "M2"), pytest.mark.timeout(120)]
__all__ = ["east", "west"]

TOPIC = "test.merge"


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    registry.triggers.clear()


def held(cluster: Cluster) -> list[str]:
    """Whose log is held for a job of west's."""
    return [n for n in NAMES if classified.held_as("west") in retention.holds(coordinator(cluster), n)]


def log_of(cluster: Cluster) -> Log:
    return cluster.node(cluster.names[0]).runtime.adapters.log


def closed(cluster: Cluster, source: str, name: str) -> Side:
    """Its branch, once it is closed."""
    remote = SiteAccess(cluster.site, log_of(cluster), coordinator(cluster))
    table = cluster.tables()[name]

    def look() -> Side | str:
        return closed_branch.closed_side(remote, source, name, TopicPartition(table.topic, table.index))

    wait_until(lambda: isinstance(look(), Side), "it is closed")
    found = look()
    assert isinstance(found, Side)
    return found


def job(initiating: Cluster, source: Cluster, name: str) -> None:
    """What `spark_jobs.publishing` does with a closed branch, without Spark."""
    theirs = closed(initiating, source.site, name)
    logs, places = {}, {}
    for s, cluster in ((SOURCE, source), (INITIATING, initiating)):
        log, table = log_of(cluster), cluster.tables()[name]
        end = theirs.end if s == INITIATING else log.bounds(theirs.tp)[1]
        logs[s] = list(log.read(theirs.tp, 0, end))
        places[s] = Place("p-0", 0, table.topic, "", table.log_id, cluster.site, table.home)
    one = Job(logs, places, 7)

    def decide(place: Place, undecided: UndecidedTransaction) -> int | None:
        raise AssertionError("nothing is in doubt")

    one.decide = decide
    parted, folded = one.run()
    if not parted.forked:
        return
    values, manifest = one.handed_on(parted, folded, [2, 3])
    log, tp = log_of(source), TopicPartition(TOPIC, theirs.tp.partition)
    log.ensure_topic(TOPIC, len(NAMES), keep_ms=classified.KEPT_MS)
    log.put(tp, b"", b"of a job before")
    begin = log.bounds(tp)[1]
    for value in values:
        log.put(tp, b"", value)
    told = ClassifiedResult(
        theirs.state.hash.hex(),
        RUN.hex(),
        manifest.hex(),
        TOPIC,
        begin,
        log.bounds(tp)[1],
        "test",
        time.time_ns() // 1_000_000,
    )
    classified.publish(coordinator(source), name, told)


ALONE = dict.fromkeys([*range(10), *range(20, 30)], "") | dict.fromkeys([2, 3, 6, 40], "east")
"""What the east has before that."""
del ALONE[5]


def stands(cluster: Cluster, expected: dict[int, str]) -> None:
    """At the first node; it may be a replica that is a moment behind."""
    wait_until(lambda: noted(cluster) == expected, f"{noted(cluster)} is not {expected}")


def found(west: Cluster, east: Cluster) -> None:
    """The west is closed, and a job has looked at both."""
    switching(west).demote(NAMES, east.site)
    for name in NAMES:
        job(west, east, name)


def test_by_what_was_found_and_what_was_done_since(west: Cluster, east: Cluster) -> None:
    """To what both have touched, one, or none; a trigger sees both."""
    seen: dict[int, tuple[int, int]] = {}
    asked = Counter[int]()

    def both(conflict: Conflict) -> Verdict:
        asked[conflict.key["number"]] += 1
        if conflict.source is None or conflict.initiating is None:
            return by_default(conflict)
        seen[conflict.key["number"]] = conflict.source_ms, conflict.initiating_ms
        return Replace({**conflict.source, "note": f"{conflict.source['note']}+{conflict.initiating['note']}"})

    registry.triggers[registry.info(Flight).name] = both
    part(west, east)
    found(west, east)
    for number in (1, 2, 3, 7, 21):
        note(east, number, "later")
    fly(east, 50), fly(east, 11), drop(east, 23)
    for name in NAMES:
        classified.hold(coordinator(east), name, "west", 0)
    ended = restore(west, east, classified=True)
    assert {r.phase for r in ended.values()} == {DONE}, ended
    wait_until(lambda: not held(east), "the source's log is held")
    expected = PARTED | {1: "later+west", 2: "later", 3: "later+west", 7: "later", 21: "later", 50: ""}
    expected |= {11: "+", 40: "east+west"}
    del expected[23]
    stands(east, expected)
    assert seen.keys() == {1, 3, 11, 40}
    assert {n for n, times in asked.items() if times > 1} == {3, 11}, "once of what has not changed since"
    assert all(ours and theirs for ours, theirs in seen.values())
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    level(west, east)
    stands(west, expected)


def test_what_is_created_beside_is_the_same_as_without_a_job(west: Cluster, east: Cluster) -> None:
    """Also where the source has made something there since the job looked: then it is deferred."""
    new = {number: beside(east, number, number * 100) for number in (3, 6, 40)}

    def both(conflict: Conflict) -> Verdict:
        number = conflict.key["number"]
        if number not in new:
            return by_default(conflict)
        return KeepSource(also=({"number": new[number], "note": f"beside {number}"},))

    registry.triggers[registry.info(Flight).name] = both
    part(west, east)
    found(west, east)
    fly(east, new[40])
    ended = restore(west, east, classified=True)
    assert {r.phase for r in ended.values()} == {DONE}, ended
    assert sum(int(r.result["deferred"]) for r in ended.values()) == 1
    expected = PARTED | {new[3]: "beside 3", new[6]: "beside 6", new[40]: ""}
    stands(east, expected)
    level(west, east)
    stands(west, expected)


@pytest.mark.parametrize("before", [SETTLING, DONE])
def test_a_node_that_dies_meanwhile_leaves_it_to_the_next_one(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """That one finds the same, or that it is done; and the log is held no more."""
    part(west, east)
    found(west, east)
    note(east, 7, "later")
    for name in NAMES:
        classified.hold(coordinator(east), name, "west", 0)
    died: list[str] = []

    def die(self: restoring._PartitionRestore, phase: str, *more: Any, **fields: Any) -> None:
        if phase == before and self._copy.name not in died:
            died.append(self._copy.name)
            raise EpochLost  # as if the process were no more
        say(self, phase, *more, **fields)

    say = restoring._PartitionRestore._say
    monkeypatch.setattr(restoring._PartitionRestore, "_say", die)
    ended = restore(west, east, classified=True)
    assert sorted(died) == NAMES
    assert {(r.phase, r.tries) for r in ended.values()} == {(DONE, 2)}
    stands(east, PARTED | {7: "later"})
    wait_until(lambda: not held(east), "the source's log is held")


def said(ended: dict[str, RestoreRequest]) -> str:
    """Why all of them failed, alike."""
    assert {r.phase for r in ended.values()} == {FAILED}, ended
    (why,) = {re.sub("[0-9a-f]{32}", "HEX", r.why.replace(name, "NAME")) for name, r in ended.items()}
    return why


def test_what_does_not_fit_changes_nothing_and_is_told(west: Cluster, east: Cluster) -> None:
    """And it can be merged all the same, by itself or by what is found anew."""
    part(west, east)
    assert "no Spark job has found what is to be merged of NAME" in said(restore(west, east, classified=True))
    found(west, east)
    told = {name: classified.classified_of(coordinator(east), name) for name in NAMES}
    for name, one in told.items():
        assert one is not None
        classified.publish(coordinator(east), name, replace(one, run="00" * 16))
    assert "is missing, or is not what it was" in said(restore(west, east, classified=True))
    for name, one in told.items():
        assert one is not None
        classified.publish(coordinator(east), name, one)
        log_of(east).trim(TopicPartition(TOPIC, east.tables()[name].index), one.begin + 1)
    assert f"is not in topic {TOPIC} any more" in said(restore(west, east, classified=True))
    stands(east, ALONE)
    fly(east, 60)
    found(west, east)
    assert {r.phase for r in restore(west, east, classified=True).values()} == {DONE}
    stands(east, PARTED | {60: ""})


def test_what_was_found_for_an_earlier_merge_is_not_taken_for_this_one(west: Cluster, east: Cluster) -> None:
    part(west, east)
    found(west, east)
    assert {r.phase for r in restore(west, east, classified=True).values()} == {DONE}
    level(west, east)
    split(east, west)
    fly(west, *range(60, 80)), fly(east, *range(80, 100))
    mend(west, east)
    assert "is of another branch" in said(restore(west, east, classified=True))
    assert {r.phase for r in restore(west, east).values()} == {DONE}


def test_where_the_source_has_done_nothing_there_is_nothing_to_find(west: Cluster, east: Cluster) -> None:
    """The other branch alone is read, while the source serves."""
    fly(west, *range(6))
    split(west, east)
    fly(east, *range(10, 30))
    mend(west, east)
    found(east, west)
    assert not any(classified.classified_of(coordinator(west), name) for name in NAMES)
    ended = restore(east, west, classified=True)
    assert {r.phase for r in ended.values()} == {DONE}, ended
    stands(west, dict.fromkeys([*range(6), *range(10, 30)], ""))


@pytest.fixture
def alone() -> Coordinator:
    made = MemoryCoordinator(MemoryTree())
    made.connect(lambda state: None)
    return made


ONE = ClassifiedResult("aa", "bb", "cc", "t", 1, 2, "test", 3)


def test_the_last_one_to_find_something_is_believed(alone: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else tells of it at the same time; where that never ends it is told."""
    assert classified.classified_of(alone, "p") is None
    classified.publish(alone, "p", ONE)
    classified.publish(alone, "p", replace(ONE, run="dd"))
    assert classified.classified_of(alone, "p") == replace(ONE, run="dd")

    def refused(path: str, data: bytes, version: int) -> int:
        raise VersionError("another one was quicker", path=path)

    monkeypatch.setattr(alone, "set", refused)
    with pytest.raises(CoordinatorError, match="changed by others all the time"):
        classified.publish(alone, "p", ONE)


def test_a_znode_that_is_something_else_is_told(alone: Coordinator) -> None:
    alone.create("classified/p", b"{}")
    with pytest.raises(CoordinatorError, match="classified/p is no result of a job"):
        classified.classified_of(alone, "p")


def test_by_a_job_and_without_one_are_two_restores(alone: Coordinator) -> None:
    """While the one goes on the other one is refused."""
    asked = RestoreRequest(site="west", by="test", at_ms=7, classified=True)
    restores.ask(alone, "p", asked)
    restores.ask(alone, "p", asked)
    with pytest.raises(RefusedError, match="has asked for another restore"):
        restores.ask(alone, "p", replace(asked, classified=False))
