"""This module is the play: start, replay, join, move, leave, kill, restart, stop, wake, and three questions at the end.

`play` returns the result or raises one HalogError. The verdict is made of everything that was found wrong; the scene
tells all of it, so that a failed run says why.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.log import KafkaLog
from halog.demo import cluster, dataset, journal, totals, verify_copies, verify_log, verify_objects
from halog.demo.moves import PlannedChanges
from halog.demo.options import DROP_COMMIT, Options
from halog.demo.probe import Prober
from halog.demo.result import CopyCheck, Latencies, PlannedChange, Result, RowCounts
from halog.demo.scene import Scene
from halog.demo.schedule import Schedule, plan, sabotaged_row
from halog.demo.stage import Stage
from halog.demo.totals import Totals
from halog.demo.watch import uneven
from halog.embedded.progress import Progress
from halog.errors import DeadlineError

FROZEN_S = 3.0
"""Three sessions long: by then all have gone on without the stopped node."""
BACK_S = 90.0
"""A node catches up on seconds of records in well under one; a loaded machine may need longer."""
LEVEL_S = 60.0
"""Enough for the copies to reach the same record once nobody writes."""


@dataclass
class RunFindings:
    """Holds what a run measured."""

    failover: dict[str, float] = field(default_factory=dict)
    frozen: dict[str, float] = field(default_factory=dict)
    restart_ms: int | None = None
    catch_up_ms: int | None = None
    join: PlannedChange = field(default_factory=PlannedChange)
    ring: PlannedChange = field(default_factory=PlannedChange)
    leave: PlannedChange = field(default_factory=PlannedChange)


class Play:
    """A `Play` is one run on one stage."""

    def __init__(self, options: Options, scene: Scene, stage: Stage, flights: Path) -> None:
        self.options = options
        self.scene = scene
        self.stage = stage
        self.flights = flights
        self.schedule: Schedule = plan(options.rows, options.seed)
        self.findings = RunFindings()

    # --- the replay and its faults ---

    def replay(self) -> None:
        """Replay all rows, with all that is done to the nodes on the way."""
        stage = self.stage
        notes = journal.Journal(stage.journal("probe"))
        self.prober = Prober(stage.node, notes, list(stage.watch.tables))
        self.prober.prepare()
        sabotaged = -1
        if self.options.sabotage == DROP_COMMIT:
            sabotaged = sabotaged_row(self.options.rows, self.options.seed)
        stage.start_client(self.flights, self.schedule.gate_join, sabotaged)
        self.scene.tell(f"a client process replays {self.options.rows:,} flights")
        self._change_and_hurt(PlannedChanges(stage, self.scene, self.prober))
        stage.allow(self.options.rows)
        self.scene.phase = "replaying"
        stage.wait("the client", lambda: stage.reports is not None and stage.reports.done is not None)
        notes.close()

    def _change_and_hurt(self, moves: PlannedChanges) -> None:
        """Do each change at its row; the client stops at a gate until it is over."""
        stage, at, found = self.stage, self.schedule, self.findings
        self._reach(at.join_at)
        found.join = moves.join()
        stage.allow(at.gate_ring)
        self._reach(at.ring_at)
        found.ring = moves.another_ring()
        stage.allow(at.gate_leave)
        self._reach(at.leave_at)
        found.leave = moves.leave(cluster.NODES[0])
        stage.allow(at.gate_restart)
        self._reach(at.kill_at)
        victim = self._kill()
        self._reach(at.restart_at)
        self._restart(victim)
        stage.allow(at.gate_freeze)
        self._reach(at.freeze_at)
        self._freeze(victim)

    def _reach(self, row: int) -> None:
        self.scene.phase = "replaying"
        self.stage.wait("the client", lambda: self.scene.done >= row)

    def _most_active(self, but: str = "") -> tuple[str, list[str]]:
        led = {n: self.stage.watch.led_by(n) for n in self.stage.watch.latest if n != but}
        name = max(led, key=lambda n: len(led[n]))
        return name, led[name]

    def _kill(self) -> str:
        name, partitions = self._most_active()
        child = self.stage.nodes[name]
        self.scene.phase = f"node {name} is killed"
        self.scene.tell(f"kill -9 of node {name} (pid {child.pid}), active for {len(partitions)} partitions")
        self.stage.wounded.add(name)
        self.scene.nodes[name].state = "killed"
        self.findings.failover = self.prober.measure(partitions, partial(child.signal, signal.SIGKILL))
        child.exit_code()
        self._tell_spread("its partitions took new writes again", self.findings.failover, partitions)
        return name

    def _restart(self, name: str) -> None:
        self.scene.phase = f"node {name} is started again"
        child = self.stage.start_node(name)
        self.scene.tell(f"node {name} is started again on its data (pid {child.pid})")
        self.stage.wounded.discard(name)
        self.findings.restart_ms = self._time(
            f"node {name} to be up", lambda: self.stage.answers_up(name), child.started
        )
        self.findings.catch_up_ms = self._time(
            f"node {name} to catch up", lambda: self.stage.is_back(name), child.started
        )
        self.scene.tell(
            f"node {name} was up after {self.findings.restart_ms:,} ms, and level in every node list after "
            f"{self.findings.catch_up_ms:,} ms"
        )

    def _freeze(self, but: str) -> None:
        name, partitions = self._most_active(but)
        child = self.stage.nodes[name]
        self.scene.phase = f"node {name} is stopped"
        self.scene.tell(f"SIGSTOP of node {name} (pid {child.pid}), active for {len(partitions)} partitions")
        self.stage.wounded.add(name)
        self.scene.nodes[name].state = "stopped"
        began = time.monotonic()
        self.findings.frozen = self.prober.measure(partitions, partial(child.signal, signal.SIGSTOP))
        self._tell_spread("its partitions took new writes again", self.findings.frozen, partitions)
        self.stage.pause(max(0.0, FROZEN_S - (time.monotonic() - began)))
        self._wake(name)

    def _wake(self, name: str) -> None:
        woken = time.monotonic()
        self.stage.nodes[name].thaw()
        self.scene.phase = f"node {name} wakes up"
        self.scene.tell(f"SIGCONT: node {name} wakes up {FROZEN_S:.0f} s later and believes to be active")
        self.stage.wounded.discard(name)
        ms = self._time(f"node {name} to step down and come back", lambda: self.stage.is_back(name), woken)
        self.scene.tell(f"node {name} stepped down by itself and is a level replica again after {ms:,} ms")

    def _time(self, what: str, happened: Callable[[], bool], since: float) -> int:
        self.stage.wait(what, happened, BACK_S)
        return round((time.monotonic() - since) * 1000)

    def _tell_spread(self, what: str, ms: dict[str, float], partitions: list[str]) -> None:
        spread = Latencies.of(ms.values())
        self.scene.tell(
            f"{what} after {spread.median or 0:,.0f} ms (median), {spread.worst or 0:,.0f} ms (worst of {spread.count})"
        )
        if missing := sorted(set(partitions) - ms.keys()):
            self.scene.blame(f"{len(missing)} partitions did not fail over: {', '.join(missing[:3])}")

    # --- the verdict ---

    def judge(self) -> Result:
        """Ask the three questions; return the result."""
        expected = totals.count(dataset.records(self.flights, self.options.rows))
        self._level()
        self._check_objects(expected)
        copies = self._check_copies()
        result = self._check_log(self._counted(expected))
        result = replace(
            result,
            copies=copies,
            copies_equal=copies.mismatches == 0 and copies.partitions == self.options.partitions,
            join=self.findings.join,
            rebalance=replace(self.findings.ring, objects=result.rebalance.objects),
            leave=self.findings.leave,
            failover_ms=Latencies.of(self.findings.failover.values()),
            frozen_ms=Latencies.of(self.findings.frozen.values()),
            restart_ms=self.findings.restart_ms,
            catch_up_ms=self.findings.catch_up_ms,
        )
        if result.transactions != expected.transactions:
            self.scene.blame(
                f"{result.transactions:,} transactions were run, {expected.transactions:,} were called for"
            )
        if result.acknowledged != result.transactions:
            self.scene.blame(f"{result.acknowledged:,} of {result.transactions:,} transactions were acknowledged")
        return replace(result, ok=not self.scene.wrong, seconds=round(self.scene.seconds, 1))

    def _counted(self, expected: Totals) -> Result:
        reports = self.stage.reports
        assert reports is not None
        assert reports.done is not None
        status, said = expected.by_status, reports.done
        return Result(
            transactions=said["transactions"],
            throughput=round(said["acknowledged"] / said["seconds"], 1),
            rows=RowCounts(status["landed"], status["cancelled"], status["diverted"], expected.no_tail),
        )

    def _level(self) -> None:
        self.scene.phase = "waiting for all copies to be level"
        stage = self.stage
        try:
            stage.wait("all copies to be level", lambda: not uneven(stage.watch.latest, stage.watch.tables), LEVEL_S)
        except DeadlineError:
            which = uneven(stage.watch.latest, stage.watch.tables)
            self.scene.blame(f"copies of {len(which)} partitions are not level after {LEVEL_S:.0f} s: {which[:3]}")

    def _check_objects(self, expected: Totals) -> None:
        self.scene.phase = "checking every object against the CSV"
        check = verify_objects.check_objects(self.stage.node, expected)
        self.scene.blame_all(check.examples, check.wrong, " objects")
        self.scene.tell(f"{check.objects:,} objects read, {check.wrong:,} differ from the totals of the CSV")

    def _check_copies(self) -> CopyCheck:
        self.scene.phase = "comparing every copy with every other"
        router = self.stage.node.runtime.router
        placed = {name: table.configured for name, table in self.stage.watch.tables.items()}
        belongs = verify_copies.placed_by(self.stage.config, cluster.POLICY)
        copies = verify_copies.compare(placed, lambda n, p: verify_copies.read_store(router.request, n, p), belongs)
        self.scene.tell(
            f"{copies.objects:,} objects compared in every copy of {copies.partitions} partitions, "
            f"{copies.mismatches:,} differ, {copies.misplaced:,} are misplaced"
        )
        if copies.misplaced:
            self.scene.blame(f"{copies.misplaced:,} objects are in another partition than the mapper says")
        if copies.mismatches:
            self.scene.blame(f"{copies.mismatches:,} objects are not the same in every copy")
        return copies

    def _check_log(self, result: Result) -> Result:
        self.scene.phase = "looking for every acknowledged transaction in the log"
        stage = self.stage
        notes = [n for name in ("client", "probe") for n in journal.read(stage.journal(name))]
        claims = journal.claims(notes)
        log = KafkaLog(KafkaAccess(stage.site.info.bootstrap))
        try:
            logged = verify_log.read_all(log, cluster.SITE, stage.watch.tables.values())
        finally:
            log.close()
        verdict = verify_log.judge(claims, logged.commits)
        self.scene.tell(
            f"{len(claims.acknowledged):,} acknowledged transactions: {verdict.lost:,} lost, {verdict.doubled:,} "
            f"doubled; {len(claims.unknown):,} of unknown outcome, of which {verdict.happened_after_all:,} happened"
        )
        if verdict.lost or verdict.doubled:
            self.scene.blame(f"{verdict.lost:,} acknowledged transactions are lost, {verdict.doubled:,} doubled")
        if logged.torn:
            self.scene.blame(f"{logged.torn:,} transactions happened in some of their partitions only")
        return replace(
            result,
            rebalance=PlannedChange(objects=logged.moved),
            acknowledged=claims.acknowledged_rows,
            unknown=len(claims.unknown),
            lost=verdict.lost,
            doubled=verdict.doubled,
        )


def play(options: Options, scene: Scene, progress: Progress) -> Result:
    """Run the whole demo. Call it on the main thread: the children die with it."""
    scene.phase = "fetching the flights"
    flights = dataset.ensure(progress)
    with Stage(options, scene, progress) as stage:
        run = Play(options, scene, stage, flights)
        run.replay()
        result = run.judge()
        if not result.ok:
            stage.keep_evidence()
        return result
