"""A site whose log has what a later version of halog wrote, and one that mirrors it and does not know that (U1)."""

from __future__ import annotations

import pytest

from halog.core.log import records
from halog.runtime.node.paces import Paces
from halog.runtime.sites.site_paces import SitePaces
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import Flight
from tests.unit.sites.test_switching import NAMES
from tests.unit.sites.two import east, fly, level, stands, states, west

pytestmark = pytest.mark.feature("U1", "M5")
__all__ = ["east", "west"]


@pytest.fixture
def paces() -> Paces:
    """What cannot be mirrored is tried again soon, and so it is by another node."""
    return Paces(SitePaces(retry_s=0.1, report_s=0.2, stale_s=1.0))


def told_ms(cluster: Cluster, partition: str) -> int:
    """When it was last said how far that one is mirrored."""
    status = stands(cluster, partition)
    return 0 if status is None else status.at_ms


def test_it_is_not_mirrored_and_not_tried_again(west: Cluster, east: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """By neither node of this site, once each; the other partitions are mirrored on."""
    caplog.set_level("INFO", "halog.mirror")
    fly(west, *range(10))
    level(west, east)
    table = west.tables()["test-0"]
    tp = next(c.tp for c in west.node(west.names[0]).runtime.copies.values() if c.name == table.name)
    offset = west.broker.shelf(tp).end
    west.broker.overtake(tp, bytes((records.VERSION, records.LAST_KIND + 1)) + b"whatever it says")
    says = f"test-0 is not mirrored from site west: the other site's log has at offset {offset}, behind lsn "

    def seen(text: str) -> int:
        return sum(text in r.getMessage() for r in caplog.records)

    wait_until(lambda: seen(says) == 2, "each node of the site has met it")
    begun = seen("test-0: mirrored from site west")
    others = [name for name in NAMES if name != "test-0"]
    since, lsns = told_ms(east, others[0]), {name: states(east)[name].lsn for name in others}
    numbers = (n for n in range(100, 10_000) if west.partition_of(Flight, n) in others)
    while told_ms(east, others[0]) < since + 1_000:
        fly(west, next(numbers))
    wait_until(lambda: all(states(east)[name].lsn > lsns[name] for name in others), "the others are mirrored on")
    assert seen("test-0: mirrored from site west") == begun, "it is tried ten times a second"
    assert seen(says) == 2
    status = stands(east)
    assert status is not None
    assert "kind 13, which a later version of halog wrote" in status.error
