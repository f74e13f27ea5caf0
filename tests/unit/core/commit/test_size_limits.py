"""How large an object may be: every record that anybody will need for it fits (R8)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from halog.adapters.kafka import conf as kafka_conf
from halog.adapters.memory import log as memory_log
from halog.config.check import LOG_BYTES
from halog.core import effects as fx, events as ev, results as res
from halog.core.commit.size_limits import SPARE, harmless_bytes, most_bytes, record_limit, too_large
from halog.core.ids import EpochId
from halog.core.keys.directory import StoredEntry, entry_key, moved, packed, unpacked
from halog.core.log import records
from halog.core.log.records import CREATE, DELETE, UPDATE, Change
from halog.core.settings import Settings
from tests.unit.core.kit import Core, create

pytestmark = pytest.mark.feature("R8")

LONG = "x" * 95
"""A policy's name is no longer than 100 characters."""
FAR = 2**62
HEAD = records.Header(b"l" * 16, EpochId(FAR, LONG, FAR), FAR, b"h" * 16, b"t" * 16)
LIMITS = st.sampled_from([40_000, 100_000, 5_000_000])


def row(op: int, key: bytes, value: bytes | None, before: bytes | None) -> Change:
    return Change(op, b"r" * 24, key, value, FAR, before)


@given(LIMITS, st.floats(0, 1), st.integers(1, 3), st.booleans())
def test_a_record_that_need_not_be_looked_through_has_nothing_too_large(
    most: int, share: float, count: int, keeps: bool
) -> None:
    """Whatever part of it is keys; and most records are as small as that."""
    settings = Settings(max_record_bytes=most, before_images=keeps)
    harmless = harmless_bytes(settings)
    assert most / 3 < harmless <= most / 2
    room = harmless // count - 150
    change = row(CREATE, bytes(int(room * share)), bytes(room - int(room * share)), None)
    data = records.encode(records.Commit(HEAD, (change,) * count))
    assert abs(len(data) - harmless) < 700
    if len(data) <= harmless:
        assert too_large((change,), settings) is None


@given(LIMITS, st.floats(0, 1), st.booleans())
def test_an_object_of_the_largest_size_can_be_changed_deleted_and_moved(most: int, share: float, keeps: bool) -> None:
    """With the longest names and numbers, with an entry in the same partition, whatever part of it is its key."""
    size = most // (2 if keeps else 1)
    key = bytes(int(share * size / 3))
    value = bytes(most_bytes(most, len(key), before_images=keeps))
    if len(value) < len(key):
        return  # a value has its key
    old = value if keeps else None
    named = tuple(f"{LONG}-{i}" for i in (4_094, 4_095, 4_096))
    entry, here = entry_key(key), packed(b"type" * 2, named[0])
    kept = here if keeps else None

    def fits(changes: list[Change], reads: tuple[tuple[bytes, int], ...] = (), *, alone: bool = True) -> None:
        commit = records.Commit(HEAD, tuple(changes))
        vote = records.Prepare(HEAD, named[0], named, FAR, b"d" * 32, tuple(changes), reads)
        assert too_large(changes, Settings(max_record_bytes=most, before_images=keeps)) is None
        for record in (commit, vote):
            assert len(records.encode(record)) <= most

    fits([row(UPDATE, key, value, old)])
    fits([row(DELETE, key, None, old), row(DELETE, entry, None, kept)])
    fits([row(CREATE, key, value, None)])
    found = StoredEntry(named[0], FAR, b"r" * 24, unpacked(here))

    class Stored:
        ref, version = b"r" * 24, FAR

    Stored.value = value  # type: ignore[attr-defined]
    for partition in named[:2]:
        its = [r for at, r in moved(key, Stored(), found, named[1]) if at == partition]  # type: ignore[arg-type]
        fits([row(r.op, r.key, r.value, (kept if r.key == entry else old) if r.op != CREATE else None) for r in its])


