"""A running process tells of certificates that are renewed, and of plain text whose day is over (N5, O4, Q4)."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from halog.adapters.memory import MemoryChannel, MemoryLog
from halog.adapters.tcp.channel import TcpChannel
from halog.adapters.tcp.security import ChannelSecurity
from halog.config import SecurityConfig
from halog.events import Event
from halog.ports import Principal, Renewal, TopicPartition
from halog.runtime.node.security_watch import AGAIN_S, SecurityWatch
from halog.runtime.rpc import frames
from halog.schema import Registry
from halog.testing.cluster import Cluster, wait_until
from tests.certificates import TestAuthority, node_uri

EVENTS = TopicPartition("test.events", 0)


class Files(MemoryChannel):
    """A channel whose certificates' files change when the test says so."""

    found: Renewal | None = None
    last: Renewal | None = None
    shown: Principal | None = None

    @property
    def principal(self) -> Principal | None:
        return self.shown

    def renew(self, *, again: bool = False) -> Renewal | None:
        found, self.found = self.found, None
        self.last = found or self.last
        return self.last if again else found


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(1, partitions=1, registry=Registry()) as made:
        yield made


def told(cluster: Cluster, code: str) -> list[Event]:
    log = MemoryLog(cluster.broker)
    found = [Event.from_bytes(e.value) for e in log.read(EVENTS, *log.bounds(EVENTS))]
    return [e for e in found if e.code == code]


@pytest.mark.feature("N5", "O4", "Q4")
def test_renewed_files_are_told_and_bad_ones_why(cluster: Cluster) -> None:
    channel = Files()
    watch = SecurityWatch(cluster.config, "n1", channel, cluster.node(cluster.names[0]).runtime.telling.history)
    watch.look()
    channel.found = Renewal("ca.crt, node.crt, node.key", "")
    watch.look()
    channel.found = Renewal("ca.crt, node.crt, node.key", "security.key: node.key: does not fit")
    watch.look()
    wait_until(lambda: bool(told(cluster, "HALOG-1142")), "nobody was told")
    (good,), (bad,) = told(cluster, "HALOG-1141"), told(cluster, "HALOG-1142")
    assert (good.severity, bad.severity) == ("info", "error")
    assert bad.cause == "security.key: node.key: does not fit"
    assert good.more == bad.more == {"files": "ca.crt, node.crt, node.key"}
    channel.close()


@pytest.mark.feature("N5", "O4")
def test_who_asks_is_told_what_became_of_the_files(cluster: Cluster) -> None:
    """Also of those that the node has looked at by itself. Refused ones are tried again, and told once."""
    channel = Files()
    watch = SecurityWatch(cluster.config, "n1", channel, cluster.node(cluster.names[0]).runtime.telling.history)
    assert watch.reload().outcome == "off"
    channel.shown = Principal("test", "node", "n1")
    began = watch.reload()
    assert (began.outcome, began.why) == ("unchanged", "")
    bad = channel.found = Renewal("node.crt", "not valid yet")
    watch.look()
    for _ in range(2):
        told_so = watch.reload()
        assert (told_so.outcome, told_so.why, told_so.since_ms) == ("refused", bad.error, began.since_ms)
    channel.last = Renewal("node.crt", "")  # its time has come
    assert (taken := watch.reload()).outcome == "taken"
    assert watch.reload() == frames.CertificatesReply("unchanged", "", "", taken.since_ms)
    assert taken.since_ms >= began.since_ms
    wait_until(lambda: bool(told(cluster, "HALOG-1141")), "nobody was told")
    assert len(told(cluster, "HALOG-1142")) == 1
    channel.close()


@pytest.mark.feature("N5", "O4")
def test_real_files_are_taken_or_refused_when_somebody_asks(cluster: Cluster, tmp_path: Path) -> None:
    """Files that do not change are tried again once they were refused: one whose time begins only then is taken."""
    authority = TestAuthority(tmp_path)
    files = authority.issue(node_uri("A"))
    channel = TcpChannel(security=ChannelSecurity("test", files, required=True, refusal=str.encode))
    watch = SecurityWatch(cluster.config, "A", channel, cluster.node(cluster.names[0]).runtime.telling.history)
    assert watch.reload().outcome == "unchanged"
    authority.issue(node_uri("A"))
    assert watch.reload().outcome == "taken"
    files.key.write_text("no key")
    for _ in range(2):
        refused = watch.reload()
        assert (refused.outcome, str(files.key) in refused.why) == ("refused", True)
    authority.issue(node_uri("A"), begins=timedelta(seconds=2))
    assert (early := watch.reload()).outcome == "refused"
    assert "not yet valid" in early.why
    wait_until(lambda: watch.reload().outcome == "taken", "its time has come")
    assert watch.reload().outcome == "unchanged"
    channel.close()


@pytest.mark.feature("N5", "Q4")
def test_plain_text_behind_its_day_is_told_once_a_day(cluster: Cluster) -> None:
    """A node that runs goes on: a cluster does not stop at midnight."""
    name = cluster.names[0]
    nodes = {name: replace(cluster.config.nodes[name], address="10.0.0.5:7400")}
    config = replace(cluster.config, nodes=nodes, security=SecurityConfig(plaintext_until="2027-06-30"))
    days = [datetime.date(2027, 6, 30)]
    now = [0.0]
    channel = Files()
    history = cluster.node(name).runtime.telling.history
    watch = SecurityWatch(config, name, channel, history, lambda: now[0], lambda: days[0])
    watch.look()
    days[0] += datetime.timedelta(days=1)
    for _ in range(3):
        watch.look()
    now[0] += AGAIN_S
    watch.look()
    wait_until(lambda: len(told(cluster, "HALOG-1143")) == 2, "it is told twice")
    assert 'node_tls = "required"' in told(cluster, "HALOG-1143")[0].cause
    channel.close()
