"""A planned switch whose command died half-way comes to its end by itself (M5)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator
from halog.errors import DeadlineError
from halog.events import Event
from halog.metadata.partition_tables import table_of
from halog.ports import TopicPartition
from halog.runtime.node.paces import Paces
from halog.runtime.replica.driver import Copy
from halog.runtime.sites.catch_up import CatchUp
from halog.runtime.sites.mirror_assignment import MirrorDuties
from halog.runtime.sites.site_paces import SitePaces
from halog.runtime.sites.split_watch import SplitWatch
from halog.runtime.sites.switchover import Switchover
from halog.runtime.sites.switchover_recovery import SwitchoverRecovery
from halog.runtime.support.adapters import SiteAccess
from halog.runtime.topics.topic_names import events_topic
from halog.testing.cluster import Cluster, wait_until
from halog.testing.gate import Gate, GatedPort
from tests.unit.sites.test_restoring import coordinator
from tests.unit.sites.test_switching import NAMES, switching
from tests.unit.sites.test_takeover import SOON_S, holders, serves, site
from tests.unit.sites.two import east, flights, fly, level, west

pytestmark = pytest.mark.feature("M5", "X3")
__all__ = ["east", "west"]


class Killed(BaseException):
    """As kill -9 does: nothing is given back."""


def ending(given_s: float) -> Paces:
    """What was given is taken after so long."""
    return Paces(SitePaces(given_look_s=0.1, given_s=given_s))


@pytest.fixture
def paces() -> Paces:
    return ending(0.5)


by_hand = pytest.mark.parametrize("paces", [ending(1000.0)])
"""No node ends anything by itself."""


@pytest.fixture
def voting(paces: Paces) -> Iterator[tuple[Cluster, Cluster]]:
    """East only follows: it has no vote."""
    votes = {"west": 1, "east": 0}
    with site("west", "quorum", votes) as west, site("east", "quorum", votes, west, paces) as east:
        west.see(east)
        wait_until(lambda: holders(west) == {"west"}, "west has all votes", SOON_S)
        yield west, east


class Command:
    """A command at one site, in a process of its own, which can be killed: it reaches nothing any more."""

    def __init__(self, cluster: Cluster) -> None:
        self.gate = Gate()
        self._adapters = cluster.node(cluster.names[0]).runtime.adapters
        self.coordinator: Any = GatedPort(self._adapters.coordinator, self.gate)

    def reach(self, site: str) -> SiteAccess:
        remote = self._adapters.reach(site)
        log, coordinator = (GatedPort(port, self.gate) for port in (remote.log, remote.coordinator))
        return SiteAccess(site, log, coordinator)  # type: ignore[arg-type]

    def kill(self) -> None:
        self.gate.kill()
        raise Killed


def dies(cluster: Cluster, fenced: bool) -> None:
    """The command, once the other site has been told; `fenced`: once its log takes nothing more."""
    command = Command(cluster)

    class Dies(CatchUp):
        def step(self, *, may_fence: bool = True) -> bool:
            if not fenced or self.fenced is not None:
                command.kill()
            super().step(may_fence=may_fence)
            return False

    with pytest.raises(Killed):
        Switchover(command.coordinator, cluster.site, command.reach, 10, level_by=Dies).promote(NAMES)


class Everything(MirrorDuties):
    """This node mirrors all there is."""

    def is_wanted(self, copy: Copy) -> bool:
        return True


def recovery(
    cluster: Cluster, given_s: float, made: type[SwitchoverRecovery] = SwitchoverRecovery
) -> SwitchoverRecovery:
    """Of the first node; the test takes its turns."""
    runtime = cluster.node(cluster.names[0]).runtime
    assert runtime.host is not None
    duties = Everything(runtime.adapters.coordinator, runtime.name)
    return made(runtime.host, duties, runtime.adapters.reach, {"test"}, SitePaces(given_look_s=0.0, given_s=given_s))


@pytest.mark.parametrize("fenced", [False, True])
def test_who_was_given_it_takes_it(west: Cluster, east: Cluster, fenced: bool) -> None:
    west.see(east)
    fly(west, *range(5))
    dies(east, fenced)
    wait_until(lambda: serves(east), "east serves", SOON_S)
    east.settle()
    fly(east, 5)
    level(west, east)
    assert flights(west) == flights(east) == set(range(6))
    wait_until(lambda: len(told(east)) == len(NAMES), "it is told")
    assert all("whoever asked for that did not end it" in e.text for e in told(east))


def test_a_site_without_votes_does_so_too(voting: tuple[Cluster, Cluster]) -> None:
    """Else nobody would ever serve: it takes nothing over by votes, and the one that served waits for it."""
    west, east = voting
    fly(west, *range(5))
    dies(east, fenced=False)
    wait_until(lambda: serves(east), "east serves", SOON_S)
    east.settle()
    fly(east, 5)
    assert flights(east) == set(range(6))


@pytest.mark.parametrize("paces", [ending(2.0)])
def test_it_does_though_the_nodes_that_gave_it_are_gone(west: Cluster, east: Cluster) -> None:
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    dies(east, fenced=False)
    for name in west.names:
        west.kill(name)
    wait_until(lambda: serves(east), "east serves", SOON_S)
    east.settle()
    assert flights(east) == set(range(5))


@by_hand
def test_what_is_called_off_in_time_stays(west: Cluster, east: Cluster) -> None:
    """It was seen that it was given; when that has lasted for long enough it is given no more."""
    west.see(east)
    fly(west, *range(5))
    ends, given_s = recovery(east, 0.5), 0.5
    dies(east, fenced=False)
    seen = time.monotonic()
    ends.turn()
    switching(west).promote(NAMES)
    west.settle()
    wait_until(lambda: time.monotonic() >= seen + given_s, "time goes by")
    for one in (ends, recovery(east, 0.0)):
        one.turn()
        one.turn()
    fly(west, 5)
    assert {table_of(coordinator(east), name).owner for name in NAMES} == {"west"}
    assert not told(east)


@by_hand
def test_what_is_called_off_at_the_last_moment_stays(west: Cluster, east: Cluster) -> None:
    """Behind the look at it."""
    west.see(east)
    fly(west, *range(5))
    tried: list[str] = []

    class Late(SwitchoverRecovery):
        def take(self, due: dict[str, Copy]) -> None:
            switching(west).promote(NAMES)
            tried.extend(due)
            super().take(due)

    dies(east, fenced=False)
    recovery(east, 0.0, Late).turn()
    assert sorted(tried) == NAMES
    west.settle()
    fly(west, 5)
    assert {table_of(coordinator(east), name).owner for name in NAMES} == {"west"}
    assert {table_of(coordinator(west), name).owner for name in NAMES} == {""}
    assert not told(east)


@by_hand
def test_who_gives_back_too_late_gives_nothing_back(west: Cluster, east: Cluster) -> None:
    """A command that was told to try for long gives up at the very moment at which the partitions are taken: somebody
    else has said so at west, and nothing at east shows it yet."""
    west.see(east)
    fly(west, *range(5))
    other, begun = Command(east), threading.Event()

    class Taking(MemoryCoordinator):
        """Whoever takes a partition has claimed it when it holds the log."""

        def create(self, path: str, *data: Any, **more: Any) -> bool:
            if path.startswith("holders/"):
                other.kill()
            return super().create(path, *data, **more)

    class Level(CatchUp):
        def step(self, *, may_fence: bool = True) -> bool:
            return True

    class GivesUp(CatchUp):
        def step(self, *, may_fence: bool = True) -> bool:
            return False

        def close(self) -> None:
            if not begun.is_set():
                begun.set()
                own: Any = GatedPort(taking, other.gate)
                with pytest.raises(Killed):
                    Switchover(own, "east", other.reach, 10, level_by=Level).promote(NAMES[:1])
            super().close()

    taking = Taking(east.tree)
    taking.connect(lambda state: None)
    with pytest.raises(DeadlineError):
        switching(east, 0.5, level_by=GivesUp).promote(NAMES[:1])
    assert begun.is_set()
    assert table_of(coordinator(west), NAMES[0]).owner == "east"


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
