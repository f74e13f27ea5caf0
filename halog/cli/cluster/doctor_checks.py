"""This module has the checks of `halog doctor`. Each looks at one thing, changes nothing, and never raises."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from halog.errors import ConfigError, HalogError, UnauthorizedError, UnreachableError, ZnodeAccessError

if TYPE_CHECKING:
    from halog.adapters.kafka.access import KafkaAccess
    from halog.adapters.zookeeper.access import ZooKeeperAccess
    from halog.cli.shared.upgrade_status import UpgradeView
    from halog.config import Config
    from halog.metadata.nodes import NodeInfo

Result = Literal["ok", "warn", "fail", "skip"]
MIN_MESSAGE_BYTES = 5_500_000  # R8: a commit record may have 5 MB, and its batch a little more
TIMEOUT_S = 3.0  # a server that takes longer to answer counts as down


@dataclass(frozen=True)
class Finding:
    """Holds one row of the doctor's report."""

    name: str
    result: Result
    detail: str
    advice: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the row for --format json."""
        return asdict(self)


@dataclass(frozen=True)
class DoctorTarget:
    """Says what is to be checked: existing servers, or an embedded site's directory."""

    data_dir: Path
    embedded: bool  # Java, jars and disk matter
    kafka: KafkaAccess | None = None
    zookeeper: str = ""
    why_not: str = ""  # why there are no servers to ask
    cluster: str = ""
    configured: bool = True  # somebody relies on the servers, so it is a fault if they are down
    config: Config | None = None

    @classmethod
    def find(cls, config_path: Path | None, data_dir: Path | None) -> Self:
        """Find what is to be checked. ConfigError if the configuration cannot be read."""
        from halog.adapters.kafka.access import KafkaAccess
        from halog.embedded import default_data_dir, read_site
        from halog.runtime.node.kafka_access import kafka_access
        from halog.runtime.node.wiring import doors

        directory, cluster, config = data_dir or default_data_dir(), "", None
        if config_path is not None:
            from halog.config import load_config
            from halog.config.sites import plain

            config = load_config(config_path)
            site, cluster = config.site, config.cluster.name
            if site.embedded is None:
                found = kafka_access(config, site.bootstrap or "", "doctor")
                return cls(directory, False, found, plain(site.zookeeper or ""), cluster=cluster, config=config)
            directory = data_dir or site.embedded
        try:
            info = read_site(directory)
        except UnreachableError as e:
            return cls(directory, True, why_not=e.message, configured=config_path is not None)
        if config is None:
            return cls(directory, True, KafkaAccess(info.bootstrap), info.zookeeper, cluster=cluster)
        servers, zookeeper = doors(config, info)
        return cls(directory, True, kafka_access(config, servers, "doctor"), zookeeper, cluster=cluster, config=config)

    def zookeeper_access(self) -> ZooKeeperAccess:
        """Return how ZooKeeper is spoken to. ConfigError: a file or a secret cannot be used."""
        from halog.adapters.zookeeper.access import PLAIN
        from halog.runtime.node.zookeeper_access import zookeeper_access

        return PLAIN if self.config is None else zookeeper_access(self.config, "doctor")


def run(target: DoctorTarget) -> list[Finding]:
    """Run all checks, in the order in which a reader can act on them."""
    checks: list[Callable[[DoctorTarget], Iterator[Finding]]] = [java, jars, disk, kafka, zookeeper]
    return [finding for check in checks for finding in check(target)]


def answer(results: Sequence[Finding]) -> bool:
    """Say whether both servers answer."""
    return {"kafka", "zookeeper"} <= {r.name for r in results if r.result == "ok"}


def java(target: DoctorTarget) -> Iterator[Finding]:
    """Look for a Java that can run the servers."""
    from halog.embedded.java import find_java

    try:
        found = find_java()
    except HalogError as e:
        yield Finding("java", "fail" if target.embedded else "skip", e.message)
    else:
        yield Finding("java", "ok", f"{found.version} ({found.path})")


def jars(target: DoctorTarget) -> Iterator[Finding]:
    """Check the servers' jars in the cache, and their class archives."""
    from halog.embedded import archives, jars
    from halog.embedded.java import find_java

    where = jars.directory()
    if not where.exists():
        try:
            yield Finding(
                "jars",
                "warn",
                f"not in the cache yet ({where})",
                f"`halog up` fetches them with {jars.find_ivy().name}",
            )
        except HalogError as e:
            yield Finding("jars", "fail" if target.embedded else "skip", e.message)
        return
    wrong = jars.mismatches(where)
    if wrong:
        yield Finding("jars", "fail", f"{wrong[0]} and {len(wrong) - 1} more are not as pinned", f"delete {where}")
        return
    yield Finding("jars", "ok", f"{len(jars.manifest())} jars, checksums right ({where})")
    try:
        built = archives.directory(find_java(), where)
    except HalogError:
        return
    if (built / archives.FAILED).exists():
        yield Finding(
            "class archives", "warn", "could not be built: starts are slower", f"see {built / archives.FAILED}"
        )
    elif not built.exists():
        yield Finding("class archives", "warn", "not built yet", "`halog up` builds them once")
    else:
        yield Finding("class archives", "ok", str(built))


