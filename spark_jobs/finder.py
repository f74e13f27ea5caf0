"""The finder finds every object of a policy whose mapper says that it belongs elsewhere (S1).

It runs two streaming queries, as a node restores a copy: the state topic to its end, then the log from the marker that
was found there. Each reads what there is and ends (availableNow), in micro-batches. What a micro-batch finds goes to
the mover before its end is noted. So nothing is left out, whatever happens, and some objects may come twice. Objects
that a mover moves meanwhile are written to the log, where they are seen again, at their new place.

While it runs, and `hold_ms` longer, the logs are held (`halog log holds`) from where the job stands. A job that was
killed goes on from its checkpoint. If the log was trimmed beyond a checkpoint, the checkpoint is worth nothing: the job
starts over, and says so. The job is over when all of the log is read up to the last snapshot's marker, as the
coordinator knew it when the state topic had been read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from halog.config import Config
from halog.errors import ConfigError, LogError, RefusedError
from halog.ports import TopicPartition
from halog.runtime.keys.key_owners import layout_of
from halog.runtime.topics import ledger_rows
from halog.runtime.topics.state_topic import MARKER, check_format, check_kinds, read_marker
from spark_jobs import kafka, progress as saved
from spark_jobs.finding import (
    CARRIED,
    COLUMNS,
    GONE,
    LOG_COLUMNS,
    ROWS,
    STATE_COLUMNS,
    STATE_ROWS,
    TOPIC,
    ExecutorFindings,
    FindInLog,
    FindInState,
    Task,
)
from spark_jobs.history import HistoryState
from spark_jobs.holds import Holds, hold_name
from spark_jobs.micro_batches import drain
from spark_jobs.mover import Mover
from spark_jobs.placing import PlacementBasis as PlaceMapping
from spark_jobs.progress import LOG, STATE, FinderProgress
from spark_jobs.site import Site
from spark_jobs.snapshot import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("halog.spark")

CHUNK: Final = 1_000
"""How many objects are handed to the mover at once."""
MAX_OFFSETS: Final = 2_000_000
"""Rows of one micro-batch. A kill costs some fifteen seconds of work, and what is found, 200 MB at most, fits the
driver."""
HOLD_MS: Final = 900_000
"""How long it may take until a job that was killed is restarted: somebody has to notice it."""
WHY: Final = "a Spark job looks for objects that belong elsewhere"
"""The reason given for its holds."""
PASSES: Final = 20
"""How often a topic is read that goes on growing, or whose end an open transaction hides."""
HIDDEN_S: Final = 1.0
"""The pause before a topic whose end is hidden is read again. Kafka ends a dead writer's transaction after 10 s."""


class FinderReport(NamedTuple):
    """A `FinderReport` says what a job did."""

    rows: int
    """Objects and changes looked at. An object that was written several times counts as often."""
    counts: dict[str, int]
    """The mover's counts."""
    batches: int
    seconds: float
    lsns: dict[str, int]
    """For each partition, the lsn up to which everything was looked at."""
    started_over: str
    """Why the checkpoint was not used; empty: it was, or there was none."""


Tell = Callable[[str, int, int], None]
"""Reports progress: (stage, partitions, rows so far)."""


