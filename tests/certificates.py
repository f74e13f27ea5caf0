"""This module makes certificates for tests: authorities of their own, and what they say of nodes and users."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from halog.adapters.tcp.security import CertificateFiles

DAY = timedelta(days=1)


def node_uri(name: str, cluster: str = "test") -> str:
    """Return the URI that names a node."""
    return f"halog://{cluster}/node/{name}"


def user_uri(name: str, cluster: str = "test") -> str:
    """Return the URI that names a user."""
    return f"halog://{cluster}/user/{name}"


class TestAuthority:
    """A `TestAuthority` signs certificates. Its files stand in a directory."""

    __test__ = False

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = directory / f"{name}.crt"
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * DAY)
            .not_valid_after(now + 100 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file.write_bytes(made.public_bytes(Encoding.PEM))

    def issue(
        self,
        *uris: str,
        file: str = "",
        begins: timedelta = -DAY,
        ends: timedelta = 10 * DAY,
        size: int = 0,
        server: bool = True,
    ) -> CertificateFiles:
        """Return the files of a certificate with these URIs, valid from `begins` to `ends`, counted from now. `file`:
        the beginning of their names. `size`: so many bytes it has beside what it needs. `server`: may a server show
        it?"""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if server else [])]
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        if uris or size:
            names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
            names += [x509.UniformResourceIdentifier("urn:" + "x" * size)] if size else []
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
        made = builder.sign(self._key, hashes.SHA256())
        stem = file or (uris[0].rpartition("/")[2] if uris else "nobody")
        files = CertificateFiles(self.file, self._directory / f"{stem}.crt", self._directory / f"{stem}.key")
        files.cert.write_bytes(made.public_bytes(Encoding.PEM))
        files.key.touch(0o600)
        files.key.chmod(0o600)
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files
