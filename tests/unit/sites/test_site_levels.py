"""Another site's level rises above what this site's nodes know, while they mirror it and ask there (U1)."""

from __future__ import annotations

import json
import time

import pytest

from halog.adapters.memory import MemoryBroker, MemoryCoordinator, MemoryLog, MemoryTree
from halog.errors import HalogError, PartitionUnavailableError, VersionMismatchError
from halog.metadata.cluster_level import LEVEL
from halog.ports import Versioned
from halog.runtime.node.paces import Paces
from halog.runtime.node.site_levels import known_sites
from halog.runtime.sites.site_paces import SitePaces
from halog.runtime.support.adapters import SiteAccess
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import Flight
from tests.unit.sites.test_switching import NAMES
from tests.unit.sites.two import east, fly, level, stands, states, west

pytestmark = pytest.mark.feature("U1", "M5")
__all__ = ["east", "west"]

SAYS = f"site west: cluster test is at level {LEVEL + 1} (raised by ops); this process runs halog"
HOLD_S = 0.1


@pytest.fixture
def paces() -> Paces:
    """What is written at the other site is written often."""
    return Paces(SitePaces(retry_s=0.3, report_s=0.2, hold_s=HOLD_S, stale_s=1.0))


def raised(tree: MemoryTree) -> None:
    tree.create("level", json.dumps({"level": LEVEL + 1, "by": "ops"}).encode(), 0)


def told(cluster: Cluster, partition: str) -> str:
    status = stands(cluster, partition)
    return "" if status is None else status.error


def held(cluster: Cluster) -> dict[str, Versioned | None]:
    """What east has written at west: that it holds the logs there, and who mirrors."""
    there = cluster.node(cluster.names[0]).runtime.adapters.coordinator
    paths = [f"holders/{name}/site-east" for name in NAMES]
    paths += [f"mirroring/east/{node}" for node in there.children("mirroring/east")]
    return {path: there.get(path) for path in paths}


def test_it_is_mirrored_no_more_and_nothing_is_written_there(
    west: Cluster, east: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    fly(west, *range(10))
    level(west, east)
    wait_until(lambda: any(path.startswith("mirroring/") for path in held(west)), "it is said who mirrors")
    before = held(west)
    wait_until(lambda: held(west) != before, "the holds are renewed")
    raised(west.tree)
    wait_until(lambda: all(SAYS in told(east, name) for name in NAMES), "each partition is said to stand still")
    assert not any(told(east, name).count("nothing was done") > 1 for name in NAMES)
    left, lsns = held(west), {name: state.lsn for name, state in states(east).items()}
    assert not any(path.startswith("mirroring/") for path in left)
    table = west.tables()["test-0"]
    tp = next(c.tp for c in west.node(west.names[0]).runtime.copies.values() if c.name == table.name)
    west.broker.overtake(tp, bytes((1, 255)))
    time.sleep(20 * HOLD_S)
    assert held(west) == left
    assert {name: state.lsn for name, state in states(east).items()} == lsns
    assert all(SAYS in told(east, name) for name in NAMES), "not what is in its log: nobody reads that"
    events = [r.getMessage() for r in caplog.records if "HALOG-1040" in r.getMessage() and SAYS in r.getMessage()]
    assert len({text.split()[2] for text in events}) == len(NAMES)
    assert len(events) <= 2 * len(NAMES), "each node once for a partition"


def test_nobody_asks_there(west: Cluster, east: Cluster) -> None:
    fly(west, 1)
    level(west, east)
    client = east.client()
    with client.transaction() as tx:
        assert tx.find(Flight, 1) is not None
    raised(west.tree)

    def refused() -> bool:
        try:
            with client.transaction() as tx:
                tx.find(Flight, 1)
        except PartitionUnavailableError as error:
            return SAYS in error.message
        except HalogError:
            return False
        return False

    wait_until(refused, "it says why")


def test_a_way_refuses_every_request_once_the_level_is_not_known() -> None:
    """And there is none where it is not known at first."""
    tree, ways = MemoryTree(), list[MemoryCoordinator]()

    def reach(site: str) -> SiteAccess:
        ways.append(MemoryCoordinator(tree))
        ways[-1].connect(lambda state: None)
        return SiteAccess(site, west_log(), ways[-1])

    def west_log() -> MemoryLog:
        return MemoryLog(MemoryBroker())

    reached = known_sites(reach, "test")
    way = reached("west")
    there, paths = way.coordinator, ["nodes", "a"]
    assert there.create("a", b"1")
    found = there.get("a")
    assert found is not None
    way.check_level()
    raised(tree)
    wait_until(lambda: is_outgrown(way), "it has heard")
    for request in (
        lambda: there.create("b", b""),
        lambda: there.get("a"),
        lambda: there.get_many(paths),
        lambda: there.set("a", b"2", found.version),
        lambda: there.confirm("a", found.version),
        lambda: there.delete("a"),
        lambda: there.children(""),
        lambda: there.watch("a", lambda path, value: None),
        lambda: there.watch_children("a", lambda names: None),
        lambda: there.watch_members("nodes", lambda path, value: None),
        lambda: there.sync("a"),
    ):
        with pytest.raises(VersionMismatchError, match=r"^site west: cluster test is at level") as caught:
            request()
        assert caught.value.evidence["site"] == "west"
    assert tree.get("a") is not None
    assert tree.get("b") is None
    way.close()
    with pytest.raises(VersionMismatchError, match=r"^site west: "):
        reached("west")
    assert not ways[-1].is_connected


def is_outgrown(way: SiteAccess) -> bool:
    try:
        way.check_level()
    except VersionMismatchError:
        return True
    return False
