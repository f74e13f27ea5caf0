"""This module says what an upgrade needs of a cluster: what it sees there, and what it asks for (U1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from halog.core.table.table import PartitionTable
from halog.metadata.nodes import NodeInfo


class StateMarks(NamedTuple):
    """A `StateMarks` is what a node says of the state of its copy: a hash of all objects at one lsn or more."""

    by_lsn: Mapping[int, bytes]
    is_stored: bool = True
    """Does its store hold just these objects? True where nobody looked."""


class CopyStanding(NamedTuple):
    """A `CopyStanding` says how a node's copy of one partition is."""

    partition: str
    fault: str
    """Why it takes no part; "": it does."""
    lag: int | None
    """How many records it is behind; None: it does not say, and it is not active."""
    active: bool
    reference: str
    """The node with whose copy it is compared: the active one, or else another that has a copy; "": none tells now."""
    is_only: bool = False
    """Is no other node in the table of the partition? Then there is nothing that it could be compared with."""


class UpgradedFleet(Protocol):
    """An `UpgradedFleet` is the nodes of a cluster, as a command that upgrades them sees and asks them."""

    @property
    def nodes(self) -> Mapping[str, NodeInfo]:
        """Return those that are registered."""

    @property
    def tables(self) -> Sequence[PartitionTable]:
        """Return the tables of the partitions."""

    def unsafe(self, node: str) -> Sequence[str]:
        """Return what would stop, or be lost, if the node stopped now: a sentence for each partition. Empty: it is safe
        to stop."""

    def lags(self, node: str) -> Mapping[str, Mapping[str, int]]:
        """Return by partition that the node is active for, how many records the others are behind."""

    def hand_over(self, partition: str, to: str) -> None:
        """Let `to` be active. HalogError where that does not come about."""

    @property
    def by_hook(self) -> bool:
        """Can it restart nodes? Else an operator does."""

    def restart(self, node: str, release: str) -> None:
        """Restart the node under that release. RefusedError where that has failed."""

    def standings(self, node: str) -> Sequence[CopyStanding]:
        """Return how the copies are that the node should have."""

    def marks(
        self, node: str, references: Mapping[str, str]
    ) -> Mapping[str, tuple[StateMarks | None, StateMarks | None]]:
        """Return by partition the hashes of the node's copy, and of that on the other node. None: that halog knows of
        none. Partitions of which one of them does not tell now are left out."""

    def rest(self, seconds: float) -> None:
        """Wait."""

    def clock(self) -> float:
        """Return the time in seconds, from anywhere on."""
