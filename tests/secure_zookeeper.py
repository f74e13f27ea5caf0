"""A ZooKeeper that takes plain text at one port and TLS at another, and what clients need for either (N5)."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from halog.adapters.zookeeper.access import TlsFiles, ZnodeOwner, ZooKeeperAccess, digest_principal
from halog.certs.authority import Holder
from halog.certs.directory import CertsDirectory
from halog.certs.hosts import host_names
from halog.certs.identity import HolderIdentity, HolderKind
from halog.certs.issuance import create, create_authority
from halog.config.secrets import Secret
from halog.embedded import EmbeddedSite, ports
from halog.embedded.model import ZooKeeperTls

PASSWORD = "correct-horse-battery"
"""What no file, log, znode or command line may have."""


class Certificates:
    """An authority and what it has signed, as `halog certs` makes them."""

    def __init__(self, directory: Path, cluster: str = "fleet") -> None:
        self.directory = CertsDirectory(directory)
        self.cluster = cluster
        self._now = dt.datetime.now(dt.UTC)
        create_authority(self.directory, cluster, self._now, 100, overwrite=False)

    def make(self, kind: HolderKind, name: str, *hosts: str) -> None:
        """Make a key and a certificate."""
        holder = Holder(HolderIdentity.of(self.cluster, kind, name), host_names(hosts))
        create(self.directory, holder, self.directory.place("ca.key"), self._now, 10, overwrite=False)

    def files(self, holder: str = "", *, check_hostname: bool = True) -> TlsFiles:
        """What a client uses: with a holder's certificate, as "node.A", or with none."""
        cert, key = (self.place(f"{holder}.crt"), self.place(f"{holder}.key")) if holder else (None, None)
        return TlsFiles(self.place("ca.crt"), cert, key, check_hostname)

    def place(self, file: str) -> Path:
        return self.directory.place(file)


def digest(password: str = PASSWORD, tls: TlsFiles | None = None, *, closed: bool = True) -> ZooKeeperAccess:
    """How a process of user halog speaks to ZooKeeper."""
    secret = Secret(password)
    return ZooKeeperAccess(tls, "halog", secret, (digest_principal("halog", secret),), closed)


def x509(tls: TlsFiles, *subjects: str) -> ZooKeeperAccess:
    """How a process is known by its certificate."""
    return ZooKeeperAccess(tls, principals=tuple(ZnodeOwner("x509", s) for s in subjects), closed=True)


class SecureSite:
    """A site whose ZooKeeper takes TLS, too: `site.info.zookeeper` is the plain address, `sealed` the other one."""

    def __init__(self, directory: Path, clients: str = "want") -> None:
        self.certificates = Certificates(directory / "certs")
        self.certificates.make(HolderKind.SERVER, "zookeeper", "127.0.0.1")
        for node in "ABC":
            self.certificates.make(HolderKind.NODE, node)
        place = self.certificates.place
        self.port = ports.pick(set())
        tls = ZooKeeperTls(self.port, str(place("zookeeper.pem")), str(place("ca.crt")), clients)
        self.site = EmbeddedSite(directory / "site", zookeeper_tls=tls)

    @property
    def sealed(self) -> str:
        return f"127.0.0.1:{self.port}"
