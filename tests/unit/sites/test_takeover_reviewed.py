"""Sites that go on by themselves (Q1, M5), and what was found out about it by trying to break it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from halog.adapters.memory.broker import MemoryBroker
from halog.adapters.memory.coordinator import MemoryCoordinator
from halog.adapters.memory.log import MemoryLog
from halog.adapters.memory.tree import MemoryTree
from halog.core import effects as fx, events as ev
from halog.core.settings import Settings, SiteVotes
from halog.core.sites.site_quorum import SiteQuorum
from halog.errors import ConfigError, CoordinatorError, SitesError, UnreachableError
from halog.ports import LogSession
from halog.runtime.host.assignment import CopyPlacement
from halog.runtime.sites.switchover import Switchover
from halog.runtime.sites.voting import THREADS, SiteContact, SiteContacts, SiteVoting
from halog.runtime.support.adapters import SiteAccess
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_switching import NAMES
from tests.unit.sites.test_takeover import AFTER_MS, SOON_S, VOTES, WAITS_S, holders, is_sure, serves, site, takes
from tests.unit.sites.two import flights, fly, level

pytestmark = pytest.mark.feature("Q1", "M5", "P5")

EASTS = {"west": 1, "east": 2}


@pytest.fixture
def sites() -> Iterator[tuple[Cluster, Cluster]]:
    with site("west", "quorum", EASTS) as west, site("east", "quorum", EASTS, west) as east:
        west.see(east)
        wait_until(lambda: holders(west) == holders(east) == {"west"}, "west has all votes", SOON_S)
        wait_until(lambda: is_sure(west), "they count", SOON_S)
        yield west, east


@pytest.mark.parametrize("votes", [{"west": 0, "east": 0, "dr": 0}, {"west": 1, "east": 1, "dr": 0}])
def test_votes_by_which_no_site_could_go_on_are_refused(votes: Mapping[str, int]) -> None:
    with pytest.raises(ConfigError, match="takeover"):
        site("west", "quorum", votes)


def test_a_vote_that_cannot_be_read_costs_its_own_partition_only(
    sites: tuple[Cluster, Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    """And is told by each node that asks for it, once."""
    west, east = sites
    coordinator = east.node(east.names[0]).runtime.adapters.coordinator

    def spoilt() -> bool:
        now = coordinator.get("site_votes/test-0")
        assert now is not None
        try:
            return bool(coordinator.set("site_votes/test-0", b"{}", now.version))
        except CoordinatorError:
            return False

    wait_until(spoilt, "it is spoilt")
    time.sleep(WAITS_S)
    told: dict[str, set[str]] = {}
    for number in range(30):
        partition = west.partition_of(Flight, number)
        try:
            fly(west, number)
            told.setdefault(partition, set()).add("done")
        except SitesError:
            told.setdefault(partition, set()).add("refused")
    assert told == {"test-0": {"refused"}, "test-1": {"done"}, "test-2": {"done"}}
    assert all(not west.tables()[name].owner for name in ("test-1", "test-2"))
    said = [r.getMessage() for r in caplog.records if "is no vote" in r.getMessage()]
    assert 1 <= len(said) <= 4
    assert all(text.startswith("site east: znode site_votes/test-0 is no vote") for text in said)


def test_a_start_that_fails_leaves_no_connection_to_another_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies ask for votes as soon as they are open, before all of them are."""
    made: list[MemoryCoordinator] = []

    def reach(name: str) -> SiteAccess:
        coordinator = MemoryCoordinator()
        coordinator.connect(lambda state: None)
        made.append(coordinator)
        return SiteAccess(name, MemoryLog(MemoryBroker()), coordinator)

    def begin(placing: CopyPlacement, tables: object) -> None:
        copy: Any = SimpleNamespace(name="test-0", post=lambda event: None)
        before = len(made)
        placing._host.ask_vote(copy, fx.AskVote(1, "east"))
        wait_until(lambda: len(made) > before, "it is asked")
        raise UnreachableError("Kafka does not answer")

    west = site("west", "quorum", EASTS)
    monkeypatch.setattr(west, "_reach", reach)
    monkeypatch.setattr(CopyPlacement, "begin", begin)
    with pytest.raises(UnreachableError, match="Kafka"):
        west.start()
    for coordinator in made:
        with pytest.raises(UnreachableError):
            coordinator.get("site_votes")


# --- a site whose log is lost ---


