"""What a merge needs of both logs is kept for as long as two histories have parted, and not for ever after (M2, R8)."""

from __future__ import annotations

import time

import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator
from halog.metadata import branch_holds, log_holds as retention
from halog.metadata.log_holds import FOREVER_MS, Hold
from halog.metadata.mirrors import HOLD_MS
from halog.metadata.restore_requests import DONE
from halog.runtime.node.paces import Paces
from halog.runtime.sites.site_paces import SitePaces
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.test_restoring import coordinator, mend, note, split
from tests.unit.sites.test_restoring_hindered import reuniting
from tests.unit.sites.test_switching import NAMES, owners, switching, told_parted
from tests.unit.sites.two import east, fly, level, stands, west

pytestmark = pytest.mark.feature("M2", "R8")
__all__ = ["east", "west"]
DAY_MS = 24 * 3_600_000


class Days:
    """Those that have gone by, as holds are told."""

    def __init__(self) -> None:
        self.gone = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.gone * DAY_MS


OFTEN = SitePaces(watch_s=0.05, count_s=0.05, keep_s=0.1)


@pytest.fixture
def paces() -> Paces:
    return Paces(OFTEN)


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> Days:
    made = Days()
    monkeypatch.setattr(retention, "now_ms", made.now_ms)
    return made


def parted(west: Cluster, east: Cluster) -> None:
    fly(west, *range(6))
    split(west, east)
    note(west, 1, "west"), note(east, 1, "east"), fly(west, 10), fly(east, 11)
    mend(west, east)
    for cluster, other in ((west, "east"), (east, "west")):
        wait_until(lambda c=cluster, o=other: told_parted(c) == dict.fromkeys(NAMES, o), "it is not told")  # type: ignore[misc]


def held(cluster: Cluster, site: str) -> dict[str, Hold]:
    """By partition, what is held for that site."""
    found = {name: retention.holds(coordinator(cluster), name) for name in NAMES}
    return {name: holds[f"site-{site}"] for name, holds in found.items() if f"site-{site}" in holds}


def is_held_anew(cluster: Cluster, site: str, days: Days) -> bool:
    """For a week from today on."""
    found = held(cluster, site).values()
    return len(found) == len(NAMES) and all(h.until_ms > days.now_ms() + HOLD_MS - DAY_MS for h in found)


def wait_for_days(days: Days, *clusters: Cluster) -> None:
    """Five weeks, in steps within which whoever is up holds what is needed."""
    for _ in range(7):
        days.gone += 5
        for cluster in clusters:
            other = "east" if cluster.site == "west" else "west"
            why = f"{cluster.site} holds nothing for {other}"
            wait_until(lambda c=cluster, o=other: is_held_anew(c, o, days), why)  # type: ignore[misc]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_split_of_five_weeks_can_be_merged(west: Cluster, east: Cluster, days: Days, stopped: bool) -> None:
    """Both serve on, or one was told to stop; whoever trims then leaves what each did."""
    parted(west, east)
    if stopped:
        switching(west).demote(NAMES, "east")
        wait_until(lambda: all(s is not None and s.parted for s in (stands(west, n) for n in NAMES)), "it compares")
    was = {c.site: {n: h.offset for n, h in held(c, o).items()} for c, o in ((west, "east"), (east, "west"))}
    wait_for_days(days, west, east)
    for cluster in (west, east):
        for name in NAMES:
            kept = [
                h.offset for h in retention.holds(coordinator(cluster), name).values() if h.until_ms > days.now_ms()
            ]
            assert min(kept) <= was[cluster.site][name]
    days.gone = 0
    assert set(reuniting(west, east).values()) == {DONE}
    level(west, east)


def test_what_is_held_says_what_for(west: Cluster, east: Cluster, days: Days) -> None:
    """`halog log holds` shows it, whoever had held it before."""
    parted(west, east)
    wait_for_days(days, west)
    assert {h.why for h in held(west, "east").values()} == {"for site east, which has gone on by itself, too"}


@pytest.mark.parametrize("paces", [Paces(OFTEN._replace(hold_s=1.0))])
def test_it_is_let_go_of_once_the_other_history_has_it(west: Cluster, east: Cluster, days: Days) -> None:
    """But for a week in which it can be looked at, and the merge undone; what that site mirrors now is held by it."""
    parted(west, east)
    assert held(west, "east")
    assert set(reuniting(west, east).values()) == {DONE}
    wait_until(lambda: owners(west) == {"east"} and not held(west, "east"), "it is held on")
    wait_until(lambda: all("mirrored by" in h.why for h in held(east, "west").values()), "what is mirrored is held")
    for name in NAMES:
        left = retention.holds(coordinator(west), name)["branch-east"]
        assert left.until_ms > days.now_ms() + HOLD_MS - DAY_MS
    days.gone = 8
    for name in NAMES:
        assert retention.allowed(coordinator(west), name, 1_000_000) == 1_000_000


