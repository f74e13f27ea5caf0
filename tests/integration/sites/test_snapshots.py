"""Two real sites: the one that only mirrors trims its log, and comes back from its snapshots if it loses its disks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import wait
from tests.integration.cluster.test_restore import log_start, wipe
from tests.integration.sites.test_taking_over import command, land, landings, level
from tests.integration.sites.two import Between, TwoSites

pytestmark = [pytest.mark.timeout(300), pytest.mark.feature("M5")]

NODES = ("east-1", "east-2")


@pytest.mark.long
@pytest.mark.feature("P10")
def test_a_mirroring_site_that_lost_its_disks_comes_back_from_its_snapshots_and_takes_over(
    between: Between, tmp_path: Path
) -> None:
    """One node under traffic, then both. The home, which served until then, goes on in the trimmed log as a mirror."""
    two_sites = TwoSites(tmp_path, between, every=150, keep=40)
    try:
        two_sites.start()
        west, east = two_sites.west, two_sites.east
        with Load(west.client(), "trim", pause_s=0) as load:
            wait(lambda: all(log_start(east, i) > 50 for i in range(2)), "the east's logs are trimmed", 90)
            east.kill("east-1")
            wipe(east, ["east-1"])
            east.start(["east-1"])
            load.flows()
        assert not load.errors
        level(two_sites)
        assert all(c["began_at"] > 50 for c in east.copies("east-1").values()), "from the snapshot's place in the log"
        for name in NODES:
            east.kill(name)
        wipe(east, NODES)
        east.start()
        level(two_sites)
        command(east, "promote")
        east.whole()
        load.check_objects(east.client("judge"))
        land(east.client(), "N1", 20)
        level(two_sites)
        command(west, "promote")
        west.whole()
        assert landings(west, "N1") == 20
        level(two_sites)
    finally:
        between.heal()
        two_sites.close()
