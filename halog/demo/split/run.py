"""This module is the play: all is well, the line is cut, both sites go on, the line is healed, what both did is merged,
and undone.

`play` returns the result or raises one HalogError. The scene tells everything that was found wrong.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from halog.config import load_config
from halog.demo import dataset, rows
from halog.demo.journal import read
from halog.demo.options import DROP_COMMIT, Options
from halog.demo.split import journal, reading, verify
from halog.demo.split.result import AcknowledgedWrites, SplitResult, Timings
from halog.demo.split.scene import CUT, OPEN, SplitScene
from halog.demo.split.sites import NAMES, POLICY
from halog.demo.split.stage import SplitStage
from halog.demo.split.steps import EAST, WEST, plan
from halog.demo.verify_copies import placed_by
from halog.embedded.progress import Progress
from halog.errors import DeadlineError, HalogError
from halog.metadata import restore_requests as restores

STEPS_S = 120.0
"""Seconds for the steps of a phase: some hundred steps a second, on a busy machine."""
LEVEL_S = 60.0
SHOWN_S = 30.0
"""Seconds until a split is shown once the sites see each other, or is over: mirrors look again within seconds."""
DEGRADED = 4
AGREED = ("taken", "kept", "same", "alike")
"""Kinds of objects in a report that are no conflicts."""


class SplitPlay:
    """A `SplitPlay` is one run on one stage."""

    def __init__(self, options: Options, scene: SplitScene, stage: SplitStage, flights: Path) -> None:
        self.options = options
        self.scene = scene
        self.stage = stage
        self.flights = flights
        self.plan = plan(list(rows.parse(dataset.records(flights, options.rows))), options.seed)
        self.steps = {WEST: self.plan.west, EAST: self.plan.east}
        self.cut_to_serve = self.restored_s = self.followed_s = 0.0

    # --- together, apart ---

    def together(self) -> None:
        """Begin: the home site serves, the other one mirrors."""
        sabotaged = self.plan.announced if self.options.sabotage == DROP_COMMIT else -1
        for site, number in ((WEST, sabotaged), (EAST, -1)):
            self.scene.sites[site].rows = len(self.steps[site])
            self.stage.start_client(site, self.flights, number)
        self.scene.phase = "west announces flights, east mirrors"
        self._do(WEST, self.plan.announced, self.plan.announced)
        self.stage.wait("east to have all of it", self.stage.level, LEVEL_S)
        self.scene.tell(f"west has announced {self.plan.announced:,} flights; east has all of them")

    def apart(self) -> None:
        """Cut the line in the middle of traffic; west goes on, and east is told to go on, too."""
        announced, together = self.plan.announced, self.plan.together
        self._do(WEST, together, (announced + together) // 2)
        self.stage.sites.cut()
        began, self.scene.line = time.monotonic(), CUT
        done, rest = self.scene.sites[WEST].done - announced, together - announced
        self.scene.tell(f"the line is cut, after {done:,} of {rest:,} landings at west")
        self.scene.phase = "east takes over, west goes on"
        for site in NAMES:  # the last tenth comes later
            self.stage.allow(site, len(self.steps[site]) * 9 // 10)
        self.stage.must(EAST, "site", "promote", "--may-fork", "--cluster", self.stage.run_dir.name)
        self.stage.wait("the first write at east", lambda: self.stage.reports[EAST].first is not None, STEPS_S)
        self.cut_to_serve = (self.stage.reports[EAST].first or began) - began
        self.scene.tell(f"`halog site promote --may-fork`: east serves after {self.cut_to_serve:.1f} s; so does west")
        self.scene.phase = "both sites go on, each by itself"
        for site in NAMES:
            self._do(site, len(self.steps[site]) * 9 // 10, len(self.steps[site]) * 9 // 10)

    def seen_again(self) -> None:
        """Heal the line. Both sites must say that there are two histories, and nothing else happens."""
        self.stage.sites.heal()
        began, self.scene.line = time.monotonic(), OPEN
        self.scene.tell("the line is healed")
        self.scene.phase = "both sites are to tell of the split"
        for site in NAMES:
            self._status(site, DEGRADED, began + SHOWN_S)
        self.scene.tell(f"`halog status` exits with {DEGRADED} at both sites: their histories have parted")
        for site in NAMES:
            self._finish(site)

    def _finish(self, site: str) -> None:
        self._do(site, len(self.steps[site]), len(self.steps[site]))
        self.stage.wait(f"{site}'s client", lambda: self.stage.reports[site].done is not None, STEPS_S)
        count = self.scene.sites[site].acknowledged
        self.scene.tell(f"{site}: {count:,} transactions were acknowledged in all")

    def _status(self, site: str, code: int, until: float) -> None:
        """Check that `halog status` ends with this exit code, and names parted partitions if that says so."""
        while True:
            ran = self.stage.command(site, "status")
            if ran.code == code and bool(ran.said["parted"]) == (code == DEGRADED):
                return
            if time.monotonic() > until:
                self.scene.blame(
                    f"`halog status` at {site} should end with {code}, and ends with {ran.code}: {ran.said}"
                )
                return

    def _do(self, site: str, allowed: int, done: int) -> None:
        self.stage.allow(site, allowed)
        self.stage.wait(f"{site}'s client", lambda: self.scene.sites[site].done >= done, STEPS_S)

    def decided(self) -> None:
        """Wait until east has decided the transactions that were under way at the cut: they lock objects until then."""
        self.scene.phase = "waiting for east to decide what was under way at the cut"
        until = time.monotonic() + LEVEL_S
        while (found := self.stage.must(EAST, "txn", "list"))["in_doubt"]:
            if time.monotonic() > until:
                raise DeadlineError(f"transactions are in doubt at east after {LEVEL_S:.0f} s: {found}")

    # --- together again ---

    def merge(self) -> SplitResult:
        """Preview the merge, do it, and verify it."""
        self.scene.phase = "previewing the merge"
        preview = self.stage.must(WEST, "restore", "--source", EAST, "--dry-run")
        shown = sum(len(d["objects"]) for d in preview)
        self.scene.tell(f"`halog restore --dry-run` shows {shown:,} conflicts, and changes nothing")
        self._restore()
        for site in NAMES:
            self._status(site, 0, time.monotonic() + SHOWN_S)
        report = self._report()
        conflicts = [o for o in report if o["is"] not in AGREED]
        if reading.named(conflicts) != reading.named(o for d in preview for o in d["objects"]):
            self.scene.blame("the preview showed other conflicts than the merge found")
        if deferred := [o for o in conflicts if o["deferred"]]:
            self.scene.blame(f"{len(deferred)} conflicts are left to an operator: {deferred[0]['deferred']}")
        self._check_copies("after the merge")
        return self._judged(conflicts)

    def _restore(self) -> None:
        self.scene.phase = "merging west's history into east's"
        began, merged = time.monotonic(), list[float]()

        def look() -> None:
            if not merged and self._is_merged():
                merged.append(time.monotonic())

        told = self.stage.must(WEST, "restore", "--source", EAST, meanwhile=look)
        look()
        self.stage.wait("both sites to be the same", self.stage.level, LEVEL_S)
        self.restored_s = merged[0] - began
        self.followed_s = time.monotonic() - merged[0]
        touched, changed = (sum(d.get(name, 0) for d in told) for name in ("objects", "changed"))
        self.scene.tell(
            f"`halog restore --source east`: {touched:,} objects were touched, {changed:,} changed at east, in "
            f"{self.restored_s:.1f} s; west follows after {self.followed_s:.1f} s"
        )

    def _is_merged(self) -> bool:
        found = [restores.restore_of(self.stage.coordinator(EAST), name) for name in self.stage.partitions]
        return all(r is not None and r.ended for r in found)

    def _report(self) -> list[dict[str, Any]]:
        """Return the report, which both sites' logs must have alike."""
        reports = {}
        for site in NAMES:
            path = self.stage.run_dir / f"conflicts-{site}.jsonl"
            self.stage.must(site, "conflicts", "export", "-o", str(path))
            reports[site] = reading.exported(path)
        if reports[WEST] != reports[EAST]:
            self.scene.blame("the report at west is not the one at east")
        return reports[EAST]

    def _judged(self, conflicts: list[dict[str, Any]]) -> SplitResult:
        self.scene.phase = "looking for every acknowledged write"
        claims = {site: journal.claims(read(self.stage.journal(site))) for site in NAMES}
        seen = reading.seen(self.stage.nodes[EAST])
        verdict = verify.judge(claims[WEST], claims[EAST], seen, reading.reported(conflicts))
        self.scene.blame_all(verdict.examples, verdict.wrong, "")
        counted = verify.conflicts(o["is"] for o in conflicts)
        if not (counted.instance_added and counted.key and counted.state):
            self.scene.blame(f"a class of conflicts has not happened: {counted}")
        acknowledged = AcknowledgedWrites(claims[WEST].acknowledged, claims[EAST].acknowledged)
        fates = verdict.merged + verdict.superseded + verdict.overruled + verdict.unaccounted
        if fates != acknowledged.west + acknowledged.east:
            self.scene.blame(f"{fates:,} writes were judged, of {acknowledged}")
        self.scene.tell(
            f"of {acknowledged.west + acknowledged.east:,} acknowledged writes {verdict.merged:,} are merged, "
            f"{verdict.superseded:,} superseded, {verdict.overruled:,} in the report, {verdict.unaccounted:,} lost"
        )
        return SplitResult(
            unaccounted=verdict.unaccounted,
            acknowledged=acknowledged,
            merged=verdict.merged,
            superseded=verdict.superseded,
            conflicts=counted,
        )

    def _check_copies(self, when: str) -> None:
        """Compare both sites, object by object and version."""
        self.scene.phase = "comparing every copy of both sites"
        asks = {n: self.stage.nodes[s].runtime.router.request for s in NAMES for n in self.stage.watches[s].latest}
        belongs = placed_by(load_config(self.stage.configs[EAST]), POLICY)
        found = reading.copies(asks, self.stage.partitions, belongs)
        if found.misplaced:
            self.scene.blame(f"{when} {found.misplaced:,} objects are in another partition than the mapper says")
        if found.mismatches or found.partitions != self.options.partitions or not found.objects:
            self.scene.blame(f"{when} {found.mismatches:,} objects of {found.objects:,} are not the same at both sites")
        self.scene.tell(f"{when} {found.objects:,} objects are compared in every copy, {found.mismatches:,} differ")

    def store(self) -> reading.Store:
        """Return what the source has, as its active nodes hold it."""
        tables = self.stage.watches[EAST].tables
        led = {name: t.active.node for name, t in tables.items() if t.active is not None}
        if len(led) != self.options.partitions:
            raise HalogError(f"east serves {len(led)} of {self.options.partitions} partitions")
        return reading.store(self.stage.nodes[EAST].runtime.router.request, led)

    def undo(self, before: reading.Store) -> bool:
        """Undo the merge, and say whether both sites are as if it had not been; west follows."""
        self.scene.phase = "undoing the merge"
        if self.store() == before:
            self.scene.blame("the merge has changed nothing at east, so that undoing it would prove nothing")
        self.stage.must(EAST, "restore", "undo")
        self.stage.wait("west to follow", self.stage.level, LEVEL_S)
        after = self.store()
        differ = sum(before.get(key) != after.get(key) for key in before.keys() | after.keys())
        if differ:
            self.scene.blame(f"{differ:,} objects are not what they were before the merge")
        self.scene.tell(f"`halog restore undo`: {len(after):,} objects at east, {differ:,} not as before the merge")
        self._check_copies("after undoing it")
        return not differ

    @property
    def timings(self) -> Timings:
        """Return what was measured."""
        return Timings(round(self.cut_to_serve, 2), round(self.restored_s, 2), round(self.followed_s, 2))


def play(options: Options, scene: SplitScene, progress: Progress) -> SplitResult:
    """Run the whole demo. Call it on the main thread: the children die with it."""
    scene.phase = "fetching the flights"
    flights = dataset.ensure(progress)
    with SplitStage(options, scene, progress) as stage:
        run = SplitPlay(options, scene, stage, flights)
        run.together()
        run.apart()
        run.seen_again()
        run.decided()
        before = run.store()
        result = run.merge()
        undone = run.undo(before)
        result = replace(result, undone_equal=undone, timings=run.timings, ok=undone and not scene.wrong)
        if not result.ok:
            stage.keep_evidence()
        return result
