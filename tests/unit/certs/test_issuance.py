"""What is made, what is refused, and that nothing is changed then."""

from __future__ import annotations

import datetime as dt
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from halog.certs.authority import Holder
from halog.certs.certificate import identity_of, is_issued_by, read_certificates
from halog.certs.directory import CertsDirectory
from halog.certs.hosts import host_names, host_texts
from halog.certs.identity import HolderIdentity, HolderKind
from halog.certs.inventory import Inventory
from halog.certs.issuance import create, create_authority, holder_to_renew, renew, request, sign_request, to_renew
from halog.errors import ConfigError, HalogError, RefusedError, UnknownNameError
from tests.unit.certs.conftest import CLUSTER, NOW, Made, holder

pytestmark = pytest.mark.feature("O4", "N5")


def files(directory: CertsDirectory) -> dict[str, bytes]:
    return {name: directory.place(name).read_bytes() for name in directory.names()}


def one(made: Made, stem: str) -> x509.Certificate:
    return read_certificates(made.directory.place(f"{stem}.crt"))[0]


def extension(certificate: x509.Certificate, kind: type[x509.ExtensionType]) -> tuple[object, bool]:
    found = certificate.extensions.get_extension_for_class(kind)
    return found.value, found.critical


def test_what_stands_in_the_authoritys_certificate(made: Made) -> None:
    ca = one(made, "ca")
    assert extension(ca, x509.BasicConstraints) == (x509.BasicConstraints(True, 0), True)
    assert identity_of(ca) == HolderIdentity(CLUSTER, HolderKind.CA)
    assert ca.not_valid_before_utc == NOW - dt.timedelta(minutes=5)
    assert ca.not_valid_after_utc == NOW + dt.timedelta(days=3650)
    assert is_issued_by(ca, ca)


