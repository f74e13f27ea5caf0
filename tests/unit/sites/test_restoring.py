"""Two sites went on by themselves; what both did becomes one history again (M2, M3)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from halog.metadata import restore_requests as restores
from halog.metadata.restore_requests import DONE, RestoreRequest
from halog.ports import Coordinator, TopicPartition
from halog.runtime.node.paces import Paces
from halog.runtime.sites.site_paces import SitePaces
from halog.testing.cluster import Cluster, wait_until
from spark_jobs.history import History, HistoryState
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_switching import NAMES, owners, switching, told_parted
from tests.unit.sites.two import east, fly, level, west

pytestmark = pytest.mark.feature("M2")
__all__ = ["east", "west"]


def noted(cluster: Cluster) -> dict[int, str]:
    level(cluster)  # its first node's copy may be behind who serves
    with cluster.node(cluster.names[0]).transaction(read="local") as tx:
        return {f.number: f.note for f in tx.extent(Flight)}


def note(cluster: Cluster, number: int, text: str) -> None:
    with cluster.node(cluster.names[0]).transaction() as tx:
        tx.get(Flight, number).note = text


def drop(cluster: Cluster, number: int) -> None:
    with cluster.node(cluster.names[0]).transaction() as tx:
        tx.delete(tx.get(Flight, number))


def coordinator(cluster: Cluster) -> Coordinator:
    return cluster.node(cluster.names[0]).runtime.adapters.coordinator


def split(west: Cluster, east: Cluster) -> None:
    """Both serve, and do not see each other."""
    west.see(east)
    level(west, east)
    west.cut()
    east.cut()
    switching(east, 1).promote(NAMES, may_fork=True)
    east.settle()


def mend(west: Cluster, east: Cluster) -> None:
    west.mend()
    east.mend()


def restore(initiating: Cluster, source: Cluster, **more: Any) -> dict[str, RestoreRequest]:
    """As the command does: the one site's branch is closed, the other one merges it."""
    switching(initiating).demote(NAMES, source.site)
    for name in NAMES:
        wanted = RestoreRequest(site=initiating.site, by="test", at_ms=time.time_ns() // 1_000_000, **more)
        restores.ask(coordinator(source), name, wanted)

    def ended() -> bool:
        found = [restores.restore_of(coordinator(source), name) for name in NAMES]
        return all(r is not None and r.ended for r in found)

    wait_until(ended, "the restore goes on", 30)
    found = {name: restores.restore_of(coordinator(source), name) for name in NAMES}
    return {name: r for name, r in found.items() if r is not None}


def disagree(west: Cluster, east: Cluster, count: int) -> None:
    """Parted, both note something on each of so many flights."""
    fly(west, *range(count))
    split(west, east)
    for number in range(count):
        note(west, number, "west")
        note(east, number, "east")
    mend(west, east)


def part(west: Cluster, east: Cluster) -> None:
    """Both do something, alone and to the same flights."""
    fly(west, *range(10))
    split(west, east)
    fly(west, *range(10, 20))
    fly(east, *range(20, 30))
    note(west, 1, "west"), note(east, 2, "east"), note(west, 3, "west"), note(east, 3, "east")
    drop(west, 4), drop(east, 5), drop(west, 6), note(east, 6, "east")
    fly(west, 40), note(west, 40, "west"), fly(east, 40), note(east, 40, "east")
    mend(west, east)


PARTED = dict.fromkeys(range(30), "") | {1: "west", 2: "east", 3: "east", 6: "east", 40: "east"}
"""What comes of it where the east has the last word."""
del PARTED[4], PARTED[5]


def test_what_both_sites_did_becomes_one_history(west: Cluster, east: Cluster) -> None:
    west.see(east)
    part(west, east)
    found = restore(west, east)
    assert {r.phase for r in found.values()} <= {DONE}, found
    assert noted(east) == PARTED
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    level(west, east)
    assert noted(west) == PARTED


@pytest.mark.feature("S2")
@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_whoever_reads_the_logs_from_outside_sees_it_too(west: Cluster, east: Cluster, piece: int) -> None:
    """In pieces, carried on from one to the next, at either site."""
    fly(west, *range(6))
    split(west, east)
    fly(west, 10, 11), fly(east, 10, 12), drop(west, 1), note(east, 2, "east"), note(west, 2, "west")
    drop(east, 3), note(west, 3, "west"), drop(west, 4), fly(west, 4)
    mend(west, east)
    assert {r.phase for r in restore(west, east).values()} <= {DONE}
    level(west, east)
    note(east, 5, "behind it")
    level(west, east)
    for cluster in (west, east):
        assert read_from_outside(cluster, piece) == noted(east)


def read_from_outside(cluster: Cluster, piece: int) -> dict[int, str]:
    log, objects = cluster.node(cluster.names[0]).runtime.adapters.log, {}
    for table in cluster.tables().values():
        tp = TopicPartition(table.topic, table.index)
        carried = HistoryState(0, table.beginning(cluster.site))
        entries = list(log.read(tp, 0, log.bounds(tp)[1]))
        for at in range(0, len(entries), piece):
            history = History(HistoryState.unpack(carried.pack()))
            for step in filter(None, [history.read(entry) for entry in entries[at : at + piece]]):
                for change in step.changes:
                    objects[change.key, change.ref] = change.value
            carried = history.carried()
    info = registry.info(Flight)
    found = [info.instance(info.decode(value)) for value in objects.values() if value is not None]
    assert len({f.number for f in found}) == len(found)
    return {f.number: f.note for f in found}


@pytest.mark.parametrize("paces", [Paces(SitePaces(watch_s=0.05))])
def test_what_is_one_again_is_not_told_as_parted_any_more(west: Cluster, east: Cluster) -> None:
    """It was told while both served, and nobody serves at the initiating site who could take it back."""
    fly(west, *range(6))
    split(west, east)
    fly(west, 10), fly(east, 11)
    mend(west, east)
    for cluster in (west, east):
        wait_until(lambda c=cluster: len(told_parted(c)) == len(NAMES), "both tell it")  # type: ignore[misc]
    restore(west, east)
    level(west, east)
    for cluster in (west, east):
        wait_until(lambda c=cluster: not told_parted(c), "it is over")  # type: ignore[misc]
