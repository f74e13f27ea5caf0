"""Two sites that part and merge again and again: whenever they have parted, Spark's executors find what is found in one
process, also behind merges, and of votes that both decided (S1, M3)."""

from __future__ import annotations

import itertools
import random
from unittest import mock

import pytest

from halog.core.log import records
from halog.errors import LaterRecordError
from halog.ports import Entry
from restore.branch import side
from restore.branches import BranchComparison, compared
from restore.merge import Kind
from spark_jobs import branching
from spark_jobs.branching import INITIATING, SIDES, SOURCE
from spark_jobs.history import History, HistoryState
from spark_jobs.snapshot import Place
from tests.unit.core.sites.copy_model import TP
from tests.unit.core.sites.merge_kit import bring, forked, land_all, parted_again
from tests.unit.core.sites.merge_model import World
from tests.unit.core.sites.merge_steps import by_chance
from tests.unit.core.sites.site_model import Site
from tests.unit.spark_jobs.following import Job
from tests.unit.spark_jobs.test_classifying import as_row, classified, plainly

pytestmark = [pytest.mark.feature("S1", "M3"), pytest.mark.timeout(120)]


def plain(world: World, source: str) -> BranchComparison:
    sides = [side(at, world.sites[at].log, TP, Site.beginning(at)) for at in (source, world.sites[source].other)]  # type: ignore[arg-type]
    return compared(*sides)


def job_of(world: World, source: str, size: int) -> Job:
    logs, places = {}, {}
    for s, at in ((SOURCE, source), (INITIATING, world.sites[source].other)):
        log, begin = world.sites[at].log, Site.beginning(at)
        logs[s] = [Entry(TP, e.offset, e.value, e.timestamp_ms) for e in log.read(TP, 0, len(log.entries))]
        places[s] = Place("p-0", 0, TP.topic, "", begin.log_id.hex(), at, begin.owner)
    return Job(logs, places, size)


def marked(job: Job, s: int, lsn: int) -> list[bytes]:
    """Everywhere in front of a fork where a snapshot may stand."""
    history, found = History(HistoryState(0, job.of[s].empty)), []
    for entry in job.entries[s]:
        found.append(history.carried().pack())
        history.read(entry)
        if history.lsn > lsn:
            break
    return found


@pytest.mark.feature("U1")
@pytest.mark.parametrize("linked", [False, True])
def test_a_record_of_a_later_version_ends_a_job_by_its_place(linked: bool) -> None:
    """What follows it would be rows of a history that nobody has."""
    state = Site.beginning("west")
    history = History(HistoryState(0, state), linked=linked)
    entry = Entry(TP, 7, bytes((records.VERSION, records.LAST_KIND + 1)) + b"whatever it says", 0)
    place = f"^{TP.topic}/{TP.partition}, offset 7: "
    with pytest.raises(LaterRecordError, match=place + "a record of version 1 and kind 13"):
        history.read(entry)


def check(
    world: World, source: str, size: int, piece: int, chance: random.Random | None = None
) -> tuple[BranchComparison, Job]:
    """`chance`: says where it begins; None: at the beginning."""
    expected, job = plain(world, source), job_of(world, source, size)
    if chance is not None and expected.forked:
        job.places = {s: [chance.choice(marked(job, s, expected.fork_lsn))] for s in SIDES}
    with mock.patch.object(branching, "PIECE", piece):
        parted, folded = job.run()
    assert (parted.forked, parted.lsn) == (expected.forked, expected.fork_lsn)
    assert not parted.forked or job.before[SOURCE] == job.before[INITIATING]
    keys = sorted(map(plainly, classified(folded, [size], job.gone)), key=lambda row: row["key"])
    assert keys == [as_row(d) for d in expected.keys]
    return expected, job


@pytest.mark.parametrize("part", range(4))
def test_worlds_by_chance(part: int) -> None:
    """Looked at now and then, from either site, while they are parted."""
    for seed in range(part * 30, part * 30 + 30):
        world, steps = by_chance(seed)
        chance = random.Random(seed)
        for name, *args in steps:
            getattr(world, name)(*args)
            if chance.random() < 0.2:
                source, size, piece = (
                    chance.choice(["west", "east"]),
                    chance.choice([1, 4, 50]),
                    chance.choice([1, 3, 99]),
                )
                check(world, source, size, piece, chance if chance.random() < 0.5 else None)


def everywhere(world: World) -> list[tuple[BranchComparison, Job]]:
    """From either site, however the logs are cut."""
    ways = itertools.product(("west", "east"), (1, 3, 99), (1, 99), (None, random.Random(1)))
    return [check(world, *way) for way in ways]


@pytest.mark.parametrize("decided_at", ["west", "east", "both"])
def test_a_vote_from_before_the_fork_is_one_transaction_where_both_decided_it(decided_at: str) -> None:
    world = World(verdicts=-1)
    world.commit("west", 0)
    world.prepare("west", 1)
    land_all(world, "west")
    bring(world, "east")
    world.alone("east")
    for at in ("west", "east"):
        world.commit(at, 3 if at == "west" else 4)
        if decided_at in (at, "both"):
            world.decide(at)
        world.commit(at, 1, value=1)  # on top of it, or without
        land_all(world, at)
    for found, job in everywhere(world):
        assert {d.key for d in found.keys} >= {b"b", b"d", b"e"}
        assert len(job.gone) == (2 if decided_at == "both" else 0)


def test_what_a_merge_decided_and_the_closed_site_decided_again_is_one() -> None:
    world = forked()
    world.commit("east", 3)
    world.prepare("east", 4)
    land_all(world, "east")
    world.close("east", 0)
    world.merge("west")
    for _ in range(3):
        world.go_on("west", 9)
    world.alone("east")
    world.decide("east")
    world.commit("east", 4)
    land_all(world, "east")
    for found, job in everywhere(world):
        assert found.forked
        assert len(job.gone) == 1
        assert {len(d.source_by) + len(d.initiating_by) for d in found.keys if d.key == b"e"} == {1}, "the change"


def test_what_a_merge_left_as_it_was_is_told_as_the_same() -> None:
    """Another version only; also where it was undone afterwards."""
    world = parted_again()
    for found, _ in everywhere(world):
        (told,) = (d for d in found.keys if d.key == b"c")
        assert (told.kind, told.source_by, told.initiating_by) == (Kind.SAME, (), ())
    world.undo("west")
    for _ in range(3):
        world.go_on("west", 9)
    for found, _ in everywhere(world):
        assert b"c" in {d.key for d in found.keys}
