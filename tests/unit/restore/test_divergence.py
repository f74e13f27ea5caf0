"""The fork point of two histories (F4), against a model that keeps every record and walks its ancestors."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from halog.core.ids import NO_EPOCH, EpochId, digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState
from halog.errors import DivergedError
from restore.divergence import (
    BEGINNING,
    AcceptedRecord,
    Behind,
    Fork,
    History,
    OpenedEpoch,
    Place,
    Point,
    Same,
    Unrelated,
    accepted,
    compare,
    history_of,
    lineage_of,
    opened,
)
from tests.unit.restore.model import LOG_ID, OPS, SITES, ancestors, expected, found, history, played


@pytest.mark.feature("M2", "X3")
@settings(max_examples=400, deadline=None)
@given(OPS)
def test_the_relation_of_any_two_branches_is_what_walking_every_record_finds(ops: Any) -> None:
    """Heads, ancestors, fork points and common transactions, in both directions."""
    world = played(ops)
    for one in world.sites:
        for other in world.sites:
            assert found(history(one), history(other)) == expected(one, other)


@pytest.mark.feature("M2", "X3")
@settings(max_examples=150, deadline=None)
@given(OPS, st.integers(0, 1_000), st.sampled_from([0.0, 0.3, 0.8]))
def test_a_summary_finds_the_same_fork_and_says_no_hash_it_does_not_know(ops: Any, seed: int, keep: float) -> None:
    """With few records, or none, the lineage is enough; a hash is the record's own, or None."""
    world = played(ops)
    hashes = {n.place: n.hash for site in world.sites for n in ancestors(site.head)}
    for one in world.sites:
        for other in world.sites:
            thin, fat = history(one, keep, seed), history(other, keep, seed + 1)
            kind, value = expected(one, other)
            relation = compare(thin, fat)
            given_ = {r.place for r in (*thin.accepted, *fat.accepted)}
            points: tuple[Point, ...] = ()
            if isinstance(relation, Fork):
                assert (kind, value[0]) == ("fork", [(p.epoch, p.lsn) for p in relation.at])
                points = relation.at
            elif isinstance(relation, Behind):
                assert (kind, value) == ("behind", (relation.first, (relation.at.epoch, relation.at.lsn)))
                points = (relation.at,)
            else:
                assert kind == "same"
            for p in points:
                assert p.hash == (hashes[p.epoch, p.lsn] if (p.epoch, p.lsn) in given_ else None)


def test_the_model_meets_every_relation() -> None:
    """Forks with one and with common transactions, ancestors, the same: else the properties prove nothing."""
    kinds: dict[str, int] = {}
    chance = random.Random(7)
    names = ["commit", "commit", "take over", "follow", "follow", "recover", "merge"]
    for _ in range(300):
        ops = [
            (chance.choice(names), chance.randrange(SITES), chance.randrange(SITES), chance.randrange(50))
            for _ in range(30)
        ]
        world = played(ops)
        kind, value = expected(world.sites[0], world.sites[1])
        kinds[kind] = kinds.get(kind, 0) + 1
        if kind == "fork" and value[1]:
            kinds["common"] = kinds.get("common", 0) + 1
    assert {"same", "behind", "fork", "common"} <= kinds.keys(), kinds


# --- by hand ---


def epoch(number: int, site: str = "home") -> EpochId:
    return EpochId(number, site, number)


E1, E2, W2 = epoch(1), epoch(2), epoch(2, "west")
BEGUN = OpenedEpoch(E1, 1, (BEGINNING,))


def record(e: EpochId, lsn: int, hash_: bytes = b"", tx: int = 0, origin: Place | None = None) -> AcceptedRecord:
    return AcceptedRecord(e, lsn, hash_ or b"%d" % lsn, tx.to_bytes(16, "big"), origin)


