"""This module follows the two logs of a forked policy forwards, and keeps what each branch did behind the fork on disk.

There are two streaming queries over both sites' Kafka. The first follows every log to where it ended when the job
looked first; where the logs stand then tells the fork of each partition. The second goes on from the last place in
front of the fork, and writes what was committed behind it, folded, a directory for each micro-batch. A micro-batch that
is done again writes its directory again; only those that are noted as done are read. So every transaction is in there
once, however often the job is killed. `Comparison.rows` puts the pieces together and classifies them, whenever it is
asked.

While the job reads, and `hold_ms` longer, both sites' logs are held from where it stands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from halog.errors import ConfigError, DivergedError, LogError
from halog.metadata.partition_tables import table_of
from halog.ports import Log
from halog.runtime.support.adapters import SiteAccess
from restore.divergence import AcceptedRecord
from spark_jobs import kafka, progress as saved, shared
from spark_jobs.branching import (
    FOLDED,
    INITIATING,
    LOG_COLUMNS,
    SIDES,
    SOURCE,
    TRACED,
    Branch,
    BranchRelation,
    FoldBranch,
    Trace,
    TracedLog,
    branch_of,
    parted,
    unpack_accepted,
)
from spark_jobs.classifying import Gone
from spark_jobs.history import HistoryState
from spark_jobs.holds import HeldSite, Holds, hold_name
from spark_jobs.in_doubt import Decide, decided_rows
from spark_jobs.micro_batches import drain
from spark_jobs.pieces import IDS, classify_all, on_both
from spark_jobs.site import Site, check_sites
from spark_jobs.snapshot import Place, begins_at
from spark_jobs.waypoints import last_before, thinned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_OFFSETS: Final = 1_000_000
"""Records of one micro-batch, of each site. A kill costs so many, some ten seconds. Executors keep a thousand of
them."""
HOLD_MS: Final = 900_000
"""How long it may take until a job that was killed is started again."""
PASSES: Final = 20
"""How often a log is read whose end an open transaction hides."""
HIDDEN_S: Final = 1.0
WHY: Final = "a Spark job compares two sites' histories"

TRACE, BEHIND, READ = "trace", "behind", "read"
"""The stages."""
FOLDED_DIRECTORY: Final = "folded"

Tell = Callable[[str, int, int], None]
"""Reports progress: (stage, partitions, records so far)."""
Keep = Callable[[SiteAccess, Place, HistoryState], None]
"""Takes the source, a partition of it that has forked, and how far its log was read."""
Done = Callable[["DataFrame", int], "ComparisonProgress"]
"""Returns the progress after a micro-batch."""
NOT_KNOWN: Final = BranchRelation(False, "", 0)


class ComparisonProgress(msgspec.Struct, frozen=True):
    """A `ComparisonProgress` is what a comparison that is started again must know. Branches are numbered by
    `branch_of`."""

    job: str
    ends: dict[int, int]
    """Where each log ended at the first look."""
    stage: str = TRACE
    batch: int = -1
    """The last micro-batch of the stage that is done."""
    carried: dict[int, bytes] = {}
    """How far each log was followed in this stage."""
    waypoints: dict[int, list[bytes]] = {}
    """Earlier such places, oldest first."""
    recovered: dict[int, list[AcceptedRecord]] = {}
    parted: dict[int, BranchRelation] = {}
    """How branches parted, by place; known after the first stage."""
    before: dict[int, bytes] = {}
    """The hash of the record that a branch stands on, for branches whose beginning was met."""
    gone: tuple[Gone, ...] = ()
    """Transactions that turned out to be on the other branch as well; known when all was read."""
    decided: dict[int, dict[bytes, bool]] = {}
    """Transactions that were in doubt where a branch ends, and which of them were committed; known then, too."""
    definitions: tuple[str, ...] = ()
    """The definitions of types that have several, as both sites knew them when all was read; the source's come
    first."""
    out: str = ""
    """The directory that this job wrote to last."""

    def offset(self, number: int) -> int:
        """Return how far a branch was followed."""
        return HistoryState.unpack(self.carried[number]).next_offset

    def traced(self, number: int) -> TracedLog:
        """Return what the first stage has found out about a branch."""
        return TracedLog(HistoryState.unpack(self.carried[number]).state, self.recovered.get(number, []))

    def places_of(self, number: int) -> list[bytes]:
        """Return all known places of a branch in this stage, oldest first."""
        return [*self.waypoints.get(number, ()), self.carried[number]]


_PROGRESS: Final = msgspec.msgpack.Decoder(ComparisonProgress)


class ComparisonReport(NamedTuple):
    """A `ComparisonReport` says how the branches of each partition are related; micro-batches and seconds are those of
    this run alone."""

    partitions: dict[str, BranchRelation]
    batches: int
    seconds: float


class Comparison:
    """A `Comparison` is one job, for these partitions of the policy (none named: all).

    `source`: the other site; the configuration's own site is the initiating one. `decide`: what became of transactions
    in doubt where initiating branches end; otherwise they count as not committed. `keep`: called when all was read,
    before the logs are released. ConfigError where nothing can be compared.
    """

    def __init__(
        self,
        spark: SparkSession,
        site: Site,
        policy: str,
        source: str,
        checkpoint: Path,
        *,
        names: Collection[str] = (),
        max_offsets: int = MAX_OFFSETS,
        hold_ms: int = HOLD_MS,
        decide: Decide | None = None,
        keep: Keep | None = None,
        tell: Tell = lambda stage, partitions, records: None,
    ) -> None:
        places = {p.index: p for p in site.places_of([policy]) if not names or p.name in names}
        check_sites(site, policy, source, places)
        self._spark = spark
        self._site = site
        self._source = source
        self._directory = checkpoint
        self._max_offsets = max_offsets
        self._hold_ms = hold_ms
        self._tell = tell
        self._places = {INITIATING: places, SOURCE: dict[int, Place]()}
        self._hold_name = hold_name("merge", policy, checkpoint)
        logs = ",".join(place.log_id[:8] for place in places.values())
        job = f"{site.config.cluster.name}.{policy} ({logs}) of {source} and {site.config.site.name}"
        self._keep = keep
        self._decide = decide
        job = job if decide is None else f"{job}, to be merged"
        self._progress = ComparisonProgress(job, {})
        self._holds: list[Holds] = []
        self._batches = 0

    def run(self) -> ComparisonReport:
        """Read both logs, as far as that is not done. Any failure leaves a checkpoint to go on from."""
        began = time.monotonic()
        found = saved.load_as(_PROGRESS, self._directory, self._progress.job)
        if found is not None:
            self._progress = found
        if self._progress.stage != READ:
            remote = self._site.reach(self._source)
            try:
                self._read(remote)
            finally:
                remote.close()
        names = {index: place.name for index, place in self._places[INITIATING].items()}
        related = {names[index]: one for index, one in sorted(self._progress.parted.items())}
        return ComparisonReport(related, self._batches, time.monotonic() - began)

    def rows(self, *, three_way: bool = True) -> DataFrame:
        """Return every key that either branch touched, classified; lazy. `CLASSIFIED` has the columns."""
        return self.told(three_way=three_way).drop(*IDS)

    def told(self, *, three_way: bool = True) -> DataFrame:
        """Return the same with all columns of `CLASSIFIED`."""
        places, progress = self._places[INITIATING], self._progress
        names = [places[i].name if i in places else "" for i in range(max(places) + 1)]
        return classify_all(self.folded_rows(), names, progress.gone, progress.definitions, three_way=three_way)

    @property
    def progress(self) -> ComparisonProgress:
        """Return what the job has found out."""
        return self._progress

    def folded_rows(self) -> DataFrame:
        """Return `FOLDED`, as far as it has been read."""
        files = [str(self._folded_at(number)) for number in range(self._progress.batch + 1)]
        files += [str(self._decided_at)] if self._decided_at.exists() else []
        if not files:
            return self._spark.createDataFrame([], FOLDED)
        return self._spark.read.schema(FOLDED).parquet(*files)

    def writes(self, out: Path) -> None:
        """Note that `out` is about to be written over. ConfigError for a directory with anything that this job has not
        written."""
        name = str(out.absolute())
        if self._progress.out != name and out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"{out} is there, and nothing that this job has written from {self._directory}")
        self._save(msgspec.structs.replace(self._progress, out=name))

    # --- reading ---

    def _read(self, remote: SiteAccess) -> None:
        tables = [table_of(remote.coordinator, place.name) for place in self._places[INITIATING].values()]
        state = {index: place.state for index, place in self._places[INITIATING].items()}  # named alike at both sites
        self._places[SOURCE] = {
            t.index: Place(t.name, t.index, t.topic, state[t.index], t.log_id, remote.name, t.home) for t in tables
        }
        if not self._progress.ends:
            self._begin({SOURCE: remote.log, INITIATING: self._site.log})
        shared.check(self._spark, self._directory)
        sites: list[HeldSite] = [remote, self._site]
        self._holds = [Holds(sites[s], self._hold_name, self._places[s], self._hold_ms, WHY) for s in SIDES]
        if self._progress.stage == TRACE:
            self._follow(Trace, TRACED, self._traced)
            self._find_forks()
        self._follow(FoldBranch, FOLDED, self._folded)
        self._check_forks()
        decided = {} if self._decide is None else self._settle(self._decide)
        gone = on_both(self.folded_rows())
        if self._keep is not None:
            for number, side, place in self._branches():
                if side == SOURCE:
                    self._keep(remote, place, HistoryState.unpack(self._progress.carried[number]))
        found = self._site.definitions_of_versions(remote)
        self._save(msgspec.structs.replace(self._progress, gone=gone, decided=decided, definitions=found, stage=READ))
        for held in self._holds:
            held.release()

    def _branches(self) -> Iterator[tuple[int, int, Place]]:
        """Yield (number, side, place) of the branches that are followed in this stage; at the beginning, of all."""
        for side in SIDES:
            for index, place in self._places[side].items():
                number = branch_of(index, side)
                if not self._progress.ends or number in self._progress.carried:
                    yield number, side, place

    def _begin(self, logs: Mapping[int, Log]) -> None:
        """Note where each log begins and ends. LogError where a log is trimmed, and no snapshot has what is missing."""
        ends, carried = {}, {}
        for number, side, place in self._branches():
            begin, end = begins_at(logs[side], place)
            ends[number], carried[number] = max(end, begin.next_offset), begin.pack()
        self._save(msgspec.structs.replace(self._progress, ends=ends, carried=carried))

    def _follow(self, work: Callable[[dict[int, Branch]], Any], columns: str, done: Done) -> None:
        """Follow every log of the stage to its end. RefusedError if one was trimmed meanwhile."""
        progress = self._progress
        for side in SIDES:
            places = {place.index: number for number, of, place in self._branches() if of == side}
            first = {i: HistoryState.unpack(progress.places_of(number)[0]).next_offset for i, number in places.items()}
            self._holds[side].keep(first)

        def take(frame: DataFrame, number: int) -> None:
            self._save(done(frame.mapInArrow(work(self._wanted()), columns), number))
            self._batches += 1
            offsets = [self._progress.offset(branch) for branch, _, _ in self._branches()]
            self._tell(progress.stage, len(offsets) // len(SIDES), sum(offsets))
            for held in self._holds:
                held.renew()

        for _ in range(PASSES):
            if not (left := self._left()):
                return
            drain(self._stream(), self._directory / f"{progress.stage}-query", self._progress.batch, take)
            if self._left() == left:
                time.sleep(HIDDEN_S)
        raise LogError(f"the log of {left[0]} does not show its end: a transaction in it is open; try again")

    def _left(self) -> list[str]:
        """Return the logs that are not followed to their end yet."""
        progress = self._progress
        return [
            f"{place.name} at site {place.site}"
            for number, _, place in self._branches()
            if progress.offset(number) < progress.ends[number]
        ]

    def _stream(self) -> DataFrame:
        """Return both sites' rows; a query that was begun goes on where its checkpoint stands."""
        sites = {SOURCE: self._site.kafka_of(self._source), INITIATING: self._site.kafka}
        frames = []
        for side in SIDES:
            begin: dict[str, dict[int, int]] = {}
            for number, of, place in self._branches():
                if of == side:
                    begin.setdefault(place.log, {})[place.index] = self._progress.offset(number)
            rows = kafka.stream(self._spark, sites[side], begin, max_offsets=self._max_offsets)
            frames.append(rows.selectExpr(f"{side} AS side", *LOG_COLUMNS))
        return frames[SOURCE].unionAll(frames[INITIATING])

    def _wanted(self) -> dict[int, Branch]:
        """Return the branches that executors are given."""
        progress, found = self._progress, {}
        for number, side, place in self._branches():
            one = progress.parted.get(place.index, NOT_KNOWN)
            at = progress.ends[number], progress.carried[number]
            found[number] = Branch(place, side, *at, one.begin[side], one.fork, one.both[side], one.expected[side])
        return found

    # --- micro-batches ---

    def _traced(self, told: DataFrame, batch: int) -> ComparisonProgress:
        progress = self._progress
        recovered = {number: list(known) for number, known in progress.recovered.items()}
        carried, waypoints = dict(progress.carried), dict(progress.waypoints)
        for row in told.collect():
            if row.recovered is not None:
                recovered.setdefault(row.branch, []).append(unpack_accepted(bytes(row.recovered)))
            else:
                waypoints[row.branch] = thinned(progress.places_of(row.branch))
                carried[row.branch] = bytes(row.carried)
        return msgspec.structs.replace(progress, batch=batch, recovered=recovered, carried=carried, waypoints=waypoints)

    def _find_forks(self) -> None:
        """Find where each partition's branches parted, and from where they are to be read again."""
        progress, sites = self._progress, (self._source, self._site.config.site.name)
        found: dict[int, BranchRelation] = {}
        carried: dict[int, bytes] = {}
        for index in self._places[INITIATING]:
            numbers = [branch_of(index, side) for side in SIDES]
            found[index] = one = parted([progress.traced(number) for number in numbers], sites)
            if one.forked:
                for side, number in zip(SIDES, numbers):
                    carried[number] = self._in_front_of(one, self._places[side][index], progress.places_of(number))
        self._save(ComparisonProgress(progress.job, progress.ends, BEHIND, carried=carried, parted=found))

    def _in_front_of(self, one: BranchRelation, place: Place, places: Sequence[bytes]) -> bytes:
        """Return where to go on from behind the fork. LogError where the log was not read from there."""
        side = INITIATING if place.site == self._site.config.site.name else SOURCE
        found = last_before(one.begin[side], places)
        if found is None:
            raise LogError(
                f"the log of {place.name} at site {place.site} is trimmed, and read from its snapshot at lsn "
                f"{HistoryState.unpack(places[0]).state.lsn}, which is behind lsn {one.lsn}, where the histories "
                "parted: `halog conflicts list` compares them as far as the log reaches back",
                site=place.site,
            )
        return found

    def _check_forks(self) -> None:
        """Check that the branches of a partition stand on the same record. DivergedError where they do not."""
        before = self._progress.before
        for index, place in self._places[INITIATING].items():
            if before.get(branch_of(index, SOURCE)) != before.get(branch_of(index, INITIATING)):
                raise DivergedError(
                    f"{place.name}: the sites have other records where their histories are to have parted, or a merge "
                    "lies between: they cannot be compared"
                )

    def _settle(self, decide: Decide) -> dict[int, dict[bytes, bool]]:
        """Decide what was in doubt where initiating branches end, and keep what of that was committed."""
        branches = {number: of for number, of in self._wanted().items() if of.side == INITIATING}
        found = decided_rows(branches, decide)
        rows = [row for told in found.values() for row in told.rows]
        if rows:
            self._spark.createDataFrame(rows, FOLDED).write.mode("overwrite").parquet(str(self._decided_at))
        return {number: told.decided for number, told in found.items()}

    @property
    def _decided_at(self) -> Path:
        return self._directory / FOLDED_DIRECTORY / "decided"

    def _folded_at(self, batch: int) -> Path:
        return self._directory / FOLDED_DIRECTORY / str(batch)

    def _folded(self, told: DataFrame, batch: int) -> ComparisonProgress:
        there = str(self._folded_at(batch))
        told.write.mode("overwrite").parquet(there)
        followed = told.sparkSession.read.schema(FOLDED).parquet(there).where("carried IS NOT NULL")
        progress = self._progress
        carried, before = dict(progress.carried), dict(progress.before)
        for row in followed.select("place", "side", "carried", "before").collect():
            carried[branch_of(row.place, row.side)] = bytes(row.carried)
            if row.before is not None:
                before[branch_of(row.place, row.side)] = bytes(row.before)
        return msgspec.structs.replace(progress, batch=batch, carried=carried, before=before)

    def _save(self, progress: ComparisonProgress) -> None:
        saved.save(self._directory, progress)
        self._progress = progress
