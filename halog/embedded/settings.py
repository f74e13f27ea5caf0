"""This module makes the configuration files and command lines of the two servers. Every value that differs from the
server's own default has its reason beside it. It writes files into the data directory, never anywhere else; every path
in them is relative to it, so a data directory may have any name and may be moved."""

from __future__ import annotations

import base64
import os
import uuid
from importlib import resources
from pathlib import Path

from halog.config.java_text import jaas, properties
from halog.embedded import datadir
from halog.embedded.model import LOOPBACK, Ports, RemoteListener, SecureListeners, ServerName, ZooKeeperTls

# R8: a commit record may have 5 MB; 6 MiB leaves room for the batch around it, headers and a careless client's.
MAX_MESSAGE_BYTES = 6 << 20

HEAP_MB: dict[ServerName, int] = {
    "kafka": 384,  # 160 MB resident at rest; several 6 MiB records may be in flight at once
    "zookeeper": 96,  # configuration and membership: a few hundred small znodes
}

MAIN: dict[ServerName, tuple[str, ...]] = {
    "kafka": ("kafka.Kafka", "kafka/server.properties"),
    "zookeeper": ("org.apache.zookeeper.server.quorum.QuorumPeerMain", "./zookeeper/zoo.cfg"),
}

_FLAGS = (
    "-XX:+UseSerialGC",  # small heaps, two cores: the other collectors only start slower
    "-XX:TieredStopAtLevel=1",  # C1 only: half a second less to the first answer (peers/README.md)
    "-Xshare:auto",  # an archive that does not fit is left out, not an error
    "-Xlog:disable",  # … and not a warning
    "-Xlog:all=error:stderr",
    "-XX:-UsePerfData",  # no /tmp/hsperfdata, which others could read
    "-XX:+DisableAttachMechanism",  # nobody attaches an agent
    "-XX:+ExitOnOutOfMemoryError",  # a broken server is ended, not limping
    "-Djava.awt.headless=true",
    "-Djava.io.tmpdir=tmp",  # native libraries are unpacked where only we may write
    "-Djava.net.preferIPv4Stack=true",
    "-Dlog4j2.disable.jmx=true",
    "-Dzookeeper.jmx.log4j.disable=true",
)

ARCHIVED_FLAGS = tuple(f for f in _FLAGS if f.startswith("-XX:"))  # an archive is good for these

# The servers see these variables and no others: no JAVA_TOOL_OPTIONS, no KAFKA_OPTS, nobody's secrets.
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH")


def kafka_properties(
    ports: Ports, remote: RemoteListener | None = None, host: str = LOOPBACK, secure: SecureListeners | None = None
) -> dict[str, str | int]:
    """Return server.properties of a KRaft broker that is its own controller."""
    made = _broker(ports, host) | ({} if remote is None else _second_door(ports, remote, host))
    return made if secure is None else _secured(made, secure)


_BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def _secured(made: dict[str, str | int], secure: SecureListeners) -> dict[str, str | int]:
    doors = f",SSL://{secure.host}:{secure.ssl},SASL_SSL://{secure.host}:{secure.sasl_ssl}"
    protocols = made.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT")
    found: dict[str, str | int] = {
        **made,
        "listeners": f"{made['listeners']}{doors}",
        "advertised.listeners": f"{made['advertised.listeners']}{doors}",
        "listener.security.protocol.map": f"{protocols},SSL:SSL,SASL_SSL:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{secure.certs_dir}/kafka.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{secure.certs_dir}/ca.crt",
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.sasl_ssl.ssl.client.auth": "none",  # the password says who it is
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": ",".join(secure.mechanisms),
        # Rights by ACLs. Who comes in plain text comes from this machine, and makes users and ACLs.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false" if secure.closed else "true",
    }
    for mechanism in secure.mechanisms:
        login = f"listener.name.sasl_ssl.{mechanism.lower()}.sasl.jaas.config"
        found[login] = jaas(_BEARER if mechanism == "OAUTHBEARER" else _SCRAM, {})
    return found


def _second_door(ports: Ports, remote: RemoteListener, host: str) -> dict[str, str | int]:
    own = f"PLAINTEXT://{host}:{ports.kafka}"
    return {
        "listeners": f"{own},REMOTE://127.0.0.1:{remote.port},CONTROLLER://127.0.0.1:{ports.controller}",
        "advertised.listeners": f"{own},REMOTE://{remote.advertised}",
        # Needed for a name of our own; given at all, it must name every listener.
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REMOTE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }


def _broker(ports: Ports, host: str) -> dict[str, str | int]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
        "listeners": f"PLAINTEXT://{host}:{ports.kafka},CONTROLLER://127.0.0.1:{ports.controller}",
        "advertised.listeners": f"PLAINTEXT://{host}:{ports.kafka}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": "kafka/data",
        "auto.create.topics.enable": "false",  # a typing error must not become a topic
        "unclean.leader.election.enable": "false",  # a stale leader would cut committed records off
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "message.max.bytes": MAX_MESSAGE_BYTES,
        "replica.fetch.max.bytes": MAX_MESSAGE_BYTES,
        "log.message.timestamp.type": "LogAppendTime",  # one clock for all writers: the log's
        "log.retention.ms": -1,  # halog trims behind its own markers; time must not cut unread records
        "log.retention.bytes": -1,
        "num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 2,  # each is loaded before the first transaction; 50 take seconds
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,  # a dead writer blocks readers (LSO)
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,  # no other members to wait for
        "group.min.session.timeout.ms": 500,
        # A broker killed without a word comes back only when its controller has given up the old one (default: 9 s).
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 300,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        "log.cleaner.threads": 1,
        "log.cleaner.dedupe.buffer.size": 8 << 20,  # of the heap; the default takes 128 MB
        "auto.include.jmx.reporter": "false",
    }


