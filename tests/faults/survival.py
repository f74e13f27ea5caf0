"""A cluster with a policy for each combination of durability policies, writers of all of them, and what is left of
what was acknowledged: in the log, in the copies, and for whoever asks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from halog.core.log.records import decode
from halog.errors import HalogError
from halog.runtime.node.open import RunningNode
from tests.faults.kinds import COMBINATIONS, KINDS, name_of
from tests.integration.cluster.checker import entries
from tests.integration.cluster.harness import TOML, Cluster
from tests.integration.cluster.processes import wait

FLOWS = 20
SETTLED_S = 60.0


class Acknowledged(NamedTuple):
    """A commit that returned: the number of what it created, and where it was said to be."""

    number: int
    tx: bytes
    lsn: int


class Cell:
    """What became of one combination."""

    def __init__(self, local: str, remote: str) -> None:
        self.local = local
        self.remote = remote
        self.kind = KINDS[local, remote]
        self.policy = name_of(local, remote)
        self.partition = f"{self.policy}-0"
        self.acknowledged: list[Acknowledged] = []
        self.lacked: list[int] = []
        """At each fault, how many of them the log lacked then: of those that do not wait for it, and it has to."""
        self.lost_active = 0
        """How often its active node was killed."""
        self.moments: list[tuple[int, int]] = []
        """Under load: the last lsn acknowledged, and that of the replica's disk if it had lost power then."""
        self.gone: set[int] = set()
        """Numbers that the log lacks at the end."""
        self.missing: set[int] | None = None
        """Numbers that whoever asks does not find; None: nobody could look."""
        self.missing_at_last: set[int] | None = None
        """The same once the topics were put back as they were."""
        self.kept = 0
        """The last lsn that copies hold which have more than the log, and say so."""

        self.given_up = self.stopped = False
        """Was it told that what the log lacks may be lost; did a copy stop since it holds more than the log?"""

    @property
    def is_early(self) -> bool:
        """Do its commits return before the log has them?"""
        return self.local == "NO_SYNC"

    @property
    def last(self) -> int:
        """The lsn of the last that was acknowledged."""
        return max(a.lsn for a in self.acknowledged)

    def not_in_log(self, cluster: Cluster) -> set[int]:
        """Numbers acknowledged before now that no record of the log is about, where they were said to be: of a log that
        was cut, what stands in it proves nothing more."""
        told, table = list(self.acknowledged), cluster.table(self.partition)
        found = (decode(data).header for _, data in entries(cluster.site.info.bootstrap, table.topic, table.index))
        there = {(header.tx, header.lsn) for header in found}
        return {a.number for a in told if (a.tx, a.lsn) not in there}


Cells = dict[tuple[str, str], Cell]


class Nine(Cluster):
    """Nodes A and B, one partition per combination, each with one sync replica."""

    def partitions(self) -> list[str]:
        return [f"{name_of(*c)}-0" for c in COMBINATIONS]

    def configuration(self, file: str, **changed: object) -> Path:
        text = TOML.format(**{**self.values, **changed})
        head, tail = text[: text.index("[policies.p]")], text[text.index("[timing]") :]
        policies = "".join(
            f'[policies.{name_of(*c)}]\nzone = "home"\npartitions = 1\nsync_replicas = 1\n'
            f'local_sync = "{c[0]}"\nremote_sync = "{c[1]}"\n'
            for c in COMBINATIONS
        )
        bindings = "[bindings]\n" + "".join(f'{name_of(*c)} = "{name_of(*c)}"\n' for c in COMBINATIONS)
        nodes = "".join(f'[nodes.{n}]\ndata_dir = "{n}"\n' for n in self.nodes)
        path = self.directory / file
        path.write_text(head + policies + bindings + tail + nodes)
        return path


