"""This module says how one Kafka cluster is reached: its servers, and how a client shows who it is there.

All of halog's clients are made of this one value, in librdkafka's words or in Java's, so that none forgets what the
others say. It holds the places of secrets, never a secret: it may be shown, and sent to Spark's executors. Files and
secrets are read for each client that is made.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from halog.config.java_text import jaas
from halog.config.kafka_security import BY_PASSWORD, OAUTHBEARER, KafkaSecurity
from halog.config.secrets import Secret, SecretPlace
from halog.errors import ConfigError

_IN_PLAIN_TEXT: Final = KafkaSecurity()
_KEY: Final = "security.kafka"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_BEARER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_BEARER_LOGIN: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
UNBOUNDED_S: Final = 300
"""A token that says no end of its own is read again after so many seconds."""


@dataclass(frozen=True)
class KafkaAccess:
    """A `KafkaAccess` names the servers of a Kafka cluster, and says how they are spoken to. Of the files that
    `security` needs it names all: where they stand was found out before."""

    servers: str
    """host:port of one or several brokers, with commas between them."""
    security: KafkaSecurity = _IN_PLAIN_TEXT

    def __str__(self) -> str:
        return self.servers

    def check(self) -> None:
        """Raise ConfigError, with the key, for a file or a secret that cannot be read, or used."""
        self.librdkafka()
        if self.security.has_tls:
            self._try_files()
        if self.security.token is not None:
            bearer(self.security.token)

    def librdkafka(self) -> dict[str, Any]:
        """Return the settings of a client of librdkafka. ConfigError: see `check`."""
        security = self.security
        found: dict[str, Any] = {"bootstrap.servers": self.servers, "security.protocol": security.protocol}
        if security.has_tls:
            found["ssl.ca.location"] = self._file("ca", security.ca)
            found["ssl.endpoint.identification.algorithm"] = "https"  # the certificate must name the broker's host
            if security.cert is not None:
                found["ssl.certificate.location"] = self._file("cert", security.cert)
                found["ssl.key.location"] = self._file("key", security.key)
        if security.has_sasl:
            found["sasl.mechanism"] = security.mechanism
        if security.has_sasl and security.mechanism in BY_PASSWORD:
            found["sasl.username"] = security.username
            found["sasl.password"] = _revealed("password", security.password)
        elif security.has_sasl and security.token is not None:
            found["oauth_cb"] = _Bearer(security.token)
        elif security.has_sasl:
            found["sasl.oauthbearer.method"] = "oidc"
            found["sasl.oauthbearer.token.endpoint.url"] = security.token_endpoint
            found["sasl.oauthbearer.client.id"] = security.client_id
            found["sasl.oauthbearer.client.secret"] = _revealed("client_secret", security.client_secret)
            if security.scope is not None:
                found["sasl.oauthbearer.scope"] = security.scope
        return found

    def java(self) -> dict[str, str]:
        """Return the settings of a client in Java, without the servers. ConfigError: see `check`; also for a token
        that Java cannot read from where it is."""
        security = self.security
        found = {"security.protocol": security.protocol.upper()}
        if security.has_tls:
            found["ssl.truststore.type"] = "PEM"
            found["ssl.truststore.certificates"] = self._text("ca", security.ca)
            found["ssl.endpoint.identification.algorithm"] = "https"
            if security.cert is not None:
                found["ssl.keystore.type"] = "PEM"
                found["ssl.keystore.certificate.chain"] = self._text("cert", security.cert)
                found["ssl.keystore.key"] = self._text("key", security.key)
        if security.has_sasl:
            found["sasl.mechanism"] = security.mechanism or ""
            found |= self._java_bearer() if security.mechanism == OAUTHBEARER else self._java_password()
        return found

    def _java_password(self) -> dict[str, str]:
        security = self.security
        module = _PLAIN if security.mechanism == "PLAIN" else _SCRAM
        options = {"username": security.username or "", "password": _revealed("password", security.password)}
        return {"sasl.jaas.config": jaas(module, options)}

    def _java_bearer(self) -> dict[str, str]:
        security, options = self.security, dict[str, str]()
        if security.token is not None:
            if security.token.file is None:
                raise ConfigError(f"{_KEY}.token: Java reads a token from a file alone: give file", key=f"{_KEY}.token")
            endpoint = security.token.file.absolute().as_uri()
        else:
            endpoint = security.token_endpoint or ""
            options["clientId"] = security.client_id or ""
            options["clientSecret"] = _revealed("client_secret", security.client_secret)
            if security.scope is not None:
                options["scope"] = security.scope
        return {
            "sasl.jaas.config": jaas(_BEARER, options),
            "sasl.login.callback.handler.class": _BEARER_LOGIN,
            "sasl.oauthbearer.token.endpoint.url": endpoint,
        }

    def spark(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source and sink: servers and settings. ConfigError: see `java`."""
        rest = {} if self.security == _IN_PLAIN_TEXT else self.java()
        return {f"kafka.{key}": value for key, value in {"bootstrap.servers": self.servers, **rest}.items()}

    def _try_files(self) -> None:
        security, context = self.security, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        name, file = "ca", security.ca
        try:
            context.load_verify_locations(security.ca)
            if security.cert is not None:
                name, file = "cert", security.cert
                context.load_cert_chain(security.cert, security.key, password=lambda: "")
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or "no certificate, or no key to it without a password"
            key = f"{_KEY}.{name}"
            raise ConfigError(f"{key}: {file} cannot be used: {why}", key=key) from None

    def _file(self, name: str, file: Path | None) -> str:
        self._text(name, file)
        return str(file)

    def _text(self, name: str, file: Path | None) -> str:
        key = f"{_KEY}.{name}"
        if file is None:
            raise ConfigError(f"{key}: is missing", key=key)
        try:
            return file.read_text("utf-8")
        except OSError as error:
            raise ConfigError(f"{key}: {file} cannot be read: {error.strerror}", key=key) from error
        except UnicodeDecodeError:
            raise ConfigError(f"{key}: {file} is not PEM", key=key) from None  # the error has what the file holds


def _revealed(name: str, place: SecretPlace | None) -> str:
    return "" if place is None else place.read(f"{_KEY}.{name}").reveal()


class _Bearer:
    """Gives librdkafka a token, each time that the last one is about to end."""

    def __init__(self, place: SecretPlace, read: Callable[[SecretPlace], tuple[Secret, float]] | None = None) -> None:
        self._place = place
        self._read = read or bearer

    def __call__(self, config: str) -> tuple[str, float]:
        """Return the token, and when it ends; librdkafka asks again when four fifths of the time have passed."""
        token, ends = self._read(self._place)
        return token.reveal(), ends

    def __repr__(self) -> str:
        return f"_Bearer({self._place})"


def bearer(place: SecretPlace, now: Callable[[], float] = time.time) -> tuple[Secret, float]:
    """Return a token, and when it ends in seconds since 1970, as it says itself: whether it is genuine is for the
    broker to judge. ConfigError for what is no token, or is over."""
    key = f"{_KEY}.token"
    token = place.read(key)
    parts = token.reveal().split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        ends = claims.get("exp", now() + UNBOUNDED_S)
        if len(parts) != 3 or isinstance(ends, bool) or not isinstance(ends, int | float):
            raise ValueError
    except (ValueError, binascii.Error, IndexError, AttributeError, RecursionError):
        raise ConfigError(f"{key}: {place} holds no JWT: three parts in Base64 with dots", key=key) from None
    if ends <= now():
        raise ConfigError(f"{key}: {place} holds a token that is over: who writes it must renew it", key=key)
    return token, float(ends)
