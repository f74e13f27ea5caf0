"""A broker that allows only what an ACL allows: each kind of process with the rights that `halog acl kafka` gives it,
and without each one of them (N5, O4)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin

import halog
from halog.adapters.kafka.log import KafkaLog
from halog.config import load_config
from halog.errors import LogAccessError, UnauthorizedError
from halog.ports import TopicPartition
from halog.runtime.node.kafka_access import kafka_access
from tests.integration.cluster.checker import check
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import wait
from tests.secured import SecuredSite, secured_site

API: Any = admin
pytestmark = pytest.mark.timeout(300)

WORD = "a-word"
USERS = ("node", "client", "operator", "nobody")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSite]:
    with secured_site(tmp_path_factory.mktemp("closed"), closed=True) as made:
        for user in USERS:
            made.add_user(user, WORD)
        yield made


class Ruled:
    """A cluster with a configuration for each kind of process."""

    def __init__(self, cluster: Cluster, secured: SecuredSite) -> None:
        self.cluster = cluster
        self.secured = secured
        self.admin: Any = API.AdminClient({"bootstrap.servers": secured.site.info.bootstrap})
        plain = cluster.toml.read_text()
        (cluster.directory / "word").write_text(WORD)
        self.plain = cluster.directory / "plain.toml"
        self.plain.write_text(plain)
        self.files = {user: cluster.directory / f"{user}.toml" for user in USERS}
        for user, path in self.files.items():
            text = secured.password_table(plain, cluster.directory / "word")
            path.write_text(text.replace('username = "halog"', f'username = "{user}"'))
        cluster.toml.write_text(self.files["node"].read_text())

    def run(self, toml: Path, *argv: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "halog", *argv, "--config", str(toml)]
        return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)

    def give(self, role: str) -> dict[str, Any]:
        """By who comes in plain text, who is a super user."""
        words = ("acl", "kafka", "--role", role, "--principal", f"User:{role}", "--apply", "--format", "json")
        done = self.run(self.plain, *words)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def take_away(self, user: str, operation: str) -> None:
        """All ACLs of this user for an operation."""
        one = API.AclBindingFilter(
            API.ResourceType.ANY,
            None,
            API.ResourcePatternType.ANY,
            f"User:{user}",
            None,
            getattr(API.AclOperation, operation.upper().replace("-", "_")),
            API.AclPermissionType.ANY,
        )
        for done in self.admin.delete_acls([one]).values():
            assert done.result(30)


@pytest.fixture
def ruled(secured: SecuredSite, tmp_path: Path) -> Iterator[Ruled]:
    with closing(Cluster(tmp_path, secured.site, partitions=2)) as cluster:
        yield Ruled(cluster, secured)


@pytest.mark.feature("N5", "O4")
def test_each_kind_of_process_lives_with_the_rights_it_is_given(ruled: Ruled) -> None:
    """Nodes commit, trim their logs and fail over, a client publishes classes, commands look and are audited; a client
    may not write a log."""
    cluster, run = ruled.cluster, ruled.run
    refused = run(ruled.files["node"], "node", "start", "--name", "A")
    assert refused.returncode == 8
    assert "does not allow user node" in refused.stderr, refused.stderr
    assert "halog acl kafka" in refused.stderr, refused.stderr
    for role in ("node", "client", "operator"):
        made = ruled.give(role)
        assert made["made"] == len(made["rights"])
        assert {r["state"] for r in made["rights"]} == {"there"}
        assert ruled.give(role)["made"] == 0
    cluster.start()
    cluster.whole()
    with halog.node(ruled.files["client"]) as client:
        with client.transaction():
            client.create(Aircraft("D-1"))
        with client.transaction():
            assert client.get(Aircraft, "D-1").tail == "D-1"
    with Load(cluster.client(), "rights") as load:
        load.flows()
        victim = cluster.table("p-0").node_list[0]
        cluster.kill(victim)
        load.flows()
        cluster.start([victim])
        wait(cluster.complete, "every node list is complete again")
        load.flows()
    assert load.errors == []
    check(cluster, load)
    trim(ruled, "client", refused=True)
    trim(ruled, "node", refused=False)
    operator = ruled.files["operator"]
    for words in (
        ["status"],
        ["doctor"],
        ["events"],
        ["log", "tail", "p-0"],
        ["partition", "priority", "p-0", "A", "high"],
    ):
        done = run(operator, *words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    told = json.loads(run(operator, "audit", "--format", "json").stdout)
    assert [e["command"] for e in told if e["kind"] == "command"][-1:] == ["partition priority"]


def trim(ruled: Ruled, user: str, *, refused: bool) -> None:
    """As a node does behind its snapshots."""
    config = load_config(ruled.files[user])
    log = KafkaLog(kafka_access(config, ruled.secured.sasl_ssl, user))
    tp = TopicPartition(f"{ruled.cluster.name}.p.log", 0)
    try:
        if refused:
            with pytest.raises(LogAccessError, match=f"cannot be trimmed before 1: .* does not allow user {user}"):
                log.trim(tp, 1)
        else:
            log.trim(tp, 1)
            assert log.bounds(tp, 30)[0] == 1
    finally:
        log.close()


@pytest.mark.feature("N5", "O4")
@pytest.mark.parametrize("operation", ["read", "write", "create", "describe-configs"])
def test_a_node_that_lacks_a_right_does_not_start_and_the_right_is_named(ruled: Ruled, operation: str) -> None:
    ruled.give("node")
    ruled.take_away("node", operation)
    words = ("acl", "kafka", "--role", "node", "--principal", "User:node", "--check")
    found = ruled.run(ruled.plain, *words, "--format", "json")
    assert found.returncode == 4
    assert {r["operation"] for r in json.loads(found.stdout)["rights"] if r["state"] == "missing"} == {operation}
    refused = ruled.run(ruled.files["node"], "node", "start", "--name", "A")
    assert refused.returncode == 8, (refused.returncode, refused.stderr)
    assert "halog acl kafka" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) <= 3, refused.stderr


@pytest.mark.feature("N5", "O4")
@pytest.mark.parametrize("operation", ["alter", "delete"])
def test_what_a_node_needs_only_later_is_named_then(ruled: Ruled, operation: str) -> None:
    """To add partitions, and to trim."""
    ruled.give("node")
    ruled.take_away("node", operation)
    words = ("acl", "kafka", "--role", "node", "--principal", "User:node", "--check")
    found = json.loads(ruled.run(ruled.plain, *words, "--format", "json").stdout)
    assert {r["operation"] for r in found["rights"] if r["state"] == "missing"} == {operation}
    log = KafkaLog(kafka_access(load_config(ruled.files["node"]), ruled.secured.sasl_ssl, "node"))
    topic = f"{ruled.cluster.name}.p.log"
    try:
        log.ensure_topic(topic, 1)
        if operation == "alter":
            with pytest.raises(UnauthorizedError, match="does not allow user node"):
                log.grow_topic(topic, 2)
        else:
            log.grow_topic(topic, 2)
            with pytest.raises(LogAccessError, match="does not allow user node"):
                log.trim(TopicPartition(topic, 0), 0)
    finally:
        log.close()


@pytest.mark.feature("N5", "O4")
def test_who_may_not_look_at_acls_is_told_so_and_what_is_denied_is_shown(ruled: Ruled) -> None:
    words = ("acl", "kafka", "--role", "client", "--check")
    refused = ruled.run(ruled.files["nobody"], *words)
    assert refused.returncode == 8
    assert "does not allow user nobody" in refused.stderr
    ruled.give("client")
    denied = API.AclBinding(
        API.ResourceType.TOPIC,
        f"{ruled.cluster.name}.schemas",
        API.ResourcePatternType.LITERAL,
        "User:client",
        "*",
        API.AclOperation.WRITE,
        API.AclPermissionType.DENY,
    )
    for made in ruled.admin.create_acls([denied]).values():
        made.result(30)
    found = ruled.run(ruled.plain, *words, "--principal", "User:client")
    assert found.returncode == 4
    assert "an ACL denies User:client write of the topic" in found.stderr
