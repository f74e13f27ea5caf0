"""`[security.kafka]`: what it may hold, what is refused, and that it belongs to each process's own file (O4)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from halog.config import Config, parse_config
from halog.config.active_merge import merged
from halog.config.changes import OWN_FILE, differences
from halog.config.kafka_security import KafkaSecurity
from halog.config.read import problems_of
from halog.config.secrets import SecretPlace
from halog.runtime.node.kafka_access import kafka_access

SCRAM = {
    "protocol": "sasl_ssl",
    "mechanism": "SCRAM-SHA-512",
    "username": "halog",
    "password": {"file": "secrets/kafka"},
    "ca": "ca.crt",
}
BEARER = {"protocol": "sasl_ssl", "mechanism": "OAUTHBEARER", "ca": "ca.crt"}
OIDC = {**BEARER, "token_endpoint": "https://id/token", "client_id": "halog", "client_secret": {"env": "SECRET"}}
MUTUAL = {"protocol": "ssl", "ca": "ca.crt", "cert": "a.crt", "key": "a.key"}


def table(kafka: dict[str, Any] | None, *, bootstrap: str = "k:1", **security: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "cluster": {"name": "fleet"},
        "site": {"bootstrap": bootstrap, "zookeeper": "z:1"},
        "sites": {"west": {"bootstrap": "127.0.0.1:2", "zookeeper": "w:3"}},
        "zones": {"main": {"nodes": ["A"]}},
        "nodes": {"A": {"data_dir": "A"}},
    }
    return found if kafka is None else {**found, "security": {**security, "kafka": kafka}}


def parsed(kafka: dict[str, Any] | None, **more: Any) -> Config:
    return parse_config(table(kafka, **more), "/etc/halog/halog.toml", Path("/etc/halog"))


@pytest.mark.feature("O4")
@pytest.mark.parametrize(
    "kafka", [{}, {"protocol": "plaintext"}, SCRAM, MUTUAL, OIDC, {**BEARER, "token": {"env": "T"}}]
)
def test_what_can_be_meant_is_read_and_written(kafka: dict[str, Any]) -> None:
    config = parsed(kafka)
    assert parse_config(tomllib.loads(config.to_toml()), "f", Path("/elsewhere")) == config


@pytest.mark.feature("O4")
def test_paths_are_those_of_the_file() -> None:
    found = parsed(SCRAM).security.kafka
    assert found is not None
    assert (found.ca, found.password) == (Path("/etc/halog/ca.crt"), SecretPlace(file=Path("/etc/halog/secrets/kafka")))


@pytest.mark.feature("O4")
def test_a_file_without_it_is_written_without_it() -> None:
    assert "kafka" not in parse_config({**table(None), "security": {"certs_dir": "c"}}, "f", Path()).to_toml()


@pytest.mark.feature("O4")
@pytest.mark.parametrize(
    ("kafka", "key", "why"),
    [
        ({"protocol": "tls"}, "protocol", "'tls' must be one of plaintext, ssl, sasl_ssl, sasl_plaintext"),
        ({"username": "u"}, "username", "is not for protocol plaintext"),
        ({"password": {"env": "P"}}, "password", "is not for protocol plaintext"),
        ({"ca": "ca.crt"}, "ca", "is not for protocol plaintext"),
        ({**MUTUAL, "username": "u"}, "username", "is not for protocol ssl"),
        ({"protocol": "ssl", "cert": "c", "key": "k"}, "ca", "is missing, and so is security.certs_dir"),
        ({"protocol": "ssl", "ca": "c"}, "cert", "is missing, and so is security.certs_dir"),
        ({**MUTUAL, "key": None}, "key", "is missing: a certificate and its key go together"),
        ({**SCRAM, "cert": "c"}, "key", "is missing: a certificate and its key go together"),
        ({**SCRAM, "mechanism": None}, "mechanism", "is missing: one of SCRAM-SHA-512"),
        ({**SCRAM, "mechanism": "GSSAPI"}, "mechanism", "'GSSAPI' must be one of SCRAM-SHA-512"),
        ({**SCRAM, "username": None}, "username", "is missing: SCRAM-SHA-512 needs it"),
        ({**SCRAM, "password": None}, "password", "is missing: SCRAM-SHA-512 needs it"),
        ({**SCRAM, "password": {}}, "password", "needs one of file"),
        ({**SCRAM, "password": {"file": "f", "env": "E"}}, "password", "there is file and env"),
        ({**SCRAM, "password": "geheim"}, "password", "must be a table"),
        ({**SCRAM, "username": ""}, "username", "must be a text"),
        ({**SCRAM, "token": {"env": "T"}}, "token", "is not for protocol sasl_ssl with SCRAM-SHA-512"),
        ({**SCRAM, "scope": "s"}, "scope", "is not for protocol sasl_ssl with SCRAM-SHA-512"),
        ({**BEARER, "username": "u"}, "username", "is not for protocol sasl_ssl with OAUTHBEARER"),
        (BEARER, "token", "is missing; or token_endpoint, client_id, client_secret"),
        ({**OIDC, "client_secret": None}, "client_secret", "is missing: OAUTHBEARER needs it"),
        ({**OIDC, "token": {"env": "T"}}, "client_id", "is not for a token that is given"),
        ({**OIDC, "token_endpoint": "http://id/token"}, "token_endpoint", "must begin with https://"),
        ({**SCRAM, "ca": None, "protocol": "sasl_plaintext"}, "protocol", "k:1 is not: sasl_ssl"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_key(kafka: dict[str, Any], key: str, why: str) -> None:
    given = {name: value for name, value in kafka.items() if value is not None}
    found = dict(problems_of(table(given), "halog.toml"))
    assert why in found[f"security.kafka.{key}"]
    assert "geheim" not in str(found) or key == "password"


@pytest.mark.feature("O4")
def test_a_password_in_plain_text_goes_to_this_machine_alone() -> None:
    kafka = {**SCRAM, "protocol": "sasl_plaintext"}
    del kafka["ca"]
    for bootstrap in ("127.0.0.1:1", "localhost:1,127.0.0.2:1"):
        assert parsed(kafka, bootstrap=bootstrap).security.kafka is not None
    assert dict(problems_of(table(kafka, bootstrap="localhost:1, b:2"), "f"))["security.kafka.protocol"].startswith(
        "sasl_plaintext is for brokers of this machine alone, and b:2 is not"
    )


@pytest.mark.feature("O4")
def test_it_belongs_to_each_process() -> None:
    own, active = parsed(SCRAM), parsed(None)
    assert merged(own, active).security == own.security
    changes = differences(own, parsed({**SCRAM, "password": {"env": "P"}}))
    assert {change.text: change.effect for change in changes} == {
        "security.kafka.password.file": OWN_FILE,
        "security.kafka.password.env": OWN_FILE,
    }
    assert {change.effect for change in differences(own, active)} == {OWN_FILE}


@pytest.mark.feature("O4")
def test_files_that_it_does_not_name_are_those_between_nodes(tmp_path: Path) -> None:
    (tmp_path / "node.A.crt").touch()
    ours = {"ca": tmp_path / "ca.crt", "cert": tmp_path / "node.A.crt", "key": tmp_path / "node.A.key"}
    found = kafka_access(parsed({"protocol": "ssl"}, certs_dir=str(tmp_path)), "k:1 , k:2", "A")
    assert (found.servers, found.security) == ("k:1,k:2", KafkaSecurity("ssl", **ours))  # type: ignore[arg-type]
    given = kafka_access(parsed(MUTUAL, certs_dir=str(tmp_path)), "k:1", "A").security
    assert (given.ca, given.cert) == (Path("/etc/halog/ca.crt"), Path("/etc/halog/a.crt"))
    without = {name: value for name, value in SCRAM.items() if name != "ca"}
    by_password = kafka_access(parsed(without, certs_dir=str(tmp_path)), "k:1", "A").security
    assert (by_password.ca, by_password.cert, by_password.key) == (tmp_path / "ca.crt", None, None)
    assert kafka_access(parsed(None), "k:1", "A").security == KafkaSecurity()