def test_the_limit_is_half_a_record_where_before_images_are_kept() -> None:
    assert most_bytes(5_000_000, 10, before_images=True) == 2_498_990
    assert most_bytes(5_000_000, 10, before_images=False) == 4_997_980
    assert most_bytes(1_000, 10, before_images=False) == 880
    assert most_bytes(1_000, 1_000, before_images=True) == 0


@pytest.mark.parametrize("vote", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_an_object_that_could_not_be_changed_is_refused_by_name(vote: bool, keeps: bool) -> None:
    settings = Settings(max_record_bytes=100_000, before_images=keeps)
    limit = most_bytes(100_000, 1, before_images=keeps)

    def asked(token: int, *changes: Change) -> ev.Event:
        tx = bytes((token,)) * 16
        if vote:
            return ev.PrepareAsked(token, tx, "p", ("p", "q"), b"d", (), changes, {})
        return ev.Submitted(token, tx, (), changes, {})

    core = Core(settings=settings).active()
    before = core.p.state.chain.state
    core.step(asked(1, create(b"a"), create(b"b", bytes(limit + 1))))
    assert core.replies() == [res.OversizedRecord(limit + 1, limit, b"b")]
    assert core.of(fx.Append) == []
    assert core.p.state.chain.state == before
    core.step(asked(2, create(b"a"), create(b"b", bytes(limit))))
    assert core.one(fx.Append)


def test_the_last_record_of_an_object_that_is_too_large_may_exceed_the_limit() -> None:
    """A deletion, and a move; nothing else, and of one object only. The log takes more than that."""
    settings = Settings(max_record_bytes=1_000_000, before_images=True)
    entry = entry_key(b"k")
    gone, here = row(DELETE, b"k", None, b"x"), row(UPDATE, entry, b"e", b"e")
    for changes, moves, more in (
        ([gone], False, True),
        ([gone, here], False, True),
        ([gone, row(DELETE, b"l", None, b"x")], False, False),
        ([row(UPDATE, b"k", b"y", b"x")], False, False),
        ([row(CREATE, b"k", b"y", None)], False, False),
        ([row(CREATE, b"k", b"y", None), here], True, True),
        ([here], False, False),
        ([], False, False),
    ):
        assert record_limit(changes, settings, moves=moves) == (1_050_000 if more else 1_000_000)


def test_what_is_too_large_already_may_be_deleted_and_moved_and_made_smaller() -> None:
    settings = Settings(max_record_bytes=100_000, before_images=True)
    old = bytes(99_990)

    def said(change: Change, *, vote: bool = False, moves: bool = False) -> list[res.Result]:
        core = Core(settings=settings).active()
        found = {b"k": -1 if change.op == CREATE else 3}
        if vote:
            core.step(ev.PrepareAsked(1, bytes(16), "p", ("p", "q"), b"d", (), [change], found, moves=moves))
        else:
            core.step(ev.Submitted(1, bytes(16), (), [change], found))
        return core.replies()

    def was(op: int, value: bytes | None, before: bytes | None) -> Change:
        return Change(op, b"r" * 24, b"k", value, -1 if op == CREATE else 3, before)

    assert said(was(DELETE, None, old)) == []
    assert said(was(DELETE, None, old), vote=True, moves=True) == []
    assert said(was(CREATE, old, None), vote=True, moves=True) == []
    assert said(was(UPDATE, b"small", old[:90_000])) == []
    limit = most_bytes(100_000, 1, before_images=True)
    assert said(was(UPDATE, old[:60_000], old[:39_000])) == [res.OversizedRecord(60_000, limit, b"k")]
    assert said(was(CREATE, old, None)) == [res.OversizedRecord(99_990, limit, b"k")]


def test_the_log_takes_the_largest_record_that_a_configuration_may_allow() -> None:
    for takes in (kafka_conf.MAX_BYTES, memory_log.MAX_BYTES):
        assert takes > LOG_BYTES + LOG_BYTES // SPARE + 1_000
