"""The doctor's rules about Kafka settings."""

from __future__ import annotations

import pytest

from halog.cli.cluster.doctor_checks import unsafe_settings

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
