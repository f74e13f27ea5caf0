"""A line that swallows what is sent holds up a takeover for no longer than the policy says (Q1, M5)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from halog.errors import ClosedError, UnreachableError
from halog.runtime.sites.voting import SiteContact
from halog.runtime.support.adapters import SiteAccess
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import registry
from tests.unit.sites.test_takeover import AFTER_MS, SOON_S, holders, serves, site
from tests.unit.sites.two import flights, fly, level

pytestmark = pytest.mark.feature("Q1", "M5")

HANGS_S = 60.0
"""Until what nobody answers is given up: longer than any test waits."""


class Line:
    """To the other site: while it is `silent`, whatever is asked waits."""

    def __init__(self) -> None:
        self.silent = threading.Event()
        self._over = threading.Event()

    def end(self) -> None:
        self._over.set()

    def cross(self) -> None:
        if self.silent.is_set():
            self._over.wait(HANGS_S)
            raise UnreachableError("nobody answers")

    def through(self, part: Any) -> Any:
        """The same part of that site, over this line."""
        line = self

        class Through:
            def __getattr__(self, name: str) -> Any:
                what = getattr(part, name)
                return line.crossing(what) if callable(what) and name != "close" else what

        return Through()

    def crossing(self, what: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            self.cross()
            return what(*args, **more)

        return call


class Afar(Cluster):
    """A site that reaches the other one over such a line."""

    line: Line

    def _reach(self, site: str) -> SiteAccess:
        self.line.cross()
        remote = super()._reach(site)
        return SiteAccess(remote.name, self.line.through(remote.log), self.line.through(remote.coordinator))


@pytest.fixture(params=["quorum", "always"])
def sites(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, Afar]]:
    """Two of three votes are east's, which reaches west over such a line."""
    votes, line = {"west": 1, "east": 2}, Line()
    with site("west", request.param, votes) as west:
        east = Afar(
            2,
            partitions=3,
            registry=registry,
            site="east",
            home=west,
            others=("west",),
            takeover=request.param,
            takeover_after_ms=AFTER_MS,
            votes=votes,
        )
        east.line = line
        west.see(east)
        try:
            with east:
                wait_until(lambda: holders(west) == holders(east) == {"west"}, "west has all votes", SOON_S)
                yield west, east
                line.end()
        finally:
            line.end()


def test_a_site_that_says_nothing_is_taken_over_from(sites: tuple[Cluster, Afar]) -> None:
    """Its servers neither answer nor refuse: it is not asked whether it can be reached when it has been silent for as
    long as its votes rested."""
    west, east = sites
    fly(west, *range(5))
    level(west, east)
    east.line.silent.set()
    west.cut_off()
    for name in west.names:
        west.kill(name)
    wait_until(lambda: serves(east), "east serves", SOON_S)
    east.settle()
    fly(east, 10)
    assert flights(east) == {*range(5), 10}


# --- does it answer? ---


class Rig:
    """A desk, and a coordinator behind such a line."""

    def __init__(self) -> None:
        self.line = Line()
        self.asked = 0
        part: Any = SimpleNamespace(get=self._get, close=lambda: None)
        self.closing = threading.Event()
        host: Any = SimpleNamespace(coordinator=None, pause=self.closing.wait)
        self.host = host
        self.desk = SiteContact(host, "west", lambda name: SiteAccess(name, part, self.line.through(part)))

    def _get(self, path: str) -> None:
        self.asked += 1


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.line.end()
    made.desk.close()


def test_a_site_that_answers_is_not_waited_for(rig: Rig) -> None:
    assert rig.desk.answers(HANGS_S)
    assert rig.asked == 1


def test_one_that_does_not_is_waited_for_once(rig: Rig) -> None:
    """From when it was asked first: what was asked later is owed by the same silence."""
    assert rig.desk.answers(HANGS_S)
    rig.line.silent.set()
    since = time.monotonic()
    assert not rig.desk.answers(0.5)
    assert 0.5 <= time.monotonic() - since < SOON_S
    wait_until(lambda: rig.desk.silent_s >= 0.5, "its question may have been taken up a moment later")
    rig.host.pause = None  # nobody waits
    assert not rig.desk.answers(0.5)


def test_one_whose_line_breaks_meanwhile_is_out_of_reach(rig: Rig) -> None:
    assert rig.desk.answers(HANGS_S)
    rig.line.silent.set()
    threading.Timer(0.2, rig.line.end).start()
    since = time.monotonic()
    assert not rig.desk.answers(HANGS_S)
    assert time.monotonic() - since < SOON_S
    assert rig.desk.is_out_of_reach


def test_whoever_closes_waits_for_nobody(rig: Rig) -> None:
    """And has not found out that it does not answer."""
    assert rig.desk.answers(HANGS_S)
    rig.line.silent.set()
    threading.Timer(0.2, rig.closing.set).start()
    since = time.monotonic()
    with pytest.raises(ClosedError):
        rig.desk.answers(HANGS_S)
    assert time.monotonic() - since < SOON_S


def test_one_that_was_slow_and_answers_by_now_has_no_question_open(rig: Rig) -> None:
    assert rig.desk.answers(HANGS_S)
    rig.line.silent.set()
    assert not rig.desk.answers(0.1)
    rig.line.silent.clear()
    assert rig.desk.answers(HANGS_S)
