"""Clusters whose objects go round the partitions, and what holds of them and their entries; for tests."""

from __future__ import annotations

from collections import Counter as Count
from typing import Any

from halog.core.keys.directory import is_entry, object_key, unpacked
from halog.core.keys.mapping import PolicyMapping
from halog.runtime.keys.key_owners import Places
from halog.runtime.replica.driver import Copy
from halog.testing.cluster import Cluster, wait_until
from tests.unit.runtime.keys.remapped import (
    POLICY,
    TYPES,
    cluster_of,
    configured,
    mapping,
)


def rounds(nodes: int, **values: int) -> Cluster:
    return configured(cluster_of(nodes), mapper="round_robin", **values)


def active(cluster: Cluster) -> dict[str, Copy]:
    """The copy that serves each partition."""
    found = {}
    for name, table in cluster.tables().items():
        assert table.active is not None
        found[name] = cluster.node(table.active.node).runtime.copies[name]
    return found


def settled(cluster: Cluster) -> None:
    """Nothing is in doubt any more."""
    wait_until(
        lambda: not any(c.core.state.ledger.undecided for c in active(cluster).values()), "something is in doubt"
    )


def remapping_of(cluster: Cluster, name: str) -> Any:
    return cluster.node(name).runtime.remapping


def never_done(cluster: Cluster, names: str) -> None:
    """The first change goes on until it is turned back."""
    for name in names:
        remapping = remapping_of(cluster, name)
        note = remapping._note
        remapping._note = lambda policy, mapping, clean, note=note: (
            None if mapping.version == 1 else note(policy, mapping, clean)
        )


def check_now(cluster: Cluster) -> dict[bytes, str]:
    """Where objects are, while they are used."""
    found = {}
    for name, copy in active(cluster).items():
        found.update({f.key: name for f in copy.objects.scan(b"") if not is_entry(f.key)})
    return found


def check(cluster: Cluster) -> dict[bytes, str]:
    """Every object has one entry, which says where it is and is where the ring has it; key → partition."""
    places = Places(cluster.config, lambda name: TYPES.info(name).parsed)
    homes: dict[bytes, tuple[str, bytes]] = {}
    listed: dict[bytes, tuple[str, bytes]] = {}
    settled(cluster)
    for name, copy in active(cluster).items():
        for f in copy.objects.scan(b""):
            known, says = (listed, unpacked(f.value).partition) if is_entry(f.key) else (homes, name)
            key = object_key(f.key)
            assert key not in known, f"{key.hex()} is in {known[key]} and {name}"
            known[key] = says, f.ref
            if is_entry(f.key):
                info = next(i for i in TYPES.by_name.values() if key.startswith(i.family_id))
                owner = places.owner_by(POLICY, info.name, PolicyMapping(mapping(cluster).now))
                assert owner.partition(info.name, info.routing_key(info.decode_index_key(key))) == name
    assert homes == listed
    return {key: partition for key, (partition, _) in homes.items()}


def spread(cluster: Cluster) -> Count[str]:
    return Count(check(cluster).values())
