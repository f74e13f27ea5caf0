"""Which rights ACLs give (N5): brokers go by prefixes, by what implies what, and by denials first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin

from halog.adapters.kafka import acls
from halog.adapters.kafka.rights import CLUSTER, EVERY_CLUSTER, TOPIC, TRANSACTIONAL_ID, KafkaRight
from halog.cli.acl.kafka import ROLES
from halog.config import parse_config
from halog.runtime.topics.kafka_rights import KAFKA_ROLES, rights_of

API: Any = admin
KINDS = {
    TOPIC: API.ResourceType.TOPIC,
    TRANSACTIONAL_ID: API.ResourceType.TRANSACTIONAL_ID,
    CLUSTER: API.ResourceType.BROKER,
}
LITERAL, PREFIXED = API.ResourcePatternType.LITERAL, API.ResourcePatternType.PREFIXED
ALL_TOPICS = KafkaRight(TOPIC, "fleet.", True, "read")
ONE_TOPIC = KafkaRight(TOPIC, "fleet.audit", False, "write")


def acl(
    name: str, operation: str, pattern: Any = LITERAL, *, who: str = "User:a", kind: str = TOPIC, **more: Any
) -> Any:
    allows = more.get("allows", True)
    permission = API.AclPermissionType.ALLOW if allows else API.AclPermissionType.DENY
    op = getattr(API.AclOperation, operation.upper())
    return API.AclBinding(KINDS[kind], name, pattern, who, more.get("host", "*"), op, permission)


@pytest.mark.feature("N5")
@pytest.mark.parametrize(
    ("right", "given"),
    [
        (ALL_TOPICS, acl("fleet.", "read", PREFIXED)),
        (ALL_TOPICS, acl("fl", "all", PREFIXED)),
        (ALL_TOPICS, acl("*", "read")),
        (ALL_TOPICS, acl("fleet.", "read", PREFIXED, who="User:*")),
        (ONE_TOPIC, acl("fleet.audit", "write")),
        (ONE_TOPIC, acl("fleet.", "write", PREFIXED)),
        (
            KafkaRight(CLUSTER, EVERY_CLUSTER, False, "describe-configs"),
            acl(EVERY_CLUSTER, "alter_configs", kind=CLUSTER),
        ),
    ],
)
def test_what_gives_a_right(right: KafkaRight, given: Any) -> None:
    assert acls._judged([given], "User:a", [right]) == ((), (), 0)


@pytest.mark.feature("N5")
@pytest.mark.parametrize(
    ("right", "given"),
    [
        (ALL_TOPICS, acl("fleet.", "read")),
        (ALL_TOPICS, acl("fleet.p.", "read", PREFIXED)),
        (ALL_TOPICS, acl("fleet.", "write", PREFIXED)),
        (ALL_TOPICS, acl("fleet.", "read", PREFIXED, who="User:b")),
        (ALL_TOPICS, acl("fleet.", "read", PREFIXED, host="10.0.0.1")),
        (ALL_TOPICS, acl("fleet.", "read", PREFIXED, kind=TRANSACTIONAL_ID)),
        (ONE_TOPIC, acl("fleet.audit2", "write")),
    ],
)
def test_what_does_not(right: KafkaRight, given: Any) -> None:
    assert acls._judged([given], "User:a", [right]).missing == (right,)


@pytest.mark.feature("N5")
@pytest.mark.parametrize(
    "denial",
    [
        acl("fleet.", "read", PREFIXED, allows=False),
        acl("fleet.p.log", "read", allows=False),
        acl("fleet.p.", "all", PREFIXED, allows=False, host="10.0.0.1"),
        acl("*", "read", allows=False, who="User:*"),
    ],
)
def test_a_denial_of_some_of_it_counts_beside_what_allows_it(denial: Any) -> None:
    found = acls._judged([acl("fleet.", "read", PREFIXED), denial], "User:a", [ALL_TOPICS])
    assert (found.missing, found.denied) == ((), (ALL_TOPICS,))
    assert acls._judged([denial], "User:b", [ONE_TOPIC]).denied == ()


@pytest.mark.feature("N5")
def test_each_role_has_its_rights_and_nodes_alone_may_write_logs() -> None:
    toml = {
        "cluster": {"name": "fleet"},
        "site": {"bootstrap": "a:1", "zookeeper": "b:1"},
        "zones": {"main": {"nodes": ["A"]}},
        "nodes": {"A": {"data_dir": "A"}},
        "policies": {"p": {"zone": "main", "sync_replicas": 0}},
    }
    config = parse_config(toml, "halog.toml", Path())
    assert ROLES == KAFKA_ROLES
    for role in ROLES:
        rights = rights_of(role, config)
        assert len(set(rights)) == len(rights)
        assert all(acls._binding("User:a", right) for right in rights)
        writes = [r for r in rights if r.resource == TOPIC and r.operation in ("write", "delete", "alter")]
        logs = [r for r in writes if acls._names(r, "fleet.p.log") or acls._names(r, "fleet.p.state")]
        assert bool(logs) == (role == "node"), role
        others = [r for r in rights if not r.name.startswith(("fleet.", "halog.fleet.", "halog-publishing.fleet."))]
        assert others in ([], [KafkaRight(CLUSTER, EVERY_CLUSTER, False, "describe-configs")])


@pytest.mark.feature("N5")
def test_a_right_is_read_as_a_sentence() -> None:
    assert str(ALL_TOPICS) == "read of the topic fleet.…"
    assert str(KafkaRight(CLUSTER, EVERY_CLUSTER, False, "describe-configs")) == "describe-configs of the cluster"


@pytest.mark.feature("N5")
def test_what_brokers_hear_of_later_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller takes an ACL before each broker knows it; what never comes counts as missing."""
    missing, there = acls.AclReport((ONE_TOPIC,), ()), acls.AclReport((), ())
    answers = iter((missing, missing, there))
    assert acls._seen(lambda: next(answers)) == there
    monkeypatch.setattr(acls, "HEARD_S", 0.2)
    assert acls._seen(lambda: missing) == missing
