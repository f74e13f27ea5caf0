"""Each thing that may be wrong with a directory is found, and nothing else."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest

from halog.certs.authority import Authority
from halog.certs.identity import HolderKind
from halog.certs.inventory import HeldCertificate, trusted_authorities
from halog.certs.keys import key_pem, make_key
from halog.certs.rotation import Rotation
from halog.certs.verification import FAIL, WARN, identity_findings, verify
from tests.unit.certs.conftest import CLUSTER, NOW, Made, holder

pytestmark = pytest.mark.feature("O4")


@pytest.fixture
def whole(made: Made) -> Made:
    made.make("A")
    made.make("alice", HolderKind.USER)
    made.make("kafka", HolderKind.SERVER, "localhost")
    return made


def found(made: Made, now: dt.datetime = NOW, cluster: str | None = CLUSTER) -> list[tuple[str, str, str]]:
    return [(f.file, f.result, f.detail) for f in verify(made.directory, cluster, now)[1]]


def test_what_was_made_is_well(whole: Made) -> None:
    assert found(whole) == []
    assert found(whole, cluster=None) == []


def _open_key(made: Made) -> None:
    made.directory.place("node.A.key").chmod(0o640)


def _open_bundle(made: Made) -> None:
    made.directory.place("kafka.pem").chmod(0o604)


def _open_directory(made: Made) -> None:
    made.directory.path.chmod(0o777)


def _seen_directory(made: Made) -> None:
    made.directory.path.chmod(0o755)


def _other_key(made: Made) -> None:
    made.directory.place("node.A.key").write_bytes(key_pem(make_key()))


def _other_bundle(made: Made) -> None:
    made.directory.place("kafka.pem").write_text(made.text("kafka.key") + made.text("node.A.crt"))


def _no_bundle(made: Made) -> None:
    made.directory.place("kafka.pem").unlink()


def _damaged(made: Made) -> None:
    made.directory.place("node.A.crt").write_text(made.text("node.A.crt")[:200])


def _other_name(made: Made) -> None:
    for suffix in (".crt", ".key"):
        made.directory.place(f"node.A{suffix}").rename(made.directory.place(f"node.B{suffix}"))


def _key_alone(made: Made) -> None:
    made.directory.place("node.A.crt").unlink()


def _no_authority(made: Made) -> None:
    made.directory.place("ca.crt").unlink()


def _other_authority_key(made: Made) -> None:
    made.key.write_bytes(key_pem(make_key()))


def _holder_as_authority(made: Made) -> None:
    made.directory.place("ca.crt").write_text(made.text("ca.crt") + made.text("node.A.crt"))


def _interrupted(made: Made) -> None:
    made.directory.place(".node.A.crt.new").write_text("")


WRONG: list[tuple[Callable[[Made], None], tuple[str, str, str]]] = [
    (_open_key, ("node.A.key", FAIL, "others have access to this key (mode 0640)")),
    (_open_bundle, ("kafka.pem", FAIL, "others have access to this key (mode 0604)")),
    (_open_directory, (".", FAIL, "others may write in the directory (mode 0777)")),
    (_seen_directory, (".", WARN, "others may look into the directory (mode 0755, not 0700)")),
    (_other_key, ("node.A.crt", FAIL, "does not fit node.A.key, or that cannot be read")),
    (_other_bundle, ("kafka.pem", FAIL, "has another key or certificate than kafka.crt")),
    (_no_bundle, ("kafka.pem", FAIL, "cannot be read: No such file or directory")),
    (_damaged, ("node.A.crt", FAIL, "holds no certificate as PEM, or one that is damaged")),
    (_other_name, ("node.B.crt", FAIL, "is for halog://fleet/node/A")),
    (_key_alone, ("node.A.key", WARN, "this key has no certificate")),
    (_no_authority, ("ca.crt", FAIL, "is not there")),
    (_other_authority_key, ("ca.key", FAIL, "fits no authority of ca.crt, or cannot be read")),
    (_holder_as_authority, ("ca.crt", FAIL, "is no authority's certificate")),
    (_interrupted, ("node.A.crt", WARN, "a command was killed while it wrote this")),
]


@pytest.mark.parametrize(("damage", "told"), WRONG, ids=[damage.__name__ for damage, _ in WRONG])
def test_what_is_wrong_is_found_by_its_file(
    whole: Made, damage: Callable[[Made], None], told: tuple[str, str, str]
) -> None:
    damage(whole)
    files = {(file, result) for file, result, _ in found(whole)}
    assert told[:2] in files
    assert any(told[2] in detail for file, _, detail in found(whole) if file == told[0]), found(whole)


def test_an_own_certificate_of_a_nodes_directory_is_well(whole: Made) -> None:
    """A node's own directory may call it node.crt."""
    for suffix in (".crt", ".key"):
        whole.directory.place(f"node.A{suffix}").rename(whole.directory.place(f"node{suffix}"))
    assert found(whole) == []


def test_dates(whole: Made) -> None:
    before = found(whole, NOW - dt.timedelta(hours=1))
    assert {(file, result) for file, result, _ in before} == {
        (file, FAIL) for file in ("ca.crt", "kafka.crt", "node.A.crt", "user.alice.crt")
    }
    assert all("is not valid before" in detail for _, _, detail in before)
    soon = found(whole, NOW + dt.timedelta(days=340))
    assert {(file, result) for file, result, _ in soon} == {
        (file, WARN) for file in ("kafka.crt", "node.A.crt", "user.alice.crt")
    }
    assert all("in 25 days" in detail for _, _, detail in soon)
    ended = found(whole, NOW + dt.timedelta(days=366))
    assert {result for _, result, _ in ended} == {FAIL}
    assert all("has ended on" in detail for _, _, detail in ended)


def test_another_authority_and_another_cluster(whole: Made, tmp_path: Path) -> None:
    other = Made(tmp_path / "other", "other")
    other.make("B")
    whole.directory.place("node.B.crt").write_text(other.text("node.B.crt"))
    told = found(whole)
    assert ("node.B.crt", FAIL, "was issued by none of ca.crt") in told
    assert ("node.B.crt", FAIL, "is for halog://other/node/B, another cluster than fleet") in told
    assert {file for file, _, _ in told} == {"node.B.crt"}
    assert {(file, result) for file, result, _ in found(whole, cluster="shop")} >= {
        ("ca.crt", FAIL),
        ("node.A.crt", FAIL),
    }


def test_a_certificate_that_may_not_be_used_as_its_holder_needs(whole: Made) -> None:
    """A user's is no server's, and must not be a node's."""
    authority = Authority.read(trusted_authorities(whole.directory), whole.key)
    as_user = authority.sign(holder("B", HolderKind.USER), make_key().public_key(), NOW)
    held = HeldCertificate("node.B", as_user, holder("B").identity, has_key=False)
    assert [f.detail for f in identity_findings(held, CLUSTER)] == ["may not be used as a server's"]


def test_a_rotation_is_told(whole: Made) -> None:
    rotation = Rotation(whole.directory, whole.key)
    rotation.begin(CLUSTER, NOW)
    ((file, result, detail),) = found(whole)
    assert (file, result) == ("ca.crt", WARN)
    assert "3 certificates are to be reissued" in detail
