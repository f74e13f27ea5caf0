"""This module has `[security.kafka]`: how this process speaks to the brokers, and how it shows them who it is.

It belongs to each process's own file, like the rest of `[security]`, and counts for the brokers of every site. It reads
no file and no secret; see `halog.adapters.kafka.access`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from halog.config.addresses import is_loopback
from halog.config.secrets import SecretPlace

if TYPE_CHECKING:
    from halog.config.model import Config

PLAINTEXT, SSL, SASL_SSL, SASL_PLAINTEXT = "plaintext", "ssl", "sasl_ssl", "sasl_plaintext"
PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_SSL, SASL_PLAINTEXT)
BY_PASSWORD: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (*BY_PASSWORD, OAUTHBEARER)

Problems = Iterator[tuple[str, str]]


@dataclass(frozen=True)
class KafkaSecurity:
    """`[security.kafka]` says how the brokers are spoken to. What is None stands nowhere in the file."""

    protocol: str = PLAINTEXT  # as a broker speaks that was not told otherwise
    mechanism: str | None = None  # of sasl_ssl and sasl_plaintext: there is no default, since brokers have none either
    username: str | None = None
    password: SecretPlace | None = None
    ca: Path | None = None  # the authorities that brokers are trusted by; None: those of [security]
    cert: Path | None = None  # this process's; None: for ssl as [security] has it, else none is shown
    key: Path | None = None  # the key to it
    token: SecretPlace | None = None  # of OAUTHBEARER: a JWT that somebody keeps new
    token_endpoint: str | None = None  # of OAUTHBEARER: where a token is asked for, as a client of an OIDC provider
    client_id: str | None = None
    client_secret: SecretPlace | None = None
    scope: str | None = None  # what that token is asked for; None: as the provider has it

    @property
    def has_tls(self) -> bool:
        """Is what is said encrypted?"""
        return self.protocol in (SSL, SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Does a password or a token show who this is?"""
        return self.protocol in (SASL_SSL, SASL_PLAINTEXT)


_PASSWORD_KEYS: Final = ("username", "password")
_CLIENT_KEYS: Final = ("token_endpoint", "client_id", "client_secret")
_FILE_KEYS: Final = ("ca", "cert", "key")
_SECRET_KEYS: Final = ("password", "token", "client_secret")


def kafka_problems(config: Config) -> Problems:
    """Yield (key, reason) of what cannot be meant in `[security.kafka]`."""
    kafka = config.security.kafka
    if kafka is None:
        return
    for name, reason in _problems(kafka, config):
        yield f"security.kafka.{name}", reason


def _problems(kafka: KafkaSecurity, config: Config) -> Problems:
    if kafka.protocol not in PROTOCOLS:
        yield "protocol", f"{kafka.protocol[:110]!r} must be one of {', '.join(PROTOCOLS)}"
        return
    for name in _given(kafka) - _allowed(kafka):
        yield name, f"is not for {_kind(kafka)}"
    for name in _SECRET_KEYS:
        place: SecretPlace | None = getattr(kafka, name)
        if place is not None:
            yield from place.problems(name)
    for name in ("username", "client_id", "scope"):
        text = getattr(kafka, name)
        if text is not None and (not text or "\0" in text):
            yield name, "must be a text, without a zero byte"
    yield from _files(kafka, config)
    yield from _sasl(kafka)
    other = next((server for server in _servers(config) if not is_loopback(server)), None)
    if kafka.protocol == SASL_PLAINTEXT and other is not None:
        yield "protocol", f"{SASL_PLAINTEXT} is for brokers of this machine alone, and {other} is not: {SASL_SSL}"


def _kind(kafka: KafkaSecurity) -> str:
    return f"protocol {kafka.protocol}" + (f" with {kafka.mechanism}" if kafka.has_sasl and kafka.mechanism else "")


def _given(kafka: KafkaSecurity) -> set[str]:
    return {item.name for item in fields(kafka) if getattr(kafka, item.name) is not None}


def _allowed(kafka: KafkaSecurity) -> set[str]:
    found = {"protocol"}
    if kafka.has_tls:
        found.update(_FILE_KEYS)
    if kafka.has_sasl:
        found.add("mechanism")
    if kafka.has_sasl and kafka.mechanism != OAUTHBEARER:
        found.update(_PASSWORD_KEYS)
    if kafka.has_sasl and kafka.mechanism not in BY_PASSWORD:
        found.update(("token", *_CLIENT_KEYS, "scope"))
    return found


def _files(kafka: KafkaSecurity, config: Config) -> Problems:
    if not kafka.has_tls:
        return
    security = config.security
    without = "is missing, and so is security.certs_dir"
    if kafka.ca is None and security.ca is None and security.certs_dir is None:
        yield "ca", f"{without}: the authority of the brokers' certificates must be known"
    if (kafka.cert is None) != (kafka.key is None):
        yield "cert" if kafka.cert is None else "key", "is missing: a certificate and its key go together"
    elif kafka.protocol == SSL and kafka.cert is None and security.certs_dir is None:
        yield from ((n, without) for n in ("cert", "key") if getattr(security, n) is None)


def _sasl(kafka: KafkaSecurity) -> Problems:
    if not kafka.has_sasl:
        return
    if kafka.mechanism is None:
        yield "mechanism", f"is missing: one of {', '.join(MECHANISMS)}"
    elif kafka.mechanism not in MECHANISMS:
        yield "mechanism", f"{kafka.mechanism[:110]!r} must be one of {', '.join(MECHANISMS)}"
    elif kafka.mechanism in BY_PASSWORD:
        yield from _missing(kafka, _PASSWORD_KEYS)
    elif kafka.token is None:
        if not _given(kafka) & {*_CLIENT_KEYS, "scope"}:
            yield "token", f"is missing; or {', '.join(_CLIENT_KEYS)}"
        else:
            yield from _missing(kafka, _CLIENT_KEYS)
    else:
        for name in sorted(_given(kafka) & {*_CLIENT_KEYS, "scope"}):
            yield name, "is not for a token that is given: leave one of them out"
    if kafka.token_endpoint is not None and not _is_safe(kafka.token_endpoint):
        yield (
            "token_endpoint",
            f"{kafka.token_endpoint[:110]!r} must begin with https:// (on this machine also http://)",
        )


def _missing(kafka: KafkaSecurity, names: tuple[str, ...]) -> Problems:
    for name in names:
        if getattr(kafka, name) is None:
            yield name, f"is missing: {kafka.mechanism} needs it"


def _is_safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(f"{host}:0")))


def _servers(config: Config) -> Iterator[str]:
    for servers in (config.site.bootstrap, *(site.bootstrap for site in config.sites.values())):
        for server in (servers or "").split(","):
            if server.strip():
                yield server.strip()
