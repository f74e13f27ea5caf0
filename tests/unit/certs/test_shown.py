"""What `halog certs` makes is what the node channel shows and trusts (N5, O4)."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from halog.adapters.tcp.security import CertificateFiles, ChannelSecurity
from halog.adapters.tcp.tls_session import HandshakeError, TlsSession, named_by
from halog.certs.authority import Holder
from halog.certs.directory import CertsDirectory
from halog.certs.identity import HolderIdentity, HolderKind, single_identity
from halog.certs.issuance import create, create_authority
from halog.config.security import SecurityConfig
from halog.ports import Principal
from halog.runtime.node.certificate_files import certificate_files

pytestmark = pytest.mark.feature("N5", "O4")

CLUSTER = "fleet"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a cluster with two nodes and one user."""
    now = dt.datetime.now(dt.UTC)
    made = CertsDirectory(tmp_path / "certs")
    create_authority(made, CLUSTER, now)
    for kind, name in ((HolderKind.NODE, "A"), (HolderKind.NODE, "B"), (HolderKind.USER, "alice")):
        create(made, Holder(HolderIdentity(CLUSTER, kind, name)), made.place("ca.key"), now)
    return made.path


def security(directory: Path, process: str) -> ChannelSecurity:
    files = certificate_files(SecurityConfig(node_tls="required", certs_dir=directory), process)
    assert files is not None
    return ChannelSecurity(CLUSTER, CertificateFiles(*files), required=True, refusal=str.encode)


def met(server: ChannelSecurity, client: ChannelSecurity, node: str) -> tuple[Principal, Principal]:
    """Whom the client and the server see at the other end."""
    there, here = server.server(), client.client()
    done: dict[TlsSession, bool] = {there: False, here: False}
    for _ in range(4):
        for one, other in ((here, there), (there, here)):
            done[one] = done[one] or one.shake(other.take())
    assert all(done.values())
    return client.judge_node(here, node), server.judge(there)


def test_nodes_and_users_meet_with_the_files_as_they_are_made(directory: Path) -> None:
    a, b, alice = (security(directory, name) for name in ("A", "B", "client-7"))
    assert met(a, b, "A") == (Principal(CLUSTER, "node", "A"), Principal(CLUSTER, "node", "B"))
    assert met(b, alice, "B") == (Principal(CLUSTER, "node", "B"), Principal(CLUSTER, "user", "alice"))
    with pytest.raises(HandshakeError, match="node A was meant"):
        met(b, a, "A")


@pytest.mark.parametrize(
    ("uris", "why"),
    [
        ([], "names nobody"),
        (["https://fleet/node/A"], "names nobody"),
        (["halog://fleet/node/A", "halog://fleet/user/alice"], "names 2 at once"),
        (["halog://fleet/node/A", "HALOG://fleet/node/B"], "names 2 at once"),
        (["halog://fleet/server/kafka"], "names no node and no user"),
        (["halog://fleet/ca"], "names no node and no user"),
        (["halog://fleet/node/A/B"], "names no node and no user"),
        (["halog://fleet/node/"], "names no node and no user"),
        (["halog://fleet/node/..%2fA"], "names no node and no user"),
        (["Halog://fleet/node/A"], "names no node and no user"),
    ],
)
def test_a_certificate_names_one_node_or_one_user_in_one_way(uris: list[str], why: str) -> None:
    """As `halog certs` reads it, too."""
    shown = {"subjectAltName": tuple(("URI", uri) for uri in uris)}
    with pytest.raises(HandshakeError, match=why):
        named_by(shown)
    found = single_identity(uris)
    assert found is None or found.kind in (HolderKind.SERVER, HolderKind.CA)


def test_the_only_certificate_that_may_be_meant_is_taken(directory: Path) -> None:
    """Of several users none is, and the error names the file that is missing."""
    found, ca = SecurityConfig(node_tls="accept", certs_dir=directory), directory / "ca.crt"
    assert certificate_files(found, "A") == (ca, directory / "node.A.crt", directory / "node.A.key")
    assert certificate_files(found, "client-7") == (ca, directory / "user.alice.crt", directory / "user.alice.key")
    (directory / "user.bob.crt").write_bytes(b"")
    assert certificate_files(found, "client-7") == (ca, directory / "node.crt", directory / "node.key")
    (directory / "node.B.crt").unlink()
    assert certificate_files(found, "client-7") == (ca, directory / "node.A.crt", directory / "node.A.key")
    (directory / "node.crt").write_bytes(b"")
    assert certificate_files(found, "client-7") == (ca, directory / "node.crt", directory / "node.key")