class Finder:
    """A `Finder` is one job. `wanted`: the configuration whose mapping is to hold; the cluster's own may differ."""

    def __init__(
        self,
        spark: SparkSession,
        site: Site,
        wanted: Config,
        policy: str,
        mover: Mover,
        checkpoint: Path,
        *,
        max_offsets: int = MAX_OFFSETS,
        hold_ms: int = HOLD_MS,
        tell: Tell = lambda stage, partitions, rows: None,
    ) -> None:
        self._spark = spark
        self._site = site
        self._policy = policy
        self._mover = mover
        self._directory = checkpoint
        self._max_offsets = max_offsets
        self._tell = tell
        self._places = {place.index: place for place in site.places_of([policy])}
        if not self._places:
            raise ConfigError(f"the cluster has no partitions of policy {policy}")
        self._task = _task(site, wanted, self._places)
        self._holds = Holds(site, hold_name("rebalance", policy, checkpoint), self._places, hold_ms, WHY)
        self._progress = FinderProgress(_job(site, wanted, policy))
        self._batches = 0

    def run(self) -> FinderReport:
        """Find everything, and hand it over. Any failure leaves a checkpoint to go on from."""
        began, why = time.monotonic(), self._resume()
        if self._progress.stage == STATE:
            self._holds.everything()
            self._read_state()
        self._read_log()
        self._holds.release()
        return self._report(time.monotonic() - began, why)

    def leave(self) -> FinderReport:
        """Find nothing more, since nothing is left, and release the logs. The report is of earlier runs from this
        checkpoint."""
        self._progress = saved.load(self._directory, self._progress.job) or self._progress
        self._holds.release()
        return self._report(0.0, "")

    def _report(self, seconds: float, why: str) -> FinderReport:
        rows = self._progress.counts.get("rows", 0)
        counts = {name: n for name, n in self._progress.counts.items() if name != "rows"}
        return FinderReport(rows, counts, self._batches, seconds, dict(sorted(self._lsns().items())), why)

    def _resume(self) -> str:
        """Go on from the checkpoint if possible; return why not, or ""."""
        found = saved.load(self._directory, self._progress.job)
        if found is None:
            saved.save(self._directory, self._progress)
            return ""
        self._progress = found
        why = ""
        if found.stage == LOG:
            try:
                self._holds.keep(self._offsets())
            except RefusedError as error:
                why = f"the checkpoint stands behind what is left of the log: {error.message}"
                logger.warning("%s; starting over from the state topic", why)
                self._progress = saved.start_over(self._directory, found)
        return why

    # --- the state topic ---

    def _read_state(self) -> None:
        """Read until a marker is seen that is at least as new as the one the coordinator knows now: the log behind that
        is held."""
        goal = self._goal()
        begin = {place.state: dict.fromkeys(self._places, 0) for place in self._places.values()}
        for _ in range(PASSES):
            stream = kafka.stream(self._spark, self._site.kafka, begin, max_offsets=self._max_offsets)
            self._run(stream.where(STATE_ROWS).selectExpr(*STATE_COLUMNS), lambda: FindInState(self._task))
            carried = {index: self._known(place) for index, place in self._places.items()}
            if hidden := [p.name for i, p in self._places.items() if carried[i].state.lsn < goal[p.name]]:
                logger.info("the state topic of %s does not show its last marker yet", ", ".join(hidden))
                time.sleep(HIDDEN_S)
                continue
            packed = {index: one.pack() for index, one in carried.items()}
            progress = self._progress
            self._save(FinderProgress(progress.job, progress.attempt, LOG, -1, progress.counts, {}, packed))
            return
        raise LogError(
            f"the state topic of {hidden[0]} does not show the marker that the coordinator names: a transaction in it "
            "is open; try again"
        )

    def _known(self, place: Place) -> HistoryState:
        """Return what the state topic says of the log's beginning. LogError if it says nothing, and the log was
        trimmed."""
        rows = self._progress.topic.get(place.index, {})
        marked = read_marker(rows[MARKER]) if MARKER in rows else None
        start = self._site.log.bounds(TopicPartition(place.log, place.index))[0]
        if marked is None or marked.position.state.log_id.hex() != place.log_id:
            if start > 0:
                if MARKER in rows:
                    check_format(rows[MARKER], TopicPartition(place.state, place.index))
                raise LogError(
                    f"the log of {place.name} begins at offset {start}, and no snapshot covers what is missing"
                )
            return HistoryState(0, place.empty)
        check_kinds(rows, TopicPartition(place.state, place.index))
        position = marked.position
        ledger = ledger_rows.restored(rows, position.state.lsn, marked.rows, position.settled)
        kept = tuple(ledger_rows.rows(ledger))
        return HistoryState(position.next_offset, position.state, kept, position.settled)

    def _goal(self) -> dict[str, int]:
        return {place.name: self._marked(place) for place in self._places.values()}

    def _marked(self, place: Place) -> int:
        """Return the lsn of the last snapshot, as the coordinator knows it."""
        found = self._site.coordinator.get(f"snapshots/{place.name}")
        return 0 if found is None else int(found.data.split()[0])

    # --- the log ---

    def _read_log(self) -> None:
        """Read until everything up to the marker that is the last one now is read. What is moved meanwhile makes new
        ones."""
        topics = {place.log for place in self._places.values()}
        goal = self._goal()
        for _ in range(PASSES):
            if self._at_end() and self._has(goal):
                return
            self._holds.keep(self._offsets())
            begin = {topic: self._offsets() for topic in topics}
            stream = kafka.stream(self._spark, self._site.kafka, begin, max_offsets=self._max_offsets)
            self._run(stream.selectExpr(*LOG_COLUMNS), lambda: FindInLog(self._task, dict(self._progress.carried)))
            if self._has(goal):
                return
        raise LogError("the log grows faster than it is read; start the job again with the same checkpoint")

    def _at_end(self) -> bool:
        """Say whether there is nothing to read, so that no query need be started."""
        at = self._offsets()
        ends = {i: self._site.log.bounds(TopicPartition(p.log, p.index))[1] for i, p in self._places.items()}
        return all(at[index] >= end for index, end in ends.items())

    def _has(self, goal: Mapping[str, int]) -> bool:
        lsns = self._lsns()
        return all(lsns[name] >= lsn for name, lsn in goal.items())

    def _offsets(self) -> dict[int, int]:
        return {index: HistoryState.unpack(data).next_offset for index, data in self._progress.carried.items()}

    def _lsns(self) -> dict[str, int]:
        return {self._places[i].name: HistoryState.unpack(d).state.lsn for i, d in self._progress.carried.items()}

    # --- micro-batches ---

    def _run(self, stream: DataFrame, work: Callable[[], Any]) -> None:
        """Read everything there is now. `work` makes what executors do, anew for each micro-batch."""
        progress = self._progress
        drain(stream, progress.directory(self._directory), progress.batch, lambda f, n: self._take(f, n, work()))

    def _take(self, frame: DataFrame, number: int, work: Any) -> None:
        told = ExecutorFindings(frame.mapInArrow(work, COLUMNS).toArrow())
        progress, counts = self._progress, {"rows": sum(told.column(ROWS, "lsn"))}
        topic = {index: dict(rows) for index, rows in progress.topic.items()}
        self._hand_over(told, counts)
        for index, place in self._places.items():
            for gone in told.slices(GONE, index):
                _add(counts, self._mover.gone(place.name, gone.column("key").to_pylist()))
            for other in told.slices(TOPIC, index):
                _noted(topic.setdefault(index, {}), other)
        _add(counts, self._mover.settle())
        carried = {**progress.carried, **dict(zip(told.column(CARRIED, "place"), told.column(CARRIED, "value")))}
        self._save(
            FinderProgress(
                progress.job, progress.attempt, progress.stage, number, progress.counted(counts), topic, carried
            )
        )
        self._batches += 1
        self._tell(progress.stage, len(self._places), self._progress.counts.get("rows", 0))

    def _hand_over(self, told: ExecutorFindings, counts: dict[str, int]) -> None:
        """Hand over everything that was found, a chunk of each partition in turn, so that a mover can work on several
        partitions."""
        waiting = {place.name: told.found(index, CHUNK) for index, place in self._places.items()}
        while waiting:
            for partition, chunks in list(waiting.items()):
                found = next(chunks, None)
                if found is None:
                    del waiting[partition]
                    continue
                _add(counts, {"found": len(found)})
                _add(counts, self._mover.move(partition, found))
                self._holds.renew()

    def _save(self, progress: FinderProgress) -> None:
        saved.save(self._directory, progress)
        self._progress = progress
        if progress.stage == LOG:
            self._holds.move_to(self._offsets())
        self._holds.renew()


def _add(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, n in more.items():
        counts[name] = counts.get(name, 0) + n


def _noted(known: dict[bytes, bytes], rows: pa.Table) -> None:
    for key, value in zip(rows.column("key").to_pylist(), rows.column("value").to_pylist()):
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value


def _task(site: Site, wanted: Config, places: dict[int, Place]) -> Task:
    definitions = site.definitions.all()
    current = {d.name: site.definitions.current(d.name).text for d in definitions}
    mapping = PlaceMapping(wanted, current, site.held)
    stored = {d.type_id: d.text for d in definitions}
    return Task(mapping, stored, places, site.kafka, site.definitions.tp.topic)


def _job(site: Site, wanted: Config, policy: str) -> str:
    """Return a text that is equal for two jobs that do the same."""
    p = wanted.policies[policy]
    logs = ",".join(place.log_id[:8] for place in site.places_of([policy]))
    version = layout_of(wanted, policy).mapper_version  # of code that judged what was read already
    to = f"{p.mapper} (version {version}), {p.partitions} partitions, ring {p.ring_size}"
    return f"{wanted.cluster.name}.{policy} ({logs}) to {to}"
