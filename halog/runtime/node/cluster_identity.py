"""This module says which cluster a data directory belongs to, and whether a cluster may be begun: nothing is begun over
what there is.

cluster            JSON: `Identity`, made with the first tables; every ZooKeeper of a cluster has its own
recovery           JSON: somebody makes the tables anew from the logs (`halog recover`); no node starts meanwhile

A cluster is begun where its logs are empty, by whoever comes first. Logs with records and no tables are those of a
cluster whose ZooKeeper has lost its data, or that is asked at a wrong address: tables made anew would name other
histories, and every copy would stop at the first record. A data directory remembers the cluster it was first used in,
by name and id: with another one it is refused, before anything is written there.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from halog.config.names import ambiguous
from halog.errors import AvailabilityError, ConfigError, CoordinatorError, HalogError, RefusedError, StoreError
from halog.metadata import mapped_policies, partition_tables
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator, Log, Store, TopicPartition
from halog.runtime.placement import bootstrap as cluster
from halog.runtime.store.object_table import position_key
from halog.runtime.topics import topic_names

if TYPE_CHECKING:
    from halog.config import Config
    from halog.runtime.support.adapters import Adapters

ID: Final = "cluster"
RECOVERY: Final = "recovery"
COMMAND: Final = "halog recover --from-logs"
SHOWN: Final = 3

_KEY: Final = b"halog:cluster"


class Identity(msgspec.Struct, frozen=True):
    """An `Identity` stands for a cluster in its ZooKeeper."""

    id: str


_IDENTITY = ZnodeFormat(msgspec.json.Decoder(Identity).decode, "does not hold the cluster's id")


class DirectoryOwner(msgspec.Struct, frozen=True):
    """A data directory remembers which cluster it belongs to. `id` is "" until its node was part of the cluster. `node`
    says which node it is; it is "" where an older halog noted it."""

    cluster: str
    id: str = ""
    node: str = ""


# --- the data directory ---


def remembered(store: Store) -> DirectoryOwner | None:
    """The cluster it was used in; None: none yet, or by a halog that did not note it."""
    data = store.get(_KEY)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=DirectoryOwner)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise StoreError(f"which cluster the local store belongs to cannot be read: {e}", rebuild=True) from e


def check_name(store: Store | None, config: Config, node: str) -> None:
    """Raise RefusedError for the data directory of a cluster with another name."""
    known = None if store is None else remembered(store)
    if known is not None and known.cluster != config.cluster.name:
        directory = config.nodes[node].data_dir
        raise RefusedError(
            f"data directory {directory} belongs to cluster {known.cluster}, and {config.source} says cluster "
            f"{config.cluster.name}; nothing was changed. Correct [cluster] name, or give node {node} of cluster "
            f"{config.cluster.name} another data_dir",
            directory=str(directory),
            belongs_to=known.cluster,
            cluster=config.cluster.name,
        )


def check_node(store: Store | None, config: Config, node: str) -> None:
    """Raise RefusedError for the data directory of another node: it was copied, whether that node runs now or not."""
    known = None if store is None else remembered(store)
    if known is not None and known.node not in ("", node):
        directory = config.nodes[node].data_dir
        raise RefusedError(
            f"data directory {directory} is node {known.node}'s, or a copy of it, and node {node} is to start on it; "
            f"nothing was changed. `halog node new-identity --name {node}` makes it node {node}'s, or give node {node} "
            "another data_dir",
            directory=str(directory),
            belongs_to=known.node,
            node=node,
        )


def _check_id(a: Adapters, config: Config, node: str) -> None:
    """Raise RefusedError for the data directory of another cluster of this name, or of one that ZooKeeper does not
    know."""
    assert a.store is not None
    known, there = remembered(a.store), identity(a.coordinator)
    if known is None or not known.id or (there is not None and there.id == known.id):
        return
    if _has_copies(a.store, a.coordinator):  # the id was lost, or put back
        return
    directory, name = config.nodes[node].data_dir, config.cluster.name
    what = (
        f"ZooKeeper knows no cluster {name}, and its logs are empty: both were lost, or made anew"
        if there is None
        else f"this is another cluster of that name (id {there.id})"
    )
    raise RefusedError(
        f"data directory {directory} belongs to cluster {name} with the id {known.id}, and {what}, or the addresses in "
        f"{config.source} are those of other servers; no object was changed. Correct [site], or give node {node} "
        "another data_dir",
        directory=str(directory),
        belongs_to=known.id,
        cluster=name,
    )


def _has_copies(store: Store, coordinator: Coordinator) -> bool:
    """Does it have a copy of any partition of the cluster?"""
    tables = partition_tables.read_tables(coordinator).values()
    return any(store.get(position_key(bytes.fromhex(table.log_id))) is not None for table in tables)


def owner_item(config: Config, id_: str, node: str) -> tuple[bytes, bytes]:
    """Return how a store notes whose it is."""
    return _KEY, msgspec.json.encode(DirectoryOwner(config.cluster.name, id_, node))


def remember(store: Store, config: Config, id_: str, node: str) -> None:
    """Note whose it is from now on."""
    wanted = DirectoryOwner(config.cluster.name, id_, node)
    if remembered(store) != wanted:
        store.write([(_KEY, msgspec.json.encode(wanted))], flush=True)


# --- the cluster ---


def identity(coordinator: Coordinator) -> Identity | None:
    """Return the identity that the cluster has in its ZooKeeper; None before its first node has made one."""
    return _IDENTITY.read(coordinator, ID)


def identified(coordinator: Coordinator, id_: str = "") -> str:
    """Return the cluster's id; it is made where there is none."""
    coordinator.create(ID, msgspec.json.encode(Identity(id_ or uuid.uuid4().hex)))
    there = identity(coordinator)
    if there is None:
        raise CoordinatorError(f"znode {ID} vanished while the cluster was set up")
    return there.id


