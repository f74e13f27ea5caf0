"""This module makes a site whose broker has listeners with TLS, with certificates of `halog certs`, for tests."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import admin as kafka_admin

from halog.adapters.kafka.access import KafkaAccess
from halog.cli.main import main
from halog.config.kafka_security import OAUTHBEARER, SASL_SSL, SSL, KafkaSecurity
from halog.config.secrets import SecretPlace
from halog.embedded import EmbeddedSite, SecureListeners

USER = "halog"
MARK = "geheimnis-7f3a"
"""What is looked for where no password may be."""
PASSWORD = f'p"w\\ord=,;# ü {MARK}'
"""It has what needs quotes, in each dialect."""
SCRAM = "SCRAM-SHA-512"


@dataclass(frozen=True)
class SecuredSite:
    """A `SecuredSite` is such a site. `certs` is its directory of certificates."""

    site: EmbeddedSite
    certs: Path
    ssl: str
    sasl_ssl: str

    @property
    def password(self) -> Path:
        """Return the file that holds the password of `USER`."""
        return self.certs / "password"

    def by_certificate(self) -> KafkaAccess:
        """Return how a process with a certificate reaches the broker."""
        ca, cert, key = (self.certs / name for name in ("ca.crt", "user.app.crt", "user.app.key"))
        return KafkaAccess(self.ssl, KafkaSecurity(SSL, ca=ca, cert=cert, key=key))

    def by_password(self, **more: Any) -> KafkaAccess:
        """Return how a process with a password reaches the broker."""
        known = {"ca": self.certs / "ca.crt", "username": USER, "password": SecretPlace(file=self.password), **more}
        return KafkaAccess(self.sasl_ssl, KafkaSecurity(SASL_SSL, SCRAM, **known))

    def by_token(self, file: Path) -> KafkaAccess:
        """Return how a process with a token reaches the broker."""
        token = SecretPlace(file=file)
        return KafkaAccess(self.sasl_ssl, KafkaSecurity(SASL_SSL, OAUTHBEARER, ca=self.certs / "ca.crt", token=token))

    def password_table(self, plain: str, password: Path | None = None) -> str:
        """Return a configuration with its Kafka reached by password. `plain`: the same in plain text."""
        assert self.site.info.bootstrap in plain
        return (
            f"{plain.replace(self.site.info.bootstrap, self.sasl_ssl)}[security.kafka]\n"
            f'protocol = "sasl_ssl"\nmechanism = "{SCRAM}"\nusername = "{USER}"\n'
            f'password = {{ file = "{password or self.password}" }}\nca = "{self.certs / "ca.crt"}"\n'
        )

    def certificate_table(self, plain: str) -> str:
        """Return a configuration with its Kafka reached by certificate. `plain`: the same in plain text."""
        assert self.site.info.bootstrap in plain
        found = {"ca": "ca.crt", "cert": "user.app.crt", "key": "user.app.key"}
        lines = "".join(f'{key} = "{self.certs / name}"\n' for key, name in found.items())
        return f'{plain.replace(self.site.info.bootstrap, self.ssl)}[security.kafka]\nprotocol = "ssl"\n{lines}'

    def add_user(self, name: str, password: str) -> None:
        """Make a user of the broker, or give it another password."""
        api: Any = kafka_admin
        client = api.AdminClient({"bootstrap.servers": self.site.info.bootstrap})
        info = api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_512, 4096)
        made = api.UserScramCredentialUpsertion(name, info, password.encode())
        for done in client.alter_user_scram_credentials([made]).values():
            done.result(30)


def token(user: str, seconds: float = 3600) -> str:
    """Return a token without a signature, which only a broker for tests takes."""
    claims = {"sub": user, "iat": time.time() - 1, "exp": time.time() + seconds}
    parts = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in ({"alg": "none"}, claims)]
    return ".".join([*parts, ""])


@contextmanager
def secured_site(directory: Path, host: str = "127.0.0.1", *, closed: bool = False) -> Iterator[SecuredSite]:
    """Run such a site. `closed`: its broker allows only what an ACL allows."""
    certs, words = directory / "certs", ["--certs-dir", str(directory / "certs")]
    for command in (
        ["create-ca", "--cluster", "fleet"],
        ["create-server", "kafka", "--host", host],
        ["create-user", "app"],
        *(["create-node", name, "--host", host] for name in ("A", "B", "C")),
    ):
        assert main(["certs", *command, *words]) == 0
    ports = [_free(host) for _ in range(2)]
    secure = SecureListeners(str(certs), ports[0], ports[1], host, (SCRAM, OAUTHBEARER), closed=closed)
    site = EmbeddedSite(directory / "site", secure=secure)
    with site:
        made = SecuredSite(site, certs, *(f"{host}:{port}" for port in ports))
        made.password.write_text(PASSWORD)
        made.add_user(USER, PASSWORD)
        yield made


def _free(host: str) -> int:
    with socket.socket() as found:
        found.bind((host, 0))
        return int(found.getsockname()[1])
