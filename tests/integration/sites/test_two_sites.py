"""Two real sites: each reaches the other through the lines alone, and its own servers without them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.log import KafkaLog
from halog.adapters.zookeeper.coordinator import ZkCoordinator
from halog.config import load_config
from halog.errors import CoordinatorError, HalogError, UnreachableError
from halog.ports import SessionState, TopicPartition
from halog.runtime.node.wiring import remote_site
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import unique_name
from tests.integration.cluster.processes import passes, wait
from tests.integration.sites.two import EAST, WEST, Between, TwoSites, other

pytestmark = pytest.mark.feature("M5")


def brokers(bootstrap: str) -> list[str]:
    """What the broker calls itself to who comes this way."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).brokers.values()
    return [f"{b.host}:{b.port}" for b in found]


@pytest.fixture
def log(between: Between) -> Iterator[KafkaLog]:
    """The west's, as the east reaches it."""
    made = KafkaLog(KafkaAccess(between.sites[WEST].kafka.address))
    yield made
    between.heal()
    made.close()


@pytest.fixture
def topic(between: Between) -> TopicPartition:
    """One of the west, made there."""
    here = KafkaLog(KafkaAccess(between.sites[WEST].info.bootstrap))
    name = f"{unique_name()}.t"
    here.ensure_topic(name, 1)
    here.close()
    return TopicPartition(name, 0)


class Session:
    """With the west's ZooKeeper, as the east reaches it."""

    def __init__(self, address: str) -> None:
        self.states: list[SessionState] = []
        self.coordinator = ZkCoordinator(address, unique_name(), session_timeout_ms=2_000, patience_s=60.0)
        self.coordinator.connect(self.states.append)
        self.coordinator.joined()

    def answers(self) -> bool:
        try:
            self.coordinator.get("nothing")
        except HalogError:
            return False
        return True


@pytest.fixture
def session(between: Between) -> Iterator[Session]:
    made = Session(between.sites[WEST].zookeeper.address)
    yield made
    between.heal()
    made.coordinator.close()


def reachable(log: KafkaLog, topic: TopicPartition) -> bool:
    try:
        return log.bounds(topic, 1.0) == (0, 0)
    except UnreachableError:
        return False


@pytest.mark.parametrize("name", [WEST, EAST])
def test_a_broker_names_the_line_to_who_comes_by_it_and_itself_at_home(between: Between, name: str) -> None:
    site = between.sites[name]
    assert brokers(site.kafka.address) == [site.kafka.address]
    assert brokers(site.info.bootstrap) == [site.info.bootstrap]
    assert site.kafka.address != site.info.bootstrap


def test_each_configuration_reaches_the_other_site_by_the_lines(two_sites: TwoSites) -> None:
    for name, cluster in two_sites.clusters.items():
        config, away = load_config(cluster.toml), two_sites.between.sites[other(name)]
        assert remote_site(config, other(name)) == (away.kafka.address, away.zookeeper.address)
        assert (config.site.name, config.mirrored("p")) == (name, name != WEST)
        assert (config.site.bootstrap, config.cluster.name) == (cluster.site.info.bootstrap, two_sites.name)


def test_a_log_is_out_of_reach_while_the_line_is_cut(between: Between, log: KafkaLog, topic: TopicPartition) -> None:
    """And back when it is healed; at home nothing of it is noticed."""
    wait(lambda: reachable(log, topic), "the log is reached")
    between.cut()
    assert not reachable(log, topic)
    at_home = KafkaLog(KafkaAccess(between.sites[WEST].info.bootstrap))
    wait(lambda: reachable(at_home, topic), "the log is reached at home")
    at_home.close()
    between.heal()
    wait(lambda: reachable(log, topic), "the log is reached again")


@pytest.mark.parametrize("toward", [WEST, EAST])
def test_a_log_is_out_of_reach_when_cut_one_way(
    between: Between, log: KafkaLog, topic: TopicPartition, toward: str
) -> None:
    wait(lambda: reachable(log, topic), "the log is reached")
    between.cut(toward=toward)
    assert not reachable(log, topic)
    between.heal()
    wait(lambda: reachable(log, topic), "the log is reached again")