@pytest.mark.feature("M2", "M5")
def test_a_home_that_went_on_behind_what_the_other_site_took_over_is_a_fork() -> None:
    """Scenario of F3: home wrote lsn 4 and 5, which West never saw; West took over at lsn 3."""
    home = History(LOG_ID, (E1, 5), (BEGUN,), [record(E1, n) for n in range(1, 6)])
    west = History(LOG_ID, (W2, 6), (BEGUN, OpenedEpoch(W2, 4, ((E1, 3),))), [record(E1, 3), record(W2, 4)])
    assert compare(home, west) == Fork((Point(E1, 3, b"3"),), ())
    assert compare(west, home) == Fork((Point(E1, 3, b"3"),), ())
    mirror = History(LOG_ID, (E1, 3), (BEGUN,))
    assert compare(mirror, home) == Behind(True, Point(E1, 3, b"3"))
    assert compare(west, mirror) == Behind(False, Point(E1, 3, b"3"))


@pytest.mark.feature("M2", "X3")
def test_a_transaction_one_branch_accepted_and_the_other_recovered_is_common() -> None:
    """Trace 25: by id *and* original place; the same id alone, written anew, is another attempt."""
    ours = [record(E1, 4, tx=7), record(E1, 5, tx=8)]
    theirs = [record(W2, 5, b"r", 7, (E1, 4)), record(W2, 6, b"s", 8)]
    home = History(LOG_ID, (E1, 5), (BEGUN,), ours)
    west = History(LOG_ID, (W2, 6), (BEGUN, OpenedEpoch(W2, 4, ((E1, 3),))), theirs)
    relation = compare(home, west)
    assert isinstance(relation, Fork)
    assert relation.common == ((ours[0], theirs[0]),)


@pytest.mark.feature("M2", "X3")
def test_a_branch_that_merged_the_other_has_all_of_it() -> None:
    """F5: home, closed at lsn 5, is an ancestor of the merge; a home that goes on alone forks at its closing record."""
    lineage = (BEGUN, OpenedEpoch(W2, 4, ((E1, 3),)), OpenedEpoch(epoch(3, "west"), 7, ((W2, 6), (E1, 5))))
    merged = History(LOG_ID, (epoch(3, "west"), 7), lineage)
    closed = History(LOG_ID, (E1, 5), (BEGUN,), [record(E1, 5)])
    assert compare(closed, merged) == Behind(True, Point(E1, 5, b"5"))
    alone = History(LOG_ID, (E2, 8), (BEGUN, OpenedEpoch(E2, 6, ((E1, 5),))), [record(E1, 5)])
    assert compare(merged, alone) == Fork((Point(E1, 5, b"5"),), ())


@pytest.mark.feature("M2")
def test_other_log_ids_are_unrelated_however_alike() -> None:
    """Two partitions, or one that was made anew."""
    one = History(LOG_ID, (E1, 3), (BEGUN,))
    other = History(b"another log here", (E1, 3), (BEGUN,))
    assert compare(one, other) == Unrelated()
    assert compare(one, one) == Same()


