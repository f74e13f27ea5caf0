"""A node that merges by what a job has found, and what it has done since, writes the very records that it writes having
read both branches itself (S1, M2)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast
from unittest import mock

import pytest
from msgspec.structs import replace

from halog.core.ids import NO_EPOCH, digest
from halog.core.log.outcomes import KEEP
from halog.core.log.transactions import UndecidedTransaction
from halog.errors import RefusedError
from halog.ports import Entry
from restore import replay, results
from restore.branch import Branch, BranchReader, Side, aborted
from restore.branches import completed
from restore.merge import Difference, Instance, Kind
from restore.replay import Opening, merge_records
from restore.results import BranchTransactions, JobFindings, Manifest, told
from spark_jobs import branching
from spark_jobs.branching import INITIATING, SOURCE
from spark_jobs.snapshot import Place
from tests.unit.core.sites.copy_model import TP
from tests.unit.core.sites.merge_kit import bring, land_all
from tests.unit.core.sites.merge_model import Begun, World
from tests.unit.core.sites.merge_steps import by_chance
from tests.unit.core.sites.site_model import Site
from tests.unit.spark_jobs.following import RUN, Job

pytestmark = [pytest.mark.feature("S1", "M2", "M3"), pytest.mark.timeout(120)]


@dataclass
class Judged(World):
    """Each merge is made by a job's results, too, of a look at some moment before."""

    chance: random.Random = field(default_factory=lambda: random.Random(0))
    looked: dict[bytes, tuple[JobFindings, BranchReader]] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    back: tuple[int, ...] = (0, 0, 1, 2, 3)
    """How many entries before the log's end the job looks."""

    def merge(self, at: str, three_way: int = 1) -> None:
        before = self.begun.get(at)
        super().merge(at, three_way)
        one = self.begun.get(at)
        if one is None or one is before or one.theirs is None:
            return
        site = self.sites[at]
        found = self._job(site, one.theirs, len(site.log.entries) - self.chance.choice(self.back))
        if found is None:
            return
        assert one.fork is not None
        try:
            results.check(found.manifest, one.name, one.fork)
        except RefusedError:  # another merge was made here since
            self.seen["refused"] += 1
            return
        own = BranchReader(found.manifest.seen)
        if self.chance.random() < 0.5:  # read on while it serves
            own.read(self.side_of(site))
        self.looked[one.name] = found, own

    def _job(self, site: Site, theirs: Side, end: int) -> JobFindings | None:
        """What it finds of the source's log up to there; None: it sees no fork yet."""
        logs, places = {}, {}
        for s, at, stop in ((SOURCE, site.name, end), (INITIATING, site.other, theirs.end)):
            log, begin = self.sites[at].log, Site.beginning(at)
            logs[s] = [Entry(TP, e.offset, e.value, e.timestamp_ms) for e in log.read(TP, 0, stop)]
            places[s] = Place("p-0", 0, TP.topic, "", begin.log_id.hex(), at, begin.owner)
        job = Job(logs, places, self.chance.choice([1, 4, 50]))
        last_ms = 1_000 + next(o for o in reversed(range(theirs.end)) if self._is_last(theirs, o))

        def decide(place: Place, u: UndecidedTransaction) -> int | None:
            return last_ms if self.is_committed(theirs.site, u.tx) else None

        job.decide = decide
        with mock.patch.object(branching, "PIECE", self.chance.choice([1, 3, 99])):
            parted, folded = job.run()
        if not parted.forked:
            return None
        cuts = [self.chance.randrange(1, 9) for _ in range(3)]
        chunk, record = self.chance.choice([1, 300, 200_000]), self.chance.choice([50, 9_000])
        with mock.patch.multiple(results, CHUNK_BYTES=chunk, RECORD_BYTES=record):
            values, name = job.handed_on(parted, folded, cuts)
        return results.read(values, RUN, name)

    @staticmethod
    def _is_last(theirs: Side, offset: int) -> bool:
        (entry,) = theirs.log.read(TP, offset, offset + 1)
        return digest(entry.value) == theirs.state.hash

    @staticmethod
    def side_of(site: Site) -> Side:
        return Side(site.name, cast(Any, site.log), TP, site.state, len(site.log.entries))

    def _append_merge(self, site: Site, one: Begun) -> None:
        ours = self.side_of(site)
        super()._append_merge(site, one)
        found = self.looked.pop(one.name, None)
        if found is not None and one.session is not None:
            self._judge(site, one, ours, *found)

    def _judge(self, site: Site, one: Begun, ours: Side, found: JobFindings, own: BranchReader) -> None:
        assert one.epoch is not None
        assert one.theirs is not None
        assert one.fork is not None
        assert one.session is not None
        ledger = site.copy.ledger
        decided = {tx: d.commit for tx, d in ledger.decided.items()}
        opening = Opening(one.epoch, site.state, int.from_bytes(ledger.horizon, "big"), ledger.mapping, decided)
        own.read(ours)
        later = own.branch(ours, aborted)
        try:
            results.check_later(found.manifest, later, ours.state)
        except RefusedError:
            self.seen["refused"] += 1
            return
        found = results.two_way_of(found) if one.two_way else found
        compared = results.compared(found, one.fork, later, three_way=not one.two_way)
        compared = completed(compared, site.copy.objects.get)
        made = merge_records(opening, [one.theirs.state], compared, self._verdicts(site, one, compared.keys), one.name)
        assert made == [data for data, _ in one.session.todo]
        self.seen["merged"] += 1
        self.seen["created"] += any(b"beside " in data for data in made)
        self.seen["later"] += any(c.changes for _, c in later.committed)
        again = {x.key for _, c in later.committed for x in c.changes}
        self.seen["again"] += any(found.keys[key].source_by for key in again & set(found.keys))
        self.seen["decided"] += bool(one.read is not None and one.read.in_doubt)


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("keep", [2, KEEP])
def test_worlds_by_chance(part: int, keep: int) -> None:
    """With evidence, ids and votes, byte for byte; whatever was done since the job looked. If few ids are kept, too."""
    seen: Counter[str] = Counter()
    with mock.patch.object(replay, "KEEP", keep), mock.patch.object(branching, "KEEP", keep):
        for seed in range(part * 60, part * 60 + 60):
            world, steps = by_chance(seed, Judged)
            assert isinstance(world, Judged)
            world.chance = random.Random(seed)
            for name, *args in steps:
                getattr(world, name)(*args)
            if keep == KEEP:
                world.finish()
            seen += world.seen
    assert seen["merged"] > 15, seen
    assert min(seen["later"], seen["again"], seen["decided"], seen["created"]) > 0, seen
    assert seen["refused"] < seen["merged"] / 4, seen


