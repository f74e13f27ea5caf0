"""This module makes what an embedded site needs to be reached by TLS and passwords: certificates, passwords, a user
with its rights, and the lines of a configuration that name them (O4, N5).

All of it stands in one directory of the site, is made once, and is kept. Certificates that end soon are made anew. The
doors in plain text stay on loopback: the servers are asked there whether they answer, and users are made there.
"""

from __future__ import annotations

import datetime as dt
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from halog.embedded.model import LOOPBACK, SecureListeners, ZooKeeperTls

if TYPE_CHECKING:
    from halog.certs.authority import Holder
    from halog.certs.directory import CertsDirectory
    from halog.config import Config
    from halog.embedded.model import SiteInfo

DIRECTORY: Final = "security"
LINES: Final = "security.toml"
PORTS: Final = "ports.json"
USER: Final = "halog"
OPERATOR: Final = "operator"
MECHANISM: Final = "SCRAM-SHA-512"
RENEWED: Final = dt.timedelta(days=30)
"""A certificate with less time left is made anew when the site starts."""
ANSWER_S: Final = 30.0


class SecuredSite(NamedTuple):
    """A `SecuredSite` has what the servers are started with, and where the lines for the configuration stand."""

    directory: Path
    kafka: SecureListeners
    zookeeper: ZooKeeperTls

    @property
    def lines(self) -> Path:
        """Return the file with the lines."""
        return self.directory / LINES


def prepare(data_dir: Path, config: Config) -> SecuredSite:
    """Make what is missing, for the cluster and the nodes of the configuration. SiteError: the directory cannot be a
    site; RefusedError, ConfigError: the certificates there cannot be used."""
    from halog.certs.directory import CertsDirectory
    from halog.embedded import datadir

    datadir.prepare(data_dir)
    files = CertsDirectory(data_dir / DIRECTORY)
    certs = files.place("certs")
    with files.writing():
        _make_certificates(CertsDirectory(certs), config)
        _make_passwords(files)
        ssl, sasl_ssl, zookeeper = _ports(files)
        _write(files, LINES, _lines(files.path, certs))
    return SecuredSite(
        files.path,
        SecureListeners(str(certs), ssl, sasl_ssl, mechanisms=(MECHANISM,), closed=True),
        ZooKeeperTls(zookeeper, str(certs / "zookeeper.pem"), str(certs / "ca.crt"), clients="none"),
    )


def admit(site: SecuredSite, info: SiteInfo, config: Config) -> None:
    """Make the user of Kafka, with the rights of a node, over the door in plain text. UnreachableError: the broker does
    not answer."""
    from confluent_kafka import KafkaException, admin

    from halog.adapters.kafka import acls, conf
    from halog.adapters.kafka.access import KafkaAccess
    from halog.runtime.topics.kafka_rights import rights_of

    access, api = KafkaAccess(info.bootstrap), cast("Any", admin)
    client: Any = conf.client(api.AdminClient, access, conf.common)
    password = (site.directory / "kafka.password").read_bytes()
    scram = api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_512, 4096)
    try:
        for done in client.alter_user_scram_credentials(
            [api.UserScramCredentialUpsertion(USER, scram, password)]
        ).values():
            done.result(ANSWER_S)
    except KafkaException as error:
        raise conf.unreachable(access, error.args[0], client) from None
    acls.look(access, f"User:{USER}", rights_of("node", config), apply=True)


def _make_certificates(directory: CertsDirectory, config: Config) -> None:
    from halog.certs.authority import Holder
    from halog.certs.hosts import host_names
    from halog.certs.identity import HolderIdentity, HolderKind
    from halog.certs.inventory import AUTHORITIES
    from halog.certs.issuance import create_authority

    cluster, now = config.cluster.name, dt.datetime.now(dt.UTC)
    if not directory.place(AUTHORITIES).exists():
        create_authority(directory, cluster, now)
    hosts = host_names(["localhost", LOOPBACK])
    for server in ("kafka", "zookeeper"):
        _make_certificate(directory, Holder(HolderIdentity.of(cluster, HolderKind.SERVER, server), hosts), now)
    for node in config.nodes:
        _make_certificate(directory, Holder(HolderIdentity.of(cluster, HolderKind.NODE, node)), now)
    operator = HolderIdentity.of(cluster, HolderKind.USER, OPERATOR)
    _make_certificate(directory, Holder(operator, role=OPERATOR), now)


def _make_certificate(directory: CertsDirectory, holder: Holder, now: dt.datetime) -> None:
    from halog.certs.certificate import read_certificates
    from halog.certs.inventory import AUTHORITY_KEY
    from halog.certs.issuance import create

    place = directory.place(f"{holder.identity.stem}.crt")
    if not place.exists() or read_certificates(place)[0].not_valid_after_utc - now < RENEWED:
        create(directory, holder, directory.place(AUTHORITY_KEY), now, overwrite=True)


def _make_passwords(files: CertsDirectory) -> None:
    for server in ("kafka", "zookeeper"):
        name = f"{server}.password"
        if not files.place(name).exists():
            _write(files, name, secrets.token_urlsafe(24))


def _ports(files: CertsDirectory) -> tuple[int, int, int]:
    """Return the ports of the last start as far as they are free, and remember them."""
    from halog.embedded import ports

    try:
        before = [port for port in json.loads(files.place(PORTS).read_bytes()) if isinstance(port, int)]
    except (OSError, ValueError, TypeError):
        before = []
    found = list[int]()
    for number in range(3):
        last = before[number] if number < len(before) else 0
        found.append(last if last and ports.is_free(last) else ports.pick({*before, *found}))
    _write(files, PORTS, json.dumps(found))
    return found[0], found[1], found[2]


def _lines(directory: Path, certs: Path) -> str:
    def password(server: str) -> str:
        return f"{{ file = {json.dumps(str(directory / f'{server}.password'))} }}"

    return f"""[security]
node_tls = "required"
certs_dir = {json.dumps(str(certs))}

[security.kafka]
protocol = "sasl_ssl"
mechanism = "{MECHANISM}"
username = "{USER}"
password = {password("kafka")}

[security.zookeeper]
tls = "required"
auth = "digest"
username = "{USER}"
password = {password("zookeeper")}

[security.roles]
{OPERATOR} = "{OPERATOR}"
"""


def _write(files: CertsDirectory, name: str, text: str) -> None:
    """Write a file that this user alone may read."""
    from halog.certs.directory import SECRET_MODE, NewFile

    files.write(NewFile(name, text.encode(), SECRET_MODE))
