"""An address that does not lead to its node from where another one runs is refused by name, at start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from halog.config import NodeConfig, SecurityConfig
from halog.errors import ConfigError
from halog.metadata.nodes import NodeInfo
from halog.runtime.membership.addresses import advertised, check_reachable, machine
from halog.runtime.node import node as node_module
from halog.testing.cluster import Cluster
from tests.unit.counting import REGISTRY, Counter


def info(name: str, address: str, where: str, hosts: bool = True) -> NodeInfo:
    return NodeInfo(name, 1, address, 0, hosts, 0, "", machine=where)


@pytest.mark.feature("N1")
@pytest.mark.parametrize("address", ["127.0.0.1:7400", "127.0.1.1:7400", "[::1]:7400", "[::ffff:127.0.0.1]:1"])
def test_a_loopback_address_is_refused_to_who_is_elsewhere(address: str) -> None:
    """Whichever of the two comes second: one that is right would fight with one that is wrong."""
    near, far = info("A", address, "one"), info("B", "host-b:7400", "two")
    for me, other in ((near, far), (far, near)):
        with pytest.raises(ConfigError, match=r"nodes\.A\.address") as told:
            check_reachable(me, [me, other])
        assert told.value.evidence == {"node": "A", "address": address}


@pytest.mark.feature("N1")
def test_a_client_elsewhere_is_told_so() -> None:
    client = info("client-1", "", "two", hosts=False)
    with pytest.raises(ConfigError, match="client client-1 runs on another"):
        check_reachable(client, [info("A", "127.0.0.1:1", "one")])


@pytest.mark.feature("N1")
@pytest.mark.parametrize(
    ("me", "other"),
    [
        (info("A", "127.0.0.1:1", "one"), info("B", "127.0.0.1:2", "one")),
        (info("A", "host-a:1", "one"), info("B", "10.0.0.2:1", "two")),
        (info("A", "127.0.0.1:1", "one"), info("client", "", "two", hosts=False)),
        (info("A", "127.0.0.1:1", "one"), info("B", "127.0.0.1:2", "")),
        (info("A", "127.0.0.1:1", "one"), info("A", "127.0.0.1:2", "two")),
    ],
    ids=["one machine", "real addresses", "a client asks nobody", "unknown", "its own older run"],
)
def test_nothing_else_is_refused(me: NodeInfo, other: NodeInfo) -> None:
    check_reachable(me, [me, other])


@pytest.mark.feature("N1")
@pytest.mark.parametrize("actual", ["0.0.0.0:7400", "[::]:7400"])
def test_a_host_name_that_stands_for_all_interfaces_is_refused_once_it_is_known(actual: str) -> None:
    own = NodeConfig(Path("A"), "everywhere:7400")
    with pytest.raises(ConfigError, match=r"nodes\.A\.address: everywhere:7400 is .*set nodes\.A\.advertise"):
        advertised("A", own, [actual])
    with pytest.raises(ConfigError, match=r"nodes\.A\.listen: everywhere:7400 is"):
        advertised("A", NodeConfig(Path("A"), listen=("10.0.0.5:7400", "everywhere:7400")), ["10.0.0.5:7400", actual])
    assert advertised("A", replace(own, advertise="host-a:7401"), [actual]) == ("host-a:7401",)


@pytest.mark.feature("N1", "N2")
@pytest.mark.parametrize(
    ("own", "reached"),
    [
        (NodeConfig(Path("A"), "10.0.0.5:0"), ("10.0.0.5:4711",)),
        (NodeConfig(Path("A"), listen="0.0.0.0:7400", advertise="host-a:0"), ("host-a:4711",)),
        (NodeConfig(Path("A"), listen="[::]:7400", advertise="[2001:db8::5]:30400"), ("[2001:db8::5]:30400",)),
        (NodeConfig(Path("A"), ("10.0.0.5:0", "[fd00::5]:0")), ("10.0.0.5:4711", "[fd00::5]:4712")),
        (
            NodeConfig(Path("A"), listen=("10.0.0.5:0", "10.1.0.5:0"), advertise=("one:0", "two:0", "gate:0")),
            ("one:4711", "two:4712", "gate:4711"),
        ),
        (NodeConfig(Path("A"), listen="0.0.0.0:0", advertise=("one:0", "two:7400")), ("one:4711", "two:7400")),
    ],
)
def test_a_node_is_registered_where_others_reach_it(own: NodeConfig, reached: tuple[str, ...]) -> None:
    actual = [f"{address.rpartition(':')[0]}:{4711 + i}" for i, address in enumerate(own.listens)]
    assert advertised("A", own, actual) == reached


@pytest.mark.feature("N2")
def test_each_of_several_addresses_must_lead_to_the_node_from_other_machines() -> None:
    near = msgspec.structs.replace(info("A", "host-a:7400", "one"), addresses=("host-a:7400", "127.0.0.1:7400"))
    far = info("B", "host-b:7400", "two")
    for me, other in ((near, far), (far, near)):
        with pytest.raises(ConfigError, match=r"registered at 127\.0\.0\.1:7400"):
            check_reachable(me, [me, other])


@pytest.mark.feature("N1", "N2")
def test_a_node_that_listens_on_all_interfaces_is_reached_where_it_says() -> None:
    cluster = Cluster(2, partitions=2, registry=REGISTRY)
    nodes = {
        name: replace(own, listen="0.0.0.0:0", advertise="127.0.0.1:0") for name, own in cluster.config.nodes.items()
    }
    allowed = SecurityConfig(plaintext_until="9999-12-31")
    cluster.config = replace(cluster.config, nodes=nodes, security=allowed).validate()
    with cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        addresses = {cluster.node(name).runtime.info.address for name in cluster.names}
        assert len(addresses) == 2
        assert all(a.startswith("127.0.0.1:") and not a.endswith(":0") for a in addresses)


@pytest.mark.feature("N1")
def test_this_machine_has_a_name() -> None:
    assert machine().count("/") == 1
    assert machine().endswith("]")


@pytest.mark.feature("N1")
def test_a_node_on_another_machine_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves nothing behind, and who runs goes on."""
    with Cluster(2, partitions=2) as cluster:
        monkeypatch.setattr(node_module, "machine", lambda: "another")
        with pytest.raises(ConfigError, match=r"set nodes\.[AB]\.address"):
            cluster.client()
        cluster.kill("A")
        with pytest.raises(ConfigError, match=r"set nodes\.[AB]\.address"):
            cluster.restart("A")
        monkeypatch.undo()
        cluster.restart("A")
        cluster.client()
