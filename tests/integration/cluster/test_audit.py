"""Who asked real nodes for what stands in the audit, also who was refused (O4, Q5)."""

from __future__ import annotations

import json
import time
from datetime import datetime

import pytest

from halog.audit import AuditEntry
from halog.ports import TopicPartition
from halog.runtime.topics.topic_names import audit_topic
from tests.integration.cluster.harness import Make
from tests.integration.cluster.processes import wait
from tests.integration.cluster.secured import Secured

pytestmark = pytest.mark.timeout(300)

USERS = {"app": "client", "olga": "operator", "vera": "viewer", "eve": ""}


@pytest.fixture
def secured(make: Make) -> Secured:
    """A whole cluster that requires TLS, and its client as the application."""
    found = Secured(make(), USERS)
    found.client("required")
    found.start("required", *found.cluster.nodes)
    found.cluster.whole()
    return found


def entries(secured: Secured, command: str, outcome: str = "") -> list[AuditEntry]:
    """What the topic has of a command or a request by now."""
    cluster = secured.cluster
    log, topic = cluster.client().runtime.adapters.log, TopicPartition(audit_topic(cluster.name), 0)
    found = (AuditEntry.from_bytes(entry.value) for entry in log.read(topic, *log.bounds(topic)))
    return [e for e in found if e.command == command and outcome in ("", e.outcome)]


@pytest.mark.feature("O4", "Q5")
def test_an_operators_hand_over_a_refused_viewers_and_a_strangers_are_in_the_audit(secured: Secured) -> None:
    """With TLS the node names whom the certificate names; a command names itself, and its dry run."""
    table = secured.cluster.table("p-0")
    to, active = table.node_list[1], table.node_list[0]
    for user, code in (("vera", 8), ("eve", 8), ("olga", 0)):
        ran = secured.command(user, "required", "failover", "p-0", "--to", to)
        assert (ran.returncode == 0) is (code == 0), ran.stderr
        assert "audit" not in ran.stderr
    assert secured.command("olga", "required", "config", "activate", "--dry-run").returncode == 0
    assert secured.command("olga", "required", "config", "activate").returncode == 0

    wait(lambda: len(entries(secured, "HandOver")) >= 2, "both hand-overs are in the audit")
    asked = {e.principal: e for e in entries(secured, "HandOver")}
    assert set(asked) == {"user vera", "user olga"}
    vera, olga = asked["user vera"], asked["user olga"]
    assert (vera.outcome, vera.role, vera.proven, vera.by) == ("refused", "viewer", True, active)
    assert "it takes the role operator" in vera.reason
    assert (olga.outcome, olga.role, olga.proven, olga.by) == ("done", "operator", True, active)
    assert vera.arguments == olga.arguments == {"partition": "p-0", "to": to}
    assert olga.address.startswith("127.0.0.1:")
    strangers = entries(secured, "Hello")
    assert {e.principal for e in strangers} == {"user eve"}
    assert all("no role in [security.roles]" in e.reason and e.outcome == "refused" for e in strangers)

    said = entries(secured, "failover")
    assert [e.principal for e in said] == ["user vera", "user eve", "user olga"]
    assert [e.outcome for e in said][::2] == ["refused", "done"]
    assert not any(e.proven for e in said)
    dry, done = entries(secured, "config activate")
    assert [(e.principal, e.role, e.dry_run, e.outcome) for e in (dry, done)] == [
        ("user olga", "operator", True, "done"),
        ("user olga", "operator", False, "done"),
    ]
    shown = secured.command(
        "olga", "required", "audit", "--principal", "olga", "--command", "HandOver", "--format", "json"
    )
    assert [(e["by"], e["arguments"]) for e in json.loads(shown.stdout)] == [(active, {"partition": "p-0", "to": to})]


@pytest.mark.feature("O4", "Q5")
def test_nodes_say_what_became_of_renewed_certificates_and_the_audit_who_asked(secured: Secured) -> None:
    """Who may not ask is refused, and that is in the audit, too."""
    first, second = secured.cluster.nodes[:2]
    began = time.time()
    secured.renew(first)
    taken = secured.command("olga", "required", "certs", "reload", "--node", first, "--format", "json")
    assert taken.returncode == 0, taken.stderr
    (told,) = json.loads(taken.stdout)
    assert told["outcome"] in ("taken", "unchanged"), "the node may have looked by itself just before"
    assert datetime.fromisoformat(told["since"]).timestamp() >= began - 0.01
    key = secured.renew(second).key
    key.write_text("no key")
    bad = secured.command("olga", "required", "certs", "reload", "--all", "--format", "json")
    assert bad.returncode == 5, bad.stderr
    assert {one["node"]: one["outcome"] for one in json.loads(bad.stdout)}[second] == "refused"
    assert any(str(key) in one["why"] for one in json.loads(bad.stdout))
    secured.renew(second)
    assert secured.command("olga", "required", "certs", "reload", "--node", second).returncode == 0
    assert secured.command("vera", "required", "certs", "reload", "--all").returncode == 8
    wait(lambda: len(entries(secured, "Reload", "done")) >= 3, "the looks are in the audit")
    assert {e.principal for e in entries(secured, "Reload", "done")} == {"user olga"}
    wait(lambda: entries(secured, "Reload", "refused"), "the refusal is in the audit")
