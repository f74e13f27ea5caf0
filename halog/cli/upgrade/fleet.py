"""The nodes of a cluster are seen and asked here for `halog upgrade start` and `rollback`, over a tool's connection
(U1)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from halog.cli.partition.failover import hand_over
from halog.cli.partition.safe_to_stop import judge_all
from halog.cli.shared.copy_hashes import Answer, ask_copies, known_hashes, nodes_of
from halog.cli.shared.survey import PartitionView, survey
from halog.core.table.table import ASYNC, SYNC, PartitionTable
from halog.errors import HalogError, RefusedError, UnsupportedRequestError
from halog.runtime.upgrade.fleet import CopyStanding, StateMarks

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.metadata.nodes import NodeInfo


COUNTS_S: Final = 120.0
"""A node that has not counted a copy's objects yet does so when it is asked: a million take it some seconds."""


class ConnectedFleet:
    """A `ConnectedFleet` is the cluster that a command is connected to. It implements `UpgradedFleet`."""

    def __init__(
        self, connection: ClusterConnection, hook: Sequence[str], patience_s: float, *, deep: bool = False
    ) -> None:
        """Restart nodes by `hook`, which has `patience_s` seconds; empty: an operator restarts them. `deep`: do they
        look at each object that they have stored, once they are back?"""
        self._connection = connection
        self._hook = hook
        self._patience_s = patience_s
        self._deep = deep

    @property
    def nodes(self) -> Mapping[str, NodeInfo]:
        """Return those that are registered."""
        return self._connection.nodes

    @property
    def tables(self) -> Sequence[PartitionTable]:
        """Return the tables of the partitions, as ZooKeeper has told them."""
        return self._connection.tables

    def unsafe(self, node: str) -> Sequence[str]:
        """Return what `halog safe-to-stop` says against it."""
        return [f"{v.partition}: {v.why}" for v in judge_all(self._connection, {node}) if not v.safe]

    def lags(self, node: str) -> Mapping[str, Mapping[str, int]]:
        """Return how far the others are behind, as they say."""
        seen = survey(self._connection).partitions
        return {
            p.partition: {c.node: c.lag_records or 0 for c in p.copies if c.error is None}
            for p in seen
            if p.active == node
        }

    def hand_over(self, partition: str, to: str) -> None:
        """Hand over as `halog failover` does."""
        hand_over(self._connection, partition, to, self._connection.timeout_s)

    @property
    def by_hook(self) -> bool:
        """Is there one?"""
        return bool(self._hook)

    def restart(self, node: str, release: str) -> None:
        """Run the hook. It is no shell's, and what it says goes to stderr."""
        env = {**os.environ, "HALOG_NODE": node, "HALOG_TO": release}
        sys.stderr.flush()
        try:
            ran = subprocess.run(
                self._hook, env=env, stdin=subprocess.DEVNULL, stdout=2, timeout=self._patience_s, check=False
            )
        except subprocess.TimeoutExpired as e:
            raise RefusedError(
                f"the hook for {node} had not ended after {self._patience_s:g} s, and was killed. Look whether {node} "
                "runs, and go on with `halog upgrade start`",
                node=node,
            ) from e
        except OSError as e:
            raise RefusedError(f"the hook for {node} cannot be run: {e}; go on with another --hook", node=node) from e
        if ran.returncode:
            raise RefusedError(
                f"the hook for {node} ended with {ran.returncode}, and says above why. Look whether {node} runs, and "
                "go on with `halog upgrade start`",
                node=node,
                code=ran.returncode,
            )

    def standings(self, node: str) -> Sequence[CopyStanding]:
        """Return how its copies are, as it says and the tables have them. What the application enables (P8), and has
        not enabled there since the node was started, is not awaited."""
        tables = {t.name: t for t in self._connection.tables}
        seen = survey(self._connection).partitions
        hosted = [p for p in seen if p.partition in tables and node in tables[p.partition].present]
        return [_standing(p, node, tables[p.partition]) for p in hosted]

    def marks(
        self, node: str, references: Mapping[str, str]
    ) -> Mapping[str, tuple[StateMarks | None, StateMarks | None]]:
        """Ask both. With `deep` the node looks at each object that it has stored, and has all of the command's patience
        for that."""
        c, wait_s = self._connection, min(self._patience_s, COUNTS_S)
        scan_s = self._patience_s if self._deep else wait_s
        here = ask_copies(c, [(p, node) for p in references], scan_s, scan=self._deep)
        there = ask_copies(c, references.items(), wait_s)
        return {
            p: (_marks(here[p, node]), _marks(there[p, other]))
            for p, other in references.items()
            if _tells(here[p, node]) and _tells(there[p, other])
        }

    def rest(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def clock(self) -> float:
        """Return the time since the machine began."""
        return time.monotonic()


def _standing(view: PartitionView, node: str, table: PartitionTable) -> CopyStanding:
    copy = next((c for c in view.copies if c.node == node), None)
    others = [c.node for c in view.copies if c.node != node and c.error is None and c.kind != "missing"]
    reference = view.active if view.active is not None and view.active != node else next(iter(others), "")
    is_only = not set(nodes_of(table)) - {node}
    if copy is None:
        return CopyStanding(view.partition, "it is in no list of its nodes", None, False, reference, is_only)
    kinds = [r.kind for r in table.replicas]
    fault = copy.error or ""
    if not fault and copy.kind == "missing":
        fault = "it has not joined yet"
    if not fault and copy.kind == ASYNC and kinds.count(SYNC) < table.sync_replicas:
        fault = "it is not among the sync replicas again"
    lag = 0 if copy.kind == "mirror" else copy.lag_records
    return CopyStanding(view.partition, fault, lag, view.active == node, reference, is_only)


def _tells(answer: Answer) -> bool:
    """Say whether this is an answer for good: a node that stops, or still reads its log, gives another one later."""
    return not isinstance(answer, HalogError) or isinstance(answer, UnsupportedRequestError)


def _marks(answer: Answer) -> StateMarks | None:
    if isinstance(answer, HalogError):
        return None
    return StateMarks(known_hashes(answer), answer.scanned in (b"", answer.hash))
