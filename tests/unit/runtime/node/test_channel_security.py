"""A process's certificates are looked at before anything is opened; what is wrong is named with key and file (N5)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from halog.config import ClusterConfig, Config, NodeConfig, SecurityConfig, SiteConfig
from halog.errors import ConfigError
from halog.runtime.node.wiring import adapters_for, channel_security
from tests.certificates import DAY, TestAuthority, node_uri, user_uri


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path)


def config(tmp_path: Path, mode: str = "required", stem: str = "A") -> Config:
    security = SecurityConfig(
        mode, ca=tmp_path / "authority.crt", cert=tmp_path / f"{stem}.crt", key=tmp_path / f"{stem}.key"
    )
    nodes = {name: NodeConfig(tmp_path / f"data-{name}") for name in "AB"}
    site = SiteConfig(bootstrap="127.0.0.1:1", zookeeper="127.0.0.1:1")
    return Config(ClusterConfig("test"), site, nodes=nodes, security=security, source="halog.toml").validate()


@pytest.mark.feature("N5")
def test_a_node_needs_the_certificate_of_its_name(tmp_path: Path, authority: TestAuthority) -> None:
    authority.issue(node_uri("A"))
    made = channel_security(config(tmp_path), "A")
    assert made is not None
    assert (made.required, str(made.me)) == (True, "node A")
    with pytest.raises(ConfigError, match=r"security\.cert: .*A\.crt: is for node A, and this is node B"):
        channel_security(config(tmp_path), "B")
    with pytest.raises(ConfigError, match="and this is node B"):
        adapters_for(config(tmp_path), "B")
    assert not (tmp_path / "data-B").exists(), "nothing was opened"
    client = channel_security(config(tmp_path, "accept"), "client-7")  # on the node's machine
    assert client is not None
    assert not client.required
    assert channel_security(config(tmp_path, "off"), "A") is None


@pytest.mark.feature("N5")
def test_a_users_certificate_needs_no_usage_of_a_server(tmp_path: Path, authority: TestAuthority) -> None:
    authority.issue(user_uri("alice"), server=False)
    made = channel_security(config(tmp_path, stem="alice"), "client-7")
    assert made is not None
    assert str(made.me) == "user alice"
    authority.issue(node_uri("A"), server=False)
    with pytest.raises(ConfigError, match=r"security\.cert: .*purpose"):
        channel_security(config(tmp_path), "A")


@pytest.mark.feature("N5")
def test_files_that_cannot_be_used_are_named(tmp_path: Path, authority: TestAuthority) -> None:
    def refused(why: str) -> None:
        with pytest.raises(ConfigError, match=why):
            channel_security(config(tmp_path), "A")

    refused(r"security\.cert: .*A\.crt: cannot be read: No such file")
    authority.issue(node_uri("A", "other"))
    refused(r"security\.cert: .*A\.crt: is for cluster 'other', and this is 'test'")
    authority.issue(node_uri("A"), begins=-2 * DAY, ends=-DAY)
    refused(r"security\.cert: .*A\.crt: its certificate is refused: certificate has expired")
    TestAuthority(tmp_path, "another").issue(node_uri("A"))
    refused(r"security\.cert: .*unable to get local issuer certificate; the authorities are those of .*authority\.crt")
    authority.issue()
    (tmp_path / "nobody.crt").replace(tmp_path / "A.crt")
    (tmp_path / "nobody.key").replace(tmp_path / "A.key")
    refused(r"security\.cert: .*A\.crt: its certificate names nobody")


@pytest.mark.feature("N5")
def test_several_authorities_may_stand_in_one_file(tmp_path: Path, authority: TestAuthority) -> None:
    """So an authority is replaced by another one."""
    later = TestAuthority(tmp_path, "later")
    later.issue(node_uri("A"))
    both = authority.file.read_bytes() + later.file.read_bytes()
    (tmp_path / "both.crt").write_bytes(both)
    found = config(tmp_path)
    made = channel_security(replace(found, security=replace(found.security, ca=tmp_path / "both.crt")), "A")
    assert made is not None
