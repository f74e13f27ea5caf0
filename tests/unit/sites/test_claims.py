"""Several who say at the same time which site is to serve (M5, F6): one of them comes through, and nothing parts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from halog.core.table.table import PartitionTable
from halog.errors import DeadlineError, RefusedError
from halog.metadata import site_ownership as claims
from halog.metadata.partition_tables import table_of
from halog.runtime.sites import switchover_recovery as unfinished
from halog.runtime.sites.mirror_link import MirrorLink
from halog.runtime.sites.switchover import Switchover
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
        self._now = threading.Event()
        command = switching(east)
        command._is_level = self._waits  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._run, args=(command,))
        self._thread.start()
        wait_until(lambda: owners(west) == {"east"}, "it is given")

    def _waits(self, *asked: object, **how: object) -> None:
        if self._now.is_set():
            raise DeadlineError("not level in time")

    def _run(self, command: Switchover) -> None:
        with pytest.raises(DeadlineError):
            command.promote(NAMES)

    def gives_up(self) -> None:
        self._now.set()
        self._thread.join()


def before_it_takes(monkeypatch: pytest.MonkeyPatch, command: Switchover, happens: Callable[[], None]) -> None:
    """Behind its last look at how far the mirror is, once: it was stopped with Ctrl-Z, say."""
    claim, met = Switchover._claim, list[str]()

    def claims(self: Switchover, one: Any) -> None:
        if self is command and not met:
            met.append(one.table.name)
            happens()
        claim(self, one)

    monkeypatch.setattr(Switchover, "_claim", claims)


@pytest.mark.parametrize("back", ["taken back", "given back"])
def test_what_was_level_and_was_served_again_since_is_not_level(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch, back: str
) -> None:
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    other = GivesUp(east, west) if back == "given back" else None
    slow = switching(east)

    def served_again() -> None:
        if other is None:
            switching(west).promote(NAMES)
        else:
            other.gives_up()
        west.settle()
        monkeypatch.setattr(MirrorLink, "turn", lambda self: self._host.pause(0.1))
        time.sleep(0.5)  # the turn that was under way
        fly(west, *range(5, 30))
        switching(west).demote(NAMES, "east")  # it is asked for again

    before_it_takes(monkeypatch, slow, served_again)
    with pytest.raises(RefusedError):
        slow.promote(NAMES)
    assert owners(east) == {"west"}


def test_who_may_fork_is_told_that_it_may_have(west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Level as it was: the other site serves again."""
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    other, forks = GivesUp(east, west), switching(east)
    before_it_takes(monkeypatch, forks, other.gives_up)
    said = forks.promote(NAMES, may_fork=True)
    assert (owners(east), owners(west)) == ({""}, {""})
    assert all(s.may_fork for s in said)


def test_what_is_called_off_before_it_is_ended_stays(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right behind the look whether it is still given."""
    monkeypatch.setattr(unfinished, "GIVEN_S", 1000.0)
    west.see(east)
    fly(west, *range(5))
    dies(east, monkeypatch, fenced=False)
    check, called_off = claims.check_given, list[str]()

    def checks(there: PartitionTable, to: str, by: str) -> None:
        check(there, to, by)
        if not called_off:
            called_off.append(there.name)
            switching(west).promote(NAMES[:1])

    monkeypatch.setattr(claims, "check_given", checks)
    with pytest.raises((RefusedError, DeadlineError)):
        switching(east, 2.0).promote(NAMES[:1], asks=False)
    tables = table_of(coordinator(west), NAMES[0]), table_of(coordinator(east), NAMES[0])
    assert [t.owner for t in tables] == ["", "west"]


def test_who_gives_overrules_nobody_who_has_said_otherwise_meanwhile(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    give, met = Switchover._give, list[str]()

    def gives(there: object, seen: PartitionTable, to: str) -> None:
        if not met:
            met.append(seen.name)
            switching(west).demote(NAMES, "south")
        give(there, seen, to)  # type: ignore[arg-type]

    monkeypatch.setattr(Switchover, "_give", staticmethod(gives))
    with pytest.raises(RefusedError, match="made south serve it"):
        switching(east).promote(NAMES)
    assert owners(west) == {"south"}
