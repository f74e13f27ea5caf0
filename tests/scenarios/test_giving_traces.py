"""Traces of a site that gives its log away (F3), told on two simulated sites with the code that nodes run."""

from __future__ import annotations

import pytest

from halog.metadata.restore_requests import DONE
from tests.scenarios.two_sites import Command, TwoSites

pytestmark = pytest.mark.feature("M2", "X3")


def test_22_what_an_overruled_site_still_sends_behind_the_end_it_has_told_counts_nowhere() -> None:
    """West's active waits in vain for its log, and gives up its epoch when west is to be overruled. What it has sent
    lands while east merges: behind the end that west has told of its branch, in an epoch that could still go on."""
    two = TwoSites()
    with two.told():
        two.west.nature.abandoned_lost = 0.0
        two.fork()
        active = two.west.active()
        assert active is not None
        assert active.session is not None
        session = active.session
        session.freeze()
        for c in two.west.clients:
            c.quota += 1
            c.begin()
        two.until(lambda: session.held)
        command = Command(two.pair, "restore", two.restore)
        two.until(lambda: "closed/p" in two.west.znodes.at)
        session.thaw()
        assert two.done(command).phase == DONE
        two.well()
