"""Several who say at the same time which site is to serve (M5, F6): one of them comes through, and nothing parts."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from halog.adapters.memory import MemoryCoordinator, MemoryLog
from halog.errors import DeadlineError, RefusedError
from halog.metadata.partition_tables import table_of
from halog.ports import Coordinator
from halog.runtime.sites.catch_up import CatchUp
from halog.runtime.sites.switchover import Switchover
from halog.runtime.support.adapters import SiteAccess
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.test_restoring import coordinator
from tests.unit.sites.test_switching import NAMES, switching
from tests.unit.sites.test_unfinished import dies
from tests.unit.sites.two import east, fly, level, west

pytestmark = pytest.mark.feature("M5", "M1")
__all__ = ["east", "west"]


def owners(cluster: Cluster) -> set[str]:
    """Which sites are to serve, as this one's tables say; "": itself."""
    return {table_of(coordinator(cluster), name).owner for name in NAMES}


class GivesUp:
    """A command at east that has asked for the partitions, and waits until it is to give them back."""

    def __init__(self, east: Cluster, west: Cluster) -> None:
        self._now = now = threading.Event()

        class Waits(CatchUp):
            def step(self, *, may_fence: bool = True) -> bool:
                if now.is_set():
                    raise DeadlineError("not level in time")
                return False

        command = switching(east, level_by=Waits)
        self._thread = threading.Thread(target=self._run, args=(command,))
        self._thread.start()
        wait_until(lambda: owners(west) == {"east"}, "it is given")

    def _run(self, command: Switchover) -> None:
        with pytest.raises(DeadlineError):
            command.promote(NAMES)

    def gives_up(self) -> None:
        self._now.set()
        self._thread.join()


def before_it_takes(east: Cluster, west: Cluster, happens: Callable[[], None]) -> Switchover:
    """A command at east that something happens to behind its last look at how far the mirror is, once: it was stopped
    with Ctrl-Z, say. Its own line to west is another one than the nodes'."""
    met = list[str]()

    class Stops(CatchUp):
        def step(self, *, may_fence: bool = True) -> bool:
            level = super().step(may_fence=may_fence)
            if level and not met:
                met.append(self.partition)
                happens()
            return level

    def reach(site: str) -> SiteAccess:
        there = MemoryCoordinator(west.tree)
        there.connect(lambda state: None)
        return SiteAccess(site, MemoryLog(west.broker), there)

    return Switchover(coordinator(east), "east", reach, 10, level_by=Stops)


@pytest.mark.parametrize("back", ["taken back", "given back"])
def test_what_was_level_and_was_served_again_since_is_not_level(west: Cluster, east: Cluster, back: str) -> None:
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    other = GivesUp(east, west) if back == "given back" else None

    def served_again() -> None:
        if other is None:
            switching(west).promote(NAMES)
        else:
            other.gives_up()
        west.settle()
        east.cut()
        fly(west, *range(5, 30))
        switching(west).demote(NAMES, "east")  # it is asked for again

    with pytest.raises(RefusedError):
        before_it_takes(east, west, served_again).promote(NAMES)
    assert owners(east) == {"west"}


def test_who_may_fork_is_told_that_it_may_have(west: Cluster, east: Cluster) -> None:
    """Level as it was: the other site serves again."""
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    said = before_it_takes(east, west, GivesUp(east, west).gives_up).promote(NAMES, may_fork=True)
    assert (owners(east), owners(west)) == ({""}, {""})
    assert all(s.may_fork for s in said)


def test_what_is_called_off_before_it_is_ended_stays(west: Cluster, east: Cluster) -> None:
    """Right behind the look whether it is still given."""
    west.see(east)
    fly(west, *range(5))
    dies(east, fenced=False)

    def called_off(here: Coordinator, remote: SiteAccess, partition: str) -> CatchUp:
        switching(west).promote(NAMES[:1])
        return CatchUp(here, remote, partition)

    with pytest.raises((RefusedError, DeadlineError)):
        switching(east, 2.0, level_by=called_off).promote(NAMES[:1], asks=False)
    tables = table_of(coordinator(west), NAMES[0]), table_of(coordinator(east), NAMES[0])
    assert [t.owner for t in tables] == ["", "west"]


def test_who_gives_overrules_nobody_who_has_said_otherwise_meanwhile(west: Cluster, east: Cluster) -> None:
    """Right behind the look at what it is to give."""

    def demoted(here: Coordinator, remote: SiteAccess, partition: str) -> CatchUp:
        switching(west).demote(NAMES, "south")
        return CatchUp(here, remote, partition)

    with pytest.raises(RefusedError, match="made south serve it"):
        switching(east, level_by=demoted).promote(NAMES)
    assert owners(west) == {"south"}
