"""The servers themselves: private, bounded, configured as halog needs them, and hurt one at a time."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from kazoo.client import KazooClient

from halog.embedded import EmbeddedSite, probe
from halog.embedded.control import SiteControl
from tests.integration.embedded.support import SOON_S, alive, eventually, halog, make_topic, topics, znode

pytestmark = [pytest.mark.feature("O3"), pytest.mark.timeout(300)]


def port(address: str) -> int:
    """Of "host:port"."""
    return int(address.rsplit(":", 1)[1])


def unique(prefix: str) -> str:
    """A name no other test of the shared site uses."""
    return f"{prefix}-{time.monotonic_ns()}"


def test_the_servers_listen_on_loopback_only(site: EmbeddedSite) -> None:
    """Kafka, its controller and ZooKeeper; no JMX, no admin server."""
    listening = [
        c.laddr
        for name in ("kafka", "zookeeper")
        for c in psutil.Process(site.info.pids[name]).net_connections("inet")
        if c.status == psutil.CONN_LISTEN
    ]
    assert {a.ip.removeprefix("::ffff:") for a in listening} == {"127.0.0.1"}
    assert len(listening) == 3


def test_the_servers_listen_where_they_are_told_to(tmp_path: Path) -> None:
    """And nowhere else; they answer there, and name that address."""
    with EmbeddedSite(tmp_path / "site", host="127.0.0.2") as info:
        assert {a.rpartition(":")[0] for a in (info.bootstrap, info.zookeeper)} == {"127.0.0.2"}
        assert not probe.kafka_answers(port(info.bootstrap))
        assert not probe.zookeeper_answers(port(info.zookeeper))
        (broker,) = AdminClient({"bootstrap.servers": info.bootstrap}).list_topics(timeout=SOON_S).brokers.values()
        assert f"{broker.host}:{broker.port}" == info.bootstrap


def test_nobody_else_can_read_the_data(site: EmbeddedSite) -> None:
    """Directories 0700, files 0600 or less, the control socket included."""
    seen = 0
    for folder, _, names in os.walk(site.data_dir):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            with suppress(FileNotFoundError):  # servers write new files, and give them the names of the old ones
                assert path.lstat().st_mode & 0o077 == 0, path
                seen += 1
    assert seen > 20


def test_a_session_of_a_second_is_granted(site: EmbeddedSite) -> None:
    client = KazooClient(site.info.zookeeper, timeout=1.0)
    client.start(SOON_S)
    try:
        assert client.client_state
        assert client._session_timeout == 1_000
    finally:
        client.stop()
        client.close()


def test_zookeeper_tells_strangers_nothing(site: EmbeddedSite) -> None:
    """Only ruok and srvr of the four-letter words."""
    for word, answered in ((b"ruok", b"imok"), (b"dump", b"not in the whitelist"), (b"envi", b"not in the whitelist")):
        with socket.create_connection(("127.0.0.1", port(site.info.zookeeper)), SOON_S) as s:
            s.sendall(word)
            assert answered in s.makefile("rb").read()


def test_a_typing_error_does_not_become_a_topic(site: EmbeddedSite) -> None:
    name = unique("typo")
    producer = Producer({"bootstrap.servers": site.info.bootstrap, "log_level": 0, "message.timeout.ms": 3_000})
    producer.produce(name, b"x")
    producer.flush(10)
    assert name not in topics(site.info.bootstrap)


@pytest.mark.feature("R8", "O3")
def test_records_of_five_megabytes_pass_and_six_do_not(site: EmbeddedSite) -> None:
    """R8's limit is 5 MB; the broker leaves room for what surrounds it."""
    name = unique("large")
    make_topic(site.info.bootstrap, name)
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": site.info.bootstrap, "message.max.bytes": 20_000_000})
    for size in (4_900_000, 5_100_000, 6_500_000):
        producer.produce(name, b"x" * size, on_delivery=lambda error, _: errors.append(error))
        producer.flush(2 * SOON_S)
    assert errors[:2] == [None, None]
    assert errors[2] is not None


def test_the_broker_says_what_it_was_told(site: EmbeddedSite) -> None:
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": site.info.bootstrap})
    values = {k: v.value for k, v in admin.describe_configs([resource])[resource].result(SOON_S).items()}
    assert values["unclean.leader.election.enable"] == "false"
    assert values["auto.create.topics.enable"] == "false"
    assert values["log.message.timestamp.type"] == "LogAppendTime"
    assert values["log.retention.ms"] == "-1"
    assert values["transaction.abort.timed.out.transaction.cleanup.interval.ms"] == "500"


def test_transactions_work_from_the_first_second(site: EmbeddedSite) -> None:
    """The transaction topic has one copy and few partitions: the first transaction does not wait for fifty."""
    name = unique("tx")
    make_topic(site.info.bootstrap, name)
    producer = Producer({"bootstrap.servers": site.info.bootstrap, "transactional.id": name})
    producer.init_transactions(SOON_S)
    producer.begin_transaction()
    producer.produce(name, b"x")
    producer.commit_transaction(SOON_S)


