"""A change of mappings may move objects to other partitions. They are counted here before, and an activation begins to
move them (P13, T8)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from halog.backend import CommittedObject
from halog.cli.shared.connection import ClusterConnection, modules_beside
from halog.cli.shared.messages import progress, say
from halog.config import Config
from halog.core.keys.directory import is_entry
from halog.errors import HalogError
from halog.metadata import mapped_policies
from halog.runtime.remap import remap_request as wishes

Moving = dict[str, dict[str, Any]]
"""What moves, by policy, for programs."""


def counted(connection: ClusterConnection, wanted: Config, policy: str) -> tuple[int, Mapping[tuple[str, str], int]]:
    """Return how many objects a policy has, and how many of them would go from where to where. It reads them all."""
    objects = 0
    now = mapped_policies.read(connection.coordinator, policy).mapping
    with progress() as bar:
        task = bar.add_task("partitions", total=len(now.partition_names(policy)), note="")

        def scan(partition: str) -> Iterator[CommittedObject]:
            nonlocal objects
            for found in connection.scan(partition, b""):
                objects += not is_entry(found.key)
                if objects % 1000 == 0:
                    bar.update(task, note=f"{objects:,} objects")
                yield found
            bar.advance(task)

        moves = wishes.preview(connection.coordinator, connection.router, connection.places, wanted, policy, scan)
    return objects, moves


def foresee(connection: ClusterConnection, wanted: Config, policies: Collection[str]) -> Moving:
    """Return what would move if `wanted` were activated, and tell the operator."""
    return {policy: _foreseen(connection, wanted, policy) for policy in policies}


def _foreseen(connection: ClusterConnection, wanted: Config, policy: str) -> dict[str, Any]:
    modules_beside(wanted)
    try:
        objects, moves = counted(connection, wanted, policy)
    except HalogError as error:
        say(f"policy {policy}: objects would move to another partition; how many is not known: {error.message}")
        return {"objects": None, "would_move": None, "why": error.message}
    would_move = sum(moves.values())
    say(f"policy {policy}: {would_move:,} of {objects:,} objects would move to another partition")
    return {"objects": objects, "would_move": would_move}


def begin(connection: ClusterConnection, wanted: Config, policies: Collection[str]) -> Moving:
    """Begin all moves before `wanted` is activated; if one is refused, begin none. The order matters: a node starts
    with the version before while its policy changes, but not with a mapping that nobody has begun to change. A command
    that died in between is given again: it joins the change that is under way."""
    modules_beside(wanted)
    c, router = connection.coordinator, connection.router
    for policy in policies:
        wishes.check(c, router, wanted, policy)
    begun: Moving = {}
    for policy in policies:
        begun[policy] = {"version": wishes.join(c, router, wanted, policy)}
        say(f"policy {policy}: its objects begin to move; `halog rebalance status` says how far they are")
    return begun
