"""A restore where something is in the way: nodes die at each step, both sites ask, histories part once more (F5)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial

import pytest

import halog
from halog.core.ids import EpochId
from halog.errors import HalogError
from halog.metadata.restore_requests import DONE, FAILED, NOTHING
from halog.runtime.merge import restore_driver as restoring
from halog.runtime.merge.merge_paces import MergePaces
from halog.runtime.merge.restore_command import RestoreCommand
from halog.runtime.node.paces import Paces
from halog.runtime.support.adapters import SiteAccess
from halog.runtime.topics.topic_names import state_topic
from halog.testing.cluster import Cluster, wait_until
from restore.compensation import Conflict, KeepInitiating, Verdict
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_restoring import mend, note, noted, restore, split
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.two import east, fly, level, states, west

pytestmark = pytest.mark.feature("M2", "X3")
__all__ = ["east", "west"]

TAKES_S = 2 * MergePaces().close_s
"""A restore is waited for: as long as it may itself wait for what it closes, twice. On a quiet machine it takes two
seconds."""


@pytest.fixture
def paces() -> Paces:
    return Paces(merges=MergePaces(settle_s=5.0, close_s=5.0))


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    registry.triggers.clear()


def part(west: Cluster, east: Cluster, numbers: range = range(6)) -> None:
    """Both changed the same flights."""
    split(west, east)
    for cluster in (east, west):
        for number in numbers:
            note(cluster, number, cluster.site)
    mend(west, east)


def reuniting(initiating: Cluster, source: Cluster, timeout_s: float = TAKES_S) -> dict[str, str]:
    return reuniting_of(initiating, source, list(initiating.tables()), timeout_s)


def reuniting_of(
    initiating: Cluster, source: Cluster, partitions: list[str], timeout_s: float = TAKES_S
) -> dict[str, str]:
    adapters = initiating.node(initiating.names[0]).runtime.adapters
    tables = [table for name, table in initiating.tables().items() if name in partitions]
    own, topics = (
        SiteAccess(initiating.site, adapters.log, adapters.coordinator),
        partial(state_topic, initiating.config),
    )
    with RestoreCommand(own, topics, adapters.reach, [source.site], timeout_s) as asked:
        ended = asked.restore(tables, asked.sources(tables, {}), told=lambda name, now: None)
    return {name: r.phase for name, r in ended.items()}


def test_the_node_that_merges_dies_and_another_one_merges(west: Cluster, east: Cluster) -> None:
    """Trace 23: killed while a trigger is asked, between the epoch that ended and the one that is to open."""
    fly(west, *range(6))
    part(west, east)
    held, go_on = threading.Event(), threading.Event()

    def trigger(conflict: Conflict) -> Verdict:
        if not go_on.is_set():
            held.set()
            go_on.wait(60)
        return KeepInitiating()

    halog.on_conflict(Flight, registry=registry)(trigger)
    killed: list[str] = []

    def kill() -> None:
        assert held.wait(60)
        at = {t.active.node for t in east.tables().values() if t.active is not None}
        killed.append(sorted(at)[0])
        threading.Timer(0.2, go_on.set).start()
        east.kill(killed[0])

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        phases = reuniting(west, east, 40)
    finally:
        go_on.set()
        thread.join()
    assert set(phases.values()) == {DONE}
    east.restart(killed[0])
    east.settle()
    level(west, east)
    assert noted(east) == noted(west) == dict.fromkeys(range(6), "west")


def test_both_sites_ask_at_once_and_neither_loses_anything(west: Cluster, east: Cluster) -> None:
    """Trace 26: a closed site merges nothing, a site that merges does not close."""
    fly(west, *range(6))
    part(west, east)
    results: dict[str, object] = {}

    def ask(one: Cluster, other: Cluster) -> None:
        try:
            results[one.site] = reuniting(one, other, 15)
        except HalogError as e:
            results[one.site] = e

    threads = [threading.Thread(target=ask, args=pair) for pair in ((west, east), (east, west))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    nowhere = [n for n, t in east.tables().items() if t.owner and west.tables()[n].owner]
    if nowhere:  # both gave it away at once: an operator says who goes on
        switching(east).promote(nowhere, may_fork=True)
    east.settle()
    assert all(not t.owner or not west.tables()[n].owner for n, t in east.tables().items()), results
    restore_all(west, east)
    level(west, east)
    assert noted(east) == noted(west)
    assert set(noted(east).values()) <= {"west", "east"}


def restore_all(west: Cluster, east: Cluster) -> None:
    """Whatever is left is restored once more."""
    switching(east).promote([n for n, t in east.tables().items() if t.owner], may_fork=True)
    east.settle()
    assert set(reuniting(west, east).values()) <= {DONE, NOTHING}


def test_a_closed_site_that_goes_on_alone_parts_once_more_and_is_merged_again(west: Cluster, east: Cluster) -> None:
    fly(west, *range(6))
    part(west, east)
    assert set(reuniting(west, east).values()) == {DONE}
    level(west, east)
    west.cut()
    east.cut()
    switching(west, 1).promote(NAMES, may_fork=True)
    west.settle()
    fly(west, 30)
    fly(east, 31)
    note(west, 1, "again")
    mend(west, east)
    assert set(reuniting(west, east).values()) == {DONE}
    level(west, east)
    expected = dict.fromkeys(range(6), "east") | {1: "again", 30: "", 31: ""}
    assert noted(east) == noted(west) == expected
    assert max(len(s.joined) for s in states(east).values()) == 2


def test_a_site_that_never_followed_a_merge_is_merged_again(west: Cluster, east: Cluster) -> None:
    """It was closed, and went on alone before it saw what came of it: from its closing on."""
    fly(west, *range(6))
    part(west, east)
    found = restore(west, east)
    assert {r.phase for r in found.values()} == {DONE}
    west.cut()
    east.cut()
    switching(west, 1).promote(NAMES, may_fork=True)
    west.settle()
    note(west, 2, "alone")
    fly(east, 40)
    mend(west, east)
    assert set(reuniting(west, east).values()) == {DONE}
    level(west, east)
    assert noted(east) == noted(west)
    assert noted(east)[40] == ""


def test_nodes_of_both_sites_come_back_to_what_was_merged(west: Cluster, east: Cluster) -> None:
    fly(west, *range(6))
    part(west, east)
    assert set(reuniting(west, east).values()) == {DONE}
    level(west, east)
    expected = noted(east)
    for cluster in (east, west):
        for name in cluster.names:
            cluster.kill(name)
        for name in cluster.names:
            cluster.restart(name)
    east.settle()
    level(west, east)
    assert noted(east) == noted(west) == expected
    switching(west).promote(NAMES)
    west.settle()
    fly(west, 50)
    wait_until(lambda: owners(east) == {"west"}, "east mirrors west")
    level(west, east)
    assert noted(east) == noted(west) == expected | {50: ""}


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
def test_a_merge_that_fails_leaves_the_source_as_it_was(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Whatever it is, the next epoch opens."""
    fly(west, *range(6))
    part(west, east)
    before = noted(east)

    def broken(*args: object) -> list[bytes]:
        raise error("no paper")

    with monkeypatch.context() as patch:
        patch.setattr(restoring, "merge_records", broken)
        phases = reuniting(west, east)
    assert set(phases.values()) == {FAILED}
    assert noted(east) == before
    note(east, 1, "serves on")
    assert set(reuniting(west, east).values()) == {DONE}
    level(west, east)
    assert noted(east) == noted(west) == before | {1: "serves on"}


def test_commits_go_on_right_up_to_the_merge_and_behind_it(west: Cluster, east: Cluster) -> None:
    fly(west, *range(6))
    part(west, east)
    stop, made = threading.Event(), []

    def work() -> None:
        number = 1000
        while not stop.is_set():
            number += 1
            fly(east, number)
            made.append(number)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert set(reuniting(west, east).values()) == {DONE}
    finally:
        stop.set()
        thread.join()
    level(west, east)
    assert noted(west) == noted(east) == dict.fromkeys(range(6), "east") | dict.fromkeys(made, "")


def test_epochs_above_those_of_both_branches(west: Cluster, east: Cluster) -> None:
    fly(west, *range(6))
    split(west, east)
    for _ in range(3):
        active = west.active_for(Flight, 1)
        west.kill(active)
        west.restart(active)
        west.settle()
    fly(west, 20)
    mend(west, east)
    assert set(reuniting(west, east).values()) == {DONE}
    level(west, east)
    numbers: list[EpochId] = [e for e, _ in states(west)["test-0"].lineage]
    assert numbers == sorted(numbers)
    assert noted(east) == noted(west) == dict.fromkeys([*range(6), 20], "")