class Writers:
    """One per combination: creates objects 1, 2, … one after the other until it is told to stop."""

    def __init__(self, node: RunningNode, cells: Cells) -> None:
        self.node = node
        self.cells = cells
        self._stops = {cell.policy: threading.Event() for cell in cells.values()}
        self._threads = {cell.policy: threading.Thread(target=self._run, args=(cell,)) for cell in cells.values()}

    def __enter__(self) -> Writers:
        for thread in self._threads.values():
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(list(self.cells.values()))

    def stop(self, cells: list[Cell]) -> None:
        """They have ended when this returns."""
        for cell in cells:
            self._stops[cell.policy].set()
        for cell in cells:
            self._threads[cell.policy].join()

    def _run(self, cell: Cell) -> None:
        number, stop = 0, self._stops[cell.policy]
        while not stop.is_set():
            number += 1
            try:
                with self.node.transaction() as tx:
                    self.node.create(cell.kind(number=number))
            except HalogError:  # nothing was acknowledged
                stop.wait(0.05)
            else:
                assert tx.id is not None
                assert tx.lsn is not None
                cell.acknowledged.append(Acknowledged(number, tx.id, tx.lsn))
                stop.wait(0.002)

    @property
    def early(self) -> list[Cell]:
        """Those that do not wait for the log, and were not stopped."""
        return [c for c in self.cells.values() if c.is_early and not self._stops[c.policy].is_set()]

    def flow(self, only: list[Cell] | None = None) -> None:
        """Each has gone on; those that were stopped need not."""
        cells = [c for c in (self.cells.values() if only is None else only) if not self._stops[c.policy].is_set()]
        goals = [(c, len(c.acknowledged) + FLOWS) for c in cells]
        wait(lambda: all(len(c.acknowledged) >= goal for c, goal in goals), "all go on", SETTLED_S)


def lacking(cluster: Cluster, cells: Sequence[Cell]) -> None:
    """Note how many of them the log lacks at this moment, which it does not take for much longer."""
    with ThreadPoolExecutor(len(cells) or 1) as pool:
        for cell, missing in zip(cells, pool.map(lambda cell: cell.not_in_log(cluster), cells), strict=True):
            cell.lacked.append(len(missing))


def settled(cluster: Cluster, cell: Cell) -> bool:
    """Has the log what the active node shows? Where it has stopped there is nothing to wait for."""
    active = cluster.table(cell.partition).active
    if active is None:
        return True
    copy = cluster.copies(active.node).get(cell.partition)
    return copy is not None and (bool(copy["error"]) or copy["lsn"] >= copy["shown"])


def look(cluster: Cluster, cells: Cells) -> None:
    """What is left of each."""
    for cell in cells.values():
        wait(lambda c=cell: settled(cluster, c), f"the log of {cell.policy} has what is shown", SETTLED_S)  # type: ignore[misc]
        cell.gone = cell.not_in_log(cluster)
        copies = [cluster.copies(node).get(cell.partition) for node in cluster.nodes]
        ahead = [c for c in copies if c is not None and "nothing was deleted here" in (c["error"] or "")]
        cell.stopped = bool(ahead)
        cell.given_up = any(f"HALOG-1019 partition {cell.partition}" in cluster.log_of(n) for n in cluster.nodes)
        cell.kept = max((max(c["lsn"], c["beyond"]) for c in ahead), default=0)
    for cell, missing in ask(cluster, cells).items():
        cell.missing = missing


def ask(cluster: Cluster, cells: Cells) -> dict[Cell, set[int] | None]:
    """What a client does not find of each; all at once, since who asks in vain waits for that."""
    with ThreadPoolExecutor(len(cells)) as pool:
        return dict(pool.map(lambda cell: (cell, _ask(cluster.client(), cell)), cells.values()))


def _ask(node: RunningNode, cell: Cell) -> set[int] | None:
    with suppress(HalogError), node.transaction():
        return {a.number for a in cell.acknowledged} - {o.number for o in node.extent(cell.kind)}
    return None
