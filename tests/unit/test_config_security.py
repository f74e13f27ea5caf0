"""`[security]`: what it may hold, and until when a node may take plain text from other machines (N5, O4)."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halog.cli.cluster.doctor_security import findings
from halog.config import Config, SecurityConfig, parse_config
from halog.config.active_merge import merged
from halog.config.addresses import is_loopback
from halog.config.read import problems_of, warnings_of
from halog.config.security import plain_nodes, plaintext_problem
from halog.errors import ConfigError
from halog.runtime.node.certificate_files import certificate_files

DAY = datetime.date(2027, 6, 30)


def table(security: dict[str, Any] | None, address: str = "10.0.0.5:7400") -> dict[str, Any]:
    found: dict[str, Any] = {
        "cluster": {"name": "fleet"},
        "site": {"bootstrap": "a:1", "zookeeper": "b:1"},
        "zones": {"main": {"nodes": ["A", "B"]}},
        "nodes": {"A": {"data_dir": "A", "address": address}, "B": {"data_dir": "B"}},
    }
    return found if security is None else {**found, "security": security}


def parsed(security: dict[str, Any] | None, address: str = "10.0.0.5:7400") -> Config:
    return parse_config(table(security, address), "/etc/halog.toml", Path("/etc"))


@pytest.mark.feature("N5")
def test_files_are_found_in_the_directory_unless_they_are_named() -> None:
    security = parsed({"node_tls": "required", "certs_dir": "tls", "key": "/run/node.key"}).security
    expected = Path("/etc/tls/ca.crt"), Path("/etc/tls/node.crt"), Path("/run/node.key")
    assert certificate_files(security, "A") == expected
    assert certificate_files(parsed(None).security, "A") is None


@pytest.mark.feature("N5")
@pytest.mark.parametrize(
    ("security", "key", "why"),
    [
        ({"node_tls": "on"}, "security.node_tls", "'on' must be one of off, accept, required"),
        ({"roles": {"a b": "viewer"}}, "security.roles.a b", "no certificate names such a user"),
        ({"node_tls": "required"}, "security.ca", "is missing, and so is security.certs_dir"),
        ({"node_tls": "accept", "ca": "a", "cert": "b"}, "security.key", "is missing, and so is security.certs_dir"),
        ({"plaintext_until": "soon"}, "security.plaintext_until", "'soon' must be a day, as 2027-06-30"),
        ({"plaintext_until": "20270630"}, "security.plaintext_until", "must be a day"),
        ({"roles": {"eve": "root"}}, "security.roles.eve", "'root' must be one of viewer, client, operator, node"),
        ({"tls": True}, "security.tls", "is unknown"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_key(security: dict[str, Any], key: str, why: str) -> None:
    found = dict(problems_of(table(security), "halog.toml"))
    assert why in found[key]


@pytest.mark.feature("N5")
def test_frames_that_would_begin_as_tls_does_are_refused() -> None:
    limits = {"max_frame_bytes": 0x16 << 24}
    both = {**table({"node_tls": "required", "certs_dir": "tls"}), "limits": limits}
    assert [key for key, _ in problems_of(both, "halog.toml")] == ["limits.max_frame_bytes"]
    assert problems_of({**table(None), "limits": limits}, "halog.toml") == []


@pytest.mark.feature("N5")
@pytest.mark.parametrize(
    ("security", "address", "why"),
    [
        (None, "10.0.0.5:7400", 'plaintext_until = "DATE"'),
        ({"plaintext_until": "2027-06-29"}, "10.0.0.5:7400", "2027-06-29 is over"),
        ({"plaintext_until": "2027-06-30"}, "10.0.0.5:7400", ""),
        ({"node_tls": "accept", "certs_dir": "tls"}, "node-a:7400", 'plaintext_until = "DATE"'),
        ({"node_tls": "required", "certs_dir": "tls"}, "10.0.0.5:7400", ""),
        (None, "127.0.0.1:7400", ""),
        (None, "[::1]:7400", ""),
        (None, "localhost:0", ""),
    ],
)
def test_plain_text_beyond_loopback_has_an_end(security: dict[str, Any] | None, address: str, why: str) -> None:
    """The error names the key; another node of the same file, which only its own machine reaches, may start."""
    config = parsed(security, address)
    found = plaintext_problem(config, "A", DAY)
    assert (found is not None) is bool(why)
    if found is not None:
        assert found[0] == "security.plaintext_until"
        assert why in found[1]
    assert plaintext_problem(config, "B", DAY) is None
    assert plaintext_problem(config, "client-1", DAY) is None


def test_a_node_behind_a_gate_is_reached_by_other_machines() -> None:
    config = parsed(None, "127.0.0.1:1")
    nodes = {**config.nodes, "A": replace(config.nodes["A"], listen="127.0.0.1:1", advertise="gate.example:1")}
    assert [plain.address for plain in plain_nodes(replace(config, nodes=nodes))] == ["gate.example:1"]
    assert not is_loopback("0.0.0.0:1")


@pytest.mark.feature("N5")
def test_a_check_warns_of_what_will_not_start() -> None:
    assert [key for key, _ in warnings_of(table(None), "f")] == ["security.plaintext_until"]
    assert warnings_of(table({"plaintext_until": "2027-06-30"}), "f") == []


@pytest.mark.feature("N5", "P11")
def test_the_own_file_says_it_and_no_version() -> None:
    own, active = parsed({"plaintext_until": "2027-06-30", "roles": {"a": "viewer"}}), parsed(None)
    assert merged(own, active).security == own.security
    assert merged(active, own).security == SecurityConfig()


@pytest.mark.feature("N5", "U1")
def test_a_file_of_a_halog_that_does_not_know_the_table_stays_one() -> None:
    """What is not set is not written; what is set reads back equal."""
    assert "[security" not in parsed(None).to_toml()
    config = parsed({"node_tls": "required", "certs_dir": "/tls", "roles": {"a.b": "viewer"}})
    assert '"a.b" = "viewer"' in config.to_toml()


@pytest.mark.feature("N5")
def test_a_node_is_not_started_with_plain_text_beyond_loopback(tmp_path: Path) -> None:
    """Before anything is opened."""
    import halog
    from halog.runtime.node.live_config import of_file

    config = replace(parsed(None), source="halog.toml")
    with pytest.raises(ConfigError, match=r"halog\.toml: security\.plaintext_until: node A takes plain text"):
        halog.node(config, "A", activated=of_file)


@pytest.mark.feature("N5", "Q4")
def test_the_doctor_names_who_takes_plain_text() -> None:
    plain = {"node_tls": "accept", "address": "node-a:1", "until": "2027-06-30"}
    (row,) = findings({"A": {"plain_text": plain}, "B": {"plain_text": None}, "C": {"error": "silent"}})
    assert (row.result, row.detail) == (
        "warn",
        "node A takes plain text at node-a:1 until 2027-06-30 (node_tls is accept)",
    )
    (good,) = findings({"B": {"plain_text": None}})
    assert good.result == "ok"
    assert list(findings({"C": {"error": "silent"}})) == []


@pytest.mark.feature("N5")
def test_the_day_may_be_a_date_of_toml() -> None:
    assert parsed({"plaintext_until": DAY}).security.plaintext_until == "2027-06-30"
    moment = datetime.datetime(2027, 6, 30, tzinfo=datetime.UTC)
    said = dict(problems_of(table({"plaintext_until": moment}), "halog.toml"))
    assert "must be a string" in said["security.plaintext_until"]
    elsewhere = dict(problems_of({**table(None), "cluster": {"name": DAY}}, "halog.toml"))
    assert "must be a string" in elsewhere["cluster.name"], "it is taken for nothing that it is not"
