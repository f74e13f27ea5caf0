"""This module changes a policy's mapping: Spark finds what is to move, and the nodes move it (S1, P13, T8).

The job begins the change, or joins it where it is under way. It says that it does the bulk of it
(`halog.metadata.move_jobs`), shows every object to the mapper, hands those that belong elsewhere to the nodes, and says
that it has ended. Then it waits until the nodes have looked through their partitions and found nothing that is left. It
can be killed at any point and started again, from its checkpoint or without; if nobody starts it, the nodes go on by
themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from halog.config import Config
from halog.core.keys.mapping import Layout
from halog.metadata import mapped_policies
from halog.metadata.move_jobs import JobAnnouncement
from halog.runtime.remap import remap_request as wishes
from halog.runtime.remap.announcement import Announcement
from halog.runtime.remap.remap_request import DONE, MOVES, RemapProgress
from halog.runtime.rpc.router import Router
from spark_jobs.finder import HOLD_MS, Finder, FinderReport, Tell
from spark_jobs.node_mover import ATTEMPT_S, NodeMover
from spark_jobs.site import Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_OFFSETS: Final = 100_000
"""Rows of one micro-batch. A kill costs half a minute of moving; the overhead of a micro-batch is a second."""
Seen = Callable[[RemapProgress], None]


class MovingOutcome(NamedTuple):
    """A `MovingOutcome` is what came of the change."""

    progress: RemapProgress
    report: FinderReport


class MovingJob(NamedTuple):
    """A `MovingJob` is one change by Spark. `wait_s`: how long the change may take to open, and again how long to be
    done after the job."""

    site: Site
    spark: SparkSession
    wanted: Config
    policy: str
    checkpoint: Path
    wait_s: float
    max_offsets: int = MAX_OFFSETS
    hold_ms: int = HOLD_MS
    tell: Tell = lambda stage, partitions, rows: None
    seen: Seen = lambda progress: None

    def run(self) -> MovingOutcome:
        """Run the change. Whatever ends it, it can be run again with the same checkpoint.

        RefusedError: the change cannot be begun, or was turned back, or another job goes on with this one's work;
        DeadlineError: the nodes are not done in time, and go on; AvailabilityError: no node answers.
        """
        coordinator, policy = self.site.coordinator, self.policy
        layout, router = wishes.wished(self.wanted, policy), self.site.router(ATTEMPT_S)
        wishes.check(coordinator, router, self.wanted, policy)
        version = wishes.version_to_be(mapped_policies.read(coordinator, policy).mapping, layout)
        by = f"{self.site.name}-{time.time_ns()}"
        with Announcement(coordinator, policy, JobAnnouncement(by, version)) as announcement:
            version = wishes.join(coordinator, router, self.wanted, policy)
            self._wait(version, layout, (MOVES, DONE))
            report = self._find(version, router, announcement)
        self._wait(version, layout, (DONE,))
        return MovingOutcome(wishes.progress(coordinator, policy), report)

    def _wait(self, version: int, layout: Layout, states: tuple[str, ...]) -> None:
        coordinator = self.site.coordinator
        wishes.wait_until_done(coordinator, self.policy, version, layout, self.wait_s, self.seen, states)

    def _find(self, version: int, router: Router, announcement: Announcement) -> FinderReport:
        site = self.site
        site.look()  # a change may have added partitions

        def tell(stage: str, partitions: int, rows: int) -> None:
            announcement.beat()
            self.tell(stage, partitions, rows)

        with NodeMover(router, version, announcement.beat) as mover:
            finder = Finder(
                self.spark,
                site,
                self.wanted,
                self.policy,
                mover,
                self.checkpoint,
                max_offsets=self.max_offsets,
                hold_ms=self.hold_ms,
                tell=tell,
            )
            done = wishes.progress(site.coordinator, self.policy).state == DONE
            return finder.leave() if done else finder.run()