def test_a_killed_kafka_comes_back_with_its_data_on_its_port(site: EmbeddedSite) -> None:
    name = unique("killed")
    make_topic(site.info.bootstrap, name)
    before = site.info
    try:
        after_kill = site.kill_kafka()
        assert "kafka" not in after_kill.pids
        assert not alive(before.pids["kafka"])
        assert alive(before.pids["zookeeper"])
        assert not probe.kafka_answers(port(before.bootstrap))
    finally:
        again = site.start_server("kafka")
    assert again.bootstrap == before.bootstrap
    assert again.pids["kafka"] != before.pids["kafka"]
    assert name in topics(again.bootstrap)


def test_a_killed_zookeeper_comes_back_with_its_data_on_its_port(site: EmbeddedSite) -> None:
    name = "/" + unique("killed")
    znode(site.info.zookeeper, name, b"kept")
    before = site.info
    try:
        site.kill_zookeeper()
        assert not probe.zookeeper_answers(port(before.zookeeper))
        assert probe.kafka_answers(port(before.bootstrap))
    finally:
        again = site.start_server("zookeeper")
    assert again.zookeeper == before.zookeeper
    assert znode(again.zookeeper, name) == b"kept"


@pytest.mark.parametrize("server", ["kafka", "zookeeper"])
def test_an_orderly_restart_keeps_the_address(site: EmbeddedSite, server: str) -> None:
    before = site.info
    again = site.restart("kafka" if server == "kafka" else "zookeeper")
    assert (again.bootstrap, again.zookeeper) == (before.bootstrap, before.zookeeper)
    assert again.pids[server] != before.pids[server]


def test_a_paused_kafka_is_silent_and_then_itself_again(site: EmbeddedSite) -> None:
    """Connections are accepted by the kernel, nothing is answered."""
    number = port(site.info.bootstrap)
    site.pause("kafka")
    try:
        assert not probe.kafka_answers(number, 0.3)
    finally:
        site.resume("kafka")
    eventually(lambda: probe.kafka_answers(number), 2 * SOON_S, "Kafka answers again")


def test_a_server_that_dies_by_itself_is_reported_not_hidden(tmp_path: Path) -> None:
    """Nobody restarts it behind a test's back; site.json and the log say so, the doctor too."""
    site = EmbeddedSite(tmp_path / "s")
    with site as info:
        psutil.Process(info.pids["kafka"]).kill()
        eventually(lambda: "kafka" not in site.info.pids, SOON_S, "the supervisor has noticed")
        log = site.data_dir / "logs/supervisor.log"
        eventually(lambda: "kafka (pid" in log.read_text(), SOON_S, "and said so")
        report = halog("doctor", "--data-dir", str(site.data_dir))
        assert report.returncode == 4
        assert "does not answer" in report.stdout
        assert "kafka" in site.start_server("kafka").pids


def test_a_server_that_runs_is_not_started_twice(site: EmbeddedSite) -> None:
    with pytest.raises(Exception, match="running already"):
        site.start_server("kafka")


def test_control_refuses_what_it_does_not_know(site: EmbeddedSite) -> None:
    """One bad request is one error, not the supervisor's end."""
    control = SiteControl(site.data_dir)
    with pytest.raises(Exception, match="no server 'mongodb'"):
        control.kill("mongodb")  # type: ignore[arg-type]
    with pytest.raises(Exception, match="unknown operation"):
        control._ask("dance", "kafka")
    assert alive(site.info.pid)


def test_a_second_configuration_points_at_the_running_site(site: EmbeddedSite, tmp_path: Path) -> None:
    """The same servers as an existing Kafka and ZooKeeper: halog asks nothing of who started them."""
    config = tmp_path / "existing.toml"
    config.write_text(
        f'[cluster]\nname = "c"\n[site]\nbootstrap = "{site.info.bootstrap}"\nzookeeper = "{site.info.zookeeper}"\n'
    )
    report = halog("doctor", "--config", str(config))
    assert report.returncode == 0, report.stdout + report.stderr
    config.write_text(f'[cluster]\nname = "c"\n[site]\nembedded = "{site.data_dir}"\n')
    assert halog("doctor", "--config", str(config)).returncode == 0


def test_doctor_fails_for_servers_that_are_not_there(tmp_path: Path) -> None:
    config = tmp_path / "h.toml"
    config.write_text('[cluster]\nname = "c"\n[site]\nbootstrap = "127.0.0.1:1"\nzookeeper = "127.0.0.1:2"\n')
    report = halog("doctor", "--config", str(config), "--format", "json")
    assert report.returncode == 4
    assert '"ok": false' in report.stdout
    assert report.stderr == ""
