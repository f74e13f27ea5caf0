"""What the servers are told is safe, private and fits a 5 MB record."""

from __future__ import annotations

from pathlib import Path

import pytest

from halog.embedded import EmbeddedSite, datadir, settings
from halog.embedded.model import (
    SERVERS,
    Launch,
    Ports,
    RemoteListener,
    SecureListeners,
    SiteInfo,
    ZooKeeperTls,
    checked_host,
)
from halog.errors import ConfigError

PORTS = Ports(20_001, 20_002, 20_003)


def test_every_address_is_loopback() -> None:
    kafka = settings.kafka_properties(PORTS)
    for key in ("listeners", "advertised.listeners", "controller.quorum.voters"):
        assert all("127.0.0.1:" in address for address in str(kafka[key]).split(","))
    assert settings.zookeeper_properties(PORTS)["clientPortAddress"] == "127.0.0.1"


@pytest.mark.feature("M5", "O3")
def test_servers_listen_and_are_named_where_they_are_told_to() -> None:
    """Their controller, which nobody else asks, stays on loopback."""
    kafka = settings.kafka_properties(PORTS, host="10.1.2.3")
    assert kafka["listeners"] == "PLAINTEXT://10.1.2.3:20001,CONTROLLER://127.0.0.1:20002"
    assert kafka["advertised.listeners"] == "PLAINTEXT://10.1.2.3:20001"
    assert settings.zookeeper_properties(PORTS, "10.1.2.3")["clientPortAddress"] == "10.1.2.3"
    doors = settings.kafka_properties(PORTS, RemoteListener(21_001, "far:9092"), "10.1.2.3")
    assert doors["advertised.listeners"] == "PLAINTEXT://10.1.2.3:20001,REMOTE://far:9092"
    launch = Launch("d", "j", "jars", "", True, 0.0, host="10.1.2.3")
    assert Launch.from_json(launch.to_json()) == launch


@pytest.mark.parametrize("host", ["", "west", "10.1.2", "::1", "10.1.2.3:1", "10.1.2.3\nx=y"])
def test_a_host_that_is_no_address_is_refused(host: str) -> None:
    assert checked_host("10.1.2.3") == "10.1.2.3"
    with pytest.raises(ConfigError, match="listen on an IPv4 address"):
        checked_host(host)


