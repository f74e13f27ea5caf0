"""This module shows an operator transactions over several partitions: votes and decisions of all partitions, put
together.

It is pure but for `votes_of`, `gather` and `in_doubt`, which ask nodes. A partition that nobody serves says nothing,
and is named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from halog.core.ids import location_code
from halog.errors import HalogError
from halog.runtime.rpc import frames

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection

AT_ONCE = 8

IN_DOUBT, COMMITTED, ABORTED, UNSEEN, SILENT = "in doubt", "committed", "aborted", "nothing", "silent"
"""These words say how a transaction stands in one partition."""


class TxnView(msgspec.Struct, frozen=True):
    """Describes one transaction that is in doubt somewhere."""

    txn: str
    began_ms: int
    """When it began, by the clock of its node, in ms since 1970."""
    node: str | None
    """The node whose application began it, if that node is known."""
    first: str
    state: str
    """How it stands in `first`."""
    participants: dict[str, str]
    objects: int
    """How many objects it holds in the partitions where it is in doubt."""
    digests: tuple[str, ...]

    @property
    def age_s(self) -> float:
        return max(0.0, time.time() - self.began_ms / 1000)

    @property
    def why(self) -> str:
        """Return where it is stuck."""
        doubtful = [p for p, s in self.participants.items() if s == IN_DOUBT]
        silent = [p for p, s in self.participants.items() if s == SILENT]
        unseen = [p for p, s in self.participants.items() if s == UNSEEN]
        if self.state in (COMMITTED, ABORTED):
            return f"{self.state} in {self.first}; {', '.join(doubtful)} is to hear of it"
        if self.state == SILENT:
            return f"nobody answers for {self.first}, which decides it"
        if unseen or silent:
            return f"not voted, as far as is known: {', '.join(unseen + silent)}"
        return f"all have voted, and {self.first} has not decided"


class TxnVotes(msgspec.Struct, frozen=True):
    """Holds what the partitions said; None: nobody answered."""

    by_partition: Mapping[str, frames.VotesReply | None]

    @property
    def silent(self) -> list[str]:
        return [p for p, said in self.by_partition.items() if said is None]


def votes_of(
    connection: ClusterConnection, partition: str, ids: Sequence[bytes] = (), latest: int = 0
) -> frames.VotesReply:
    """Ask the active node of a partition for its votes. Where nobody serves it, the errors of any request are
    raised."""
    doubts: list[frames.Doubt] = []
    behind = b""
    while True:
        said = connection.ask(partition, frames.Votes(partition, [*ids], latest, behind), frames.VotesReply)
        doubts += said.doubts
        if said.end:
            return frames.VotesReply(doubts, said.decided, end=True)
        behind = doubts[-1].tx


def gather(connection: ClusterConnection, ids: list[bytes], latest: int = 0) -> TxnVotes:
    """Ask the active node of every partition."""

    def ask(partition: str) -> frames.VotesReply | None:
        try:
            return votes_of(connection, partition, ids, latest)
        except HalogError:
            return None

    names = [t.name for t in connection.tables]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return TxnVotes(dict(zip(names, pool.map(ask, names), strict=True)))


def in_doubt(connection: ClusterConnection) -> tuple[list[TxnView], list[str]]:
    """Return every transaction that is in doubt somewhere, oldest first, and the partitions that nobody answered
    for."""
    votes = gather(connection, [])
    found = {d.tx: d for said in votes.by_partition.values() if said is not None for d in said.doubts}
    if found:
        votes = gather(connection, sorted(found))
    configured = {location_code(name): name for name in connection.config.nodes}

    def at(code: int) -> str | None:
        return connection.router.at_location(code) or configured.get(code)

    views = [view(d, votes, at) for _, d in sorted(found.items())]
    return views, votes.silent


def view(doubt: frames.Doubt, votes: TxnVotes, at: Callable[[int], str | None]) -> TxnView:
    """Return one transaction as its participants tell it. `at` finds the node of a location code."""
    how = {p: stands(votes.by_partition.get(p), doubt.tx) for p in doubt.participants}
    held = [d for said in votes.by_partition.values() if said for d in said.doubts if d.tx == doubt.tx]
    return TxnView(
        doubt.tx.hex(),
        int.from_bytes(doubt.tx[:8], "big") // 1_000_000,
        at(int.from_bytes(doubt.tx[8:], "big")),
        doubt.first,
        how[doubt.first],
        how,
        sum(d.reads + d.changes for d in held),
        tuple(sorted({d.digest.hex() for d in held})),
    )


def stands(said: frames.VotesReply | None, tx: bytes) -> str:
    """Return how a transaction stands in the partition that said so."""
    if said is None:
        return SILENT
    for found, commit, _ in said.decided:
        if found == tx:
            return COMMITTED if commit else ABORTED
    return IN_DOUBT if any(d.tx == tx for d in said.doubts) else UNSEEN