def disk(target: DoctorTarget) -> Iterator[Finding]:
    """Check the data directory and its disk."""
    from halog.embedded import datadir

    if not target.embedded:
        return
    try:
        datadir.check(target.data_dir.absolute())
        free = shutil.disk_usage(datadir.nearest(target.data_dir.absolute())).free >> 20
    except HalogError as e:
        yield Finding("data directory", "fail", e.message)
    else:
        yield Finding("data directory", "ok", f"{target.data_dir}, {free:,} MB free")


def kafka(target: DoctorTarget) -> Iterator[Finding]:
    """Ask Kafka for its metadata, and for settings that could lose data."""
    if target.kafka is None:
        yield Finding("kafka", "fail" if target.configured else "skip", target.why_not or "none configured")
        return
    try:
        brokers, settings = _ask_kafka(target.kafka)
    except HalogError as e:
        yield Finding("kafka", "fail", str(e), "see the guide on security")
        return
    except Exception as e:
        yield Finding("kafka", "fail", f"{target.kafka} does not answer: {_first_line(e)}", "is it running?")
        return
    yield Finding("kafka", "ok", f"{target.kafka}, {brokers} broker{'s' if brokers > 1 else ''}")
    unsafe = list(unsafe_settings(settings))
    yield from unsafe
    if not unsafe:
        yield Finding("kafka settings", "ok", "nothing that could lose or invent data")
    yield from kafka_rights(target)


def kafka_rights(target: DoctorTarget) -> Iterator[Finding]:
    """Look whether the brokers allow this user what commands need (N5). Nobody asks brokers that ask nobody who he
    is."""
    kafka, config = target.kafka, target.config
    if kafka is None or config is None or not (kafka.security.has_tls or kafka.security.has_sasl):
        return
    from halog.adapters.kafka.acls import own_lack
    from halog.runtime.topics.kafka_rights import rights_of

    try:
        lacks = own_lack(kafka, rights_of("operator", config), TIMEOUT_S)
    except HalogError as e:
        yield Finding("kafka rights", "warn", str(e))
        return
    if lacks:
        more = f", and {len(lacks) - 1} more" if len(lacks) > 1 else ""
        advice = "see `halog acl kafka --role operator --check`"
        yield Finding("kafka rights", "warn", f"commands lack {lacks[0]}{more}", advice)
    else:
        yield Finding("kafka rights", "ok", "what commands need is allowed")


def unsafe_settings(settings: dict[str, str]) -> Iterator[Finding]:
    """Yield the settings that halog refuses to rely on."""
    if settings.get("unclean.leader.election.enable") == "true":
        yield _unsafe(
            "unclean.leader.election.enable", "true", "set it to false: a stale leader cuts committed records off"
        )
    if settings.get("auto.create.topics.enable") == "true":
        yield _unsafe("auto.create.topics.enable", "true", "set it to false: a typing error becomes a topic")
    limit = int(settings.get("message.max.bytes", MIN_MESSAGE_BYTES))
    if limit < MIN_MESSAGE_BYTES:
        yield _unsafe("message.max.bytes", str(limit), "set it to 6291456: a commit record may have 5 MB (R8)")
    replicas = int(settings.get("default.replication.factor", 1))
    in_sync = int(settings.get("min.insync.replicas", 1))
    if replicas > 1 and in_sync < replicas - 1:
        yield _unsafe(
            "min.insync.replicas", str(in_sync), f"set it to {replicas - 1}: acknowledged records need copies"
        )


def zookeeper(target: DoctorTarget) -> Iterator[Finding]:
    """Ask ZooKeeper for a session, and where it answers for what the nodes run."""
    if not target.zookeeper:
        yield Finding("zookeeper", "fail" if target.configured else "skip", target.why_not or "none configured")
        return
    try:
        access = target.zookeeper_access()
    except ConfigError as e:
        yield Finding("zookeeper", "fail", e.message, "see [security.zookeeper]")
        return
    try:
        version = _ask_zookeeper(target.zookeeper, access)
    except ConfigError as e:
        advice = f"correct it, or create it with `{e.evidence['command']}`"
        yield Finding("zookeeper", "fail", f"{target.zookeeper}: there is no chroot {e.evidence['chroot']}", advice)
    except Exception as e:
        from halog.adapters.zookeeper.access_errors import tls_refused
        from halog.adapters.zookeeper.reachability import silence

        heard = e.evidence.get("tls_error") if isinstance(e, HalogError) else None
        why = tls_refused(target.zookeeper, access, heard) or silence(target.zookeeper)
        advice = "" if why.busy else "is it running?"
        yield Finding("zookeeper", "fail", f"{target.zookeeper} does not answer: {why.text}", advice)
    else:
        yield Finding("zookeeper", "ok", f"{target.zookeeper}{version}")
        yield from of_cluster(target, access)


