"""A planned switch whose command died half-way comes to its end by itself (M5)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from halog.errors import DeadlineError
from halog.events import Event
from halog.metadata.partition_tables import table_of
from halog.ports import TopicPartition
from halog.runtime.replica.driver import Copy
from halog.runtime.sites import switchover_recovery as unfinished
from halog.runtime.sites.catch_up import CatchUp
from halog.runtime.sites.split_watch import SplitWatch
from halog.runtime.sites.switchover import Switchover
from halog.runtime.sites.switchover_recovery import SwitchoverRecovery
from halog.runtime.topics.topic_names import events_topic
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.test_restoring import coordinator
from tests.unit.sites.test_switching import NAMES, switching
from tests.unit.sites.test_takeover import SOON_S, holders, serves, site
from tests.unit.sites.two import east, flights, fly, level, west

pytestmark = pytest.mark.feature("M5", "X3")
__all__ = ["east", "west"]


class Killed(BaseException):
    """As kill -9 does: nothing is given back."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished, "LOOK_S", 0.1)
    monkeypatch.setattr(unfinished, "GIVEN_S", 0.5)


@pytest.fixture
def voting() -> Iterator[tuple[Cluster, Cluster]]:
    """East only follows: it has no vote."""
    votes = {"west": 1, "east": 0}
    with site("west", "quorum", votes) as west, site("east", "quorum", votes, west) as east:
        west.see(east)
        wait_until(lambda: holders(west) == {"west"}, "west has all votes", SOON_S)
        yield west, east


def dies(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, fenced: bool) -> None:
    """The command, once the other site has been told; `fenced`: once its log takes nothing more."""
    step = CatchUp.step

    def killed(self: CatchUp, *, may_fence: bool = True) -> bool:
        if not fenced or self.fenced is not None:
            raise Killed
        step(self, may_fence=may_fence)
        return False

    with monkeypatch.context() as patched:
        patched.setattr(CatchUp, "step", killed)
        patched.setattr("halog.runtime.sites.switchover.Switchover._give_back", lambda self, one: None)
        with pytest.raises(Killed):
            switching(cluster).promote(NAMES)


@pytest.mark.parametrize("fenced", [False, True])
def test_who_was_given_it_takes_it(west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch, fenced: bool) -> None:
    west.see(east)
    fly(west, *range(5))
    dies(east, monkeypatch, fenced)
    wait_until(lambda: serves(east), "east serves", SOON_S)
    east.settle()
    fly(east, 5)
    level(west, east)
    assert flights(west) == flights(east) == set(range(6))
    wait_until(lambda: len(told(east)) == len(NAMES), "it is told")
    assert all("whoever asked for that did not end it" in e.text for e in told(east))


