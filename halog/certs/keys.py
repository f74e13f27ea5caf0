"""This module makes and reads private keys, and says which certificate one fits."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from halog.certs.directory import read_secret
from halog.errors import ConfigError

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey
LEAST_RSA_BITS: Final = 2_048
LEAST_CURVE_BITS: Final = 256


def make_key() -> ec.EllipticCurvePrivateKey:
    """Return a new key: ECDSA on P-256, which every TLS library takes and which signs within 0.1 ms."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey) -> bytes:
    """Return the key as an unencrypted PKCS #8 file. Its mode guards it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def read_key(path: Path) -> PrivateKey:
    """Return the key of a file. RefusedError if others can read it, ConfigError if it holds no key that is used
    here."""
    data = read_secret(path)
    try:
        key = serialization.load_pem_private_key(data, None)
    except TypeError as error:
        raise ConfigError(f"{path}: is encrypted; give it without a passphrase (its mode guards it)") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path}: is no private key as PEM") from error
    if not isinstance(key, PrivateKey):
        raise ConfigError(f"{path}: has a key that is not used for TLS here; ECDSA, RSA and Ed25519 are")
    return key


def weakness(key: object) -> str:
    """Return why a public key is not to be certified; "" if it may be."""
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA of less than {LEAST_RSA_BITS} bits" if key.key_size < LEAST_RSA_BITS else ""
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"a curve of less than {LEAST_CURVE_BITS} bits" if key.key_size < LEAST_CURVE_BITS else ""
    return "" if isinstance(key, ed25519.Ed25519PublicKey) else "neither ECDSA nor RSA nor Ed25519"


def public_bytes(key: PublicKey) -> bytes:
    """Return a public key in one form, for comparison."""
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def fits(key: PrivateKey, certificate: x509.Certificate) -> bool:
    """Say whether a certificate is for this key."""
    found = certificate.public_key()
    return isinstance(found, PublicKey) and public_bytes(key.public_key()) == public_bytes(found)
