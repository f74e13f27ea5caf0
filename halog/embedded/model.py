"""This module holds the plain values of an embedded site. It never starts, stops or writes anything."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from halog import errors
from halog.errors import ConfigError, HalogError, SiteError

ServerName = Literal["kafka", "zookeeper"]
SERVERS: tuple[ServerName, ...] = ("kafka", "zookeeper")

KAFKA_VERSION = "4.3.0"
ZOOKEEPER_VERSION = "3.9.3"

LOOPBACK = "127.0.0.1"

_ADDRESS = re.compile(r"[A-Za-z0-9._-]+:([0-9]{1,5})")
"""Matches host:port; nothing else becomes part of a broker's properties."""

_PATH = re.compile(r"/[^\\\n\r\0]+")
"""Matches what stands in zoo.cfg as it is."""

CLIENT_CERTIFICATES = ("need", "want", "none")


@dataclass(frozen=True)
class Ports:
    """Holds the three ports of a site; they are kept in its data directory so that a restart gets the same."""

    kafka: int
    controller: int
    zookeeper: int


@dataclass(frozen=True)
class RemoteListener:
    """Describes a second listener of the broker, for clients that come another way. A broker names its own address to
    its clients, so a tunnel or proxy in front of it needs a listener that names the proxy's address."""

    port: int
    """Where the broker listens, on loopback."""
    advertised: str
    """The host:port that it names to clients of this listener."""

    def __post_init__(self) -> None:
        found = _ADDRESS.fullmatch(self.advertised)
        if found is None or not 1 <= int(found[1]) <= 65_535:
            raise ConfigError(f"the remote listener's advertised address {self.advertised!r} must be host:port")


@dataclass(frozen=True)
class ZooKeeperTls:
    """Describes a second door of ZooKeeper, which takes TLS alone. Files are PEM, and their paths absolute."""

    port: int
    """Where it listens, on the host of the first one."""
    keystore: str
    """The server's key and certificate, in one file, as `halog certs create-server zookeeper` makes it."""
    truststore: str
    """The authorities of clients' certificates."""
    clients: str = "need"
    """Must a client show a certificate? need, want (if it has one), none."""

    def __post_init__(self) -> None:
        wrong = next((f for f in (self.keystore, self.truststore) if not _PATH.fullmatch(f)), None)
        if wrong is not None:
            raise ConfigError(f"ZooKeeper's file {wrong!r} must be an absolute path, in plain characters")
        if self.clients not in CLIENT_CERTIFICATES:
            raise ConfigError(f"clients {self.clients!r} must be one of {', '.join(CLIENT_CERTIFICATES)}")


@dataclass(frozen=True)
class SecureListeners:
    """Describes listeners of the broker with TLS, beside the one in plain text on loopback. That one stays: the broker
    speaks to itself there, and users are made there."""

    certs_dir: str
    """A directory as `halog certs` makes it, with `kafka.pem` and `ca.crt`."""
    ssl: int
    """The port where each client shows a certificate."""
    sasl_ssl: int
    """The port where each client shows a password or a token."""
    host: str = LOOPBACK
    """Where both listen; the certificate must name it."""
    mechanisms: tuple[str, ...] = ("SCRAM-SHA-512",)
    """How clients of `sasl_ssl` may show who they are. With OAUTHBEARER tokens without a signature are taken: that is
    for tests alone."""
    closed: bool = False
    """Does the broker allow only what an ACL allows? False: all that no ACL is about, too."""

    def __post_init__(self) -> None:
        checked_host(self.host)
        for port in (self.ssl, self.sasl_ssl):
            if not 1 <= port <= 65_535:
                raise ConfigError(f"a listener with TLS needs a port from 1 to 65535, not {port}")
        if wrong := set(self.mechanisms) - {"SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER"}:
            raise ConfigError(f"the embedded broker knows no mechanism {sorted(wrong)[0]!r}")


@dataclass(frozen=True)
class SiteInfo:
    """Describes a running site: where it listens, who runs it, and how long it took to answer."""

    bootstrap: str  # "127.0.0.1:port" of Kafka, or where the site was told to listen
    zookeeper: str  # the same of ZooKeeper
    data_dir: str
    pids: dict[str, int] = field(default_factory=dict)  # supervisor, kafka, zookeeper; a server that is down is absent
    cached: bool = True  # nothing had to be fetched or built for this start
    kafka_ms: int = 0  # from the start of the command until a metadata answer
    zookeeper_ms: int = 0  # from the start of the command until "Mode: standalone"
    kafka_ssl: str = ""  # where Kafka takes TLS and a certificate; "": nowhere
    kafka_sasl_ssl: str = ""  # where Kafka takes TLS and a password
    zookeeper_tls: str = ""  # where ZooKeeper takes TLS

    @property
    def pid(self) -> int:
        """Return the supervisor's process id."""
        return self.pids.get("supervisor", 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the values as written to site.json and printed by `halog up --format json`."""
        return {**asdict(self), "pid": self.pid}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SiteInfo:
        """Make it of `to_dict`'s values; keys that a newer halog added are ignored."""
        return cls(**{k: v for k, v in values.items() if k in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Launch:
    """Holds what a supervisor is told at its start (JSON in argv: nothing in it is secret)."""

    data_dir: str
    java: str
    jars: str
    archives: str  # "" = none
    cached: bool
    since: float  # `boot_clock()` when the command began
    parent: int = 0  # end when this process ends; 0 = daemon
    kafka_port: int | None = None
    zookeeper_port: int | None = None
    remote: RemoteListener | None = None
    host: str = LOOPBACK  # where the servers listen
    zookeeper_tls: ZooKeeperTls | None = None
    secure: SecureListeners | None = None

    def to_json(self) -> str:
        """Return it as it stands in argv."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Launch:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        remote, sealed, secure = (values.pop(part, None) for part in ("remote", "zookeeper_tls", "secure"))
        return cls(
            **values,
            remote=None if remote is None else RemoteListener(**remote),
            zookeeper_tls=None if sealed is None else ZooKeeperTls(**sealed),
            secure=None if secure is None else SecureListeners(**{**secure, "mechanisms": tuple(secure["mechanisms"])}),
        )


def checked_host(host: str) -> str:
    """Return the host if it is an IPv4 address; ConfigError if not: nothing else becomes part of the servers'
    configuration."""
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise ConfigError(f"host {host!r}: the servers listen on an IPv4 address of this machine") from None


def error_to(error: HalogError) -> dict[str, Any]:
    """Return an error as one process sends it to another."""
    return {"error": error.message, "kind": type(error).__name__, "evidence": error.evidence}


def error_from(answer: dict[str, Any]) -> HalogError:
    """Return the error that `error_to` sent: of its own class, if this halog has that."""
    kind = getattr(errors, str(answer.get("kind")), SiteError)
    known = isinstance(kind, type) and issubclass(kind, HalogError)
    return (kind if known else SiteError)(str(answer["error"]), **answer.get("evidence", {}))


def boot_clock() -> float:
    """Return the seconds since boot: one clock for all processes, the one /proc uses for start times."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_start() -> float:
    """Return when this process began, on `boot_clock()`, to the kernel's 10 ms: before Python had read a line of
    ours."""
    fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")
