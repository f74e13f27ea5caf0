"""ZooKeeper by TLS, as somebody, with znodes that belong to the cluster alone (N5)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from halog.adapters.zookeeper.access import PLAIN, ZnodeOwner, ZooKeeperAccess
from halog.adapters.zookeeper.coordinator import ZkCoordinator
from halog.certs.identity import HolderKind
from halog.errors import ConfigError, HalogError, UnreachableError, ZnodeAccessError
from halog.ports import SessionState, Versioned
from tests.contract.rigs_coordinator import States, ZkRig, wait_for
from tests.contract.test_coordinator import (
    test_compare_and_set_lets_one_of_two_through as compare_and_set,
    test_nodes_are_made_with_parents_read_and_deleted as znodes,
)
from tests.secure_zookeeper import PASSWORD, Certificates, SecureSite, digest, x509

CONNECTED, LOST = SessionState.CONNECTED, SessionState.LOST


def refused(hosts: str, access: ZooKeeperAccess, cluster: str = "refused") -> HalogError:
    """The error with which somebody is not let in, well before 15 s are over."""
    c, began = ZkCoordinator(hosts, cluster, answer_s=2.0, access=access), time.monotonic()
    with pytest.raises(HalogError) as caught:
        c.connect(States())
    assert time.monotonic() - began < 15
    return caught.value


def all_znodes(client: Any, root: str) -> Iterator[str]:
    yield root
    for name in client.get_children(root):
        yield from all_znodes(client, f"{root}/{name}")


@pytest.mark.feature("N5")
def test_znodes_as_without_tls(sealed: ZkRig) -> None:
    """What the suite of the port says of any coordinator, of one by TLS with a password."""
    znodes(sealed)
    compare_and_set(sealed)


@pytest.mark.feature("N5", "N4")
def test_a_session_by_tls_goes_on_after_a_cut_and_after_its_end(sealed: ZkRig) -> None:
    """It is the same one after a cut; after its end there is another one. Watches hold on it, and it is the same user:
    its own closed znodes are read."""
    states, told = States(), list[Versioned | None]()
    c = sealed.open(states)
    c.create("/n", b"0")
    c.watch("/n", lambda path, value: told.append(value))
    wait_for(lambda: told == [Versioned(b"0", 0)])
    before = c.session_id
    sealed.proxy(c).cut()
    wait_for(lambda: states[-1] is CONNECTED and len(states) > 1)
    assert c.session_id == before
    c.set("/n", b"1", 0)
    wait_for(lambda: told[-1] == Versioned(b"1", 1))
    c._client._session_id, c._client._session_passwd = 4_711, b"\0" * 16  # the server knows no such session
    sealed.proxy(c).cut()
    wait_for(lambda: states[-2:] == [LOST, CONNECTED])
    c.set("/n", b"2", 1)
    wait_for(lambda: told[-1] == Versioned(b"2", 2))


@pytest.mark.feature("N5", "O4")
def test_a_stranger_does_nothing_at_any_znode(sealed: ZkRig) -> None:
    """Every znode belongs to the cluster alone: parents, marks, ephemeral ones. Nobody else reads, writes, makes or
    deletes one, or changes to whom it belongs."""
    c = sealed.open()
    c.create("/a/b/c", b"1")
    c.create("/partitions/p-0", b"1")
    c.set("/partitions/p-0", b"2", 0)
    c.create("/nodes/A", b"1", ephemeral=True)
    owner = c._client
    stranger = KazooClient(sealed.site.info.zookeeper)
    other = KazooClient(sealed.site.info.zookeeper, auth_data=[("digest", "halog:wrong")])
    found = ["/halog", *all_znodes(owner, c._root)]
    assert any("/changes/partitions/" in path for path in found)
    assert {path.removeprefix(c._root) for path in found} >= {"/a", "/a/b", "/a/b/c", "/nodes", "/nodes/A"}
    for client in (stranger, other):
        client.start(15)
        try:
            for path in found:
                asked = [client.get_async(path), client.get_children_async(path), client.set_async(path, b"x")]
                asked += [client.create_async(f"{path}/x", b"x"), client.set_acls_async(path, PLAIN.acl)]
                asked += [client.delete_async(path)] if path != "/halog" else []
                for answer in asked:
                    with pytest.raises(NoAuthError):
                        answer.get(timeout=15)
        finally:
            client.stop()
            client.close()
    assert c.get("/a/b/c") == Versioned(b"1", 0)
    for path in found:
        ((perms, who),) = owner.get_acls(path)[0]
        assert (perms, who.scheme, who.id.partition(":")[0]) == (31, "digest", "halog")


@pytest.mark.feature("N5", "O4")
def test_who_may_not_use_the_znodes_is_told_whose_they_are(sealed: ZkRig) -> None:
    """At once, with the znode and what to look at."""
    c = sealed.open()
    c.create("/n", b"1")
    root, plain = c._root, sealed.site.info.zookeeper
    wrong = refused(plain, digest("wrong"), sealed.cluster)
    assert isinstance(wrong, ZnodeAccessError)
    assert f"does not let digest user halog read {root}, which belongs to somebody else: check us" in str(wrong)
    nobody = refused(plain, PLAIN, sealed.cluster)
    assert f"does not let nobody in particular read {root}" in str(nobody)
    assert "give auth in [security.zookeeper]" in str(nobody)
    assert wrong.exit_code == nobody.exit_code == 8
    assert wrong.evidence == {"path": root}


@pytest.mark.feature("N5")
def test_rights_that_are_taken_away_are_told_by_name_and_the_session_lives_on(sealed: ZkRig) -> None:
    """Each request by its own name, also those that write two znodes; given back, they are there again."""
    c = sealed.open()
    c.create("/partitions/p-0", b"1")
    c.create("/n", b"1")
    own = c._client.get_acls(c._root + "/n")[0]
    others = digest("other").closed_acl
    paths = [path for path in all_znodes(c._client, c._root) if path != c._root]
    for path in paths:
        c._client.set_acls(path, others)
    attempts = {
        "read": lambda: c.get("/n"),
        "set": lambda: c.set("/n", b"2", 0),
        "create": lambda: c.create("/n/x", b""),
        "set ": lambda: c.set("/partitions/p-0", b"2", 0),
        "create ": lambda: c.create("/partitions/p-1", b""),
        "delete": lambda: c.delete("/partitions/p-0"),
    }
    for verb, attempt in attempts.items():
        with pytest.raises(ZnodeAccessError, match=f"{verb.strip()} {c._root}/"):
            attempt()
    owner = KazooClient(sealed.site.info.zookeeper, auth_data=[("digest", "halog:other")])
    owner.start(15)
    for path in paths:
        owner.set_acls(path, own)
    owner.stop()
    owner.close()
    assert c.get("/n") == Versioned(b"1", 0)
    assert c.set("/partitions/p-0", b"2", 0) == 1


@pytest.mark.feature("N5", "O4")
@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("an authority that did not sign the server's", "its certificate is not trusted (unable to get local issuer"),
        ("a certificate that the server does not trust", "it refuses this process's certificate (SSLV3_ALERT_CERT"),
        ("another host", "IP address mismatch, certificate is not valid for '127.0.0.2'): check site.zoo"),
        ("plain text to TLS", 'speaks TLS, and this process does not: set tls = "required" in [security.zookeeper]'),
        ("TLS to plain text", "it takes plain text, and TLS is required: name its secureClientPort"),
        pytest.param("a file that is gone", "security.zookeeper.ca: ", marks=pytest.mark.long),
    ],
)
def test_whoever_does_not_get_a_session_is_told_why(secure: SecureSite, tmp_path: Path, what: str, why: str) -> None:
    """By name, not by a timeout alone."""
    own, other = secure.certificates, Certificates(tmp_path / "other")
    other.make(HolderKind.NODE, "A")
    hosts, access = secure.sealed, digest(tls=own.files())
    if what.startswith("an authority"):
        access = digest(tls=other.files())
    elif what.startswith("a certificate"):
        shown = other.files("node.A")
        access = digest(tls=type(shown)(own.place("ca.crt"), shown.cert, shown.key))
    elif what == "another host":
        from tests.contract.proxy import Proxy

        proxy = Proxy(secure.sealed, "127.0.0.2")
        hosts = proxy.address
    elif what == "plain text to TLS":
        access = digest()
    elif what == "TLS to plain text":
        hosts = secure.site.info.zookeeper
    else:
        access = digest(tls=type(own.files())(tmp_path / "gone.crt"))
    error = refused(hosts, access)
    assert isinstance(error, UnreachableError)
    assert why in str(error)
    if what == "another host":
        c = ZkCoordinator(hosts, "elsewhere", access=digest(tls=own.files(check_hostname=False)))
        c.connect(States())
        c.close()
        proxy.close()


@pytest.mark.feature("N5")
def test_a_certificate_is_who_somebody_is(secure: SecureSite) -> None:
    """Each of the subjects may use what any of them makes; whose own is not among them is told so, and one that has no
    certificate gets nowhere."""
    own = secure.certificates
    hosts = f"{secure.sealed}/x509"  # another place than that of the other tests, whose /halog belongs to their user
    maker = KazooClient(secure.site.info.zookeeper)
    maker.start(15)
    maker.create("/x509", b"")
    subjects = ("CN=A", "CN=B")
    a, b = (ZkCoordinator(hosts, "x", access=x509(own.files(f"node.{n}"), *subjects)) for n in "AB")
    for c in (a, b):
        c.connect(States())
    assert a.create("/n", b"1")
    assert b.set("/n", b"2", 0) == 1
    assert a.get("/n") == Versioned(b"2", 1)
    acl = a._client.get_acls("/halog/x/n")[0]
    assert [ZnodeOwner(who.scheme, who.id) for _, who in acl] == [ZnodeOwner("x509", s) for s in subjects]
    stranger = refused(hosts, x509(own.files("node.C"), *subjects), "x")
    assert isinstance(stranger, ConfigError)
    assert "ZooKeeper knows this process by its certificate as CN=C, which is not among CN=A, CN=B" in str(stranger)
    assert isinstance(refused(hosts, ZooKeeperAccess(own.files()), "x"), ZnodeAccessError)
    for c in (a, b):
        c.close()
    maker.stop()
    maker.close()


@pytest.mark.feature("N5", "O4")
def test_no_log_has_the_password(secure: SecureSite, caplog: pytest.LogCaptureFixture) -> None:
    """Not at the finest level, in which kazoo tells each request."""
    with caplog.at_level(1):
        logging.getLogger("kazoo").setLevel(1)
        c = ZkCoordinator(secure.site.info.zookeeper, "quiet", access=digest())
        c.connect(States())
        c.create("/n", b"1")
        c.close()
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "Auth(…)" in said
    assert PASSWORD not in said
    assert PASSWORD not in repr(digest())
