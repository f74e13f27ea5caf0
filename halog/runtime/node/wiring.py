"""Adapters are built here only: this module leads from a configuration to the outside world of one node."""

from __future__ import annotations

import logging
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from halog.config import Config
from halog.config.kafka_security import SASL_SSL, SSL
from halog.config.security import REQUIRED
from halog.config.sites import plain
from halog.errors import ConfigError, StoreError, UnauthorizedError, UnknownNameError, UnreachableError
from halog.metadata.cluster_level import check_level
from halog.ports import Store
from halog.runtime.keys.key_owners import import_module
from halog.runtime.node.certificate_files import certificate_files
from halog.runtime.node.live_config import ActiveConfig, for_node
from halog.runtime.node.zookeeper_access import zookeeper_access
from halog.runtime.rpc import frames
from halog.runtime.rpc.errors import to_frame
from halog.runtime.store import replaced_mark as replaced
from halog.runtime.support.adapters import Adapters, SiteAccess

if TYPE_CHECKING:
    from halog.adapters.tcp.security import ChannelSecurity
    from halog.adapters.zookeeper.access import ZooKeeperAccess
    from halog.embedded.model import SiteInfo

logger = logging.getLogger("halog.wiring")


def addresses(config: Config) -> tuple[str, str]:
    """Return (Kafka bootstrap, ZooKeeper) of the configured site; an embedded one is looked up in its data
    directory."""
    site = config.site
    if site.embedded is not None:
        from halog.embedded import read_site

        return doors(config, read_site(site.embedded))
    if site.bootstrap is None or site.zookeeper is None:
        raise ConfigError(f"{config.source}: [site] needs bootstrap and zookeeper, or embedded")
    return plain(site.bootstrap), plain(site.zookeeper)


def doors(config: Config, info: SiteInfo) -> tuple[str, str]:
    """Return the addresses of an embedded site's servers for those who speak as this configuration says."""
    kafka, zookeeper = config.security.kafka, config.security.zookeeper
    sealed = "" if kafka is None else {SSL: info.kafka_ssl, SASL_SSL: info.kafka_sasl_ssl}.get(kafka.protocol, "")
    sealed_too = zookeeper is not None and zookeeper.tls == REQUIRED
    return sealed or info.bootstrap, (sealed_too and info.zookeeper_tls) or info.zookeeper


def remote_site(config: Config, name: str) -> tuple[str, str]:
    """Return (Kafka bootstrap, ZooKeeper) of another site of the cluster; an embedded one is looked up in its data
    directory. UnreachableError where that one is not running."""
    site = config.other_sites.get(name)
    if site is None:
        if name == config.site.name:
            raise ConfigError(f"{config.source}: site {name!r} is this very site", site=name)
        raise UnknownNameError.of("site", name, list(config.other_sites), str(config.source))
    if site.embedded is not None:
        from halog.embedded import read_site

        try:
            info = read_site(site.embedded)
        except UnreachableError as e:
            raise UnreachableError(f"site {name} cannot be reached: {e}", site=name) from None
        return doors(config, info)
    if site.bootstrap is None or site.zookeeper is None:
        raise ConfigError(f"{config.source}: [sites.{name}] needs bootstrap and zookeeper, or embedded", site=name)
    return plain(site.bootstrap), plain(site.zookeeper)


def adapters_for(config: Config, name: str, patience_s: float = 0.0, answer_s: float = math.inf) -> Adapters:
    """Return real adapters for node `name`: with a local store if it is one of [nodes], else a client's without.
    `patience_s`: how long servers that are there and busy are waited for. `answer_s`: how long at most any server,
    those of other sites too, is waited for that does not answer: so long as an operator allows a command."""
    from halog.adapters.kafka.log import KafkaLog
    from halog.adapters.kafka.topics import TopicReplicas
    from halog.adapters.tcp.channel import TcpChannel
    from halog.adapters.zookeeper.coordinator import ZkCoordinator
    from halog.runtime.node.kafka_access import kafka_access

    bootstrap, zookeeper = addresses(config)
    secured, access = channel_security(config, name), zookeeper_access(config, name)  # before anything is opened
    kafka = kafka_access(config, bootstrap, name)
    kafka.check()
    node = config.nodes.get(name)
    store = None if node is None else open_store(node.data_dir)
    try:
        session_ms = config.timing.session_timeout_ms
        coordinator = ZkCoordinator(
            zookeeper, config.cluster.name, session_timeout_ms=session_ms, patience_s=patience_s, access=access
        )
        copies = TopicReplicas(config.site.replication_factor, config.site.min_insync_replicas)
        log = KafkaLog(kafka, copies, answer_s=answer_s, tells_refusal=True)
        way = partial(reach, config, access=access, answer_s=answer_s, process=name)
        return Adapters(log, coordinator, TcpChannel(config.limits.max_frame_bytes, secured), store, way)
    except BaseException:
        if store is not None:
            store.close()
        raise


