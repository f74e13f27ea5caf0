"""Who asked real nodes for what stands in the audit, also who was refused (O4, Q5)."""

from __future__ import annotations

import json
from typing import Any

import pytest

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

    def entries(*filters: str) -> list[dict[str, Any]]:
        ran = secured.command("olga", "required", "audit", *filters, "--format", "json")
        assert ran.returncode == 0, ran.stderr
        found: list[dict[str, Any]] = json.loads(ran.stdout)
        return found

    table = cluster.table("p-0")
    to, active = table.node_list[1], table.node_list[0]
    for user, code in (("vera", 8), ("eve", 8), ("olga", 0)):
        ran = secured.command(user, "required", "failover", "p-0", "--to", to)
        assert (ran.returncode == 0) is (code == 0), ran.stderr
        assert "audit" not in ran.stderr
    assert secured.command("olga", "required", "config", "activate", "--dry-run").returncode == 0
    assert secured.command("olga", "required", "config", "activate").returncode == 0

    wait(lambda: len(entries("--command", "HandOver")) >= 2, "both hand-overs are in the audit")
    asked = {e["principal"]: e for e in entries("--command", "HandOver")}
    assert set(asked) == {"user vera", "user olga"}
    vera, olga = asked["user vera"], asked["user olga"]
    assert (vera["outcome"], vera["role"], vera["proven"], vera["by"]) == ("refused", "viewer", True, active)
    assert "it takes the role operator" in vera["reason"]
    assert (olga["outcome"], olga["role"], olga["proven"], olga["by"]) == ("done", "operator", True, active)
    assert vera["arguments"] == olga["arguments"] == {"partition": "p-0", "to": to}
    assert olga["address"].startswith("127.0.0.1:")
    strangers = entries("--command", "Hello")
    assert {e["principal"] for e in strangers} == {"user eve"}
    assert all("no role in [security.roles]" in e["reason"] and e["outcome"] == "refused" for e in strangers)

    said = entries("--command", "failover")
    assert [e["principal"] for e in said] == ["user vera", "user eve", "user olga"]
    assert [e["outcome"] for e in said][::2] == ["refused", "done"]
    assert not any(e["proven"] for e in said)
    dry, done = entries("--command", "config activate")
    assert [(e["principal"], e["role"], e["dry_run"], e["outcome"]) for e in (dry, done)] == [
        ("user olga", "operator", True, "done"),
        ("user olga", "operator", False, "done"),
    ]
