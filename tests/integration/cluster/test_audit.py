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


@pytest.mark.feature("O4", "Q5")
def test_an_operators_hand_over_a_refused_viewers_and_a_strangers_are_in_the_audit(make: Make) -> None:
    """With TLS the node names whom the certificate names; a command names itself, and its dry run."""
    cluster = make()
    secured = Secured(cluster, USERS)
    secured.client("required")
    secured.start("required", *cluster.nodes)
    cluster.whole()

    log, topic = cluster.client().runtime.adapters.log, TopicPartition(audit_topic(cluster.name), 0)

    def entries(command: str, outcome: str = "") -> list[AuditEntry]:
        found = (AuditEntry.from_bytes(entry.value) for entry in log.read(topic, *log.bounds(topic)))
        return [e for e in found if e.command == command and outcome in ("", e.outcome)]

    table = cluster.table("p-0")
    to, active = table.node_list[1], table.node_list[0]
    for user, code in (("vera", 8), ("eve", 8), ("olga", 0)):
        ran = secured.command(user, "required", "failover", "p-0", "--to", to)
        assert (ran.returncode == 0) is (code == 0), ran.stderr
        assert "audit" not in ran.stderr
    assert secured.command("olga", "required", "config", "activate", "--dry-run").returncode == 0
    assert secured.command("olga", "required", "config", "activate").returncode == 0

    wait(lambda: len(entries("HandOver")) >= 2, "both hand-overs are in the audit")
    asked = {e.principal: e for e in entries("HandOver")}
    assert set(asked) == {"user vera", "user olga"}
    vera, olga = asked["user vera"], asked["user olga"]
    assert (vera.outcome, vera.role, vera.proven, vera.by) == ("refused", "viewer", True, active)
    assert "it takes the role operator" in vera.reason
    assert (olga.outcome, olga.role, olga.proven, olga.by) == ("done", "operator", True, active)
    assert vera.arguments == olga.arguments == {"partition": "p-0", "to": to}
    assert olga.address.startswith("127.0.0.1:")
    strangers = entries("Hello")
    assert {e.principal for e in strangers} == {"user eve"}
    assert all("no role in [security.roles]" in e.reason and e.outcome == "refused" for e in strangers)

    said = entries("failover")
    assert [e.principal for e in said] == ["user vera", "user eve", "user olga"]
    assert [e.outcome for e in said][::2] == ["refused", "done"]
    assert not any(e.proven for e in said)
    dry, done = entries("config activate")
    assert [(e.principal, e.role, e.dry_run, e.outcome) for e in (dry, done)] == [
        ("user olga", "operator", True, "done"),
        ("user olga", "operator", False, "done"),
    ]
    shown = secured.command(
        "olga", "required", "audit", "--principal", "olga", "--command", "HandOver", "--format", "json"
    )
    assert [(e["by"], e["arguments"]) for e in json.loads(shown.stdout)] == [(active, {"partition": "p-0", "to": to})]

    # certificates that are renewed: each node says what became of them, and who may not ask is refused
    first, second = cluster.nodes[:2]
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
    wait(lambda: len(entries("Reload", "done")) >= 3, "the looks are in the audit")
    assert {e.principal for e in entries("Reload", "done")} == {"user olga"}
    wait(lambda: entries("Reload", "refused"), "the refusal is in the audit")
