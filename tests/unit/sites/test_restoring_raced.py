"""A node that lost its partition while it compared, and has it again, when another one has merged (M2)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from halog.metadata import restore_requests as restores
from halog.metadata.restore_requests import DONE
from halog.testing.cluster import Cluster, wait_until
from restore.compensation import Conflict, KeepInitiating, Verdict
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_restoring import coordinator, disagree, note, noted, restore
from tests.unit.sites.two import east, level, west

pytestmark = [pytest.mark.feature("M2", "M3"), pytest.mark.timeout(120)]
__all__ = ["east", "west"]


def is_ended(cluster: Cluster, partition: str) -> bool:
    found = restores.restore_of(coordinator(cluster), partition)
    return found is not None and found.ended


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    registry.triggers.clear()


def test_what_another_node_has_merged_meanwhile_is_not_merged_once_more(
    west: Cluster, east: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It begins by its look of before, and finds the merge in its own history: nothing of it is done, or said."""
    caplog.set_level(logging.INFO, "halog.merge")
    asked: list[str] = []

    def elsewhere() -> None:
        name, first = east.partition_of(Flight, 1), east.active_for(Flight, 1)
        other = next(n for n in east.names if n != first)
        east.node(first).runtime.operators.hand_over(name, other)
        wait_until(lambda: is_ended(east, name), "it merges", 30)
        note(east, 1, "behind it")
        east.node(first).runtime.operators.hand_over(name, first)
        wait_until(lambda: east.node(first).runtime.copies[name].serving, "it serves again")

    def trigger(conflict: Conflict) -> Verdict:
        if conflict.key["number"] == 1:
            asked.append("")
            if len(asked) == 1:
                other = threading.Thread(target=elsewhere)
                other.start()
                other.join(35)
        return KeepInitiating()

    registry.triggers[registry.info(Flight).name] = trigger
    disagree(west, east, 6)
    found = restore(west, east)
    assert {r.phase for r in found.values()} == {DONE}, found
    wait_until(lambda: any("left to" in m or "failed" in m for m in caplog.messages), "the first one has ended")
    assert not [m for m in caplog.messages if "failed" in m]
    assert len(asked) == 2
    states = [east.node(n).runtime.copies[east.partition_of(Flight, 1)].core.state.chain.state for n in east.names]
    assert {len(s.joined) for s in states} == {1}
    assert noted(east) == {0: "west", 1: "behind it"} | dict.fromkeys(range(2, 6), "west")
    level(west, east)