@pytest.mark.feature("M5", "O3")
def test_a_second_door_names_its_own_address() -> None:
    """All listeners are named then, and each has a protocol; the first door stays as it was."""
    plain, kafka = (
        settings.kafka_properties(PORTS),
        settings.kafka_properties(PORTS, RemoteListener(21_001, "far:9092")),
    )
    assert kafka["listeners"] == ("PLAINTEXT://127.0.0.1:20001,REMOTE://127.0.0.1:21001,CONTROLLER://127.0.0.1:20002")
    assert kafka["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20001,REMOTE://far:9092"
    protocols = dict(p.split(":") for p in str(kafka["listener.security.protocol.map"]).split(","))
    assert protocols.keys() == {"PLAINTEXT", "REMOTE", "CONTROLLER"}
    assert "listener.security.protocol.map" not in plain
    assert {k: v for k, v in kafka.items() if "listener" not in k} == {
        k: v for k, v in plain.items() if "listener" not in k
    }
    launch = Launch("d", "j", "jars", "", True, 0.0, remote=RemoteListener(21_001, "far:9092"))
    assert Launch.from_json(launch.to_json()) == launch


@pytest.mark.parametrize(
    "advertised", ["far", "far:", ":9092", "far:0", "far:65536", "a b:1", "a:1,REMOTE://b:2", "a\nb:1"]
)
def test_an_address_nobody_can_reach_is_refused(advertised: str) -> None:
    with pytest.raises(ConfigError, match=r"advertised address .* must be host:port"):
        RemoteListener(21_001, advertised)


@pytest.mark.feature("O4")
def test_listeners_with_tls_stand_beside_the_one_in_plain_text() -> None:
    secure = SecureListeners("/etc/ha log", 22_001, 22_002, "10.1.2.3")
    plain, found = settings.kafka_properties(PORTS), settings.kafka_properties(PORTS, secure=secure)
    doors = "SSL://10.1.2.3:22001,SASL_SSL://10.1.2.3:22002"
    assert found["listeners"] == f"PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002,{doors}"
    assert found["advertised.listeners"] == f"PLAINTEXT://127.0.0.1:20001,{doors}"
    assert {key: value for key, value in found.items() if key not in plain} == {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/etc/ha log/kafka.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/etc/ha log/ca.crt",
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.sasl_ssl.ssl.client.auth": "none",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    both = settings.kafka_properties(PORTS, RemoteListener(21_001, "far:9092"), secure=secure)
    closed = settings.kafka_properties(PORTS, secure=SecureListeners("c", 22_001, 22_002, closed=True))
    assert closed["allow.everyone.if.no.acl.found"] == "false"
    assert str(both["listener.security.protocol.map"]).endswith(
        "REMOTE:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL"
    )


@pytest.mark.feature("O4")
def test_the_plain_listener_of_a_secured_broker_stays_on_loopback(tmp_path: Path) -> None:
    secure = SecureListeners("certs", 22_001, 22_002)
    with pytest.raises(ConfigError, match=r"10\.1\.2\.3.*stays on 127\.0\.0\.1"):
        EmbeddedSite(tmp_path, secure=secure, host="10.1.2.3")
    for wrong in ((0, 1, "127.0.0.1"), (1, 70_000, "127.0.0.1"), (1, 2, "broker"), (1, 2, "127.0.0.1", ("PLAIN",))):
        with pytest.raises(ConfigError):
            SecureListeners("certs", *wrong)  # type: ignore[arg-type]
    launch = Launch("d", "j", "j", "", cached=True, since=0.0, secure=secure)
    assert Launch.from_json(launch.to_json()) == launch


def test_nothing_may_lose_or_invent_data() -> None:
    """The doctor's own rules hold for what we start."""
    from halog.cli.cluster.doctor_checks import unsafe_settings

    kafka = {k: str(v) for k, v in settings.kafka_properties(PORTS).items()}
    assert list(unsafe_settings(kafka)) == []
    assert kafka["log.retention.ms"] == kafka["log.retention.bytes"] == "-1"
    assert int(kafka["message.max.bytes"]) == int(kafka["replica.fetch.max.bytes"]) >= 5_500_000


def test_a_session_of_a_second_is_granted() -> None:
    """ZooKeeper grants no less than two ticks."""
    assert int(settings.zookeeper_properties(PORTS)["tickTime"]) * 2 <= 1_000


def test_admin_and_jmx_are_off() -> None:
    assert settings.zookeeper_properties(PORTS)["admin.enableServer"] == "false"
    assert settings.zookeeper_properties(PORTS)["4lw.commands.whitelist"] == "ruok,srvr"
    for name in SERVERS:
        line = " ".join(settings.command(name, "java", "cp", "", "id"))
        assert "jmxremote" not in line
        assert "-XX:+DisableAttachMechanism" in line
        assert "-Xmx" in line


def test_the_servers_see_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dcom.sun.management.jmxremote")
    assert not {"AWS_SECRET_ACCESS_KEY", "JAVA_TOOL_OPTIONS"} & set(settings.environment())


def test_formatting_keeps_an_identity(tmp_path: Path) -> None:
    """A second start writes the configuration anew and leaves the data alone."""
    marker = datadir.prepare(tmp_path / "s")
    settings.write(tmp_path / "s", PORTS, marker.cluster_id)
    meta = tmp_path / "s/kafka/data/meta.properties"
    first = meta.read_text()
    assert f"cluster.id={marker.cluster_id}" in first
    settings.write(tmp_path / "s", Ports(1, 2, 3), marker.cluster_id)
    assert meta.read_text() == first
    assert "127.0.0.1:1," in (tmp_path / "s/kafka/server.properties").read_text()


def test_configuration_has_no_absolute_path() -> None:
    """So that a data directory may be moved, and may have any name."""
    values = [*settings.kafka_properties(PORTS).values(), *settings.zookeeper_properties(PORTS).values()]
    assert not any(str(v).startswith("/") for v in values)


def test_a_sites_description_survives_json_and_newer_keys() -> None:
    info = SiteInfo("a:1", "b:2", "/d", {"supervisor": 7, "kafka": 8}, False, 10, 20)
    assert SiteInfo.from_dict({**info.to_dict(), "newer": 1}) == info
    assert info.pid == 7
    plain = Launch("d", "j", "jars", "", True, 0.0)
    assert plain.parent == 0
    assert Launch.from_json(plain.to_json()) == plain


@pytest.mark.feature("N5", "O3")
def test_zookeeper_takes_tls_at_a_second_port_where_it_is_told_to() -> None:
    """Its first port stays as it is, for those that have not changed over."""
    tls = ZooKeeperTls(21_000, "/tls/zookeeper.pem", "/tls/ca.crt", "want")
    plain, found = settings.zookeeper_properties(PORTS), settings.zookeeper_properties(PORTS, tls=tls)
    assert {key: found[key] for key in plain} == plain
    assert (found["secureClientPort"], found["secureClientPortAddress"]) == (21_000, "127.0.0.1")
    assert (found["ssl.keyStore.location"], found["ssl.trustStore.location"]) == ("/tls/zookeeper.pem", "/tls/ca.crt")
    assert found["ssl.clientAuth"] == "want"
    assert str(found["serverCnxnFactory"]).endswith("NettyServerCnxnFactory"), "the other one knows no TLS"
    launch = Launch("d", "java", "jars", "", cached=True, since=1.0, zookeeper_tls=tls)
    assert Launch.from_json(launch.to_json()) == launch


@pytest.mark.feature("N5")
@pytest.mark.parametrize(
    "values",
    [{"keystore": "k.pem"}, {"truststore": "/a\nauthProvider.1=x"}, {"keystore": "/a\\n"}, {"clients": "some"}],
)
def test_nothing_else_becomes_part_of_zookeepers_configuration(values: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        ZooKeeperTls(1, **{"keystore": "/k.pem", "truststore": "/t.pem", **values})