def test_a_session_is_lost_while_the_line_is_cut(between: Between, session: Session) -> None:
    """And a new one is had when it is healed."""
    wait(session.answers, "ZooKeeper answers")
    between.cut()
    wait(lambda: session.states[-1] is SessionState.LOST, "it is known to be lost")
    assert not session.answers()
    at_home = Session(between.sites[WEST].info.zookeeper)
    wait(at_home.answers, "ZooKeeper answers at home")
    at_home.coordinator.close()
    between.heal()
    wait(session.answers, "ZooKeeper answers again")
    wait(lambda: session.states[-1] is SessionState.CONNECTED, "it says so")


def test_nothing_can_be_opened_through_a_line_that_refuses(between: Between, topic: TopicPartition) -> None:
    west = between.sites[WEST]
    between.refuse()
    closed = KafkaLog(KafkaAccess(west.kafka.address))
    assert not reachable(closed, topic)
    with suppress(HalogError):
        closed.close()
    with pytest.raises((UnreachableError, CoordinatorError)):
        Session(west.zookeeper.address)
    between.heal()
    opened = KafkaLog(KafkaAccess(west.kafka.address))
    wait(lambda: reachable(opened, topic), "the log is reached again")
    opened.close()
    session = Session(west.zookeeper.address)
    wait(session.answers, "ZooKeeper answers")
    session.coordinator.close()


def test_a_slow_or_flapping_line_is_a_line(between: Between, log: KafkaLog, topic: TopicPartition) -> None:
    between.delay(0.05)
    assert log.bounds(topic, 60.0) == (0, 0)
    between.flap(0.5, 0.5)
    wait(lambda: reachable(log, topic), "the log is reached in between")


def test_a_test_finds_all_as_it_was_whatever_the_one_before_did(between: Between, topic: TopicPartition) -> None:
    """What `between` does between two tests."""
    west = between.sites[WEST]
    between.cut()
    west.site.kill("kafka")
    between.whole()
    assert brokers(west.kafka.address) == [west.kafka.address], "the second door is there after a restart, too"
    log = KafkaLog(KafkaAccess(west.kafka.address))
    wait(lambda: reachable(log, topic), "the log is reached again")
    log.close()


# --- a cluster over both ---


def heads(two_sites: TwoSites, node: str) -> dict[str, tuple[int, str]]:
    """Partition → position of a node's copy."""
    cluster = two_sites.west if node.startswith(WEST) else two_sites.east
    return {name: (copy["lsn"], copy["hash"]) for name, copy in cluster.copies(node).items()}


def answered(two_sites: TwoSites, node: str) -> dict[str, tuple[int, str]]:
    """The same, of a node that is there."""
    found: dict[str, tuple[int, str]] = {}

    def told() -> bool:
        found.update(heads(two_sites, node))
        return bool(found)

    wait(told, f"{node} answers")
    return found


def test_real_nodes_of_two_sites_keep_the_same_log(two_sites: TwoSites) -> None:
    """What the west commits the east's nodes have; not while the line is cut, and all of it afterwards."""
    two_sites.start()
    client = two_sites.west.client()

    def level() -> bool:
        west = heads(two_sites, "west-1")
        return len(west) == 2 and all(heads(two_sites, n) == west for n in ("west-2", "east-1", "east-2"))

    def create(first: int) -> None:
        for number in range(first, first + 20):
            with client.transaction():
                client.create(Aircraft(tail=f"N{number}"))

    create(0)
    wait(level, lambda: f"{[heads(two_sites, n) for n in ('west-1', 'west-2', 'east-1', 'east-2')]}")
    before = answered(two_sites, "east-1")
    two_sites.between.cut()
    create(20)
    passes(1.0)
    assert answered(two_sites, "east-1") == before
    assert answered(two_sites, "west-1") != before
    two_sites.between.heal()
    wait(level, lambda: f"{[heads(two_sites, n) for n in ('west-1', 'west-2', 'east-1', 'east-2')]}")