def create_topics(a: Adapters, config: Config, node: str, *, activated: bool = False) -> None:
    """Make the topics as `halog.runtime.placement.bootstrap.create_topics` does, for a node that may begin this cluster
    or be part of it. RefusedError where tables would be made over logs that have a history, or what was agreed on of a
    policy over its tables, and for a data directory of another cluster."""
    check_recovered(a.coordinator, config)
    if a.store is not None and identity(a.coordinator) is not None:
        _check_id(a, config, node)
    _check_names(a.log, a.coordinator, config)
    _check_agreed(a.coordinator, config)
    cluster.create_topics(a.log, a.coordinator, config, activated=activated)
    _check_begun(a.log, a.coordinator, config)
    if a.store is not None:
        _check_id(a, config, node)
        known = remembered(a.store)
        remember(a.store, config, identified(a.coordinator, "" if known is None else known.id), node)


def _check_names(log: Log, coordinator: Coordinator, config: Config) -> None:
    """ConfigError for a policy that the cluster does not have yet, and whose names another cluster could come to."""
    there = coordinator.children("policies")
    for policy in config.policies:
        if policy not in there:
            for key, reason in ambiguous(config, policy):
                if not _has_history(log, config, policy):  # else it is one of before, whose table is lost
                    raise ConfigError(f"{config.source}: {key}: {reason}", key=key, policy=policy)


def _check_agreed(coordinator: Coordinator, config: Config) -> None:
    """Raise RefusedError for a policy that has tables and no znode of its own, which is made before them. What the
    policy says, where keys belong among it, may have changed since the file was written."""

    def absent() -> set[str]:
        return set(config.policies) - set(coordinator.children("policies"))

    if not absent():
        return
    kept = {table.policy for table in partition_tables.read_tables(coordinator).values()}
    lost = sorted(kept & absent())  # looked for again: another node may make all of it just now
    if lost:
        raise RefusedError(
            f"{config.source}: ZooKeeper has partitions of policy {', '.join(lost)}, and nothing of what was agreed on "
            f"of it, as where its keys belong ({', '.join(map(mapped_policies.path_of, lost))}): a part of its data "
            f"is lost. Nothing was made anew by the file. Stop all nodes and use `{COMMAND}`: nodes have noted it",
            cluster=config.cluster.name,
            policies=lost,
        )