@pytest.mark.feature("M2")
def test_an_empty_history_is_behind_every_other() -> None:
    """Its head is the beginning, which all have."""
    empty = History(LOG_ID, BEGINNING, ())
    full = History(LOG_ID, (E1, 3), (BEGUN,))
    assert compare(empty, full) == Behind(True, Point(*BEGINNING, None))
    assert compare(empty, empty) == Same()
    apart = compare(History(LOG_ID, (E1, 1), (BEGUN,)), History(LOG_ID, (W2, 1), (OpenedEpoch(W2, 1, (BEGINNING,)),)))
    assert apart == Fork((Point(*BEGINNING, None),), ())


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (
            History(LOG_ID, (E1, 3), (BEGUN,), [record(E1, 2, b"x")]),
            History(LOG_ID, (E1, 4), (BEGUN,), [record(E1, 2, b"y")]),
            "lsn 2 of epoch 1 has two hashes",
        ),
        (
            History(LOG_ID, (E2, 5), (BEGUN, OpenedEpoch(E2, 4, ((E1, 3),)))),
            History(LOG_ID, (E2, 5), (BEGUN, OpenedEpoch(E2, 5, ((E1, 4),)))),
            "epoch 2 began in two ways",
        ),
        (History(LOG_ID, (E2, 5), (BEGUN,)), History(LOG_ID, (E1, 5), (BEGUN,)), "the lineage has a hole"),
        (
            History(LOG_ID, (E2, 3), (BEGUN, OpenedEpoch(E2, 4, ((E1, 3),)))),
            History(LOG_ID, (E1, 5), (BEGUN,)),
            "the lineage has a hole",
        ),
    ],
)
def test_histories_that_contradict_each_other_are_refused(one: History, other: History, why: str) -> None:
    """A rebuilt or damaged log is an error, never a fork that would be merged."""
    for a, b in ((one, other), (other, one)):
        with pytest.raises(DivergedError, match=why):
            compare(a, b)


# --- from real records ---


class Branch:
    """A log of real records, judged by the chain every reader runs."""

    def __init__(self, before: Branch | None = None) -> None:
        self.chain: Chain = Chain(before.chain.state if before else ChainState(LOG_ID, "home"))
        self.accepted: list[AcceptedRecord] = list(before.accepted) if before else []
        self.opened: list[OpenedEpoch] = list(before.opened) if before else []

    def add(self, made: records.Record) -> None:
        data = records.encode(made)
        self.chain.read(made, digest(data))
        if not isinstance(made, records.EpochStarted):
            self.accepted.append(accepted(records.decode(data), digest(data)))
        if isinstance(made, records.EpochOpened):
            self.opened.append(opened(made))

    def epoch(self, number: int) -> None:
        s, e = self.chain.state, EpochId(number, "home", number)
        self.add(records.EpochStarted(records.Header(LOG_ID, e), s.epoch, s.lsn))
        self.add(records.EpochOpened(records.Header(LOG_ID, e, s.lsn + 1, s.hash), s.lineage[-1:]))

    def commit(self, tx: int, origin: records.Origin | None = None) -> None:
        s = self.chain.state
        header = records.Header(LOG_ID, s.epoch, s.lsn + 1, s.hash, tx.to_bytes(16, "big"))
        self.add(records.Commit(header, (), origin))


@pytest.mark.feature("M2", "X3")
def test_what_the_log_and_the_chain_hold_today_is_enough() -> None:
    """From `EpochOpened` records and from a copy's stored state alike: the lineage, the fork, a recovered commit."""
    one = Branch()
    one.epoch(1)
    one.commit(1)
    one.epoch(2)
    one.commit(2)
    other = Branch(one)
    one.commit(3)
    lost = one.accepted[-1]
    other.epoch(4)
    other.commit(3, records.Origin(*lost.place))
    other.commit(9)
    for branch in (one, other):
        assert lineage_of(branch.chain.state) == tuple(branch.opened)
    relation = compare(history_of(one.chain.state, one.accepted), history_of(other.chain.state, other.accepted))
    assert isinstance(relation, Fork)
    shared = one.accepted[-2]
    assert relation.at == (Point(shared.epoch, shared.lsn, shared.hash),)
    assert [(a.lsn, b.lsn) for a, b in relation.common] == [(lost.lsn, lost.lsn + 1)]
    assert history_of(ChainState(LOG_ID, "home")) == History(LOG_ID, BEGINNING, ())


def test_an_epoch_that_only_started_is_no_accepted_record() -> None:
    """It stands outside the chain, whoever wrote it."""
    started = records.EpochStarted(records.Header(LOG_ID, E1), NO_EPOCH, 0)
    with pytest.raises(ValueError, match="EpochStarted"):
        accepted(started, digest(records.encode(started)))