def test_a_site_without_votes_does_so_too(voting: tuple[Cluster, Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody would ever serve: it takes nothing over by votes, and the one that served waits for it."""
    west, east = voting
    fly(west, *range(5))
    dies(east, monkeypatch, fenced=False)
    wait_until(lambda: serves(east), "east serves", SOON_S)
    east.settle()
    fly(east, 5)
    assert flights(east) == set(range(6))


def test_it_does_though_the_nodes_that_gave_it_are_gone(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    monkeypatch.setattr(unfinished, "GIVEN_S", 2.0)
    dies(east, monkeypatch, fenced=False)
    for name in west.names:
        west.kill(name)
    wait_until(lambda: serves(east), "east serves", SOON_S)
    east.settle()
    assert flights(east) == set(range(5))


def test_what_is_called_off_in_time_stays(west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    west.see(east)
    fly(west, *range(5))
    monkeypatch.setattr(unfinished, "GIVEN_S", 1000.0)
    looks: list[str] = []
    look = SwitchoverRecovery._look

    def looked(self: SwitchoverRecovery, site: str, copies: list[Copy]) -> None:
        look(self, site, copies)
        looks.append(site)

    monkeypatch.setattr(SwitchoverRecovery, "_look", looked)
    dies(east, monkeypatch, fenced=False)
    wait_until(lambda: looks, "east sees that it was given")
    switching(west).promote(NAMES)
    west.settle()
    for given_s in (1000.0, 0.0):  # it sees that it was called off, and takes at once what is given by then
        monkeypatch.setattr(unfinished, "GIVEN_S", given_s)
        seen = len(looks)
        wait_until(lambda seen=seen: len(looks) >= seen + 6, "each of its nodes looks again", SOON_S)
    fly(west, 5)
    assert {table_of(coordinator(east), name).owner for name in NAMES} == {"west"}
    assert not told(east)


def test_what_is_called_off_at_the_last_moment_stays(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the look at it."""
    west.see(east)
    fly(west, *range(5))
    tried: list[str] = []
    take, one = SwitchoverRecovery.take, threading.Lock()

    def late(self: SwitchoverRecovery, due: dict[str, Copy]) -> None:
        with one:  # each node of east mirrors some: of two that call it off at once, one is refused
            if not tried:
                switching(west).promote(NAMES)
            tried.extend(due)
        take(self, due)

    monkeypatch.setattr(SwitchoverRecovery, "take", late)
    dies(east, monkeypatch, fenced=False)
    wait_until(lambda: tried, "east tries to take them", SOON_S)
    west.settle()
    time.sleep(1.0)
    fly(west, 5)
    assert {table_of(coordinator(east), name).owner for name in NAMES} == {"west"}
    assert {table_of(coordinator(west), name).owner for name in NAMES} == {""}
    assert not told(east)


def test_who_gives_back_too_late_gives_nothing_back(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that was told to try for long gives up at the very moment at which the partitions are taken."""
    west.see(east)
    fly(west, *range(5))
    monkeypatch.setattr(unfinished, "GIVEN_S", 1000.0)
    give_back = Switchover._give_back
    slow, other = switching(east), switching(east)
    begun = threading.Event()

    def gives_back(self: Switchover, one: Any) -> None:
        """Others are about to take it: nothing at this site shows it yet."""
        if self is slow and not begun.is_set():
            begun.set()
            monkeypatch.setattr(Switchover, "_take", lambda *asked, **how: None)  # not yet
            other.promote(NAMES)
            monkeypatch.undo()
        give_back(self, one)

    monkeypatch.setattr(Switchover, "_give_back", gives_back)
    monkeypatch.setattr(CatchUp, "step", lambda self, *, may_fence=True: begun.is_set())
    slow._timeout_s = 0.5
    with pytest.raises(DeadlineError):
        slow.promote(NAMES)
    assert {table_of(coordinator(west), name).owner for name in NAMES} == {"east"}


def test_what_nobody_gave_is_not_taken(west: Cluster, east: Cluster) -> None:
    west.see(east)
    fly(west, 1)
    time.sleep(1.5)
    assert {t.owner for t in east.tables().values()} == {"west"}
    assert serves(west)


@pytest.mark.parametrize("watch", [SwitchoverRecovery, SplitWatch])
def test_copies_that_come_meanwhile_end_no_look(watch: type[SwitchoverRecovery | SplitWatch]) -> None:
    """A partition is placed here while others are looked at."""
    copies, looks = dict[str, Any](), list[float]()

    class Found:
        """A copy of a policy that is none of this."""

        @property
        def core(self) -> Any:
            copies[f"p-{len(copies)}"] = SimpleNamespace(core=core, serving=True)
            return core

        serving = True

    core = SimpleNamespace(state=SimpleNamespace(table=SimpleNamespace(policy="another")))
    copies |= {"p-0": Found(), "p-1": Found()}
    host: Any = SimpleNamespace(copies=copies, pause=looks.append)
    more: list[Any] = [None, None, ()] if watch is SwitchoverRecovery else [None, (), ()]
    watch(host, *more).turn()
    assert len(looks) == 1


def told(cluster: Cluster) -> list[Event]:
    node = cluster.node(cluster.names[0])
    tp = TopicPartition(events_topic(cluster.config.cluster.name), 0)
    log = node.runtime.adapters.log
    events = [Event.from_bytes(e.value) for e in log.read(tp, 0, log.bounds(tp)[1])]
    return [e for e in events if e.code == "HALOG-1050"]
