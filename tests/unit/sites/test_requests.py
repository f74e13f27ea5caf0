"""Requests go to the site that serves: as inside a site, refused by name where they cannot, never to two histories."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import Attempt
from halog.errors import (
    DuplicateKeyError,
    PartitionUnavailableError,
    RefusedError,
    UnreachableError,
)
from halog.runtime.node.paces import Paces
from halog.runtime.rpc import frames
from halog.runtime.rpc.cluster_view import ClusterView
from halog.runtime.rpc.remote_sites import RemotePaces, RemoteSites
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.asking import AT_ONCE_S, NAMES, apart, note, promote, rename
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.two import east, flights, fly, level, west

pytestmark = pytest.mark.feature("M5", "N2")
__all__ = ["east", "west"]


@pytest.fixture
def silent(west: Cluster) -> Iterator[Cluster]:
    """East, told not to ask elsewhere."""
    with Cluster(2, partitions=3, registry=registry, site="east", home=west, requests=False) as cluster:
        yield cluster


# --- as inside a site ---


def test_a_mirroring_site_uses_objects_as_the_home_does(west: Cluster, east: Cluster) -> None:
    """Its nodes and its clients: create, find, change, call, look through extents; the mirror brings it all back."""
    fly(east, *range(20))
    client = east.client()
    with client.transaction() as tx:
        assert {f.number for f in tx.extent(Flight)} == set(range(20))
    rename(client, 3, "late")
    with client.transaction() as tx:
        assert tx.get(Flight, 3).renamed("later") == "late"
    assert (note(west.client(), 3), flights(west)) == ("later", set(range(20)))
    with pytest.raises(DuplicateKeyError), client.transaction() as tx:
        tx.create(Flight(5))
    level(west, east)
    assert {t.owner for t in east.tables().values()} == {"west"}, "served there, still"


@pytest.mark.feature("R5")
def test_a_token_of_what_was_done_there_is_waited_for_in_the_own_copies(west: Cluster, east: Cluster) -> None:
    fly(west, 1)
    node = east.node(east.names[0])
    for i in range(20):
        with node.transaction() as tx:
            tx.get(Flight, 1).note = str(i)
        with node.transaction(read="local", after=tx.token) as reading:
            assert reading.get(Flight, 1).note == str(i)


def test_reads_behind_a_barrier_are_those_of_the_site_that_serves(west: Cluster, east: Cluster) -> None:
    fly(west, 1)
    rename(west.client(), 1, "now")
    with east.client().transaction(read="barrier") as tx:
        assert tx.get(Flight, 1).note == "now"


@pytest.mark.feature("D4")
def test_a_transaction_over_several_partitions_of_the_other_site(west: Cluster, east: Cluster) -> None:
    one, other = apart(west)
    fly(west, one, other)
    with east.client().transaction() as tx:
        tx.get(Flight, one).note = tx.get(Flight, other).note = "both"
    assert [note(west.client(), n) for n in (one, other)] == ["both", "both"]


@pytest.mark.feature("D4")
def test_one_over_partitions_of_two_sites_is_refused_by_name(west: Cluster, east: Cluster) -> None:
    west.see(east)
    one, other = apart(west)
    fly(west, one, other)
    moved = west.partition_of(Flight, one)
    promote(east, moved)
    for client in (east.client(), west.client()):
        wait_until(lambda c=client: note(c, one) == "", "it is served again")  # type: ignore[misc]
        with pytest.raises(RefusedError, match=f"{moved} by site east"), client.transaction() as tx:
            tx.get(Flight, one).note = tx.get(Flight, other).note = "both"
        assert [note(client, n) for n in (one, other)] == ["", ""]
        rename(client, one, "here")
        rename(client, other, "there")
        rename(client, one, "")
        rename(client, other, "")


@pytest.mark.feature("P10")
def test_a_failover_over_there_is_followed(west: Cluster, east: Cluster) -> None:
    fly(west, 1)
    client = east.client()
    rename(client, 1, "before")
    west.kill(west.active_for(Flight, 1))
    rename(client, 1, "after")
    assert note(client, 1) == "after"


@pytest.mark.feature("X3")
def test_definitions_that_only_this_site_has_are_there_before_its_objects(west: Cluster, east: Cluster) -> None:
    topic = east.node(east.names[0]).definitions.tp
    here, there = (dict(c.node(c.names[0]).runtime.adapters.log.read_keyed(topic)) for c in (east, west))
    extra = {b"only here": next(iter(here.values()))}
    east.node(east.names[0]).runtime.adapters.log.put(topic, *next(iter(extra.items())))
    assert there.keys() == here.keys()
    fly(east, 1)
    assert dict(west.node(west.names[0]).runtime.adapters.log.read_keyed(topic)).keys() >= extra.keys()


# --- where it cannot ---


def test_a_site_that_may_not_ask_elsewhere_refuses_at_once_by_name(west: Cluster, silent: Cluster) -> None:
    began = time.monotonic()
    for match in ("served by site west", "requests = false", "halog site promote"):
        with pytest.raises(PartitionUnavailableError, match=match):
            fly(silent, 1)
        with pytest.raises(PartitionUnavailableError, match=match), silent.client().transaction() as tx:
            tx.find(Flight, 1)
    assert time.monotonic() - began < AT_ONCE_S


@pytest.mark.feature("R5")
def test_what_was_taken_over_a_moment_ago_is_not_refused(west: Cluster, silent: Cluster) -> None:
    """Its operator was answered before this node was told: it looks before it says that another site serves."""
    fly(west, 1)
    level(west, silent)
    client: Any = silent.client()
    router = client.runtime.router
    stale = dict(router.tables)
    promote(silent)
    router.tables = stale
    assert {router.site_of(name) for name in stale} == {"west"}
    with client.transaction() as tx:
        assert tx.find(Flight, 1) is not None


def test_a_line_that_is_cut_is_told_soon_and_slows_down_nothing_here(west: Cluster, east: Cluster) -> None:
    """Who comes next is told at once; what this site serves goes on; and when the line is back so is all of it."""
    west.see(east)
    one, other = apart(west)
    fly(west, one, other)
    promote(east, west.partition_of(Flight, one))
    client = east.client()
    rename(client, one, "served here")
    rename(client, other, "served there")
    east.cut()
    began = time.monotonic()
    with pytest.raises(PartitionUnavailableError, match=r"served by site west.*cannot be") as caught:
        rename(client, other, "never")
    assert caught.value.evidence["site"] == "west"
    assert time.monotonic() - began < AT_ONCE_S
    began = time.monotonic()
    for i in range(20):
        rename(client, one, f"{i}")
        with pytest.raises(PartitionUnavailableError, match="served by site west"):
            note(client, other)
    assert time.monotonic() - began < AT_ONCE_S
    assert note(client, one) == "19"
    east.mend()

    def answers() -> bool:
        try:
            return note(client, other) == "served there"
        except PartitionUnavailableError:
            return False

    wait_until(answers, "the site that serves answers again")


def test_a_site_that_was_never_reached_is_told_too(west: Cluster, east: Cluster) -> None:
    client = east.client()
    east.cut()
    began = time.monotonic()
    for _ in range(5):
        with pytest.raises(PartitionUnavailableError, match=r"served by site west.*cannot be reached"):
            note(client, 1)
    assert time.monotonic() - began < AT_ONCE_S
    east.mend()

    def answers() -> bool:
        try:
            with client.transaction() as tx:
                return tx.find(Flight, 1) is None
        except PartitionUnavailableError:
            return False

    wait_until(answers, "it is reached by itself")


@pytest.mark.feature("X3")
def test_a_site_set_up_anew_is_not_taken_for_the_one_that_serves(west: Cluster, east: Cluster) -> None:
    """Its partitions have the same names, and another history."""
    coordinator = west.node(west.names[0]).runtime.adapters.coordinator
    client = east.client()
    assert not flights(east)
    for name in NAMES:
        found = coordinator.get(f"partitions/{name}")
        assert found is not None
        other = msgspec.structs.replace(west.tables()[name], log_id="ab" * 16)
        coordinator.set(f"partitions/{name}", other.to_bytes(), found.version)
    with pytest.raises(PartitionUnavailableError, match="another history"), client.transaction() as tx:
        tx.find(Flight, 1)


# --- what is known of another site ---


def test_a_configured_address_wins_over_the_registered_one(west: Cluster, east: Cluster) -> None:
    name = west.names[0]
    info = west.node(name).runtime.info
    known = ClusterView(west.node(name).runtime.adapters.channel, {name: "gate.west:7001"})
    known.nodes_seen({name: info, "other": msgspec.structs.replace(info, name="other")})
    assert (known.addresses_of(name).address, known.addresses_of("other").address) == ("gate.west:7001", info.address)


@pytest.mark.parametrize("paces", [Paces(remote=RemotePaces(idle_s=0.1, look_s=0.05))])
def test_a_site_nobody_asks_any_more_is_let_go_of(west: Cluster, east: Cluster) -> None:
    client: Any = east.client()
    there: Any = client.runtime.router.afar.sites["west"]
    fly(west, 1)
    for text in ("first", "again"):
        rename(client, 1, text)
        wait_until(lambda: not there.is_reached and not there.tables, "it is let go of")
    assert note(client, 1) == "again"


@pytest.mark.feature("D4")
def test_partitions_settle_among_each_other_inside_a_site_only(west: Cluster, east: Cluster) -> None:
    """Behind a split the other site's history may have decided otherwise, or never heard of it."""
    fly(west, 1)
    ballots = east.client().runtime.ballots  # type: ignore[attr-defined]
    asked = frames.Decide(west.partition_of(Flight, 1), bytes(16), False, True)
    with pytest.raises(PartitionUnavailableError, match="served by site west"):
        ballots.decide(asked, time.monotonic() + 5.0)


