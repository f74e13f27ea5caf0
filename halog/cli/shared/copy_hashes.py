"""A command asks the copies of partitions for the hash of their objects, and says which of them differ (U1).

Copies are compared at the highest lsn at which two of them know their hash: where both are now, or a mark that both
remember. Which of two copies is right no hash says. Where most copies agree, it is they; else the active one counts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import msgspec

from halog.errors import HalogError
from halog.runtime.rpc import frames

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable

AT_ONCE: Final = 8
"""Requests under way."""
ATTEMPTS: Final = 4
"""How often copies are asked that had no lsn in common; between two attempts they go on."""
PAUSE_S: Final = 0.25

Answer = frames.StateHashesReply | HalogError
"""What a node says of its copy, or why it says nothing."""


class CopyDifference(msgspec.Struct, frozen=True):
    """Says that the copy on `node` has other objects than the one on `other`, at `lsn`."""

    node: str
    other: str
    lsn: int


class CopyComparison(msgspec.Struct, frozen=True):
    """Is what became of the comparison of all copies of one partition."""

    partition: str
    said: Mapping[str, Answer]
    """By node."""
    differing: tuple[CopyDifference, ...]
    unmatched: tuple[str, ...]
    """Nodes whose copy has no lsn in common with the one that counts."""

    @property
    def answers(self) -> dict[str, frames.StateHashesReply]:
        """Return what the others say."""
        return {node: answer for node, answer in self.said.items() if isinstance(answer, frames.StateHashesReply)}

    @property
    def silent(self) -> dict[str, HalogError]:
        """Return the nodes that say nothing of their copy, with the reason."""
        return {node: answer for node, answer in self.said.items() if isinstance(answer, HalogError)}

    @property
    def equal(self) -> bool:
        """Say whether all copies were compared, and have the same objects."""
        return not (self.differing or self.unmatched or self.silent)


def nodes_of(table: PartitionTable) -> list[str]:
    """Return the nodes that have a copy, as the table says; the active one first. Those that are about to get one are
    left out."""
    return list(dict.fromkeys((*table.node_list, *table.present)))


def ask_copies(
    connection: ClusterConnection, copies: Iterable[tuple[str, str]], timeout_s: float, *, scan: bool = False
) -> dict[tuple[str, str], Answer]:
    """Ask for the hashes of copies, each as (partition, node). Return what each of them says."""
    asked = list(copies)

    def ask(copy: tuple[str, str]) -> Answer:
        partition, node = copy
        try:
            reply = connection.router.request(node, frames.StateHashes(partition, scan), timeout_s)
        except HalogError as error:
            return error
        return reply if isinstance(reply, frames.StateHashesReply) else HalogError(f"{node} answered no hashes")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(asked, pool.map(ask, asked), strict=True))


def compare_copies(
    connection: ClusterConnection, tables: Iterable[PartitionTable], timeout_s: float, *, scan: bool = False
) -> list[CopyComparison]:
    """Ask all copies of these partitions, and compare them. Those that have no lsn in common are asked again."""
    left = {table.name: nodes_of(table) for table in tables}
    found: dict[str, CopyComparison] = {}
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_S)
        pairs = [(name, node) for name, nodes in left.items() for node in nodes]
        said = ask_copies(connection, pairs, timeout_s, scan=scan)
        for name, nodes in left.items():
            found[name] = compared(name, {node: said[name, node] for node in nodes})
        left = {name: nodes for name, nodes in left.items() if found[name].unmatched}
        if not left:
            break
    return list(found.values())


def compared(partition: str, said: Mapping[str, Answer]) -> CopyComparison:
    """Compare what copies say. The first of them counts where as many say one thing as another."""
    known = {node: known_hashes(answer) for node, answer in said.items() if not isinstance(answer, HalogError)}
    differing, unmatched = [], []
    counts = _who_counts(known)
    for node, hashes in known.items():
        if node == counts:
            continue
        lsn = common_lsn(known[counts], hashes)
        if lsn is None:
            unmatched.append(node)
        elif known[counts][lsn] != hashes[lsn]:
            differing.append(CopyDifference(node, counts, lsn))
    return CopyComparison(partition, said, tuple(differing), tuple(unmatched))


def known_hashes(said: frames.StateHashesReply) -> dict[int, bytes]:
    """Return the hash at each lsn at which a copy knows it."""
    return {**dict(said.marks), said.lsn: said.hash}


def common_lsn(one: Mapping[int, bytes], other: Mapping[int, bytes]) -> int | None:
    """Return the highest lsn at which both copies know their hash; None: there is none."""
    return max(one.keys() & other.keys(), default=None)


def _who_counts(known: Mapping[str, Mapping[int, bytes]]) -> str:
    """Return the first node among the most that agree, at the highest lsn that all of them know."""
    if not known:
        return ""
    shared = frozenset.intersection(*(frozenset(hashes) for hashes in known.values()))
    if not shared:
        return next(iter(known))
    at = max(shared)
    votes = Counter(hashes[at] for hashes in known.values())
    return max(known, key=lambda node: votes[known[node][at]])
