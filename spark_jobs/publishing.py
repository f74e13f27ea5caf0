"""This module writes what a comparison has found to the source's Kafka, for the nodes that merge there (S1, M2).

The initiating branches are closed first: they grow no more, and each names its merge. Then both branches are followed
and folded (`Comparison`), and the findings become records, in a directory of the checkpoint. From there they go to the
topic; when all are there, a manifest follows, and a znode that names it. Each step is noted when it is done, and done
again if it was not. Records that come twice count once, since each names its chunk, and no reader looks at a record
that no manifest counts. So the job may be killed at any moment, and started again with the same directory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from halog.core.ids import digest
from halog.core.log.transactions import UndecidedTransaction
from halog.errors import RefusedError
from halog.metadata import restore_requests as restores
from halog.metadata.identity import who
from halog.ports import TopicPartition
from halog.runtime.merge import closed_branch, spark_results as classified
from halog.runtime.merge.in_doubt import RemoteDecisions
from halog.runtime.support.adapters import SiteAccess
from halog.runtime.topics import topic_names
from restore.branch import Side
from restore.results import Manifest, packed, records_of
from restore.thread import Thread
from spark_jobs import progress as saved
from spark_jobs.branching import INITIATING, SIDES, SOURCE, branch_of
from spark_jobs.comparison import MAX_OFFSETS, Comparison, ComparisonReport, Tell
from spark_jobs.history import History, HistoryState
from spark_jobs.results import RESULTS, FollowedPartition, Results, ids_of, manifest
from spark_jobs.site import Site
from spark_jobs.snapshot import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLOSE_S: Final = 60.0
"""How long nodes may take to close a branch: their epochs end, and their log is fenced."""
LOOK_S: Final = 0.3
RESULTS_DIRECTORY: Final = "results"
PUBLISHED_DIRECTORY: Final = "published"
FOUND, SENT = "found", "sent"
"""The stages that are done."""


class PublishingProgress(msgspec.Struct, frozen=True):
    """A `PublishingProgress` is what a job that is started again must know, beside what the comparison notes."""

    job: str
    run: bytes
    stage: str = ""
    begin: dict[int, int] = {}
    """For each place, where the topic ended before all of it was sent there."""


_PUBLISHED: Final = msgspec.msgpack.Decoder(PublishingProgress)


class PublishingOutcome(NamedTuple):
    """A `PublishingOutcome` is what was found, and by partition how many objects were handed on."""

    report: ComparisonReport
    keys: dict[str, int]


def keep(site: str, source: SiteAccess, place: Place, read: HistoryState) -> None:
    """Hold the source's log until it has merged: it then reads what was done there since, and what was in doubt.
    `site`: the initiating one."""
    votes = (u.offset for u in History(read).ledger.undecided.values())
    classified.hold(source.coordinator, place.name, site, min([read.next_offset, *votes]))


class Publishing:
    """A `Publishing` is one job, for these partitions of a policy (none named: all), without those that are `done`:
    they were merged already. The configuration's own site is the initiating one."""

    def __init__(
        self,
        spark: SparkSession,
        site: Site,
        policy: str,
        source: str,
        checkpoint: Path,
        *,
        names: Collection[str] = (),
        done: Collection[str] = (),
        max_offsets: int = MAX_OFFSETS,
        tell: Tell = lambda stage, partitions, records: None,
        close_s: float = CLOSE_S,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._close_s = close_s
        self._pause = pause
        self._spark = spark
        self._site = site
        self._source = source
        self._directory = checkpoint
        self._topic = topic_names.merge_topic(site.config, policy)
        some = site.places_of([policy])
        self._topic_size = len(some)
        self._places = {p.name: p for p in some if (not names or p.name in names) and p.name not in done}
        self._comparison = Comparison(
            spark,
            site,
            policy,
            source,
            checkpoint,
            names=names,
            max_offsets=max_offsets,
            decide=self._decide,
            keep=partial(keep, site.config.site.name),
            tell=tell,
        )
        self._own = SiteAccess(site.config.site.name, site.log, site.coordinator)
        self._elsewhere = RemoteDecisions(self._own, source)
        self.closed: dict[str, Side] = {}
        """The branches that are closed here, by partition."""
        self._last_ms: dict[str, int] = {}
        self.published: PublishingProgress

    def run(self) -> PublishingOutcome:
        """Compare and publish. Any failure leaves a checkpoint to go on from. RefusedError where a branch is not closed
        in time, or has ended elsewhere than the job has seen it."""
        self.await_closed()
        report = self._comparison.run()
        forked = {n: p for n, p in self._places.items() if report.partitions[n].forked}
        for place in forked.values():
            self.check_end(place)
        self.published = self._load()
        remote = self._site.reach(self._source)
        try:
            manifests = self._manifests(forked, report)
            self.send(remote, forked)
            for name, manifest in manifests.items():
                self._tell(remote, forked[name], manifest)
        finally:
            remote.close()
        return PublishingOutcome(report, {name: manifest.keys for name, manifest in manifests.items()})

    # --- closed branches ---

    def await_closed(self) -> None:
        until = time.monotonic() + self._close_s
        while why := self._look():
            if time.monotonic() >= until:
                name, said = next(iter(why.items()))
                raise RefusedError(
                    f"partition {name}: {said}; `halog restore --spark` closes it first, as `halog site demote` does",
                    partition=name,
                )
            self._pause(LOOK_S)

    def _look(self) -> dict[str, str]:
        """Return why branches are not closed yet."""
        why: dict[str, str] = {}
        for name, place in self._places.items():
            if name in self.closed:
                continue
            found = closed_branch.closed_side(self._own, self._source, name, TopicPartition(place.log, place.index))
            if isinstance(found, Side):
                self.closed[name] = found
            else:
                why[name] = found
        return why

    def check_end(self, place: Place) -> None:
        """Check that the branch ends as it was closed, or as it ended since: behind that it may follow the source
        already."""
        ended = restores.closed_at(self._site.coordinator, place.name)
        ends = {self.closed[place.name].state.hash, b"" if ended is None else ended.hash}
        if self._end(place, INITIATING).state.hash not in ends:
            raise RefusedError(
                f"{self._directory} is of a look at {place.name} when its branch had not ended: give another directory",
                partition=place.name,
            )

    def _end(self, place: Place, side: int) -> HistoryState:
        return HistoryState.unpack(self._comparison.progress.carried[branch_of(place.index, side)])

    def _decide(self, place: Place, undecided: UndecidedTransaction) -> int | None:
        """Decide what was in doubt at the end of a branch, as the branch of its first partition says. Return the
        time of this branch's last record if it was committed, else None."""
        side = self.closed.get(place.name)
        if side is None or not self._elsewhere.committed(side, undecided):
            return None
        if place.name not in self._last_ms:
            (last,) = Thread(side.log, side.tp, side.end, side.state.hash, side.site).back_to(lambda link: True)
            self._last_ms[place.name] = last.time_ms
        return self._last_ms[place.name]

    # --- records ---

    def _load(self) -> PublishingProgress:
        directory, job = self._directory / PUBLISHED_DIRECTORY, self._comparison.progress.job
        found = saved.load_as(_PUBLISHED, directory, job)
        return found or self._save(PublishingProgress(job, os.urandom(16)))

    def _save(self, now: PublishingProgress) -> PublishingProgress:
        saved.save(self._directory / PUBLISHED_DIRECTORY, now)
        self.published = now
        return now

    def _manifests(self, forked: Mapping[str, Place], report: ComparisonReport) -> dict[str, Manifest]:
        """Return the manifests. What was found is in the checkpoint's directory then."""
        there = str(self._directory / RESULTS_DIRECTORY)
        if not self.published.stage:
            places = {name: place.index for name, place in self._places.items()}
            made = self._comparison.told().mapInArrow(Results(places, self.published.run), RESULTS)
            made.write.mode("overwrite").parquet(there)
            self._save(msgspec.structs.replace(self.published, stage=FOUND))
        chunks: dict[int, dict[bytes, int]] = {}
        for row in self._rows().where("keys > 0").select("place", "chunk", "keys").collect():
            chunks.setdefault(row.place, {})[bytes(row.chunk)] = row.keys
        return {name: self._manifest(place, chunks.get(place.index, {}), report) for name, place in forked.items()}

    def _rows(self) -> DataFrame:
        return self._spark.read.schema(RESULTS).parquet(str(self._directory / RESULTS_DIRECTORY))

    def _manifest(self, place: Place, chunks: Mapping[bytes, int], report: ComparisonReport) -> Manifest:
        progress, initiating = self._comparison.progress, branch_of(place.index, INITIATING)
        ends = {side: self._end(place, side) for side in SIDES}
        followed = FollowedPartition(ends, self._happened(place), progress.decided.get(initiating, {}))
        return manifest(report.partitions[place.name].fork, progress.before[initiating], followed, chunks)

    def _happened(self, place: Place) -> dict[int, list[bytes]]:
        """Return what happened, by side."""
        found: dict[int, list[bytes]] = {side: [] for side in SIDES}
        told = self._comparison.folded_rows().where("carried IS NOT NULL").where(f"place = {place.index}")
        for row in told.select("side", "ids").collect():
            found[row.side] += ids_of(row.ids)
        return found

    # --- the topic ---

    def send(self, remote: SiteAccess, forked: Mapping[str, Place]) -> None:
        """Send all records, if that was not done; some may come twice."""
        if self.published.stage == SENT or not forked:
            return
        remote.log.ensure_topic(self._topic, self._topic_size, keep_ms=classified.KEPT_MS)
        begin = {p.index: remote.log.bounds(TopicPartition(self._topic, p.index))[1] for p in forked.values()}
        self._save(msgspec.structs.replace(self.published, begin=begin))
        kafka = self._site.kafka_of(self._source)
        (
            self._rows()
            .selectExpr("place AS partition", "value")
            .write.format("kafka")
            .options(**kafka.spark())
            .option("topic", self._topic)
            .save()
        )
        self._save(msgspec.structs.replace(self.published, stage=SENT))

    def _tell(self, remote: SiteAccess, place: Place, manifest: Manifest) -> None:
        """Write the manifest and the znode, by which the node that merges finds the records."""
        run, chunk, tp = self.published.run, packed(manifest), TopicPartition(self._topic, place.index)
        for value in records_of(run, chunk):
            remote.log.put(tp, b"", value)
        found = classified.ClassifiedResult(
            manifest.merge.hex(),
            run.hex(),
            digest(chunk).hex(),
            self._topic,
            self.published.begin[place.index],
            remote.log.bounds(tp)[1],
            who(),
            time.time_ns() // 1_000_000,
        )
        keep(self._own.name, remote, place, self._end(place, SOURCE))  # for as long again: the job may have rested
        classified.publish(remote.coordinator, place.name, found)
