"""A second site that mirrors the first: the same history, whatever dies or is cut, and taken over by whoever asks."""

from __future__ import annotations

import time

import msgspec
import pytest

from halog.core.ids import NO_EPOCH, EpochId
from halog.core.log.chain import ChainState
from halog.core.log.records import EpochStarted, Header, encode
from halog.core.sites.mirror import Checkpoint, Mirror
from halog.ports import TopicPartition
from halog.runtime.sites.mirror_link import POLL_S, MirrorLink, _Connection
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import registry
from tests.unit.sites.test_switching import NAMES
from tests.unit.sites.two import east, flights, fly, level, stands, states, west

pytestmark = pytest.mark.feature("M5")


__all__ = ["east", "west"]


def test_what_one_site_commits_the_other_has(west: Cluster, east: Cluster) -> None:
    fly(west, *range(30))
    level(west, east)
    assert flights(east) == set(range(30))
    assert {t.log_id for t in west.tables().values()} == {t.log_id for t in east.tables().values()}
    assert {s.owner for s in states(east).values()} == {"west"}
    assert {t.active for t in east.tables().values()} == {None}


def test_what_was_there_before_the_second_site_is_mirrored_too(west: Cluster) -> None:
    fly(west, *range(20))
    with Cluster(2, partitions=3, registry=registry, site="east", home=west) as east:
        level(west, east)
        assert flights(east) == set(range(20))


def test_a_failover_at_home_is_mirrored_as_an_epoch(west: Cluster, east: Cluster) -> None:
    fly(west, *range(10))
    west.kill(west.names[1])
    west.settle()
    fly(west, *range(10, 20))
    level(west, east)
    assert max(len(s.lineage) for s in states(east).values()) > 1
    assert flights(east) == set(range(20))


def test_another_node_goes_on_where_the_one_that_mirrored_was_killed(west: Cluster, east: Cluster) -> None:
    fly(west, *range(10))
    level(west, east)
    east.kill(east.names[1])
    fly(west, *range(10, 20))
    level(west, east)
    east.restart(east.names[1])
    east.settle()
    fly(west, *range(20, 30))
    level(west, east)
    assert flights(east) == set(range(30))


def test_that_histories_have_parted_is_told_over_a_line_that_is_always_behind(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other log grows each time that it is asked where it ends."""
    fly(west, *range(6))
    level(west, east)
    east.cut()

    def connected(self: MirrorLink) -> _Connection:
        way = real(self)
        session, bounds = way.remote.log.session(), way.remote.log.bounds

        def busy(tp: TopicPartition) -> tuple[int, int]:
            header = Header(states(west)[NAMES[tp.partition]].log_id, EpochId(0, "west", 0))
            session.append(tp, encode(EpochStarted(header, NO_EPOCH, 0)), lambda offset, why: None)
            session.poll(1.0)
            return bounds(tp)

        monkeypatch.setattr(way.remote.log, "bounds", busy)
        return way

    def something_else(self: Mirror, start: Checkpoint, own: ChainState) -> None:
        init(self, start, msgspec.structs.replace(own, hash=b"another record.."))

    real, init = MirrorLink._connected, Mirror.__init__
    monkeypatch.setattr(MirrorLink, "_connected", connected)
    monkeypatch.setattr(Mirror, "__init__", something_else)
    east.mend()
    wait_until(lambda: all(s is not None and s.parted for s in (stands(east, n) for n in NAMES)), "east tells it")


def test_a_cut_line_is_caught_up_with(west: Cluster, east: Cluster) -> None:
    fly(west, *range(5))
    level(west, east)
    east.cut()
    time.sleep(50 * POLL_S)  # a wait for the other log that was under way is over, also on a busy machine
    fly(west, *range(5, 25))
    assert flights(east) == set(range(5))
    east.mend()
    level(west, east)
    assert flights(east) == set(range(25))


def test_a_site_starts_without_the_other_once_it_has_its_tables(west: Cluster, east: Cluster) -> None:
    fly(west, *range(5))
    level(west, east)
    for name in east.names:
        east.kill(name)
    east.cut()
    east.start()
    assert flights(east) == set(range(5))
    east.mend()
    fly(west, 5)
    level(west, east)


def test_how_far_a_mirror_is_stands_in_the_coordinator(west: Cluster, east: Cluster) -> None:
    fly(west, *range(30))
    level(west, east)

    def level_by_its_word() -> bool:
        found = stands(east)
        return found is not None and found.checkpoint.state.lsn == states(west)["test-0"].lsn and found.behind == 0

    wait_until(level_by_its_word, f"{stands(east)} is not level")
    found = stands(east)
    assert found is not None
    assert (found.site, found.error) == ("west", "")
    assert found.by in east.names
