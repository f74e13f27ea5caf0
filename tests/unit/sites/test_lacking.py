"""What may be missing of what a lost site acknowledged, by what was known of it last (M5)."""

from __future__ import annotations

import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator
from halog.core.log.chain import ChainState
from halog.core.sites.mirror import Checkpoint
from halog.metadata.mirrors import COMPARES, MirrorStatus, write
from halog.metadata.site_lag import lacking
from halog.metadata.sync_waits import FRESH_S, SyncWait, note

pytestmark = pytest.mark.feature("M5")

MIRRORED_MS = 1_795_000_000_000
"""11:06:40 on 2026-11-18."""


def told(asked_s_before: float, error: str = "", **more: bool) -> str:
    """Commits waited for this site when it was asked so long before the mirror's last word."""
    coordinator = MemoryCoordinator()
    coordinator.connect(lambda state: None)
    waits, may_drop = more.get("waits", True), more.get("may_drop", False)
    note(coordinator, "p", SyncWait("west", waits, may_drop, int(MIRRORED_MS - asked_s_before * 1000)))
    checkpoint = Checkpoint(7, ChainState(b"l" * 16, "west"))
    now = MirrorStatus(site="west", by="east-A", at_ms=MIRRORED_MS, checkpoint=checkpoint, behind=2, error=error)
    write(coordinator, "p", now)
    return lacking(coordinator, "p", "west")


@pytest.mark.parametrize("asked_s_before", [-5, 0, FRESH_S, 2.9 * FRESH_S])
def test_nothing_is_missing_where_commits_waited_for_this_site_until_the_end(asked_s_before: float) -> None:
    assert told(asked_s_before) == ""


def test_that_commits_waited_long_before_the_end_is_told_with_the_time() -> None:
    """Records went on to come over; an operator may have let go of this site, and nobody here could see it."""
    assert told(600) == (
        "what was acknowledged after 2026-11-18 11:06:40Z, and 2 entries before that, if commits did not wait for this "
        "site any more: they did at 2026-11-18 10:56:40Z, and whether they did later was not seen"
    )


@pytest.mark.parametrize("asked_s_before", [0, 600])
def test_a_log_that_is_still_compared_has_nothing_of_what_the_other_site_did(asked_s_before: float) -> None:
    """Its standing is of now, and says nothing of what came over."""
    assert told(asked_s_before, error=COMPARES) == "all that it has done since it serves"


def test_a_mirror_that_stands_still_is_told_as_such() -> None:
    """It says so again and again: the time of its last word is not that of the last record."""
    assert told(600, waits=False, error="it is trimmed") == (
        "what was acknowledged since it could not be mirrored any more (it is trimmed)"
    )


def test_what_did_not_wait_is_told_as_ever() -> None:
    after = "after 2026-11-18 11:06:40Z, and 2 entries before that"
    assert told(600, waits=False) == f"what was acknowledged {after}"
    assert told(600, may_drop=True) == f"what was acknowledged once commits went on without this site, {after}"