def _has_history(log: Log, config: Config, policy: str) -> bool:
    """Say whether the log has records. UnreachableError if it does not answer: then nobody knows."""
    topic = topic_names.log_topic(config, policy)
    return any(log.bounds(TopicPartition(topic, i))[1] for i in range(log.partitions(topic)))


def check_recovered(coordinator: Coordinator, config: Config) -> None:
    """Raise RefusedError while the tables are made anew from the logs."""
    if coordinator.get(RECOVERY) is not None:
        raise RefusedError(
            f"{config.source}: cluster {config.cluster.name} is being recovered from its logs, and that has not "
            f"ended: let it end, or repeat `{COMMAND}`, which goes on with it",
            cluster=config.cluster.name,
        )


def _check_begun(log: Log, coordinator: Coordinator, config: Config) -> None:
    """Raise RefusedError where a partition without a table has a log with records. The topics are there."""
    found = with_history(log, coordinator, config)
    if not found:
        return
    shown = ", ".join(f"{tp.topic} partition {tp.partition}" for tp in found[:SHOWN])
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    name, any_tables = config.cluster.name, bool(coordinator.children("partitions"))
    what = "nothing of them" if any_tables else f"no cluster {name}"
    raise RefusedError(
        f"{config.source}: the logs of cluster {name} have a history ({shown}{more}), and ZooKeeper knows {what}: its "
        "data were lost, or this is another ZooKeeper, or another cluster and policy have the same topics by their "
        f"names. Nothing was begun anew over them. To go on with these logs stop all nodes and use `{COMMAND}`; to "
        "begin without them use another name",
        cluster=name,
        topics=sorted({tp.topic for tp in found}),
    )


def check_exists(log: Log, coordinator: Coordinator, config: Config) -> None:
    """Raise AvailabilityError where neither tables nor a log with records are there: nothing of it can be recovered.
    UnreachableError where the log does not answer."""
    if coordinator.children("partitions") or coordinator.get(RECOVERY) is not None:
        return
    if not any(_has_history(log, config, policy) for policy in config.policies):
        name = config.cluster.name
        raise AvailabilityError(f"{config.source}: {why_absent(log, coordinator, config)}", cluster=name)


def why_absent(log: Log, coordinator: Coordinator, config: Config) -> str:
    """Return what a tool says of a cluster that has no partitions here."""
    name = config.cluster.name
    if coordinator.get(RECOVERY) is not None:
        return f"cluster {name} is being recovered from its logs: let that end, or repeat `{COMMAND}`"
    for policy in config.policies:
        try:
            lost = _has_history(log, config, policy)
        except HalogError as error:
            why = error.message
            return f"ZooKeeper knows no cluster {name}, and whether its logs have a history is not known: {why}"
        if lost:
            return (
                f"ZooKeeper knows no cluster {name}, and its logs have a history "
                f"({topic_names.log_topic(config, policy)}): ZooKeeper's data were lost, or this is another one. Stop "
                f"all nodes and go on with the logs by `{COMMAND}`"
            )
    return f"cluster {name} does not exist at this site yet; its first `halog node start` creates it"


def with_history(log: Log, coordinator: Coordinator, config: Config) -> Sequence[TopicPartition]:
    """Logs with records whose partitions have no table."""
    there = set(coordinator.children("partitions"))
    whole = mapped_policies.with_made_partitions(config, mapped_policies.read_all(coordinator))
    found = []
    for policy in config.policies:
        for i, name in enumerate(whole.partition_names(policy)):
            tp = TopicPartition(topic_names.log_topic(config, policy), i)
            if name not in there and log.bounds(tp)[1] > 0 and not _made(coordinator, name):
                found.append(tp)
    return found


def _made(coordinator: Coordinator, partition: str) -> bool:
    """Has another node made its table meanwhile? It is made before anything is in its log."""
    coordinator.sync(f"partitions/{partition}")
    return coordinator.get(f"partitions/{partition}") is not None
