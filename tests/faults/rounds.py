"""Two real sites that part and are made one again, time after time, and what each of them is to have then."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from halog.cli.shared.connection import connect
from halog.cli.shared.partition_log import PartitionLog
from halog.core.log.chain import Verdict
from halog.core.log.records import EpochMerged
from halog.metadata import restore_requests as restores
from halog.metadata.restore_requests import ASKED, DONE, ENDED, MERGING, NOTHING, READING, SETTLING
from tests import forked
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import tails
from tests.integration.cluster.processes import wait
from tests.integration.sites.test_restoring import REACHED_S, argv_of, halog
from tests.integration.sites.test_taking_over import command, land, landings, level
from tests.integration.sites.two import EAST, TwoSites

CLOSING = "closing"
"""West has been told to stop, and nobody has asked for the merge yet."""
STEPS = (CLOSING, ASKED, READING, SETTLING, MERGING)
SOON_S = 0.002
"""Steps of a command take milliseconds."""
SHARED = "S"


def alone(cluster: Cluster) -> None:
    command(cluster, "promote", "--may-fork", "--cluster", cluster.name)


class Rounds:
    """East is the source each time, and serves afterwards; west mirrors it until they are cut off again."""

    def __init__(self, two_sites: TwoSites) -> None:
        self.two_sites = two_sites
        self.west = two_sites.west
        self.east = two_sites.east
        two_sites.start()
        self.served = self.west
        self.number = self.shared = self.undone = 0
        self._land(self.west, SHARED)
        self.shared = 1
        self._before: dict[str, restores.RestoreRequest] = {}
        """What was asked for before the command began."""
        self.made: dict[str, int] = {}
        """What one site alone has made, that is to be there, and how often it has landed."""
        level(two_sites)

    def _land(self, cluster: Cluster, tail: str, times: int = 1) -> None:
        land(cluster.client(), tail, times)

    def _own(self, site: str) -> list[str]:
        """One aircraft in each partition, that nobody else has in this round."""
        found = tails(self.west.client(), f"{site}{self.number}-")
        return [tail for (tail,) in found.values()]

    def part(self, goes_on: Callable[[Cluster], object] = alone) -> None:
        """Both serve: each changes the aircraft that both know, and makes one of its own in each partition. `goes_on`:
        makes a site do so that mirrors the other one, and does not reach it."""
        self.two_sites.between.cut()
        goes_on(self.east if self.served is self.west else self.west)
        for cluster in (self.west, self.east):
            cluster.whole()
        for cluster, site, times in ((self.west, "W", 3), (self.east, "E", 2)):
            self._land(cluster, SHARED, times)
            for tail in self._own(site):
                self._land(cluster, tail)
                self.made[tail] = 1
        self.two_sites.between.heal()
        self.shared = self.shared + 2
        self.served = self.east
        self.number += 1

    def check(self) -> None:
        """Both sites have what the source had, and what only the other one had made, of all rounds."""
        for cluster in (self.west, self.east):
            if killed := [n for n in cluster.nodes if n not in cluster.running()]:
                cluster.start(killed)
        level(self.two_sites)
        assert {tail: landings(self.east, tail) for tail in self.made} == self.made
        assert landings(self.east, SHARED) == self.shared
        wait(lambda: not self._parted(), "both sites tell of one history")

    def check_once(self) -> None:
        """Each branch was merged once, and what was undone was undone once, by the logs of both sites."""
        for cluster in (self.west, self.east):
            for partition, found in merges(cluster).items():
                assert len(found) == len(set(found)) == self.number + self.undone, (partition, found)

    def _parted(self) -> list[Any]:
        return [*halog_said(self.west, "status")["parted"], *halog_said(self.east, "status")["parted"]]

    def undo(self) -> None:
        """What west alone had made in this round is gone; all else is as the source had it."""
        self.made = {tail: n for tail, n in self.made.items() if not tail.startswith(f"W{self.number - 1}-")}
        self.undone += 1

    # --- a restore ---

    @contextmanager
    def restore(self, step: str) -> Iterator[subprocess.Popen[str]]:
        """The command, when that step of it was seen, or one behind it."""
        self._before = self.asked()
        argv = argv_of(self.west, "restore", "--source", EAST, "--timeout", "60")
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as begun:
            try:
                deadline = time.monotonic() + REACHED_S
                while not self._is_at(step) and begun.poll() is None:
                    assert time.monotonic() < deadline, f"{step} is not reached"
                    time.sleep(SOON_S)
                yield begun
            finally:
                with suppress(ProcessLookupError):
                    begun.kill()

    def asked(self) -> dict[str, restores.RestoreRequest]:
        """By partition, the restore that was asked for last."""
        found = {p: self.east.znode(f"restores/{p}") for p in self.east.partitions()}
        return {
            p: msgspec.json.decode(data, type=restores.RestoreRequest) for p, data in found.items() if data is not None
        }

    def _is_at(self, step: str) -> bool:
        if step == CLOSING:
            return any(t.owner == EAST for t in self.west.tables())
        now = self._new()
        return any(r.phase in ENDED or STEPS.index(r.phase) >= STEPS.index(step) for r in now.values())

    def _new(self) -> dict[str, restores.RestoreRequest]:
        """Those that were asked for since the command began."""
        before = self._before
        return {p: r for p, r in self.asked().items() if p not in before or r.at_ms != before[p].at_ms}

    def is_over(self, partition: str) -> bool:
        """Has its restore ended? Then whoever is killed now, or was just before, had done what it had to do."""
        now = self._new().get(partition)
        return now is not None and now.ended

    def ends(self, begun: subprocess.Popen[str]) -> None:
        """By itself; or asked for once more it says that it is done, or that nothing is left to do: `check` knows."""
        out, err = begun.communicate(timeout=150)
        told = json.loads(out) if begun.returncode == 0 else halog(self.west, "restore", "--source", EAST)
        assert {d["phase"] for d in told} <= {DONE, NOTHING}, (told, err)


def halog_said(cluster: Cluster, *words: str) -> Any:
    """Its document, whatever its exit code says of how well all is."""
    done = forked.run(argv_of(cluster, *words)[2:], timeout=120)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def merges(cluster: Cluster) -> dict[str, list[str]]:
    """Of each partition, those that count, in the order of the site's log."""
    with connect(cluster.toml, REACHED_S) as connection:
        return {
            table.name: [
                item.record.merge.hex()
                for item in PartitionLog(connection, table).all()
                if isinstance(item.record, EpochMerged) and item.verdict == Verdict.OPENED.value
            ]
            for table in connection.tables
        }
