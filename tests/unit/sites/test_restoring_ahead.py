"""What was done before a merge is compared and decided while the source serves; behind that, what came since (M2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from halog.metadata.restore_requests import DONE
from halog.runtime.merge.merge_paces import MergePaces
from halog.runtime.node.paces import Paces
from halog.testing.cluster import Cluster
from restore.compensation import Conflict, KeepInitiating, KeepSource, Verdict
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_restoring import disagree, note, noted, restore
from tests.unit.sites.two import east, fly, level, west

pytestmark = [pytest.mark.feature("M2", "M3"), pytest.mark.timeout(120)]
__all__ = ["east", "west"]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    registry.triggers.clear()


def serves(cluster: Cluster, number: int) -> bool:
    """Does any node serve this flight?"""
    name = cluster.partition_of(Flight, number)
    return any(cluster.node(n).runtime.copies[name].serving for n in cluster.names)


def test_only_what_came_since_waits_for_the_epoch_s_end(west: Cluster, east: Cluster) -> None:
    """Of a flight that is written while triggers are asked one is asked once more, with what stands there then."""
    asked: dict[int, list[tuple[bool, str]]] = {}

    def trigger(conflict: Conflict) -> Verdict:
        number = conflict.key["number"]
        assert conflict.source is not None
        first = number not in asked
        asked.setdefault(number, []).append((serves(east, number), conflict.source["note"]))
        if number == 1 and first:  # another one commits meanwhile
            other = threading.Thread(target=note, args=(east, 1, "late"))
            other.start()
            other.join(30)
        return KeepSource() if number == 1 else KeepInitiating()

    registry.triggers[registry.info(Flight).name] = trigger
    disagree(west, east, 6)
    fly(east, *range(50, 59))  # behind what may still have come over the line, in each partition
    found = restore(west, east)
    assert {r.phase for r in found.values()} == {DONE}, found
    assert asked.pop(1) == [(True, "east"), (False, "late")]
    assert asked == {n: [(True, "east")] for n in (0, 2, 3, 4, 5)}
    notes = {number: text for number, text in noted(east).items() if number < 50}
    assert notes == {0: "west", 1: "late", 2: "west", 3: "west", 4: "west", 5: "west"}
    level(west, east)


@pytest.mark.parametrize("paces", [Paces(merges=MergePaces(at_once=1, stale_s=2.0))])
def test_a_partition_that_waits_its_turn_behind_slow_triggers_is_merged_all_the_same(
    west: Cluster, east: Cluster
) -> None:
    """What is decided ahead takes as long as it takes; who asked waits, and the source serves."""

    def trigger(conflict: Conflict) -> Verdict:
        time.sleep(1.2)
        return KeepInitiating()

    registry.triggers[registry.info(Flight).name] = trigger
    disagree(west, east, 9)
    found = restore(west, east)
    assert {r.phase for r in found.values()} == {DONE}, found
    assert noted(east) == dict.fromkeys(range(9), "west")
