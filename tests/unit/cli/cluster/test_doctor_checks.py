"""The doctor's rules about Kafka settings."""

from __future__ import annotations

import pytest

from halog.cli.cluster.doctor_checks import unsafe_settings, upgrade_findings
from halog.cli.shared.upgrade_status import view_of
from halog.metadata.nodes import NodeInfo
from halog.metadata.upgrades import Upgrade

SAFE = {
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
    "message.max.bytes": "6291456",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


def test_safe_settings_raise_nothing() -> None:
    assert list(unsafe_settings(SAFE)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unclean.leader.election.enable", "true"),
        ("auto.create.topics.enable", "true"),
        ("message.max.bytes", "1048588"),
        ("min.insync.replicas", "1"),
    ],
)
def test_each_unsafe_setting_is_named_with_its_remedy(name: str, value: str) -> None:
    (finding,) = unsafe_settings({**SAFE, name: value})
    assert finding.result == "fail"
    assert finding.detail == f"{name} = {value}"
    assert "set it to" in finding.advice


def nodes(**releases: str) -> list[NodeInfo]:
    return [NodeInfo(name, 1, "", 1, True, 1, release) for name, release in releases.items()]


UPGRADE = Upgrade(to="0.3.0", order=("A", "B"), done=("A",))
MIXED = nodes(A="0.3.0", B="0.2.0")


@pytest.mark.feature("U1", "O1")
@pytest.mark.parametrize(
    ("state", "driven", "result", "said"),
    [
        ("running", "me@here", "ok", "to halog 0.3.0 under way (1 of 2)"),
        ("running", "", "warn", "to halog 0.3.0 under way (1 of 2), stands still; go on with `halog upgrade start`"),
        ("paused", "", "warn", "stands still; go on"),
        ("complete", "", "warn", "every node runs it; `halog upgrade finish` ends it"),
    ],
)
def test_an_upgrade_that_stands_still_is_a_warning(state: str, driven: str, result: str, said: str) -> None:
    view = view_of(Upgrade(to="0.3.0", order=UPGRADE.order, done=UPGRADE.done, state=state), driven)
    (finding,) = upgrade_findings(view, MIXED)
    assert (finding.name, finding.result, said in finding.detail) == ("upgrade", result, True)


@pytest.mark.feature("U1", "O1")
def test_several_releases_without_an_upgrade_are_a_warning() -> None:
    over = view_of(Upgrade(to="0.3.0", state="finished"), "")
    (finding,) = upgrade_findings(over, MIXED)
    assert (finding.name, finding.result) == ("releases", "warn")
    assert finding.detail == "B: halog 0.2.0; A: halog 0.3.0"
    (same,) = upgrade_findings(None, nodes(A="0.3.0", B="0.3.0"))
    assert (same.result, same.detail) == ("ok", "every node runs halog 0.3.0")
    assert list(upgrade_findings(None, [])) == []
