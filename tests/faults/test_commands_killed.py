"""An operator's command is killed: what it was asked for ends right by itself, or once it is asked for again, once, and
nothing that was acknowledged is lost.

A planned takeover is killed in front of each of its steps, by number. The others in front of each znode that they
change, of the fence in another site's log, and of their last word; a restore and its undoing in front of each phase
that they tell, too, and an undoing not in front of its first change: it has done nothing then.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from halog.errors import OutcomeUnknownError, SitesError
from halog.metadata.restore_requests import DONE, MERGING, NOTHING, READING, SETTLING
from tests.faults.dying import Ran, run_dying
from tests.faults.rounds import Rounds, halog_said
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import Load, tails
from tests.integration.cluster.processes import wait
from tests.integration.sites.test_restoring import argv_of, halog
from tests.integration.sites.test_sync_sites import waited_for
from tests.integration.sites.test_taking_over import command, land, landings, level
from tests.integration.sites.two import EAST, WEST, Between, TwoSites

pytestmark = [pytest.mark.timeout(560), pytest.mark.promise(5)]

SERVED_S = 10.0
"""A merge or a failover is over in about a second; the rest is a busy machine."""
DEADLINE_MS = 10_000
"""Of calls, where some are to find out that nobody knows."""


@pytest.fixture
def awaiting(between: Between, tmp_path: Path) -> Iterator[TwoSites]:
    """Commits wait for the other site's log."""
    made = TwoSites(tmp_path, between, sync_sites=(WEST, EAST), deadline_ms=DEADLINE_MS)
    try:
        yield made
    finally:
        between.heal()
        made.close()


def dies(cluster: Cluster, where: str, *words: str) -> Ran:
    """The command of that site's operator, killed in front of that step."""
    return run_dying(cluster.directory / "steps", where, argv_of(cluster, *words)[2:])


def change(path: str) -> str:
    """It is about to change that."""
    return rf"\d+ (create|set) {path}( .*)?"


RESTORE = ("restore", "--source", EAST)
UNDO = ("restore", "undo")


class Steps:
    """Where a command of this kind is killed next: each of its changes, in front of which others have been made, then
    each phase that it tells. `before`: what it changes first, and is not killed at here."""

    def __init__(self, *changes: str, phases: tuple[str, ...], before: Iterable[str] = ()) -> None:
        self.changes = {*before, *changes}
        told_of = [rf"\d+ says partition \S+: ({'|'.join(phases[i:])}).*" for i in range(len(phases))]
        self._left = [*(change(path) for path in changes[1:]), *told_of]

    @property
    def left(self) -> bool:
        return bool(self._left)

    def kill(self, cluster: Cluster, *words: str) -> str:
        """In front of the next one; a phase that nobody saw is one behind it."""
        where = self._left.pop(0)
        ran = dies(cluster, where, *words)
        assert ran.died, f"{where} is no step: {ran.steps}"
        if not self.left:  # nothing that it changes was left out
            assert {step.split()[2] for step in ran.steps if " says " not in step} == self.changes, ran.steps
        return where


def serves_soon(rounds: Rounds) -> None:
    """The source takes commits in each partition, and nobody has to do anything for it."""
    for tail in (tail for (tail,) in tails(rounds.east.client(), "during").values()):
        began = time.monotonic()
        land(rounds.east.client(), tail)
        assert time.monotonic() - began < SERVED_S
        rounds.made[tail] = rounds.made.get(tail, 0) + 1


@pytest.mark.feature("M1", "M2", "X3")
def test_a_restore_is_done_once_wherever_its_command_is_killed_and_so_is_its_undoing(two_sites: TwoSites) -> None:
    """What it has asked for goes on without it. Asked again it says that it is done, or that nothing is left to do."""
    rounds = Rounds(two_sites)
    holds = [f"holders/{p}/merge-{site}" for p in rounds.east.partitions() for site in (EAST, WEST)]
    of = [path for p in rounds.east.partitions() for path in (f"holders/{p}/branch-east", f"partitions/{p}")]
    asked = [f"restores/{p}" for p in rounds.east.partitions()]
    restore = Steps(*of, *asked, phases=(READING, SETTLING, MERGING, DONE), before=holds)
    undo = Steps(*asked, phases=(SETTLING, DONE))
    while restore.left:
        rounds.part()
        for path in (*holds, of[0]) if rounds.number == 1 else ():
            assert dies(rounds.west, change(path), *RESTORE).died
            assert [t.owner for t in rounds.west.tables()] == [""] * 2, "nothing was closed"
        where = restore.kill(rounds.west, *RESTORE)
        serves_soon(rounds)
        again = halog(rounds.west, *RESTORE)
        assert {d["phase"] for d in again} <= {DONE, NOTHING}, (where, again)
        rounds.check()
        if undo.left:
            where = undo.kill(rounds.east, *UNDO)
            serves_soon(rounds)
            again = halog(rounds.east, *UNDO)
            assert {d["phase"] for d in again} <= {DONE, NOTHING}, (where, again)
            rounds.undo()
            rounds.check()
        rounds.check_once()
    assert not undo.left