def zookeeper_properties(ports: Ports, host: str = LOOPBACK, tls: ZooKeeperTls | None = None) -> dict[str, str | int]:
    """Return zoo.cfg of a standalone server."""
    return _zookeeper(ports, host) | ({} if tls is None else _sealed_door(tls, host))


def _sealed_door(tls: ZooKeeperTls, host: str) -> dict[str, str | int]:
    return {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",  # the other one knows no TLS
        "secureClientPort": tls.port,
        "secureClientPortAddress": host,
        "ssl.keyStore.location": tls.keystore,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": tls.truststore,
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": tls.clients,
        "ssl.enabledProtocols": "TLSv1.3,TLSv1.2",
        "ssl.hostnameVerification": "false",  # of clients: they are known by their subject, wherever they are
        "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
    }


def _zookeeper(ports: Ports, host: str) -> dict[str, str | int]:
    return {
        "tickTime": 500,  # sessions from 2 to 20 ticks: 1,000 ms is granted
        "dataDir": "./zookeeper/data",
        "clientPort": ports.zookeeper,
        "clientPortAddress": host,
        "admin.enableServer": "false",  # no HTTP port
        "4lw.commands.whitelist": "ruok,srvr",  # what the readiness check asks, nothing that lists data
        "maxClientCnxns": 0,  # all clients come from one address
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": 1,
        "snapCount": 10_000,  # a restart reads at most so many changes
        "preAllocSize": 4096,  # KB; the default allocates 64 MB per log file
    }


_LOG4J = """status=error
appender.f.type=RollingFile
appender.f.name=F
appender.f.fileName=logs/{name}.log
appender.f.filePattern=logs/{name}.%i.log
appender.f.layout.type=PatternLayout
appender.f.layout.pattern=%d{{ISO8601}} %p %m (%c)%n%throwable
appender.f.policies.type=Policies
appender.f.policies.size.type=SizeBasedTriggeringPolicy
appender.f.policies.size.size=5MB
appender.f.strategy.type=DefaultRolloverStrategy
appender.f.strategy.max=2
rootLogger.level=warn
rootLogger.appenderRefs=f
rootLogger.appenderRef.f.ref=F
"""


def write(
    root: Path,
    ports: Ports,
    cluster_id: str,
    remote: RemoteListener | None = None,
    host: str = LOOPBACK,
    zookeeper_tls: ZooKeeperTls | None = None,
    secure: SecureListeners | None = None,
) -> None:
    """Write everything the servers read at their start. Idempotent; never touches their data."""
    _write_properties(root / "kafka/server.properties", kafka_properties(ports, remote, host, secure))
    _write_properties(root / "zookeeper/zoo.cfg", zookeeper_properties(ports, host, zookeeper_tls))
    for name in MAIN:
        (root / name / "log4j2.properties").write_text(_LOG4J.format(name=name))
    _format(root / "kafka/data", cluster_id)


def _write_properties(path: Path, values: dict[str, str | int]) -> None:
    path.write_text(properties(values))


def _format(data: Path, cluster_id: str) -> None:
    """Write what `kafka-storage format` leaves, without its JVM (0.6 s): an identity, and the features of this version.

    bootstrap.checkpoint is the file `kafka-storage format` of 4.3.0 wrote; it holds feature levels only.
    """
    meta = data / "meta.properties"
    if meta.exists():
        return
    checkpoint = resources.files("halog.embedded").joinpath("bootstrap.checkpoint").read_bytes()
    (data / "bootstrap.checkpoint").write_bytes(checkpoint)
    directory_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    new = data / "meta.properties.new"
    new.write_text(f"version=1\ncluster.id={cluster_id}\nnode.id=1\ndirectory.id={directory_id}\n")
    new.rename(meta)  # last: a directory with it is formatted


def command(name: ServerName, java: str, classpath: str, archive: str, cluster_id: str) -> list[str]:
    """Return the server's command line, to be run in the data directory."""
    heap = HEAP_MB[name]
    return [
        java,
        *_FLAGS,
        f"-Xmx{heap}m",
        "-Xss512k",
        f"-XX:MaxDirectMemorySize={heap // 2}m",
        f"-XX:ErrorFile={datadir.LOGS}/{name}-jvm-error.log",
        *([f"-XX:SharedArchiveFile={archive}"] if archive else []),
        f"-Dhalog.site={cluster_id}",  # lets a later supervisor recognise a server of this site
        f"-Dlog4j2.configurationFile={name}/log4j2.properties",
        "-cp",
        classpath,
        *MAIN[name],
    ]


def environment() -> dict[str, str]:
    """Return the few variables of this process that the servers may see."""
    return {k: os.environ[k] for k in _ENVIRONMENT if k in os.environ}
