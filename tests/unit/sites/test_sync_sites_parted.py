"""What a site is said to lack of another one, whose commits waited for it until both went on (M1, M5)."""

from __future__ import annotations

import pytest

from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.test_restoring import mend
from tests.unit.sites.test_switching import NAMES, switching
from tests.unit.sites.test_sync_sites import closed, east, soon, waits, west
from tests.unit.sites.two import fly, stands

pytestmark = pytest.mark.feature("M1", "M5")
__all__ = ["east", "west"]


@soon
def test_a_site_that_parted_from_the_other_one_lacks_what_that_one_did(west: Cluster, east: Cluster) -> None:
    """Its commits waited for this site when last seen; then somebody there let go of it."""
    waits(east, True)
    west.cut()
    east.cut()
    wait_until(lambda: closed(west), "east is away")
    switching(west).let_go(NAMES, "east")
    wait_until(lambda: not any(is_closed(west)), "commits go on")
    fly(west, *range(10))
    switching(east, 1).promote(NAMES, may_fork=True)
    east.settle()
    fly(east, *range(10, 20))
    mend(west, east)
    switching(east).demote(NAMES, "west")
    wait_until(lambda: all((s := stands(east, name)) is not None and s.parted for name in NAMES), "both have gone on")
    switched = switching(east).promote(NAMES, may_fork=True)
    assert [(s.may_fork, s.lacks) for s in switched] == [(True, "what it has done since both went on")] * 3


def is_closed(cluster: Cluster) -> list[bool]:
    copies = [c for n in cluster.names for c in cluster.node(n).runtime.copies.values()]
    return [bool(c.core.leading.writer.closed) for c in copies if c.core.leading is not None]