@pytest.mark.feature("M2", "M5", "Q5")
def test_the_site_that_is_to_serve_after_a_restore_does_wherever_its_command_is_killed(two_sites: TwoSites) -> None:
    """Between the merge and the switch back, which is another site's log fenced: asked again, it only switches."""
    rounds = Rounds(two_sites)
    rounds.part()
    words = (*RESTORE, "--active", "west-2")
    for p, name in enumerate(rounds.west.partitions()):
        fenced, taken = rf"\d+ append \S+ {p}", rf"\d+ set partitions/{name}"  # of no other site any more
        for where in (fenced, change(f"holders/{name}/site-east"), taken):
            ran = dies(rounds.west, where, *words)
            assert ran.died, (where, ran.steps)
            at_most_one_serves(two_sites)
    ran = dies(rounds.west, r"\d+ says \[.*", *words)
    assert ran.died, ran.steps
    again = halog(rounds.west, *words)
    assert {d["phase"] for d in again} <= {DONE, NOTHING}, again
    rounds.west.whole()
    assert [t.active.node for t in rounds.west.tables() if t.active is not None] == ["west-2"] * 2
    level(two_sites)
    assert {tail: landings(rounds.west, tail) for tail in rounds.made} == rounds.made
    rounds.check_once()


@pytest.mark.feature("M5", "R5")
def test_a_site_takes_over_wherever_its_command_is_killed(open_sites: TwoSites) -> None:
    """There and back, under traffic of both sites: never do both serve; asked again it takes over, without a fork, and
    every landing that was acknowledged is there, once."""
    open_sites.start()
    serving, taking = open_sites.west, open_sites.east
    with Load(open_sites.west.client(), "w", pause_s=0.02) as one, Load(open_sites.east.client(), "e", 1, 0.02) as two:
        for number in itertools.count(1):
            ran = dies(taking, f"{number} .*", "site", "promote")
            at_most_one_serves(open_sites)
            if ran.died:
                again = command(taking, "promote")
                assert not any(d["may_fork"] or d["lacks"] for d in again), (ran.steps, again)
            at_most_one_serves(open_sites)
            one.flows(), two.flows()
            serving, taking = taking, serving
            if not ran.died:
                break
    changed = [step.partition(" ")[2] for step in ran.steps]
    assert sum(step.startswith("append ") for step in changed) == 2, changed  # both were fenced
    level(open_sites)
    for load in (one, two):
        assert all(isinstance(e, OutcomeUnknownError) for e in load.errors), load.errors[:3]
        load.check_objects(open_sites.west.client("judge"))
        load.check_objects(open_sites.east.client("judge"))


def at_most_one_serves(two_sites: TwoSites) -> None:
    both = zip(two_sites.west.tables(), two_sites.east.tables())
    assert not [here.name for here, there in both if not here.owner and not there.owner]


