"""This module gives a copied data directory an identity of its own (N1)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from halog.config import Config
from halog.errors import RefusedError
from halog.ports import Store
from halog.runtime.node import cluster_identity as belonging
from halog.runtime.node.node_run import INSTALLATION
from halog.runtime.store import pushed_records, replaced_mark
from halog.runtime.store.object_table import PREFIX_BYTES

_BEHIND: Final = b"\xff" * 64
"""Sorts behind every key of one partition: what follows its first 8 bytes begins with a letter."""


class RenewedIdentity(NamedTuple):
    """A `RenewedIdentity` says what a data directory was, and what it is now."""

    was: str
    """The node that it belonged to; "": an older halog did not note it."""
    installation: int
    partitions: int
    """How many copies it brings along."""


def renew(store: Store, config: Config, node: str) -> RenewedIdentity:
    """Make a store that was copied from another node's the store of `node`. Its objects stay: they are read on from the
    log. What it says of runs of the other node goes: it stands for none of `node`. RefusedError if it is of another
    cluster, empty, or is that node's already."""
    belonging.check_name(store, config, node)
    known = belonging.remembered(store)
    if known is None or store.get(INSTALLATION) is None:
        raise RefusedError(
            f"data directory {config.nodes[node].data_dir} was never used: node {node} can start on it as it is"
        )
    if known.node == node:
        raise RefusedError(
            f"data directory {config.nodes[node].data_dir} is node {node}'s own; nothing was changed. A directory that "
            f"was copied from node {node} cannot be its second one: give it to another node of [nodes]",
            node=node,
        )
    prefixes = list(_prefixes(store))
    for prefix in prefixes:
        pushed_records.forget(store, prefix)
    replaced_mark.note(store, f"it is a copy of node {known.node or 'another node'}'s", None, told=True)
    installation = time.time_ns()
    owner = belonging.owner_item(config, known.id, node)
    # Last, and together: whoever dies before it repeats all of it.
    store.write([owner, (INSTALLATION, installation.to_bytes(8, "big"))], flush=True)
    return RenewedIdentity(known.node, installation, len(prefixes))


def _prefixes(store: Store) -> Iterator[bytes]:
    """Yield what the keys of each partition begin with."""
    after = b""
    while (first := next(iter(store.scan(b"", after)), None)) is not None:
        prefix = first[0][:PREFIX_BYTES]
        after = prefix + _BEHIND
        if not first[0].startswith(b"halog:"):
            yield prefix
