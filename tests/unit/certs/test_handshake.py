"""The standard library's TLS and OpenSSL judge what was made: that is what nodes and servers use."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from halog.certs.identity import HolderKind
from halog.certs.issuance import renew, to_renew
from halog.certs.rotation import Rotation
from tests.unit.certs.conftest import CLUSTER, NOW, Made

pytestmark = pytest.mark.feature("O4", "N5")


def context(made: Made, stem: str, *, server: bool) -> ssl.SSLContext:
    """As nodes have it: TLS 1.3, certificates on both sides."""
    side = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
    found = ssl.SSLContext(side)
    found.minimum_version = ssl.TLSVersion.TLSv1_3
    found.check_hostname = False
    found.verify_mode = ssl.CERT_REQUIRED
    found.load_verify_locations(made.directory.place("ca.crt"))
    found.load_cert_chain(made.directory.place(f"{stem}.crt"), made.directory.place(f"{stem}.key"))
    return found


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, hostname: str | None = None) -> tuple[Any, Any]:
    """What either side sees of the other one, over memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname=hostname)
    asked = server.wrap_bio(to_server, to_client, server_side=True)
    done = set[ssl.SSLObject]()
    for _ in range(10):
        for side in {asking, asked} - done:
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    assert len(done) == 2
    return asked.getpeercert(), asking.getpeercert()


def uris(certificate: Any) -> list[str]:
    return [value for kind, value in certificate["subjectAltName"] if kind == "URI"]


def test_two_nodes_and_a_user_know_each_other_by_the_identity(made: Made) -> None:
    a, b, user = made.make("A"), made.make("B", HolderKind.NODE, "10.0.0.5"), made.make("alice", HolderKind.USER)
    seen = handshake(context(made, a, server=True), context(made, b, server=False))
    assert [uris(one) for one in seen] == [["halog://fleet/node/B"], ["halog://fleet/node/A"]]
    seen = handshake(context(made, a, server=True), context(made, user, server=False))
    assert uris(seen[0]) == ["halog://fleet/user/alice"]


def test_a_user_is_no_server(made: Made) -> None:
    user, node = made.make("alice", HolderKind.USER), made.make("A")
    with pytest.raises(ssl.SSLError, match=r"unsuitable certificate purpose|bad certificate|unsupported certificate"):
        handshake(context(made, user, server=True), context(made, node, server=False))


def test_a_servers_hosts_are_what_its_clients_check(made: Made) -> None:
    kafka, node = made.make("kafka", HolderKind.SERVER, "localhost", "127.0.0.1"), made.make("A")
    client = context(made, node, server=False)
    client.check_hostname = True
    for hostname in ("localhost", "127.0.0.1"):
        handshake(context(made, kafka, server=True), client, hostname)
    with pytest.raises(ssl.SSLCertVerificationError, match="ostname mismatch"):
        handshake(context(made, kafka, server=True), client, "broker.example.org")


def test_another_clusters_certificate_is_refused(made: Made, tmp_path: Path) -> None:
    other = Made(tmp_path / "other", "other")
    a, b = made.make("A"), other.make("B")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context(made, a, server=True), context(other, b, server=False))


def test_old_and_new_talk_to_each_other_during_a_rotation(made: Made) -> None:
    a, b = made.make("A"), made.make("B")
    before = context(made, a, server=True)
    rotation = Rotation(made.directory, made.key)
    rotation.begin(CLUSTER, NOW)
    renew(made.directory, [b], CLUSTER, made.key, NOW)
    handshake(context(made, a, server=True), context(made, b, server=False))
    handshake(context(made, b, server=True), context(made, a, server=False))
    with pytest.raises(ssl.SSLCertVerificationError):  # who was not brought the new ca.crt
        handshake(before, context(made, b, server=False))
    renew(made.directory, [h.stem for h in to_renew(made.directory, None, NOW)], CLUSTER, made.key, NOW)
    rotation.finish()
    handshake(context(made, a, server=True), context(made, b, server=False))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_takes_every_certificate_strictly(made: Made) -> None:
    stems = [
        made.make("A", HolderKind.NODE, "::1", "a.example.org"),
        made.make("alice", HolderKind.USER),
        made.make("zookeeper", HolderKind.SERVER, "localhost"),
    ]
    for stem in stems:
        files = [str(made.directory.place(name)) for name in ("ca.crt", f"{stem}.crt")]
        ran = subprocess.run(
            ["openssl", "verify", "-x509_strict", "-CAfile", *files], capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stdout) == (0, f"{files[1]}: OK\n"), ran.stderr