def parted(*, decided: bool = False) -> Judged:
    """The west is closed; in front of the fork a transaction was voted for, which nobody has decided, or the east."""
    world = Judged(verdicts=-1, back=(0,))
    world.commit("west", 0)
    world.prepare("west", 1)
    land_all(world, "west")
    bring(world, "east")
    world.alone("east")
    for at, key in (("west", 2), ("east", 3)):
        world.commit(at, key)
        land_all(world, at)
    if decided:
        world.decide("east")
        land_all(world, "east")
    world.close("west", 1)
    return world


def test_a_vote_from_before_the_fork_that_only_the_source_has_decided_is_on_neither() -> None:
    """The west's branch ends with it in doubt, and its first partition says that it was committed."""
    world = parted(decided=True)
    for step in (world.merge, *[lambda at: world.go_on(at, 99)] * 3):
        step("east")
    assert (world.seen["merged"], world.seen["decided"]) == (1, 1)


def test_a_vote_from_before_the_fork_that_is_decided_behind_what_the_job_saw_may_be_on_both() -> None:
    """It is in doubt where the west's branch ends, too."""
    world = parted()
    world.merge("east")
    one = world.begun["east"]
    found, own = world.looked[one.name]
    east = world.sites["east"]
    results.check_later(found.manifest, later_of(own, world.side_of(east)), east.state)
    world.decide("east")
    land_all(world, "east")
    with pytest.raises(RefusedError, match="may be on the other branch as well"):
        results.check_later(found.manifest, later_of(own, world.side_of(east)), east.state)


