"""A change of a policy's mapping is begun, shown, awaited and turned back here, as operators ask (T8).

A request is one compare-and-set of the policy's znode; the nodes do the rest (`halog.runtime.remap.remap_driver`).
Before it, every node that is up is asked whether its code knows the new mapping, so that no node meets keys it cannot
place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from halog.backend import CommittedObject
from halog.config import Config
from halog.core.keys.directory import is_entry
from halog.core.keys.mapping import Layout, PolicyMapping, begun, count, turned_back, why_not
from halog.core.table.definitions import differing
from halog.core.table.table import PartitionTable
from halog.errors import (
    AvailabilityError,
    DeadlineError,
    HalogError,
    NothingToDoError,
    RefusedError,
    UnknownNameError,
)
from halog.metadata import mapped_policies
from halog.ports import Coordinator
from halog.runtime.keys.create_placement import CreatePlacement
from halog.runtime.keys.key_owners import Owner, Places, layout_of, routing_of
from halog.runtime.keys.loads import PartitionLoads
from halog.runtime.placement.definitions import check_lists
from halog.runtime.rpc import frames
from halog.runtime.rpc.router import Router
from halog.schema import Definition
from halog.schema.definition import ID_BYTES
from halog.schema.placed import new_object

ASK_S = 5.0
"""A node may take so long to say whether it knows the new mapping. It imports nothing new for the answer."""

LOOK_S = 0.1

Scan = Callable[[str], Iterator[CommittedObject]]
"""Reads all objects of a partition."""


def wished(config: Config, policy: str) -> Layout:
    """Return the layout that a configuration asks for. ConfigError if it has no such policy, or lacks the code of its
    mapper. RefusedError for a policy that other sites mirror: each site has its own mappings, and one history must not
    be routed by two."""
    if policy not in config.policies:
        raise UnknownNameError.of("policy", policy, config.policies, str(config.source))
    if home := config.policies[policy].home:
        raise RefusedError(
            f"policy {policy} has its home at site {home} and is mirrored: where its keys belong cannot change",
            policy=policy,
            home=home,
        )
    return layout_of(config, policy)


def begin(coordinator: Coordinator, router: Router, config: Config, policy: str) -> int:
    """Begin the change, and return the version it will have. RefusedError: nothing was changed."""
    layout = wished(config, policy)
    first = mapped_policies.read(coordinator, policy).mapping
    _check(first, policy, layout)
    _check_lists(coordinator, router, policy)
    _ask_nodes(router, policy, layout)

    def taken(mapping: PolicyMapping) -> PolicyMapping:
        if _is_begun(mapping, first, layout):  # it was written, only the answer was lost
            return mapping
        _check(mapping, policy, layout)
        return begun(mapping, layout)

    after = mapped_policies.step(coordinator, policy, taken)
    return after.version if after.changing is None or after.changing.open else after.version + 1


def join(coordinator: Coordinator, router: Router, config: Config, policy: str) -> int:
    """Begin the change, unless it is under way or done already, and return its version. RefusedError if another change
    is under way, or if one is being turned back to this layout: nothing was changed."""
    mapping, layout = mapped_policies.read(coordinator, policy).mapping, wished(config, policy)
    if is_joined(mapping, layout):
        return version_of(mapping)
    return begin(coordinator, router, config, policy)


def check(coordinator: Coordinator, router: Router, config: Config, policy: str) -> None:
    """Raise the RefusedError that `join` would raise now, if any."""
    mapping, layout = mapped_policies.read(coordinator, policy).mapping, wished(config, policy)
    if not is_joined(mapping, layout):
        _check(mapping, policy, layout)
        _check_lists(coordinator, router, policy)
        _ask_nodes(router, policy, layout)


def of_zone(coordinator: Coordinator, config: Config, zone: str) -> list[str]:
    """Return the policies of a zone whose mapping differs from the configuration's, or is being changed. Policies that
    the cluster does not have yet have no objects and are left out. ConfigError for an unknown zone."""
    if zone not in config.zones:
        raise UnknownNameError.of("zone", zone, config.zones, str(config.source))
    there = set(coordinator.children("policies"))
    found = []
    for name, policy in config.policies.items():
        if zone in policy.spans and name in there:
            mapping = mapped_policies.read(coordinator, name).mapping
            if mapping.changing is not None or mapping.now != layout_of(config, name):
                found.append(name)
    return found


def is_joined(mapping: PolicyMapping, layout: Layout) -> bool:
    """Is the change to `layout` under way or done? A change that is being turned back to `layout` does not count."""
    changing = mapping.changing
    return mapping.now == layout if changing is None else changing.to == layout and not changing.back


def version_of(mapping: PolicyMapping) -> int:
    """Return the version of the change under way, or of the last one."""
    return mapping.version + (mapping.changing is not None and not mapping.changing.open)


def version_to_be(mapping: PolicyMapping, layout: Layout) -> int:
    """Return the version that `join` would return, unless somebody else begins a change first."""
    return version_of(mapping) if is_joined(mapping, layout) else mapping.version + 1


def _is_begun(mapping: PolicyMapping, first: PolicyMapping, layout: Layout) -> bool:
    """Has the change been begun or done by now that was to begin when the mapping was `first`?"""
    changing = mapping.changing
    if changing is not None:
        return changing.to == layout and not changing.back
    return mapping.now == layout and mapping.version > first.version


def _check(mapping: PolicyMapping, policy: str, layout: Layout) -> None:
    why = why_not(mapping, layout)
    if mapping.changing is None and layout == mapping.now:
        raise NothingToDoError(f"policy {policy}: {why}; nothing was changed", policy=policy)
    if why is not None:
        raise RefusedError(f"policy {policy}: {why}; nothing was changed", policy=policy)


def _check_lists(coordinator: Coordinator, router: Router, policy: str) -> None:
    """Raise NodeListsError if a node that is up has another idea of where one of its partitions is (P10). Tables that
    seem to differ are read again: a node may just have enabled its own, and this process may not have heard of it."""
    running = {n.name for n in router.nodes.values() if n.hosts}
    tables = [table for _, table in list(router.tables.values()) if table.policy == policy]
    found = [coordinator.get(f"partitions/{table.name}") for table in tables if differing(table, running)]
    check_lists([PartitionTable.from_bytes(f.data) for f in found if f is not None], running)


def _ask_nodes(router: Router, policy: str, layout: Layout) -> None:
    """Raise a RefusedError that names every node that cannot map by this layout."""
    cannot = []
    for node in sorted(n.name for n in router.nodes.values() if n.hosts):
        try:
            if node != router.me:
                router.request(node, frames.MappingQuestion(policy, layout), ASK_S)
        except AvailabilityError as error:
            cannot.append(f"node {node} does not answer ({error.message})")
        except HalogError as error:
            cannot.append(error.message)
    if cannot:
        raise RefusedError(f"policy {policy}: {'; '.join(cannot)}; nothing was changed", policy=policy)


def turn_back(coordinator: Coordinator, policy: str) -> int:
    """Give up the change that is under way now, and no later one; return the version of the mapping then. RefusedError
    if no change is under way, or if it is being turned back already."""
    first = mapped_policies.read(coordinator, policy).mapping
    if first.changing is None:
        raise NothingToDoError(f"policy {policy}: no change is under way; nothing was changed", policy=policy)
    if first.changing.back:
        raise RefusedError(
            f"policy {policy}: the change is being turned back already: see `halog rebalance status`; once that is "
            "done, `halog rebalance` begins it again",
            policy=policy,
        )

    def taken(mapping: PolicyMapping) -> PolicyMapping:
        if _is_turned_back(mapping, first):  # by another process, or the answer was lost
            return mapping
        if mapping.changing is None or mapping.changing.to != _to(first) or mapping.version != _opened(mapping, first):
            raise RefusedError(
                f"policy {policy}: the change has come to its end, version {mapping.version} is served now; nothing "
                "was turned back",
                policy=policy,
            )
        return turned_back(mapping)

    return mapped_policies.step(coordinator, policy, taken).version


def _to(mapping: PolicyMapping) -> Layout:
    return mapping.layouts[-1]


def _opened(mapping: PolicyMapping, first: PolicyMapping) -> int:
    """Return the version of the change that is under way in `first`, when it is as open as in `mapping`."""
    assert first.changing is not None
    assert mapping.changing is not None
    return first.version + (mapping.changing.open and not first.changing.open)


def _is_turned_back(mapping: PolicyMapping, first: PolicyMapping) -> bool:
    """Has the change that is under way in `first` been turned back by now, or is that under way?"""
    if mapping.changing is not None:
        return mapping.changing.back and mapping.changing.to == first.now
    return mapping.now == first.now


class RemapProgress(NamedTuple):
    """Tells how far a change is: `clean` of `partitions` are done with it."""

    policy: str
    version: int
    state: str
    clean: int
    partitions: int


DONE, BEGINS, MOVES = "done", "begins", "moves objects"


def progress(coordinator: Coordinator, policy: str) -> RemapProgress:
    """Return how far the last change of a policy is."""
    return _progress(policy, mapped_policies.read(coordinator, policy).mapping)


def _progress(policy: str, mapping: PolicyMapping) -> RemapProgress:
    total = len(mapping.partition_names(policy))
    if mapping.changing is None:
        return RemapProgress(policy, mapping.version, DONE, total, total)
    if not mapping.changing.open:
        return RemapProgress(policy, mapping.version + 1, BEGINS, 0, total)
    return RemapProgress(policy, mapping.version, MOVES, len(mapping.changing.clean), total)


def wait_until_done(
    coordinator: Coordinator,
    policy: str,
    version: int,
    to: Layout,
    wait_s: float,
    seen: Callable[[RemapProgress], None] = lambda progress: None,
    states: Container[str] = (DONE,),
) -> None:
    """Wait until the change to layout `to`, which has `version`, is done or in one of `states`; `seen` is told how far
    it is. Both are compared: a change that was turned back before it moved anything leaves its version to the next one.
    DeadlineError; RefusedError if it was turned back."""
    until = time.monotonic() + wait_s
    while True:
        mapping = mapped_policies.read(coordinator, policy).mapping
        now = _progress(policy, mapping)
        seen(now)
        if now.version != version or _to(mapping) != to:
            raise RefusedError(f"policy {policy}: the change was turned back: version {now.version} is served now")
        if now.state in states:
            return
        if time.monotonic() >= until:
            raise DeadlineError(
                f"policy {policy}: {now.clean} of {now.partitions} partitions are done after {wait_s:g} s; the nodes "
                "go on: see `halog rebalance status`",
                policy=policy,
            )
        time.sleep(LOOK_S)


def preview(
    coordinator: Coordinator, router: Router, places: Places, config: Config, policy: str, scan: Scan
) -> Mapping[tuple[str, str], int]:
    """Return how many objects the change would move, by (from, to). Entries of key directories are not counted.
    MapperError."""
    mapping, layout = mapped_policies.read(coordinator, policy).mapping, wished(config, policy)
    _check(mapping, policy, layout)
    asked = Places(config, places.definition_of, places.held, definition=places.definition)
    choosing = CreatePlacement(config, PartitionLoads(router))
    return count(_moves(asked, choosing, policy, PolicyMapping(layout), mapping.partition_names(policy), scan))


def _moves(
    places: Places,
    choosing: CreatePlacement,
    policy: str,
    mapping: PolicyMapping,
    partitions: tuple[str, ...],
    scan: Scan,
) -> Iterator[tuple[str, str]]:
    routes: dict[bytes, tuple[Definition, Owner, Callable[[bytes], bytes]]] = {}
    for partition in partitions:
        for found in scan(partition):
            if is_entry(found.key):
                continue
            type_id = found.value[:ID_BYTES]
            if type_id not in routes:
                definition = places.definition(type_id)
                owner = places.owner_by(policy, definition.name, mapping)
                routes[type_id] = definition, owner, routing_of(definition)
            definition, owner, routing_key = routes[type_id]
            if not owner.listed:
                to = owner.partition(definition.name, routing_key(found.key))
            elif partition in owner.names:
                continue
            else:
                to = choosing.next_of(owner, partial(new_object, definition, found.value))
            if to != partition:
                yield partition, to