def channel_security(config: Config, name: str) -> ChannelSecurity | None:
    """Return how process `name` shows who it is on the node channel, and whom it trusts; None: it has no TLS.
    ConfigError names the file that cannot be used."""
    security = config.security
    found = certificate_files(security, name)
    if found is None:
        return None
    from halog.adapters.tcp.security import CertificateFiles, ChannelSecurity

    files = CertificateFiles(*found)
    required = security.node_tls == REQUIRED
    made = ChannelSecurity(config.cluster.name, files, required=required, refusal=_refusal)
    if name in config.nodes and (made.me.kind, made.me.name) != ("node", name):
        raise ConfigError(f"{config.source}: security.cert: {files.cert}: is for {made.me}, and this is node {name}")
    return made


def _refusal(why: str) -> bytes:
    """Return the frame that whoever is refused before its first frame is told."""
    return frames.encode(to_frame(UnauthorizedError(why)))


def reach(
    config: Config, site: str, *, access: ZooKeeperAccess, answer_s: float = math.inf, process: str = ""
) -> SiteAccess:
    """Reach another site's log and coordinator, as a process of this name. UnreachableError; ConfigError if it is not
    in the configuration; VersionMismatchError if this halog does not know the level that the cluster has there."""
    from halog.adapters.kafka.log import KafkaLog
    from halog.adapters.zookeeper.coordinator import ANSWER_S, ZkCoordinator
    from halog.runtime.node.kafka_access import kafka_access

    bootstrap, zookeeper = remote_site(config, site)
    session_ms = config.timing.session_timeout_ms
    coordinator = ZkCoordinator(zookeeper, config.cluster.name, session_timeout_ms=session_ms, access=access)
    usual_s = max(session_ms / 1000, ANSWER_S)  # a site may be lost; a command goes on without it
    coordinator.connect(lambda state: None, min(usual_s, answer_s))
    coordinator.joined()
    try:
        check_level(coordinator, config.cluster.name)
        return SiteAccess(site, KafkaLog(kafka_access(config, bootstrap, process), answer_s=answer_s), coordinator)
    except BaseException:
        coordinator.close()
        raise


def active_version(own: Config, name: str) -> ActiveConfig:
    """Return what node `name` is to run with, by a short session of its own: what the adapters are built of is among
    it. VersionMismatchError for a level that this halog does not know: this comes before any store is opened, since a
    store of a later format would be set aside."""
    from halog.adapters.zookeeper.coordinator import ZkCoordinator

    _, zookeeper = addresses(own)
    session_ms, patience_s = own.timing.session_timeout_ms, own.timing.call_deadline_ms / 1000
    coordinator = ZkCoordinator(
        zookeeper,
        own.cluster.name,
        session_timeout_ms=session_ms,
        patience_s=patience_s,
        access=zookeeper_access(own, name),
    )
    try:
        coordinator.connect(lambda state: None)
        return for_node(own, coordinator, name)
    finally:
        coordinator.close()


def open_store(directory: Path) -> Store:
    """Open the local store. One that is damaged, or that a later version of halog wrote, is set aside: the log and the
    state topic hold everything, unless commits do not wait for the log; so the new one says that it was made in place
    of another."""
    from halog.adapters.rocksdb.store import RocksStore

    try:
        return RocksStore(directory)
    except StoreError as e:
        if not e.evidence.get("rebuild"):
            raise
        return _anew(directory, e)


def replace_store(config: Config, name: str, error: StoreError) -> None:
    """Begin anew in place of a store that could be opened and then not be read, with this error."""
    _anew(config.nodes[name].data_dir, error).close()


def _anew(directory: Path, error: StoreError) -> Store:
    from halog.adapters.rocksdb.store import RocksStore, set_aside

    why = str(error.evidence.get("why", error.message))
    aside = set_aside(directory, later=bool(error.evidence.get("later")))
    store = RocksStore(directory)
    try:
        replaced.note(store, why, aside)
    except BaseException:
        store.close()
        raise
    logger.error(
        "the store in %s was set aside%s (%s): nothing of it was deleted, and a new one is made from the log",
        directory,
        "" if aside is None else f" as {aside}",
        why,
    )
    return store


def import_modules(config: Config) -> None:
    """Read in the application's modules. No other names are ever imported from a configuration."""
    for module in config.application.modules:
        import_module(config, module)