@pytest.mark.feature("M1", "M2", "M5")
def test_a_site_stops_wherever_its_command_is_killed(two_sites: TwoSites) -> None:
    """Both serve. Asked again it stops with what is left; the record that ended its epochs is one the other site never
    saw, so both tell it, and the branches are merged, where the source's active nodes are named, too."""
    rounds = Rounds(two_sites)
    demote = ("site", "demote", "--to", EAST)
    kills = (change("partitions/p-0"), change("partitions/p-1")), (r"\d+ says \[.*",)
    for number, given in enumerate((1, 2)):
        rounds.part()
        for where in kills[number]:
            assert [t.owner for t in rounds.west.tables()] == [""] * 2
            assert dies(rounds.west, where, *demote).died
        assert [t.owner for t in rounds.west.tables()] == [EAST] * given + [""] * (2 - given)
        serves_soon(rounds)
        changed = {d["partition"]: d["changed"] for d in halog(rounds.west, *demote)}
        assert [p for p, now in changed.items() if now] == rounds.west.partitions()[given:]
        wait(lambda: len(halog_said(rounds.west, "status")["parted"]) == 2, "both are told")
        told = halog(rounds.west, "restore", *from_nodes(rounds))
        assert {(d["source"], d["phase"]) for d in told} == {(EAST, DONE)}
        rounds.check()
    rounds.check_once()


def from_nodes(rounds: Rounds) -> list[str]:
    """What says which nodes are to merge: those that are active at east. Others are none, and nothing changes."""
    active = {t.name: t.active.node for t in rounds.east.tables() if t.active is not None}
    (other,) = (node for node in rounds.east.nodes if node != active["p-0"])
    before = rounds.asked()
    done = subprocess.run(
        argv_of(rounds.west, "restore", "--from", f"p-0={other}"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (5, "")
    assert f"node {other} is not active for p-0 at any other site" in done.stderr
    assert rounds.asked() == before
    return [word for name, node in active.items() for word in ("--from", f"{name}={node}")]


@pytest.mark.feature("M1", "M5")
def test_a_site_goes_on_alone_wherever_its_command_is_killed(two_sites: TwoSites) -> None:
    """The other one cannot be reached, and serves, too. Asked again it goes on with what is left; then both have gone
    on, in each partition once, and are made one."""
    rounds = Rounds(two_sites)
    words = ("site", "promote", "--may-fork", "--cluster", two_sites.name)

    def goes_on(east: Cluster) -> None:
        of = [path for p in east.partitions() for path in (f"holders/{p}/site-west", f"partitions/{p}")]
        changed = set[str]()
        for number, where in enumerate((*map(change, of), r"\d+ says \[.*")):
            ran = dies(east, where, *words)
            assert ran.died, (where, ran.steps)
            changed |= {step.split()[2] for step in ran.steps if " says " not in step}
            taken = number // 2
            assert [t.owner for t in east.tables()] == [""] * taken + [WEST] * (2 - taken)
        assert changed == set(of), "nothing that it changes was left out"
        assert {d["may_fork"] for d in command(east, *words[1:])} == {False}, "nothing is left to take over"

    rounds.part(goes_on)
    assert {d["phase"] for d in halog(rounds.west, *RESTORE)} == {DONE}
    rounds.check()
    rounds.check_once()


@pytest.mark.feature("M5", "R1")
def test_commits_go_on_without_a_site_wherever_the_command_is_killed(awaiting: TwoSites) -> None:
    """In each partition from its own change on, and in no other one; they wait again once that site has caught up."""
    awaiting.start()
    waited_for(awaiting)
    west, words, made = awaiting.west, ("site", "let-go", EAST), Counter[str]()
    client = west.client()
    first, second = (tail for (tail,) in tails(client, "alone").values())

    def landed(tail: str) -> str:
        try:
            land(client, tail)
        except SitesError:
            return "refused"
        except OutcomeUnknownError:
            return made.update([f"{tail}?"]) or "unknown"
        return made.update([tail]) or "told"

    awaiting.between.cut()
    wait(lambda: [landed(first), landed(second)] == ["refused"] * 2, "commits are refused")
    for given, where in enumerate((change("partitions/p-0"), change("partitions/p-1"), r"\d+ says .*")):
        assert dies(west, where, *words).died
        assert [t.let_go for t in west.tables()] == [(EAST,)] * given + [()] * (2 - given)
        wait(lambda n=given: [landed(first), landed(second)] == ["told"] * n + ["refused"] * (2 - n), "commits go on")  # type: ignore[misc]
    assert not any(d["changed"] for d in command(west, *words[1:]))
    awaiting.between.heal()
    wait(lambda: all((t.synced, t.let_go) == ((EAST,), ()) for t in west.tables()), "commits wait for it again")
    level(awaiting)
    for tail in (first, second):
        assert made[tail] <= landings(west, tail) <= made[tail] + made[f"{tail}?"]