def of_cluster(target: DoctorTarget, access: ZooKeeperAccess) -> Iterator[Finding]:
    """Look whether the cluster's znodes may be used (N5), and whether the nodes run one release, or an upgrade goes on
    that brings them to one (U1)."""
    if not target.cluster:
        return
    from halog.adapters.zookeeper.coordinator import ZkCoordinator
    from halog.cli.shared.upgrade_status import upgrade_of
    from halog.metadata.nodes import read_nodes

    coordinator = ZkCoordinator(target.zookeeper, target.cluster, patience_s=TIMEOUT_S, access=access)
    try:
        coordinator.connect(lambda state: None, TIMEOUT_S)
        infos = read_nodes(coordinator, coordinator.children("nodes"))
        yield from upgrade_findings(upgrade_of(coordinator), infos.values())
    except (ConfigError, ZnodeAccessError) as e:
        yield Finding("znodes", "fail", e.message, "`halog acl zookeeper --check` says to whom each znode belongs")
    except HalogError:  # the check of ZooKeeper has said it
        return
    finally:
        coordinator.close()


def upgrade_findings(view: UpgradeView | None, nodes: Iterable[NodeInfo]) -> Iterator[Finding]:
    """Yield what there is to be said of an upgrade, and of the nodes' releases."""
    from halog.cli.shared.upgrade_status import releases

    runs = releases(nodes)
    if view is not None:
        still = view.stands_still
        advice = "see `halog upgrade status`; no node makes plans of its own meanwhile" if still else ""
        yield Finding("upgrade", "warn" if still else "ok", view.text(), advice)
    elif len(runs) > 1:
        said = "; ".join(f"{', '.join(names)}: halog {release}" for release, names in sorted(runs.items()))
        yield Finding("releases", "warn", said, "`halog upgrade start --all` brings all nodes to one release")
    elif runs:
        yield Finding("releases", "ok", f"every node runs halog {next(iter(runs))}")


def _unsafe(name: str, value: str, advice: str) -> Finding:
    return Finding("kafka settings", "fail", f"{name} = {value}", advice)


def _first_line(error: Exception) -> str:
    inner = error.args[0] if error.args else error
    text = inner.str() if hasattr(inner, "str") else str(error)  # a KafkaException wraps its text
    return (text.splitlines() or [""])[0] or type(error).__name__


def _ask_kafka(kafka: KafkaAccess) -> tuple[int, dict[str, str]]:
    """Return the number of brokers, and the settings of the first. HalogError where they refuse, or cannot be asked
    with what is configured."""
    import logging

    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

    from halog.adapters.kafka import refusals

    quiet = logging.getLogger("halog.doctor.kafka")  # we report refused connections; the client must not print them
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    config: dict[str, Any] = {
        **kafka.librdkafka(),
        "error_cb": partial(refusals.note, kafka),
        "log_level": 0,
        "socket.timeout.ms": int(TIMEOUT_S * 1000),
    }
    admin = AdminClient(config, logger=quiet)
    began = time.monotonic()
    try:
        brokers = sorted(admin.list_topics(timeout=TIMEOUT_S).brokers)
    except KafkaException as error:
        admin.poll(0)
        if (why := refusals.lately(kafka, began)) is not None:
            raise UnauthorizedError(why) from error
        raise
    resource = ConfigResource(ConfigResource.Type.BROKER, str(brokers[0]))
    try:
        entries = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() in refusals.DENIED:
            raise UnauthorizedError(refusals.denied(kafka, error.args[0])) from error
        raise
    return len(brokers), {name: str(entry.value) for name, entry in entries.items()}


def _ask_zookeeper(hosts: str, access: ZooKeeperAccess) -> str:
    """Return the server's version as " (3.9.3)", or nothing where it does not tell. ConfigError if there is no
    chroot."""
    import logging

    from kazoo.client import KazooClient

    from halog.adapters.zookeeper.access import QuietLogger
    from halog.adapters.zookeeper.reachability import lacks_chroot, no_chroot
    from halog.adapters.zookeeper.wakeup import CountingHandler

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    handler = CountingHandler(access.tls)
    quiet = QuietLogger(logging.getLogger("halog.doctor.zookeeper"))
    client = KazooClient(hosts, timeout=TIMEOUT_S, handler=handler, logger=quiet, **access.arguments())
    try:
        if not client.start_async().wait(TIMEOUT_S):
            raise UnreachableError("no session", tls_error=handler.tls_error)
        if lacks_chroot(client, TIMEOUT_S):
            raise no_chroot(hosts, client.chroot)
        client.exists("/")
        try:
            return f" ({'.'.join(map(str, client.server_version()))})"
        except Exception:
            return ""  # four-letter words are switched off
    finally:
        client.stop()
        client.close()
