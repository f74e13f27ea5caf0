"""This module has what `halog mapper` shows: policies with their mappers, where one key belongs, and whose keys are
counted."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from halog.backend import CommittedObject
from halog.cli.partition.distribution import (
    Distribution,
    counted,
    distribution,
    fewer_partitions,
    more_nodes,
    more_partitions,
)
from halog.cli.shared.export_sum import is_sum
from halog.cli.shared.files import Source
from halog.cli.shared.options import of_arguments
from halog.cli.shared.placed_objects import located
from halog.cli.shared.values import key_from_plain, parse_key
from halog.config.mapper import ROUND_ROBIN, callable_of, is_at_create, is_custom
from halog.core.keys.mapping import BY_KEY, LISTED, Place
from halog.errors import ConfigError, HalogError, RefusedError, UnknownNameError
from halog.runtime.keys.key_owners import Owner
from halog.runtime.keys.policy_agreement import check_mapping
from halog.schema import ForeignType
from halog.schema.codec import encoder
from halog.schema.plain import to_plain
from halog.schema.shapes import Scalar
from mappers import ConsistentHash, stable_hash

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable


class DistributionQuery(NamedTuple):
    """Holds what `--distribution` was asked for. `type_name` is empty for keys of no type, each one string."""

    type_name: str
    policy: str | None
    file: Source | None
    sample: int
    partitions: int | None
    added_nodes: int | None


def listed(connection: ClusterConnection) -> list[dict[str, Any]]:
    """Return every policy of the configuration: its mapper as the cluster holds it, and the types bound to it."""
    names = sorted({d.name for d in connection.definitions.all()})
    bound = {name: connection.places.policy_of(name) for name in names}
    return [
        {
            "policy": name,
            "kind": policy.kind,
            "partitions": connection.places.mapping(name).newest.partitions,
            **_mapper_of(connection, name),
            "types": [t for t in names if bound[t] == name],
        }
        for name, policy in connection.config.policies.items()
    ]


def _mapper_of(connection: ClusterConnection, policy: str) -> dict[str, Any]:
    """Return name, version and parameters of a policy's mapper. No module is imported for it: the cluster knows the
    version."""
    found = connection.coordinator.get(f"policies/{policy}")
    if found is None:
        return {"mapper": connection.config.policies[policy].mapper, "version": None, "parameters": {}}
    held = json.loads(found.data)
    version = held.get("mapper_version") if callable_of(held["mapper"]) else 1
    parameters = {} if is_custom(held["mapper"]) else {"ring_size": held["ring_size"]}
    return {"mapper": held["mapper"], "version": version, "parameters": parameters}


# --- one key ---


def explained(connection: ClusterConnection, type_name: str, words: Sequence[str]) -> dict[str, Any]:
    """Return where a key belongs, and every step on the way. UnknownTypeError, FieldTypeError, MapperError."""
    definition = connection.definitions.current(type_name)
    foreign = ForeignType(definition)
    with of_arguments():
        key = parse_key(definition, words)
        routing_key, index_key = foreign.routing_key(key), foreign.index_key(key)
    owner, bound = connection.owner(type_name), connection.places.bound(type_name)
    assert bound is not None, "it has an owner"
    place = owner.place(type_name, routing_key)
    partition = _home(connection, index_key, place)
    policy, ring = connection.config.policies[owner.policy], owner.mapper
    shown = _mapper_of(connection, owner.policy)
    on_ring = isinstance(ring, ConsistentHash)
    return {
        "type": type_name,
        "chain": [type_name, *definition.bases],
        "binding": bound.key,
        "by": "name" if bound.key == type_name else "every type" if bound.key == "*" else "base",
        "policy": owner.policy,
        "kind": policy.kind,
        "partitions": ring.partitions,
        "mapper": {"name": shown["mapper"], "version": shown["version"], "parameters": shown["parameters"]},
        "routing_values": [
            to_plain(definition.shape(name), key[definition.key.index(name)]) for name in definition.partition_by
        ],
        "routing_key": routing_key.hex(),
        "hash": f"{stable_hash(routing_key):016x}" if on_ring else None,
        "slot": ring.slot(routing_key) if isinstance(ring, ConsistentHash) else None,
        "entry": place.partition if place.listed else None,
        "partition": partition,
        "before": place.before or None,
        "nodes": [] if partition is None else _nodes(connection.table(partition)),
        "subclasses": _elsewhere(connection, type_name, owner, (foreign.index_key(key), routing_key)),
    }


def _home(connection: ClusterConnection, index_key: bytes, place: Place) -> str | None:
    """Return where its object belongs. If the mapper is no function of the key, return where it is, or None if it does
    not exist."""
    if not place.listed:
        return place.partition
    partition, found = located(connection, index_key, place)
    return None if found is None else partition


def _nodes(table: PartitionTable) -> list[dict[str, str]]:
    """Return its node list now, then configured nodes that are not in it."""
    active = [] if table.active is None else [{"node": table.active.node, "role": "active"}]
    replicas = [{"node": r.node, "role": r.kind} for r in table.replicas]
    missing = [{"node": n, "role": "missing"} for n in table.configured if n not in table.node_list]
    return [*active, *replicas, *missing]


def _elsewhere(
    connection: ClusterConnection, type_name: str, owner: Owner, keys: tuple[bytes, bytes]
) -> dict[str, str | None]:
    """Return where an object of these keys (index key, routing key) would belong, by subclass with a binding of its
    own; or where it is, see `_home`."""
    places, (index_key, routing_key) = connection.places, keys
    names = [n for n in connection.definitions.family(type_name) if places.policy_of(n) not in (None, owner.policy)]
    return {n: _home(connection, index_key, connection.owner(n).place(n, routing_key)) for n in names}


# --- many keys ---


def spread_of(connection: ClusterConnection, asked: DistributionQuery) -> Distribution:
    """Return where the keys asked for are. ConfigError or RefusedError if that cannot be said."""
    owner = _owner(connection, asked)
    counts, keys = _counts(connection, owner, asked)
    tables = [t for t in connection.tables if t.policy == owner.policy]
    growth = []
    if asked.partitions is not None:
        fits = _fits(connection, owner, asked.partitions)
        growth.append(
            fewer_partitions(counts, owner.names, fits) if owner.listed else more_partitions(_ring(owner), keys, fits)
        )
    if asked.added_nodes is not None:
        growth.append(more_nodes(connection.config, owner.policy, counts, tables, asked.added_nodes))
    return distribution(owner, counts, tables, growth)


def _counts(connection: ClusterConnection, owner: Owner, asked: DistributionQuery) -> tuple[Counter[str], list[bytes]]:
    """Return how many of the keys asked for each partition has, and the keys. If the mapper is no function of the key,
    objects are counted where they are, and made-up ones go round."""
    if owner.listed and asked.type_name and asked.file is None:
        counts = Counter({p: sum(1 for _ in _objects(connection, asked.type_name, p)) for p in owner.names})
        return counts, []
    keys = list(_keys(connection, asked))
    if owner.listed:
        _check_goes_round(owner)
        return Counter(owner.names[i % len(owner.names)] for i in range(len(keys))), keys
    return counted(owner, asked.type_name, keys), keys


def _check_goes_round(owner: Owner) -> None:
    mapper = ROUND_ROBIN if owner.layout is None else owner.layout.mapper
    if is_at_create(mapper):
        raise RefusedError(
            f"mapper {mapper} of policy {owner.policy} looks at more than the key: nobody knows where it would put "
            "these; give a type alone, and its objects are counted where they are"
        )


def _owner(connection: ClusterConnection, asked: DistributionQuery) -> Owner:
    policies = connection.config.policies
    if asked.type_name:
        owner = connection.owner(asked.type_name)
        if asked.policy not in (None, owner.policy):
            raise ConfigError(f"{asked.type_name} is bound to policy {owner.policy}, not to {asked.policy}")
        return owner
    name = asked.policy or next(iter(policies), "")
    if asked.policy is not None and asked.policy not in policies:
        raise UnknownNameError.of("policy", asked.policy, policies, str(connection.config.source))
    if name not in policies or (asked.policy is None and len(policies) > 1):
        raise ConfigError(f"name one with --policy; {connection.config.source} has {', '.join(policies) or 'none'}")
    layout = connection.places.mapping(name).newest
    if is_custom(layout.mapper):
        raise ConfigError(f"mapper {layout.mapper} of policy {name} is asked by type: give one, before --distribution")
    check_mapping(connection.coordinator, connection.config, name, activated=connection.activated.number > 0)
    ring, names = ConsistentHash(layout.partitions, layout.ring_size), layout.partition_names(name)
    return Owner(name, ring, names, listed=LISTED if layout.listed else BY_KEY, layout=layout)


def _ring(owner: Owner) -> ConsistentHash:
    if not isinstance(owner.mapper, ConsistentHash):
        raise RefusedError(f"{owner.mapper!r} names partitions itself: nobody knows what it would say of others")
    return owner.mapper


def _fits(connection: ClusterConnection, owner: Owner, partitions: int) -> int:
    from mappers.consistent_hash import check_ring

    try:
        check_ring(partitions, connection.config.policies[owner.policy].ring_size)
    except ValueError as error:
        raise ConfigError(f"--partitions: {error}") from error
    return partitions


def _keys(connection: ClusterConnection, asked: DistributionQuery) -> Iterator[bytes]:
    """Yield routing keys: of a file, of all objects of the type, or made up."""
    if asked.file is not None:
        yield from _from_file(connection, asked.file, asked.type_name)
    elif asked.type_name:
        yield from _of_objects(connection, asked.type_name)
    else:
        encode = encoder(Scalar("str"))
        for i in range(asked.sample):
            yield encode(f"sample-{i}")


def _from_file(connection: ClusterConnection, file: Source, type_name: str) -> Iterator[bytes]:
    foreign = ForeignType(connection.definitions.current(type_name)) if type_name else None
    family = _family(connection, type_name) if type_name else []
    encode = encoder(Scalar("str"))
    try:
        with io.TextIOWrapper(file.open(), encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if not (text := line.strip()):
                    continue
                try:
                    routing = encode(text) if foreign is None else _routing(foreign, family, text)
                except HalogError as error:
                    raise ConfigError(f"{file}, line {number}: {error.message}") from error
                if routing is not None:
                    yield routing
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: is not UTF-8 text") from error


def _routing(foreign: ForeignType, family: Sequence[str], text: str) -> bytes | None:
    """Return the routing key of a line; None for an exported object of another type."""
    definition = foreign.parsed
    if text.startswith("{"):
        try:
            document = json.loads(text)
            if is_sum(document):
                return None
            name, parts = document["type"], document["key"]
        except (ValueError, KeyError, RecursionError) as error:
            raise ConfigError("is no object as `halog export` writes it") from error
        return foreign.routing_key(key_from_plain(definition, parts)) if name in family else None
    words = [text] if len(definition.key) == 1 or text.startswith("[") else text.split()
    return foreign.routing_key(parse_key(definition, words))


def _family(connection: ClusterConnection, type_name: str) -> list[str]:
    """Return the type and its subclasses, without those that have a binding of their own."""
    policy = connection.places.policy_of(type_name)
    return [n for n in connection.definitions.family(type_name) if connection.places.policy_of(n) == policy]


def _of_objects(connection: ClusterConnection, type_name: str) -> Iterator[bytes]:
    """Yield the routing key of every object whose place the type's binding decides."""
    foreign = ForeignType(connection.definitions.current(type_name))
    for partition in connection.owner(type_name).names:
        for found in _objects(connection, type_name, partition):
            key = list(foreign.decode_index_key(found.key).values())
            yield foreign.routing_key(key_from_plain(foreign.parsed, key))


def _objects(connection: ClusterConnection, type_name: str, partition: str) -> Iterator[CommittedObject]:
    definitions, family = connection.definitions, _family(connection, type_name)
    for found in connection.scan(partition, definitions.current(type_name).family_id):
        if definitions.of(found.value).name in family:
            yield found