@pytest.mark.parametrize(
    ("kind", "name"), [(HolderKind.NODE, "A"), (HolderKind.USER, "alice"), (HolderKind.SERVER, "kafka")]
)
def test_what_stands_in_a_holders_certificate(made: Made, kind: HolderKind, name: str) -> None:
    stem = made.make(name, kind, "a.example.org", "10.0.0.5", "[::1]", "A.example.org")
    found, ca = one(made, stem), one(made, "ca")
    assert identity_of(found) == HolderIdentity(CLUSTER, kind, name)
    assert host_texts(found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value) == [
        "a.example.org",
        "10.0.0.5",
        "::1",
    ]
    assert extension(found, x509.BasicConstraints) == (x509.BasicConstraints(False, None), True)
    usages = {ExtendedKeyUsageOID.CLIENT_AUTH} | (
        {ExtendedKeyUsageOID.SERVER_AUTH} if kind is not HolderKind.USER else set()
    )
    assert set(found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == usages
    own = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    named = found.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert named.key_identifier == own.digest
    assert found.not_valid_after_utc == NOW + dt.timedelta(days=365)
    assert is_issued_by(found, ca)


def test_serials_are_random(made: Made) -> None:
    made.make("A")
    first = one(made, "node.A").serial_number
    renew(made.directory, ["node.A"], CLUSTER, made.key, NOW)
    assert first != one(made, "node.A").serial_number


def test_nothing_outlives_the_authority(tmp_path: Path) -> None:
    directory = CertsDirectory(tmp_path / "certs")
    ca = create_authority(directory, CLUSTER, NOW, days=10)
    made = create(directory, holder(), directory.place("ca.key"), NOW)
    assert made.not_valid_after_utc == ca.not_valid_after_utc
    with pytest.raises(RefusedError, match=r"has ended on .* rotate-ca begin"):
        create(directory, holder("B"), directory.place("ca.key"), NOW + dt.timedelta(days=11))


def test_keys_are_secret_from_their_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are opened with their mode: it is never changed afterwards, whatever the mask of the process is."""
    before = os.umask(0)
    monkeypatch.setattr(os, "chmod", None)
    try:
        made = Made(tmp_path / "certs")
        made.make("A")
        made.make("kafka", HolderKind.SERVER, "localhost")
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in made.directory.path.iterdir()}
    assert stat.S_IMODE(made.directory.path.stat().st_mode) == 0o700
    assert {n: m for n, m in modes.items() if n.endswith((".key", ".pem"))} == {
        "ca.key": 0o600,
        "node.A.key": 0o600,
        "kafka.key": 0o600,
        "kafka.pem": 0o600,
    }
    assert {m for n, m in modes.items() if n.endswith(".crt")} == {0o644}


def test_files_that_are_there_are_replaced_only_if_asked(made: Made) -> None:
    made.make("A")
    before = files(made.directory)
    with pytest.raises(RefusedError, match=r"node\.A\.key: is there already; nothing was changed.*renew node\.A"):
        made.make("A")
    with pytest.raises(RefusedError, match=r"ca\.key: is there already; nothing was changed.*rotate-ca begin"):
        create_authority(made.directory, CLUSTER, NOW)
    assert files(made.directory) == before
    create(made.directory, holder(), made.key, NOW, overwrite=True)
    assert {n for n, data in files(made.directory).items() if data != before[n]} == {"node.A.key", "node.A.crt"}


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_an_authoritys_key_that_others_may_use_signs_nothing(made: Made, mode: int) -> None:
    made.key.chmod(mode)
    with pytest.raises(RefusedError, match=r"ca\.key: others have access to this key \(mode .*chmod 600"):
        made.make("A")
    assert made.directory.names() == ["ca.crt", "ca.key"]


def test_a_directory_where_others_may_write_is_refused(made: Made) -> None:
    made.directory.path.chmod(0o770)
    with pytest.raises(RefusedError, match=r"others may write there.*chmod 700"):
        made.make("A")


def test_the_authoritys_key_may_be_elsewhere(made: Made, tmp_path: Path) -> None:
    safe = tmp_path / "safe.key"
    made.key.rename(safe)
    with pytest.raises(ConfigError, match=r"ca\.key: the authority's key is not there; name its file with --ca-key"):
        made.make("A")
    create(made.directory, holder(), safe, NOW)
    assert is_issued_by(one(made, "node.A"), one(made, "ca"))


def test_a_key_that_nobody_trusts_signs_nothing(made: Made, tmp_path: Path) -> None:
    other = Made(tmp_path / "other")
    with pytest.raises(RefusedError, match=r"belongs to no certificate of ca\.crt; nothing was signed"):
        create(made.directory, holder(), other.key, NOW)


def test_an_authority_signs_for_its_own_cluster_only(made: Made) -> None:
    with pytest.raises(ConfigError, match="that of cluster fleet, not of other; nothing was signed"):
        create(made.directory, holder(cluster="other"), made.key, NOW)


def test_a_link_is_not_replaced(made: Made, tmp_path: Path) -> None:
    made.directory.place("node.A.crt").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match=r"node\.A\.crt: is a link"):
        create(made.directory, holder(), made.key, NOW, overwrite=True)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "content", [b"", b"nothing", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_damaged_key_is_named(made: Made, content: bytes) -> None:
    made.key.write_bytes(content)
    with pytest.raises(ConfigError, match=r"ca\.key: is no private key as PEM"):
        made.make("A")


def test_an_encrypted_key_is_named(made: Made) -> None:
    key = rsa.generate_private_key(65537, 2048)
    encryption = serialization.BestAvailableEncryption(b"secret")
    made.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
    with pytest.raises(ConfigError, match="is encrypted; give it without a passphrase"):
        made.make("A")


# --- requests ---


def test_a_request_is_signed_where_the_key_is_not(made: Made, tmp_path: Path) -> None:
    """The holder's key never leaves its machine, nor the authority's its own."""
    machine = CertsDirectory(tmp_path / "machine")
    who = Holder(HolderIdentity.of(CLUSTER, HolderKind.USER, "alice"), host_names(["10.0.0.5"]), "operator")
    written = request(machine, who)
    assert machine.names() == ["user.alice.csr", "user.alice.key"]
    signed, certificate = sign_request(made.directory, written, CLUSTER, made.key, NOW)
    assert (signed.identity, signed.role, host_texts(signed.hosts)) == (who.identity, "operator", ["10.0.0.5"])
    assert is_issued_by(certificate, one(made, "ca"))
    assert made.directory.names() == ["ca.crt", "ca.key", "user.alice.crt"]
    assert request(machine, who).read_bytes() != b""
    assert machine.place("user.alice.key").stat().st_mode & 0o777 == 0o600


def test_a_request_keeps_the_key_that_is_there(made: Made) -> None:
    stem = made.make("A", HolderKind.NODE, "a.example.org")
    key = made.text("node.A.key")
    written = request(made.directory, holder_to_renew(made.directory, "A"))
    assert made.text("node.A.key") == key
    with pytest.raises(RefusedError, match=r"node\.A\.crt: is there already; nothing was signed"):
        sign_request(made.directory, written, CLUSTER, made.key, NOW)
    signed, certificate = sign_request(made.directory, written, CLUSTER, made.key, NOW, overwrite=True)
    assert host_texts(signed.hosts) == ["a.example.org"]
    assert one(made, stem) == certificate


def asked(path: Path, names: list[x509.GeneralName], bits: int = 2048) -> Path:
    key = rsa.generate_private_key(65537, bits)
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "anybody")])
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=5), critical=True)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


def uri(text: str) -> x509.UniformResourceIdentifier:
    return x509.UniformResourceIdentifier(text)


def test_a_request_of_another_program_decides_nothing_but_names(made: Made, tmp_path: Path) -> None:
    path = asked(tmp_path / "x.csr", [x509.DNSName("a.example.org"), uri("halog://fleet/node/A")])
    _, certificate = sign_request(made.directory, path, CLUSTER, made.key, NOW)
    assert extension(certificate, x509.BasicConstraints) == (x509.BasicConstraints(False, None), True)
    assert certificate.subject.rfc4514_string() == "CN=A"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "does not say for whom it is"),
        ([x509.DNSName("a.example.org")], "does not say for whom it is"),
        ([uri("halog://fleet/node/A"), uri("halog://fleet/node/B")], "does not say for whom it is"),
        ([uri("halog://fleet/node/A"), uri("HALOG://fleet/node/B")], "does not say for whom it is"),
        ([uri("halog://fleet/node/../../x")], "does not say for whom it is"),
        ([uri("halog://fleet/ca")], "does not say for whom it is"),
        ([uri("halog://fleet/server/kafka")], "does not say for whom it is"),
        ([uri("halog://other/node/A")], "is for cluster other, not for fleet"),
        ([uri("halog://fleet/node/A"), uri("https://example.org")], "neither the identity nor hosts"),
        ([uri("halog://fleet/node/A"), x509.RFC822Name("a@example.org")], "neither the identity nor hosts"),
    ],
)
def test_a_request_for_something_else_is_refused(
    made: Made, tmp_path: Path, names: list[x509.GeneralName], said: str
) -> None:
    path = asked(tmp_path / "x.csr", names)
    with pytest.raises(RefusedError, match=f"{path}.*{said}.*nothing was signed"):
        sign_request(made.directory, path, CLUSTER, made.key, NOW)
    assert made.directory.names() == ["ca.crt", "ca.key"]


def test_a_weak_or_damaged_request_is_refused(made: Made, tmp_path: Path) -> None:
    weak = asked(tmp_path / "weak.csr", [uri("halog://fleet/node/A")], bits=1024)
    with pytest.raises(RefusedError, match=r"weak\.csr: its key is RSA of less than 2048 bits; nothing was signed"):
        sign_request(made.directory, weak, CLUSTER, made.key, NOW)
    for content in (
        b"",
        b"\x00" * 10,
        b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
    ):
        (tmp_path / "bad.csr").write_bytes(content)
        with pytest.raises(ConfigError, match=r"bad\.csr: holds no request"):
            sign_request(made.directory, tmp_path / "bad.csr", CLUSTER, made.key, NOW)
    with pytest.raises(ConfigError, match=r"none\.csr: cannot be read"):
        sign_request(made.directory, tmp_path / "none.csr", CLUSTER, made.key, NOW)


def test_a_request_for_another_key_than_the_one_that_is_there_is_refused(made: Made, tmp_path: Path) -> None:
    made.make("A")
    before = files(made.directory)
    path = asked(tmp_path / "x.csr", [uri("halog://fleet/node/A")])
    with pytest.raises(RefusedError, match="asks for another key than that of"):
        sign_request(made.directory, path, CLUSTER, made.key, NOW, overwrite=True)
    assert files(made.directory) == before


# --- renewals ---


def test_a_renewal_keeps_names_and_changes_the_key(made: Made) -> None:
    made.make("A", HolderKind.NODE, "a.example.org")
    made.make("kafka", HolderKind.SERVER, "localhost")
    before = files(made.directory)
    done = renew(made.directory, ["A", "kafka"], CLUSTER, made.key, NOW + dt.timedelta(days=300))
    assert [stem for stem, _ in done] == ["node.A", "kafka"]
    found = one(made, "node.A")
    assert host_texts(found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value) == ["a.example.org"]
    assert found.not_valid_after_utc == NOW + dt.timedelta(days=665)
    changed = {n for n, data in files(made.directory).items() if data != before[n]}
    assert changed == {"kafka.crt", "kafka.key", "kafka.pem", "node.A.crt", "node.A.key"}


def test_what_ends_within_a_time_is_renewed(made: Made) -> None:
    made.make("A", days=20)
    made.make("B", days=300)
    month = dt.timedelta(days=30)
    assert [h.stem for h in to_renew(made.directory, month, NOW)] == ["node.A"]
    assert [h.stem for h in to_renew(made.directory, None, NOW)] == ["node.A", "node.B"]
    assert to_renew(made.directory, dt.timedelta(days=1), NOW) == []


def test_nothing_is_renewed_if_one_cannot_be(made: Made, tmp_path: Path) -> None:
    made.make("A")
    made.make("B")
    made.directory.place("node.B.key").rename(tmp_path / "away")
    before = files(made.directory)
    for names, said in ((["A", "B"], r"node\.B\.crt: its key is not here"), (["A", "C"], "there is no certificate C")):
        with pytest.raises(HalogError, match=said):
            renew(made.directory, names, CLUSTER, made.key, NOW)
    assert files(made.directory) == before


def test_a_name_of_two_is_not_guessed(made: Made) -> None:
    made.make("A")
    made.make("A", HolderKind.USER)
    inventory = Inventory.read(made.directory)
    with pytest.raises(ConfigError, match=r"several certificates: say node\.A or user\.A"):
        inventory.named("A")
    assert [inventory.named(n).stem for n in ("node.A", "user.A.crt")] == ["node.A", "user.A"]
    with pytest.raises(UnknownNameError, match=r"there is no certificate B; known are node\.A, user\.A"):
        inventory.named("B")