def later_of(own: BranchReader, side: Side) -> Branch:
    own.read(side)
    return own.branch(side, aborted)


def test_what_does_not_fit_is_refused() -> None:
    """Another branch, another fork, another record where the job is to have looked."""
    world = parted()
    world.merge("east")
    one = world.begun["east"]
    assert one.fork is not None
    found, own = world.looked[one.name]
    made, east = found.manifest, world.sites["east"]
    with pytest.raises(RefusedError, match="of another branch"):
        results.check(made, b"another", one.fork)
    with pytest.raises(RefusedError, match="parted at lsn 1, and these did at lsn 3"):
        results.check(replace(made, fork=(made.fork[0], 1)), one.name, one.fork)
    elsewhere = replace(made, hash=b"h" * 16)
    for _ in range(2):  # nothing was done since; and something
        with pytest.raises(RefusedError, match="has seen another record at lsn"):
            results.check_later(elsewhere, later_of(own, world.side_of(east)), east.state)
        world.commit("east", 4)
        land_all(world, "east")


def some_records() -> tuple[list[bytes], bytes, Manifest]:
    """Of two chunks, one of them in two records."""
    state = Instance(b"r", b"v" * 30)
    keys = [told(Difference(b"k%d" % i, Kind.TAKEN, None, None, state, (), ())) for i in range(2)]
    with mock.patch.multiple(results, CHUNK_BYTES=1, RECORD_BYTES=40):
        chunks = [chunk for _, chunk in results.chunks_of(keys)]
        values = [value for chunk in chunks for value in results.records_of(RUN, chunk)]
    names = tuple(digest(chunk) for chunk in chunks)
    made = Manifest(
        results.FORMAT,
        b"m",
        (NO_EPOCH, 0),
        b"",
        NO_EPOCH,
        1,
        b"",
        2,
        names,
        BranchTransactions(()),
        BranchTransactions(()),
    )
    return values, digest(results.packed(made)), made


def read(values: list[bytes], made: Manifest) -> JobFindings:
    packed = results.packed(made)
    return results.read([*values, *results.records_of(RUN, packed)], RUN, digest(packed))


def test_what_is_not_whole_is_refused() -> None:
    """A record is missing, has other bytes, is another job's; the manifest counts otherwise, or is of another time."""
    values, name, made = some_records()
    assert len(values) > 2
    assert set(read(values, made).keys) == {b"k0", b"k1"}
    assert set(read([*values[::-1], *values], made).keys) == {b"k0", b"k1"}
    for broken in (values[1:], values[:-1], [values[0].replace(b"vv", b"ww"), *values[1:]]):
        with pytest.raises(RefusedError, match="is missing, or is not what it was"):
            read(broken, made)
    with pytest.raises(RefusedError, match=name.hex()):
        results.read(values, RUN, name)
    with pytest.raises(RefusedError, match="is missing"):
        results.read([*values, *results.records_of(RUN, results.packed(made))], b"another", name)
    with pytest.raises(RefusedError, match="2 of 3 objects"):
        read(values, replace(made, keys=3))
    with pytest.raises(RefusedError, match="format 2"):
        read(values, replace(made, format=2))
    with pytest.raises(RefusedError, match="2 of 2 objects"):
        read(values, replace(made, chunks=(*made.chunks, made.chunks[0])))
    with pytest.raises(RefusedError, match="cannot be read"):
        read([*values, *results.records_of(RUN, b"junk")], replace(made, chunks=(digest(b"junk"),)))