class _Deaf:
    """A log that answers no append."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def session(self) -> LogSession:
        session: Any = self._log.session()
        session.append = lambda tp, data, done: None
        return session  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def test_a_log_that_is_lost_holds_up_no_partition_for_the_one_before_it() -> None:
    wait_s = 8.0
    with site("west", "operator", EASTS) as west, site("east", "operator", EASTS, west) as east:
        west.see(east)
        fly(west, *range(5))
        level(west, east)
        for name in west.names:
            west.kill(name)

        def deafened(name: str) -> SiteAccess:
            remote = east.node(east.names[0]).runtime.adapters.reach(name)
            deaf: Any = _Deaf(remote.log)
            return SiteAccess(name, deaf, remote.coordinator)

        since = time.monotonic()
        own = east.node(east.names[0]).runtime.adapters.coordinator
        switches = Switchover(own, "east", deafened, wait_s).promote(NAMES, may_fork=True)
        assert wait_s < time.monotonic() - since < len(NAMES) * wait_s, "not one after the other"
        assert [s.may_fork for s in switches] == [True] * len(NAMES)
        east.settle()
        assert flights(east) == set(range(5))


# --- a site that is slow ---


def test_a_site_that_does_not_answer_is_not_asked_over_and_over(
    sites: tuple[Cluster, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    west, east = sites
    answers, reach = threading.Event(), east._reach

    def hanging(name: str) -> SiteAccess:
        answers.wait(SOON_S)
        return reach(name)

    desks = [desk for name in east.names for desk in _desks(east, name)]
    for desk in desks:
        monkeypatch.setattr(desk, "_reach", hanging)
    west.cut_off()
    east.mend()
    west.cut()
    time.sleep(1.5 * AFTER_MS / 1000)
    left = [desk._pool._work_queue.qsize() for desk in desks]
    answers.set()
    assert max(left) <= len(east.tables())


def _desks(cluster: Cluster, name: str) -> list[SiteContact]:
    host: Any = cluster.node(name).runtime
    turns = [end.__self__ for end in host.host.threads.ends if getattr(end, "__name__", "") == "close"]
    return [d for desks in turns if hasattr(desks, "all") for d in desks.all.values() if d is not desks.own]


def test_a_node_that_is_active_for_nothing_has_reached_the_other_sites(sites: tuple[Cluster, Cluster]) -> None:
    """Else commits would wait at a failover until it had."""
    west, _ = sites
    west.kill(west.names[1])
    west.settle()
    west.restart(west.names[1])
    wait_until(lambda: not any(d.is_out_of_reach for d in _desks(west, west.names[1])), "it has", SOON_S)
    assert _desks(west, west.names[1])


class _Counting:
    """A coordinator, and what it was asked; while `answers` is not set, nothing comes back."""

    def __init__(self) -> None:
        self._coordinator = MemoryCoordinator(MemoryTree())
        self._coordinator.connect(lambda state: None)
        self.asked = list[str]()
        self.answers = threading.Event()

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.answers.wait(SOON_S)
            self.asked.append(name)
            return getattr(self._coordinator, name)(*args)

        return call


def voting(coordinator: _Counting) -> tuple[SiteVoting, SiteContacts, Any, list[Any]]:
    """Of one node, for one partition: what asks, whom it asks, for which copy, and the answers."""
    told = list[Any]()
    host: Any = SimpleNamespace(site="west", coordinator=coordinator, me=SimpleNamespace(node="west-A"))
    core = SimpleNamespace(state=SimpleNamespace(table=SimpleNamespace(policy="test")), leading=None)
    copy: Any = SimpleNamespace(name="test-0", core=core, post=told.append)
    desks = SiteContacts(host, lambda name: SiteAccess(name, None, None), ())  # type: ignore[arg-type]
    return SiteVoting(host, desks, {"test": AFTER_MS}), desks, copy, told


def test_a_vote_is_renewed_by_one_request() -> None:
    coordinator = _Counting()
    votes, desks, copy, told = voting(coordinator)
    coordinator.answers.set()
    for number in (1, 2, 3):
        votes.ask(copy, fx.AskVote(number, "west"))
        wait_until(lambda n=number: told[n - 1 :], "it is answered")  # type: ignore[misc]
    desks.close()
    assert told == [ev.VoteAnswered(n, "west", "west") for n in (1, 2, 3)]
    assert coordinator.asked == ["get", "create", "set", "set"]


def test_a_question_that_was_asked_again_meanwhile_makes_no_other_one_late() -> None:
    """Else a site that was slow for a moment has more to do than it can, for ever."""
    coordinator = _Counting()
    votes, desks, copy, told = voting(coordinator)
    for _ in range(THREADS):
        desks.own.submit(lambda: (coordinator.answers.wait(SOON_S), None)[1])
    for number in range(1, 10):
        votes.ask(copy, fx.AskVote(number, "west"))
    coordinator.answers.set()
    wait_until(lambda: told, "it is answered")
    desks.close()
    assert told == [ev.VoteAnswered(9, "west", "west")]


def test_one_that_answers_late_ends_no_newer_connection() -> None:
    made = list[Any]()

    def reach(name: str) -> SiteAccess:
        made.append(SimpleNamespace(closed=False))
        part: Any = SimpleNamespace(close=lambda one=made[-1]: setattr(one, "closed", True))
        return SiteAccess(name, part, part)

    host: Any = SimpleNamespace(coordinator=None)
    desk = SiteContact(host, "east", reach, again_s=0.0)

    def slow(coordinator: object) -> None:
        with pytest.raises(UnreachableError):
            desk.ask(away)
        desk.ask(lambda another: None)
        away(coordinator)

    with pytest.raises(UnreachableError):
        desk.ask(slow)
    assert [one.closed for one in made] == [True, False]
    desk.close()
    assert made[1].closed
    with pytest.raises(UnreachableError):
        desk.ask(lambda coordinator: None)
    assert len(made) == 2


def away(coordinator: object) -> None:
    raise UnreachableError("it does not answer")


# --- who takes over, and who gives up ---


def waiting(name: str, votes: Mapping[str, int], home: Cluster | None = None) -> Cluster:
    """A site of which west's and east's commits wait for each other."""
    return Cluster(
        2,
        partitions=3,
        registry=registry,
        site=name,
        home=home,
        others=tuple(n for n in votes if n != name),
        takeover="quorum",
        takeover_after_ms=AFTER_MS,
        votes=votes,
        sync_sites=("west", "east"),
        sync_site_away_ms=AFTER_MS,
    )


def test_only_a_site_that_commits_waited_for_takes_over() -> None:
    """The third site, which would be the first to try, lacks some of them."""
    with waiting("west", VOTES) as west, waiting("east", VOTES, west) as east, waiting("dr", VOTES, west) as dr:
        west.see(east), west.see(dr), east.see(dr), dr.see(east)
        wait_until(lambda: holders(west) == holders(east) == holders(dr) == {"west"}, "west has all votes", SOON_S)
        wait_until(lambda: is_sure(west), "they count", SOON_S)
        fly(west, *range(5))
        level(west, dr)
        west.cut_off("dr")
        fly(west, *range(5, 15))
        west.cut_off("east")
        wait_until(lambda: serves(east) or serves(dr), "one of the two takes over", SOON_S)
        assert not serves(dr)
        assert flights(east) == set(range(15))


def test_a_site_without_votes_only_follows() -> None:
    """Also where those that have some are without nodes."""
    votes = {"west": 1, "east": 2, "dr": 0}
    with (
        site("west", "quorum", votes) as west,
        site("east", "quorum", votes, west) as east,
        site("dr", "quorum", votes, west) as dr,
    ):
        west.see(east), west.see(dr), east.see(dr), dr.see(east)
        wait_until(lambda: holders(west) == holders(east) == holders(dr) == {"west"}, "west has all votes", SOON_S)
        for cluster in (east, west):
            for name in cluster.names:
                cluster.kill(name)
        time.sleep(1.5 * WAITS_S)
        assert not any(not t.owner for t in dr.tables().values())


def test_one_that_takes_over_waits_for_no_site_without_nodes() -> None:
    """West's coordinator and log are there, so nothing forks; nobody there mirrors."""
    with waiting("west", EASTS) as west, waiting("east", EASTS, west) as east:
        west.see(east)
        wait_until(lambda: holders(west) == holders(east) == {"west"}, "west has all votes", SOON_S)
        wait_until(lambda: is_sure(west), "they count", SOON_S)
        fly(west, *range(5))
        for name in west.names:
            west.kill(name)
        takes(east)
        fly(east, *range(5, 10))
        for name in west.names:
            west.restart(name)
        wait_until(lambda: all(t.synced == ("west",) for t in east.tables().values()), "west is waited for", SOON_S)
        level(west, east)
        assert flights(west) == set(range(10))


def test_all_sites_that_have_votes_are_asked_whether_they_serve() -> None:
    out: list[fx.Effect] = []
    rounds = iter(range(1, 100))
    table = SimpleNamespace(overruled=())
    settings = Settings(votes=SiteVotes("west", tuple(VOTES.items()), binding=True))
    copy: Any = SimpleNamespace(settings=settings, now=0, out=out, table=table, next_round=lambda: next(rounds))
    quorum = SiteQuorum(copy)
    quorum.begin()
    for asked in [e for e in out if isinstance(e, fx.AskVote)]:
        quorum.answered(ev.VoteAnswered(asked.round, asked.site, asked.site))
    assert quorum.holders == ["dr", "east"]