def test_what_an_operator_lets_go_of_is_not_held_again(west: Cluster, east: Cluster, days: Days) -> None:
    parted(west, east)
    retention.release(coordinator(west), NAMES[0], "site-east")
    days.gone += 5
    wait_until(lambda: all(h.until_ms > days.now_ms() + 6 * DAY_MS for h in held(west, "east").values()), "prolonged")
    assert held(west, "east").keys() == set(NAMES[1:])


def test_what_was_not_held_any_more_is_held_once_it_is_told(west: Cluster, east: Cluster) -> None:
    """The line was away for longer than a week, and nothing was trimmed by chance."""
    fly(west, *range(6))
    split(west, east)
    fly(west, 10), fly(east, 11)
    for name in NAMES:
        retention.release(coordinator(west), name, "site-east")
    mend(west, east)
    wait_until(lambda: told_parted(west) == dict.fromkeys(NAMES, "east"), "it is not told")
    assert {h.offset for h in held(west, "east").values()} == {0}


def test_for_a_third_site_it_is_held_too(west: Cluster, east: Cluster, days: Days) -> None:
    """Of several that have gone on one is told: the others are held for by name, if they were."""
    parted(west, east)
    there = coordinator(west)
    retention.hold(there, NAMES[0], "site-south", Hold(0, days.now_ms() + DAY_MS, "mirrored"))
    branch_holds.keep(there, NAMES[0], "east", ["east", "south"])
    now = retention.holds(there, NAMES[0])["site-south"]
    assert (now.until_ms > days.now_ms() + 6 * DAY_MS, now.why) == (True, "mirrored")


def test_a_hold_that_is_over_keeps_what_is_left(west: Cluster, days: Days) -> None:
    """Or nothing: one that is for ever, or as long as a session, stays as it is."""
    there, name = coordinator(west), NAMES[0]
    retention.hold(there, name, "site-east", Hold(3, days.now_ms() + DAY_MS, "parted"))
    retention.hold(there, name, "mine", Hold(5, 0, "a session's"))
    retention.hold(there, name, "audit", Hold(5, FOREVER_MS, "for ever"))
    for held_as in ("mine", "audit", "nobody's"):
        before = retention.holds(there, name)
        retention.prolong(there, name, held_as, days.now_ms() + HOLD_MS)
        assert retention.holds(there, name) == before
    there.create(f"trimmed/{name}", b"7")  # while it was over
    retention.prolong(there, name, "site-east", days.now_ms() + HOLD_MS)
    assert retention.holds(there, name)["site-east"].offset == 7


def test_what_is_trimmed_while_a_hold_is_prolonged_it_does_not_claim_to_hold(days: Days) -> None:
    class Trims(MemoryCoordinator):
        """Somebody announces a trim right behind the change of a hold."""

        def set(self, path: str, data: bytes, version: int) -> int:
            now = super().set(path, data, version)
            if path.startswith("holders/") and self.get("trimmed/p") is None:
                self.create("trimmed/p", b"9")
            return now

    there = Trims()
    there.connect(lambda state: None)
    retention.hold(there, "p", "site-east", Hold(3, days.now_ms() + DAY_MS, "parted"))
    retention.prolong(there, "p", "site-east", until := days.now_ms() + HOLD_MS)
    assert retention.holds(there, "p")["site-east"] == Hold(9, until, "parted")


def test_parting_holds_anew_what_was_held_for_too_short(days: Days) -> None:
    """The site was away for more than a week; nobody has trimmed since."""
    there = MemoryCoordinator()
    there.connect(lambda state: None)
    retention.hold(there, "p", "site-east", Hold(3, days.now_ms() + DAY_MS, "mirrored"))
    days.gone += 2
    branch_holds.begin(there, "p", "east")
    held = retention.holds(there, "p")["site-east"]
    assert (held.offset, held.until_ms > days.now_ms() + HOLD_MS - DAY_MS) == (3, True)
    days.gone += 1
    branch_holds.begin(there, "p", "east")
    assert retention.holds(there, "p")["site-east"] == held
