"""The line between two sites loses packets, and nobody is told: no connection is closed, none is refused. Both sites go
on, see each other again, and are one; nothing that any client was told is lost.

Each site is in a network namespace of its own (`tests.integration.sites.packets`), with its servers, nodes, clients and
operators. What forwarders do to a line that they hold is in `test_apart`.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.faults.apart import MODULE as DEMO, Apart, accounted, ran
from tests.faults.clients import ClientProcess, Clients
from tests.faults.conftest import MODULE
from tests.faults.history import Outcome
from tests.faults.judge import judge
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import wait
from tests.integration.sites.netns import EnclosedSites, Namespaces
from tests.integration.sites.packets import why_not
from tests.integration.sites.test_sync_sites import waited_for
from tests.integration.sites.test_taking_over import level
from tests.integration.sites.two import EAST, NAMES, WEST, TwoSites

pytestmark = [pytest.mark.timeout(400), pytest.mark.feature("M1", "M5")]

ENDS_S = 35.0
"""For a command, and a node that is told to end: a ZooKeeper that is silent is given up after 5 s, and let go of.
Others start beside it, and the machine is busy; who waits for the end of a call waits for 40 s."""
BACK_S = 60.0
"""After the line is whole: the mirror goes on. A connection that was given up for dead is made anew within 2 s."""
FRESH_S = 5.0
"""No older is what a mirror that goes on has from the other site."""
FLOWS_S = 90.0
"""For clients over a bad line: each question takes longer, and what others were quicker with is to be repeated."""
ONE_WAY_S = 0.1
SILENCE_S = 2.0
"""A node that is asked is given up after one."""


@pytest.fixture(scope="module")
def enclosed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespaces]:
    """Both sites' servers, for all tests of this module."""
    if reason := why_not():
        pytest.skip(reason)
    made = Namespaces(tmp_path_factory.mktemp("enclosed"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def line(enclosed: Namespaces) -> Iterator[Namespaces]:
    """The same, whole before the test and after it."""
    enclosed.whole()
    yield enclosed
    enclosed.whole()


def closed(made: EnclosedSites) -> Iterator[EnclosedSites]:
    try:
        yield made
    finally:
        made.between.heal()  # nodes and clients end sooner
        made.close()


@pytest.fixture
def two_sites(line: Namespaces, tmp_path: Path) -> Iterator[EnclosedSites]:
    """With the demo's classes; each site's clients use what their own site serves."""
    yield from closed(EnclosedSites(tmp_path, line, module=DEMO, classes=False))


@pytest.fixture
def open_sites(line: Namespaces, tmp_path: Path) -> Iterator[EnclosedSites]:
    """Clients of both sites use what the west serves."""
    yield from closed(EnclosedSites(tmp_path, line, afar=True, module=MODULE))


def whole(line: Namespaces) -> None:
    """It is healed."""


def slowly(line: Namespaces) -> None:
    """Each packet takes a tenth of a second more."""
    line.delay(ONE_WAY_S)


def now_and_then(line: Namespaces) -> None:
    """Open for longer than a command needs for one thing, and for less than it needs for all."""
    line.flap(2.0, 1.0)


@pytest.mark.promise(1)
@pytest.mark.parametrize(
    ("toward", "again"),
    [
        pytest.param("", whole, id="cut"),
        pytest.param(EAST, whole, id="one-way-to-east"),
        pytest.param(WEST, whole, id="one-way-to-west"),
        pytest.param("", slowly, id="slow-afterwards"),
        pytest.param("", now_and_then, id="flapping-afterwards"),
    ],
)
def test_both_sites_go_on_and_become_one(
    two_sites: EnclosedSites, tmp_path: Path, toward: str, again: Callable[[Namespaces], None]
) -> None:
    """East hears nothing of west, or west nothing of east, or both: east takes over. Over the line as it is then both
    tell of it, and all of it is merged."""
    with Apart(two_sites, tmp_path, seed=11) as world:
        world.part(lambda: two_sites.between.cut(toward=toward))
        two_sites.between.heal()
        again(two_sites.between)
        world.finish_traffic()
        world.is_told()
        world.restored()
        accounted(world.judged())
        for site in NAMES:
            wait(lambda at=site: not world.command(at, "status", code=4)["parted"], f"{site} tells of one history")  # type: ignore[misc]


# --- no line to give up ---


Seen = list[tuple[float, Outcome]]
"""Transactions: the seconds each took, and what came of it."""


def seen(client: ClientProcess, since: float) -> Seen:
    """What has ended of what began after then."""
    pairs = [(p.began, p.ended) for p in client.pairs() if p.ended is not None and p.began.invoked >= since]
    return [(ended.returned - began.invoked, ended.outcome) for began, ended in pairs]


def slow(line: Namespaces) -> Callable[[Seen], bool]:
    """Each packet takes a tenth of a second more. What shows it to a client over the line."""
    line.delay(ONE_WAY_S)
    return lambda found: all(seconds >= 2 * ONE_WAY_S for seconds, outcome in found if outcome is Outcome.OK)


def flapping(line: Namespaces) -> Callable[[Seen], bool]:
    """As often silent as not, and for longer than a node that is asked is waited for."""
    line.flap(SILENCE_S, SILENCE_S)
    return lambda found: any(seconds >= SILENCE_S / 2 for seconds, _ in found)


@pytest.mark.promise(1)
@pytest.mark.parametrize(("bad", "cuts"), [(slow, (0,)), (flapping, (1, 2, 3))], ids=["slow", "flapping"])
def test_a_bad_line_is_lived_with(
    open_sites: EnclosedSites, bad: Callable[[Namespaces], Callable[[Seen], bool]], cuts: tuple[int, ...]
) -> None:
    """Clients of both sites go on at the one that serves; the other one's mirror keeps up, and nothing parts. `cuts`:
    they are looked at once the line was silent so often."""
    open_sites.start()
    west, east, line = open_sites.west, open_sites.east, open_sites.between
    with Clients(west.client(), "outside") as clients:
        inside = ClientProcess(west, clients, seat=1), ClientProcess(east, clients, seat=2)
        shows, since = bad(line), time.monotonic()
        for number in cuts:
            wait(lambda n=number: line.net.cuts >= n, "the line is cut")  # type: ignore[misc]
            for client in inside:
                client.flows(FLOWS_S)
        assert shows(found := seen(inside[1], since)), found
        line.heal()
        goes_on(open_sites)
        for client in inside:
            client.process.kill()
    for cluster in (west, east):
        assert said(ran(cluster, "status"))["parted"] == []
    merged = ran(west, "restore", "--source", EAST)
    assert (merged.returncode, merged.stdout) == (5, "")
    assert "not served by site east: nothing can be merged there" in merged.stderr
    judge(west, clients, *inside)
    the_same(open_sites)


# --- sites that vote ---


AFTER_MS = 4_000
TAKES_S = 90.0
"""For a takeover: that, the pauses of a machine that is busy, and whoever is asked in vain."""


@pytest.fixture
def voting_sites(line: Namespaces, tmp_path: Path) -> Iterator[TwoSites]:
    """East has two of three votes, and commits wait for both logs; clients of both sites use what either serves."""
    votes: dict[str, Any] = {"takeover": "quorum", "takeover_after_ms": AFTER_MS, "votes": {WEST: 1, EAST: 2}}
    waits: dict[str, Any] = {"sync_sites": NAMES, "deadline_ms": 10_000}
    yield from closed(EnclosedSites(tmp_path, line, afar=True, module=MODULE, **votes, **waits))


@pytest.mark.promise(1)
@pytest.mark.feature("Q1")
@pytest.mark.parametrize(
    "toward",
    [
        pytest.param("", id="cut", marks=pytest.mark.quick_fault),
        pytest.param(EAST, id="one-way-to-east"),
        pytest.param(WEST, id="one-way-to-west"),
    ],
)
def test_the_side_with_the_votes_goes_on(voting_sites: TwoSites, toward: str) -> None:
    """By itself; the other one refuses, and gives up once it sees that. What all clients were told, before, meanwhile
    and afterwards, is one history."""
    voting_sites.start()
    west, east, line = voting_sites.west, voting_sites.east, voting_sites.between
    wait(lambda: votes(west) == {"partitions": 2, "with_quorum": 2}, "west has the votes", TAKES_S)
    waited_for(voting_sites)
    with Clients(west.client(), "outside") as clients:
        inside = ClientProcess(east, clients, seat=1)
        clients.flows(FLOWS_S)
        line.cut(toward=toward)
        wait(lambda: serves(east), "east takes over", TAKES_S)
        inside.flows(FLOWS_S)
        for cluster, number in ((east, 2), (west, 0)):
            has = {"partitions": 2, "with_quorum": number}
            wait(lambda c=cluster, h=has: votes(c) == h, f"{cluster.values['site_name']} says so", TAKES_S)  # type: ignore[misc]
        line.heal()
        wait(lambda: not serves(west), "west gives up", TAKES_S)
        clients.flows(FLOWS_S)  # over the line
        inside.process.kill()
    judge(east, clients, inside)


def votes(cluster: Cluster) -> Any:
    return said(ran(cluster, "status"))["votes_of_sites"]


def serves(cluster: Cluster) -> bool:
    """By its own word."""
    status = said(ran(cluster, "status"))
    return not status["mirrored"] and not status["without_active"]


COMMANDS = (
    (EAST, ("site", "list"), (0, 4)),
    (WEST, ("site", "list"), (0, 4)),
    (EAST, ("site", "promote"), (5,)),
    (WEST, ("restore", "--source", EAST), (3,)),
    (EAST, ("conflicts", "list", "--source", WEST), (3,)),
)
"""That ask the other site, and their exit codes where it is silent."""


@pytest.mark.promise(1)
@pytest.mark.quick_fault
def test_a_silent_line_holds_nobody_up(open_sites: TwoSites) -> None:
    """Commands end, and so does a node that mirrors; the home notices nothing; the mirror says that it stands still,
    and goes on after the line is whole."""
    open_sites.start()
    west, east, line = open_sites.west, open_sites.east, open_sites.between
    with Clients(west.client(), "outside") as clients:
        line.cut()
        ending = east.processes["east-1"]
        ending.signal(signal.SIGTERM)
        began = time.monotonic()
        with ThreadPoolExecutor(len(COMMANDS)) as pool:
            for codes, done, seconds in pool.map(lambda c: (c[2], *timed(open_sites, c[0], *c[1])), COMMANDS):
                assert done.returncode in codes, (done.args, done.stdout, done.stderr)
                assert seconds < ENDS_S, done.args
        assert ending.exit_code(max(0.1, began + ENDS_S - time.monotonic())) == 0
        east.start(["east-1"])
        clients.flows(FLOWS_S)
        wait(lambda: ran(east, "site", "lag").returncode == 4, "the mirror is said to stand still", 2 * ENDS_S)
        line.heal()
        goes_on(open_sites)
    judge(west, clients)
    the_same(open_sites)


def timed(sites: TwoSites, site: str, *words: str) -> tuple[Any, float]:
    """A command that has ended, and the seconds it took."""
    began = time.monotonic()
    return ran(sites.clusters[site], *words), time.monotonic() - began


def goes_on(sites: TwoSites) -> None:
    """The mirror, with what was acknowledged meanwhile; traffic need not end for that."""
    wait(lambda: mirrored(sites), lambda: f"east's mirror goes on: {lag(sites)}", BACK_S)


def mirrored(sites: TwoSites) -> bool:
    """All partitions, as told since the line is whole."""
    found = lag(sites)
    return len(found) == 2 and all(not m["why"] and m["age_s"] < FRESH_S for m in found)


def lag(sites: TwoSites) -> Any:
    return said(ran(sites.east, "site", "lag"))


def said(done: Any) -> Any:
    """The document of a command."""
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def the_same(sites: TwoSites) -> None:
    """Object by object, every copy of both sites."""
    level(sites)
    for partition in sites.west.partitions():
        held = [
            {f.key: (f.ref, f.version, f.value) for f in cluster.stored(node, partition)}
            for cluster in sites.clusters.values()
            for node in cluster.nodes
        ]
        assert held[0]
        assert all(one == held[0] for one in held)