def test_a_site_that_serves_it_no_more_names_the_one_that_does(west: Cluster, east: Cluster) -> None:
    """Of three, this one mirrors the west, and the west has handed it over to the south."""
    table = msgspec.structs.replace(west.tables()["test-0"], owner="west")
    adapters = east.node(east.names[0]).runtime.adapters
    there = RemoteSites(east.config, adapters.channel, adapters.reach, lambda remote: None)
    coordinator = west.node(west.names[0]).runtime.adapters.coordinator
    found = coordinator.get("partitions/test-0")
    assert found is not None
    try:
        assert there.serving("west", table, time.monotonic() + 5).active("test-0") in west.names
        south = msgspec.structs.replace(table, owner="south", active=None)
        version = coordinator.set("partitions/test-0", south.to_bytes(), found.version)
        wait_until(lambda: there.sites["west"].stamp("test-0") >= version, "it is watched")
        with pytest.raises(PartitionUnavailableError, match="site south serves it"):
            there.serving("west", table, time.monotonic() + 5)
        for site, why in (("north", "no .sites.north."), ("west", "does not have it")):
            with pytest.raises(PartitionUnavailableError, match=why):
                there.serving(site, msgspec.structs.replace(table, name="none"), time.monotonic() + 5)
    finally:
        there.close()


