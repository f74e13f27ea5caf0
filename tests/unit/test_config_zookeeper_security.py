"""`[security.zookeeper]`: what it may hold, and what a process makes of it (N5, O4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from kazoo.security import make_digest_acl

from halog.adapters.zookeeper.access import PLAIN, ZnodeOwner, digest_principal
from halog.config import Config, parse_config
from halog.config.active_merge import merged
from halog.config.changes import OWN_FILE, differences
from halog.config.read import problems_of
from halog.config.secrets import Secret
from halog.errors import ConfigError
from halog.runtime.node.certificate_files import ZooKeeperFiles, zookeeper_files
from halog.runtime.node.zookeeper_access import zookeeper_access
from tests.unit.test_config_security import table

DIGEST = {"auth": "digest", "username": "halog", "password": {"env": "HALOG_ZK"}}
X509 = {"tls": "required", "ca": "ca", "cert": "c", "key": "k", "auth": "x509", "principals": ["CN=A"]}


def parsed(zookeeper: dict[str, Any] | None, **security: Any) -> Config:
    found = {**security} if zookeeper is None else {**security, "zookeeper": zookeeper}
    return parse_config(table(found, "127.0.0.1:1"), "/etc/halog.toml", Path("/etc"))


@pytest.mark.feature("N5", "O4")
@pytest.mark.parametrize(
    ("zookeeper", "key", "why"),
    [
        ({"tls": "on"}, "tls", "'on' must be one of off, required"),
        ({"auth": "sasl"}, "auth", "'sasl' must be one of none, digest, x509"),
        ({"acl": "world"}, "acl", "'world' must be one of open, closed"),
        ({"tls": "required"}, "ca", "is missing, and so are security.ca and security.certs_dir"),
        ({"tls": "required", "ca": "a", "cert": "b"}, "key", "is missing: cert is given"),
        ({"tls": "required", "ca": "a", "key": "b"}, "cert", "is missing: key is given"),
        ({"auth": "digest", "username": "halog"}, "password", "is missing: auth is digest"),
        ({**DIGEST, "username": ""}, "username", "is missing: auth is digest"),
        ({**DIGEST, "username": "a:b"}, "username", "must not have a colon"),
        ({**DIGEST, "password": {}}, "password", "needs one of file"),
        ({**DIGEST, "password": {"env": "A", "file": "b"}}, "password", "there is file and env"),
        ({"username": "halog"}, "username", "is for auth = 'digest', which is 'none'"),
        ({"password": {"env": "A"}}, "password", "is for auth = 'digest', which is 'none'"),
        ({**X509, "tls": "off"}, "tls", "must be required: auth is x509"),
        ({**X509, "principals": []}, "principals", "is missing: auth is x509; name every process"),
        ({"tls": "required", "ca": "a", "auth": "x509", "principals": ["CN=A"]}, "cert", "is missing, and so are"),
        ({**DIGEST, "principals": ["CN=A"]}, "principals", "are for auth = 'x509', which is 'digest'"),
        ({"acl": "closed"}, "auth", "is none, and acl is closed: nobody could use the znodes"),
        ({"host": "a"}, "host", "is unknown"),
        ({**DIGEST, "password": "secret"}, "password", "must be a table"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_key(zookeeper: dict[str, Any], key: str, why: str) -> None:
    found = dict(problems_of(table({"zookeeper": zookeeper}, "127.0.0.1:1"), "halog.toml"))
    assert why in found[f"security.zookeeper.{key}"]


@pytest.mark.feature("N5", "U1")
@pytest.mark.parametrize(
    "zookeeper", [{}, DIGEST, {**DIGEST, "acl": "open"}, X509, {**DIGEST, "password": {"command": ["pass", "zk"]}}]
)
def test_what_is_written_reads_back_equal(zookeeper: dict[str, Any]) -> None:
    """What is not set is not written: a halog that does not know the table reads the file."""
    assert "zookeeper]" not in parsed(None, certs_dir="/tls").to_toml()
    config = parsed(zookeeper)
    assert parse_config(_table(config.to_toml()), "/etc/halog.toml", Path("/etc")) == config


def _table(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


@pytest.mark.feature("N5", "P11")
def test_each_process_has_its_own(tmp_path: Path) -> None:
    """No version that is activated says it for others."""
    own, active = parsed(DIGEST), parsed(None)
    assert merged(own, active).security == own.security
    assert merged(active, own).security == active.security
    changes = differences(active, own)
    assert {c.text for c in changes} >= {"security.zookeeper.auth", "security.zookeeper.password.env"}
    assert {c.effect for c in changes} == {OWN_FILE}


@pytest.mark.feature("N5")
def test_files_are_those_of_the_node_channel_unless_others_are_named(tmp_path: Path) -> None:
    """A certificate is only shown where there is one, unless somebody is known by it."""
    (tmp_path / "node.A.crt").write_text("")
    ca, cert, key = (tmp_path / name for name in ("ca.crt", "node.A.crt", "node.A.key"))
    found = parsed({"tls": "required"}, certs_dir=str(tmp_path)).security
    assert zookeeper_files(found, "A") == ZooKeeperFiles(ca, cert, key)
    assert zookeeper_files(parsed({}, certs_dir=str(tmp_path)).security, "A") is None
    empty = parsed({"tls": "required"}, certs_dir=str(tmp_path / "none")).security
    assert zookeeper_files(empty, "A") == ZooKeeperFiles(tmp_path / "none/ca.crt", None, None)
    known = {"tls": "required", "auth": "x509", "principals": ["CN=A"]}
    named = parsed(known, certs_dir=str(tmp_path / "none")).security
    assert zookeeper_files(named, "A") == (
        tmp_path / "none/ca.crt",
        tmp_path / "none/node.crt",
        tmp_path / "none/node.key",
    )
    others = parsed({**X509, "ca": "/x"}, certs_dir=str(tmp_path), ca="/y", cert="/z", key="/z").security
    assert zookeeper_files(others, "A") == (Path("/x"), Path("/etc/c"), Path("/etc/k"))


@pytest.mark.feature("N5", "O4")
def test_a_password_becomes_a_user_and_an_acl_that_no_text_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOG_ZK", "s3:cret")
    config = parsed(DIGEST)
    access = zookeeper_access(config, "A")
    assert access.arguments()["auth_data"] == [("digest", "halog:s3:cret")]
    assert access.arguments()["default_acl"] == [make_digest_acl("halog", "s3:cret", all=True)]
    assert str(access.principals[0]) == access.me == "digest user halog"
    for text in (repr(access), repr(config), config.to_toml()):
        assert "s3:cret" not in text
    assert "default_acl" not in zookeeper_access(parsed({**DIGEST, "acl": "open"}), "A").arguments()
    assert zookeeper_access(parsed(None), "A") == PLAIN
    monkeypatch.delenv("HALOG_ZK")
    with pytest.raises(ConfigError, match=r"security\.zookeeper\.password: variable HALOG_ZK"):
        zookeeper_access(config, "A")


@pytest.mark.feature("N5")
@given(st.text(min_size=1).filter(lambda t: ":" not in t and t.isprintable()), st.text(min_size=1))
def test_a_user_is_whom_zookeeper_takes_it_for(username: str, password: str) -> None:
    try:
        (username + password).encode()
    except UnicodeEncodeError:
        return
    (perms, who) = make_digest_acl(username, password, all=True)
    assert tuple(digest_principal(username, Secret(password))) == tuple(who)
    assert perms == 31


@pytest.mark.feature("N5")
def test_a_file_that_cannot_be_used_is_named_before_anything_is_asked(tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    config = parsed({"tls": "required", "ca": str(ca)})
    with pytest.raises(ConfigError, match=r"halog\.toml: security\.zookeeper\.ca: .*ca\.crt cannot be used: No such"):
        zookeeper_access(config, "A")
    ca.write_text("no certificate\n")
    with pytest.raises(ConfigError, match=r"ca\.crt cannot be used: NO_CERTIFICATE_OR_CRL_FOUND"):
        zookeeper_access(config, "A")


def test_whom_an_acl_names_is_told_without_the_hash() -> None:
    assert str(ZnodeOwner("digest", "halog:W0bbyhash=")) == "digest user halog"
    assert str(ZnodeOwner("world", "anyone")) == "everybody"
    assert str(ZnodeOwner("x509", "CN=A")) == "x509 CN=A"
