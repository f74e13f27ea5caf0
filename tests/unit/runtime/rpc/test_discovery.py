"""Where nodes are reached is found by name and by location code; configured addresses win (N2)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

import msgspec
import pytest

from halog.config import RemoteSiteConfig
from halog.core.ids import location_code
from halog.errors import UnreachableError
from halog.metadata.nodes import NodeInfo
from halog.runtime.rpc.cluster_view import ClusterView
from halog.runtime.rpc.discovery import Discovery
from halog.runtime.rpc.remote_sites import RemoteSites
from halog.runtime.rpc.router import Router
from halog.runtime.rpc.versions import SPOKEN

A = NodeInfo("A", 1, "a:1", 1, True, 0, "", protocols=SPOKEN, addresses=("a:1", "a:2"))
OLD = NodeInfo("B", 1, "b:1", 2, True, 0, "", protocols=SPOKEN)
"""As halog 0.2 registers."""
CLIENT = NodeInfo("client", 1, "", 3, False, 0, "", protocols=SPOKEN)


def found(discovery: Discovery, name: str) -> tuple[str, ...]:
    at = discovery.by_name(name)
    return () if at is None else at.addresses


@pytest.fixture
def discovery() -> Discovery:
    made = Discovery({"C": "own:1"})
    made.registered({"A": A, "B": OLD, "client": CLIENT})
    return made


@pytest.mark.feature("N2")
def test_registered_nodes_are_found_at_all_their_addresses(discovery: Discovery) -> None:
    assert found(discovery, "A") == ("a:1", "a:2")
    assert found(discovery, "B") == ("b:1",)
    assert found(discovery, "client") == found(discovery, "nobody") == ()


@pytest.mark.feature("N2")
def test_by_location_code(discovery: Discovery) -> None:
    assert discovery.by_location(location_code("B")) == "B"
    assert discovery.by_location(location_code("C")) == "C", "it is configured, and was never registered"
    assert discovery.by_location(location_code("nobody")) is None
    assert discovery.by_location(location_code("client")) == "client"
    discovery.registered({"A": A})
    assert discovery.by_location(location_code("B")) == "B", "it may serve on"
    assert discovery.by_location(location_code("client")) is None, "clients come and go by the thousand"


@pytest.mark.feature("N2")
def test_configured_addresses_win_and_the_own_files_win_over_all(discovery: Discovery) -> None:
    discovery.configured({"A": "gate:1", "C": "gate:3", "client": "gate:4"})
    assert found(discovery, "A") == ("gate:1",)
    assert found(discovery, "C") == ("own:1",)
    assert found(discovery, "client") == ()
    assert discovery.as_reached(A) == msgspec.structs.replace(A, address="gate:1", addresses=("gate:1",))
    discovery.configured({})
    assert found(discovery, "A") == ("a:1", "a:2")


@pytest.mark.feature("N2")
def test_what_was_found_stays_until_its_source_changes(discovery: Discovery) -> None:
    at = discovery.by_name("A")
    discovery.registered({"B": OLD})  # the session of A ended: it may serve on
    discovery.configured({"B": "gate:2"})
    assert discovery.by_name("A") is at, "with the address that answered last"
    later = msgspec.structs.replace(A, incarnation=2, address="a:3", addresses=("a:3",))
    discovery.registered({"A": later})
    assert found(discovery, "A") == ("a:3",)


class Wire:
    def __init__(self) -> None:
        self.dropped: list[str] = []

    def drop(self, address: str) -> None:
        self.dropped.append(address)

    def expect(self, address: str, node: str, *, tls: bool) -> None:
        """Nobody is connected to."""


@pytest.mark.feature("N2")
def test_connections_to_addresses_that_are_in_use_no_more_are_closed() -> None:
    wire: Any = Wire()
    view = ClusterView(wire)
    view.nodes_seen({"A": A, "B": OLD})
    view.configure({"A": ("a:2", "gate:1")})
    assert view.addresses_of("A").addresses == view.nodes["A"].reached == ("a:2", "gate:1")
    assert wire.dropped == ["a:1"]
    view.nodes_seen({"B": OLD})
    assert sorted(wire.dropped[1:]) == ["a:2", "gate:1"]
    assert view.addresses_of("A").address == "a:2", "it may serve on"


@pytest.mark.feature("N2")
def test_a_node_is_reached_by_configuration_alone_where_nothing_is_registered() -> None:
    wire: Any = Wire()
    view = ClusterView(wire)
    with pytest.raises(UnreachableError, match="never registered"):
        view.addresses_of("A")
    view.configure({"A": "gate:1"})
    assert view.addresses_of("A").addresses == ("gate:1",)
    assert view.at_location(location_code("A")) == "A"


@pytest.mark.feature("N2", "M5")
def test_configured_addresses_count_for_nodes_of_other_sites_too() -> None:
    """But for those whose address the process's own file gives."""
    wire: Any = Wire()
    config: Any = SimpleNamespace(
        site=SimpleNamespace(name="west"),
        other_sites={"east": RemoteSiteConfig("e:1", "e:2", nodes={"E": ("own:1", "own:2")})},
    )
    afar = RemoteSites(config, wire, _unreached, lambda remote: None)
    router = Router("A", wire, 1.0, "west", afar=afar)
    router.configure({"A": "gate:1", "E": "gate:2", "F": "gate:3"})
    east = afar.sites["east"]
    assert east.addresses_of("E").addresses == ("own:1", "own:2")
    assert east.addresses_of("F").addresses == ("gate:3",)
    assert router.addresses_of("A").addresses == ("gate:1",)


def _unreached(site: str) -> NoReturn:
    raise AssertionError("nobody asks there")