@pytest.mark.parametrize("paces", [Paces(remote=RemotePaces(silent_s=60.0))])
def test_nodes_that_gave_no_answer_are_left_alone_for_a_while(west: Cluster, east: Cluster) -> None:
    """Their coordinator answers, they do not: there is no line to nodes."""
    fly(west, 1)
    client: Any = east.client()
    assert note(client, 1) == ""

    def refuses(attempt: Attempt[bytes]) -> bytes:
        address = attempt.about.address
        raise UnreachableError(f"{address} refuses the connection", address=address, refused=True, sent=False)

    tried = client.runtime.router.channel.faults.add("request", refuses).met
    for why in ("cannot be reached from here", "refuses the connection"):
        with pytest.raises(PartitionUnavailableError, match=why):
            note(client, 1)
    before = len(tried)
    with pytest.raises(PartitionUnavailableError, match="served by site west"):
        rename(client, 1, "never")
    assert len(tried) == before > 1, "the first looked whether somebody takes over, the others ask nobody"


def test_whoever_answers_at_a_nodes_address_without_being_active_is_named(west: Cluster, east: Cluster) -> None:
    """An address that means another machine here than there: all nodes of a cluster take each other's requests."""
    fly(west, 1)
    client: Any = east.client()
    here = east.node(east.names[0]).runtime.info.address
    there = client.runtime.router.afar.sites["west"]
    there.configure(dict.fromkeys(west.names, here))
    client.runtime.asker.call_s = 0.5
    with pytest.raises(PartitionUnavailableError, match=f"site west, whose node west-.*was asked at {here}"):
        note(client, 1)
