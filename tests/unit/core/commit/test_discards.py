"""What is told of a discarded transaction carries its record where the log does not have it, within bounds (Q4, X9)."""

from __future__ import annotations

from typing import Any

import pytest

from halog.adapters.memory.log import MAX_BYTES
from halog.core import effects as fx, events as ev
from halog.core.commit.discards import EVENT_BYTES, KEEP_BYTES, RECORD_BYTES, Discards
from halog.core.commit.writer import InFlight
from halog.core.ids import NO_HASH, EpochId
from halog.core.log import records
from halog.core.log.merge_parts import AppliedMerge
from halog.core.log.outcomes import Outcomes
from halog.core.log.transactions import Ledger
from halog.core.table.table import SYNC, Replica
from halog.events import DISCARDED, TEXT_CHARS, EventPlace, event
from tests.unit.core.kit import SETTINGS, B, C, Core, Script, create, epoch, tx
from tests.unit.core.table.test_tell import told_after


@pytest.mark.feature("Q4", "X9")
def test_what_is_told_of_one_in_flight_carries_the_record_as_the_log_was_given_it() -> None:
    """It may be nowhere else: the log never had it."""
    core = Core().with_sync_replica()
    given = []
    for n, key in ((1, b"one"), (2, b"two")):
        core.submit(n, create(key))
        given.append(core.one(fx.Append).data)
    end_epoch(core)
    (told,) = told_after(core, SETTINGS.discarded_ms + 20)
    assert [t["record"] for t in told.more["transactions"]] == given
    assert [t["bytes"] for t in told.more["transactions"]] == [len(data) for data in given]
    assert not any("acknowledged" in t for t in told.more["transactions"])


@pytest.mark.feature("Q4", "X9")
def test_what_readers_skipped_is_told_without_its_record_which_the_log_has() -> None:
    kept = Discards(Outcomes(), Ledger())
    kept.left(tx(1), 1, 7, 0, "fenced")
    (told,) = kept.certain(10, 10, 2)
    assert told.more["transactions"] == [{"tx": tx(1).hex(), "lsn": 7}]


@pytest.mark.feature("Q4", "X9", "D4")
def test_a_vote_in_flight_is_told_like_a_commit() -> None:
    """Without it nobody has decided to commit, and nobody will: it was in flight in an epoch that is over (T2)."""
    core = Core().with_sync_replica()
    core.step(vote_asked(1, tx(1)))
    given = core.one(fx.Append).data
    end_epoch(core)
    (told,) = told_after(core, SETTINGS.discarded_ms + 20)
    size = len(given)
    assert told.more["transactions"] == [{"tx": tx(1).hex(), "lsn": 2, "bytes": size, "record": given}]


@pytest.mark.feature("Q4", "X9", "D4")
def test_of_a_last_vote_the_decision_is_lost_with_it_and_it_is_told_once() -> None:
    core = Core().with_sync_replica()
    core.step(vote_asked(1, tx(1), last=True))
    given = core.of(fx.Append)[0].data
    end_epoch(core)
    (told,) = told_after(core, SETTINGS.discarded_ms + 20)
    assert [t["record"] for t in told.more["transactions"]] == [given]


@pytest.mark.feature("Q4", "X9", "D4")
@pytest.mark.parametrize("abort", [False, True])
def test_a_vote_that_was_given_again_is_not_told_whatever_is_decided(abort: bool) -> None:
    """It is in the log then, and so is what became of it: it may be a commit."""
    core = Core().with_sync_replica()
    core.step(vote_asked(1, tx(1)))
    script, higher = end_epoch(core)
    for data in (script.vote(higher, 1), script.outcome(higher, 1, commit=not abort)):
        core.step(ev.EntriesRead([(core.p.state.next_offset, data)]))
    assert not told_after(core, SETTINGS.discarded_ms + 20)


@pytest.mark.feature("Q4", "X9", "D4")
def test_a_vote_in_doubt_is_not_told() -> None:
    core = Core().with_sync_replica()
    core.step(vote_asked(1, tx(1)))
    script, higher = end_epoch(core)
    core.step(ev.EntriesRead([(core.p.state.next_offset, script.vote(higher, 1))]))
    assert not told_after(core, 2 * SETTINGS.discarded_ms)


@pytest.mark.feature("Q4", "X9", "D4")
def test_a_vote_that_the_log_had_all_the_same_is_not_told() -> None:
    """Only its acknowledgement was lost."""
    core = Core().with_sync_replica()
    core.step(vote_asked(1, tx(1)))
    given = core.one(fx.Append).data
    end_epoch(core, landed=given)
    assert core.p.state.ledger.undecided
    assert not told_after(core, SETTINGS.discarded_ms + 20)


@pytest.mark.feature("Q4", "X9", "D4")
def test_an_abort_of_what_was_never_voted_on_leaves_the_vote_to_be_told() -> None:
    """The first partition's, which its initiator asked for."""
    core = Core().with_sync_replica()
    core.step(vote_asked(1, tx(1), last=True))
    script, higher = end_epoch(core)
    core.step(ev.EntriesRead([(core.p.state.next_offset, script.outcome(higher, 1, commit=False))]))
    (told,) = told_after(core, SETTINGS.discarded_ms + 20)
    assert [t["tx"] for t in told.more["transactions"]] == [tx(1).hex()]


@pytest.mark.feature("Q4", "X9", "D4")
@pytest.mark.parametrize("later", ["nothing", "an abort", "the vote"])
def test_a_vote_that_readers_skipped_is_told_unless_one_of_its_id_counts(later: str) -> None:
    core = Core(active=B, epoch=epoch(2), replicas=(Replica("A", 1, SYNC),)).loaded()
    core.alive(B, C)
    script, higher = Script(), epoch(2)
    landed = [script.started(higher), script.opened(higher)]
    if later == "the vote":
        landed.append(script.vote(higher, 7))
    elif later == "an abort":
        landed.append(script.outcome(higher, 7, commit=False))
    landed.append(Script().vote(epoch(1), 7))
    core.step(ev.EntriesRead(list(enumerate(landed))))
    told = [t for e in told_after(core, SETTINGS.discarded_ms + 20) for t in e.more["transactions"]]
    assert told == ([] if later == "the vote" else [{"tx": tx(7).hex(), "lsn": 1}])


@pytest.mark.feature("Q4", "X9", "D4")
def test_what_a_merge_says_was_committed_is_not_told() -> None:
    """It was voted on again, in a history that had parted from this one."""
    ledger = Ledger()
    kept = Discards(Outcomes(), ledger)
    for n in (1, 2):
        kept.left(tx(n), 1, 7, 0, "fenced")
    header = records.Header(bytes(16), epoch(2), 9)
    ledger.merged(AppliedMerge(header, b"m", (), (), ((tx(1), True), (tx(2), False)), 0, 0), 5)
    (told,) = kept.certain(10, 10, 2)
    assert [t["tx"] for t in told.more["transactions"]] == [tx(2).hex()]


def vote_asked(token: int, its: bytes, *, last: bool = False) -> ev.PrepareAsked:
    return ev.PrepareAsked(token, its, "p", ("p", "q"), b"d" * 16, (), (create(b"k"),), {}, last=last)


def end_epoch(core: Core, *, landed: bytes | None = None) -> tuple[Script, EpochId]:
    """The log fails, and a higher epoch opens, behind what landed all the same."""
    ended = core.p.state.chain.state.epoch
    core.step(ev.AppendFailed(-1, "the broker is gone"))
    if landed is not None:
        core.step(ev.EntriesRead([(core.p.state.next_offset, landed)]))
    script, higher = Script(core.p.state.chain.state.lsn, core.p.state.chain.state.hash), epoch(ended.number + 1)
    for data in (script.started(higher), script.opened(higher)):
        core.step(ev.EntriesRead([(core.p.state.next_offset, data)]))
    return script, higher


def flying(n: int, size: int, *, answered: bool = False) -> InFlight:
    """A commit said to be so large."""
    header = records.Header(bytes(16), epoch(1), n, NO_HASH, tx(n))
    record = records.Commit(header, (create(b"k"),))
    return InFlight(n, record, NO_HASH, 0, [], size, n, tx(n), answered)


def told_of(*queue: InFlight) -> list[list[dict[str, Any]]]:
    """Event by event."""
    kept = Discards(Outcomes(), Ledger())
    kept.in_flight(queue, 1, 0, "timed out")
    return [e.more["transactions"] for e in kept.certain(10, 10, 2)]


@pytest.mark.feature("Q4", "X9", "R6")
def test_one_whose_caller_was_told_that_it_happened_says_so() -> None:
    ((first, second),) = told_of(flying(1, 9, answered=True), flying(2, 9))
    assert first["acknowledged"] is True
    assert "acknowledged" not in second


@pytest.mark.feature("Q4", "X9")
def test_an_event_carries_so_many_bytes_or_one_record_that_is_larger() -> None:
    sizes = [EVENT_BYTES // 2, EVENT_BYTES // 2, 1, EVENT_BYTES + 1, 2, 3]
    told = told_of(*(flying(n, size) for n, size in enumerate(sizes, 1)))
    assert [[t["bytes"] for t in part] for part in told] == [sizes[:2], sizes[2:3], sizes[3:4], sizes[4:]]
    assert all("record" in t for part in told for t in part)


@pytest.mark.feature("Q4", "X9", "R8")
def test_what_is_kept_of_records_is_bounded_and_all_of_them_are_named() -> None:
    """The first ones are kept, since those are the acknowledged ones; one that no event can carry takes no room."""
    most = KEEP_BYTES // RECORD_BYTES
    queue = [flying(1, RECORD_BYTES + 1), *(flying(n, RECORD_BYTES) for n in range(2, most + 2)), flying(most + 2, 1)]
    told = [t for part in told_of(*queue) for t in part]
    assert [(t["bytes"], "record" in t) for t in told] == [
        (RECORD_BYTES + 1, False),
        *[(RECORD_BYTES, True)] * most,
        (1, False),
    ]


@pytest.mark.feature("Q4", "X9")
def test_room_is_counted_over_all_epochs_that_left_some_and_is_there_again_once_they_are_told() -> None:
    kept = Discards(Outcomes(), Ledger())
    kept.in_flight([flying(n, RECORD_BYTES) for n in range(KEEP_BYTES // RECORD_BYTES)], 1, 0, "timed out")
    kept.in_flight([flying(100, 1)], 2, 0, "timed out again")
    last = list(kept.certain(10, 10, 3))[-1]
    assert "record" not in last.more["transactions"][0]
    kept.in_flight([flying(101, 1)], 3, 0, "and again")
    (told,) = kept.certain(10, 10, 4)
    assert "record" in told.more["transactions"][0]


@pytest.mark.feature("Q4", "X9")
def test_one_that_was_tried_again_and_left_again_is_as_old_as_its_last_attempt() -> None:
    """That one may be in the log until a higher epoch than its own has opened."""
    kept = Discards(Outcomes(), Ledger())
    kept.in_flight([flying(1, 9, answered=True)], 1, 0, "timed out")
    kept.in_flight([flying(1, 9)], 2, 15, "and again")
    kept.left(tx(1), 1, 1, 16, "its first record came late")
    assert not list(kept.certain(30, 10, 2))
    (told,) = kept.certain(30, 10, 3)
    assert (told.more["of_epoch"], told.cause) == (2, "and again")
    (its,) = told.more["transactions"]
    assert its["acknowledged"] is True, "of the first one somebody was told that it happened"
    assert not kept


@pytest.mark.feature("Q4", "X9")
def test_the_largest_record_an_event_carries_fits_its_topic() -> None:
    """In base64, and all else beside it."""
    record = records.Commit(records.Header(bytes(16), epoch(1), 1, NO_HASH, tx(1)), (create(b"k", b""),))
    empty = len(records.encode(record))
    value = bytes(RECORD_BYTES - empty - 8)  # what a length takes
    record = records.Commit(record.header, (create(b"k", value),))
    size = len(records.encode(record))
    ((told,),) = told_of(InFlight(1, record, NO_HASH, 0, [], size, 1, tx(1)))
    at = EventPlace("c" * 64, "n" * 64, "p" * 249, 1 << 40, 1 << 40)
    whole = event(
        DISCARDED,
        at,
        name="n" * 99,
        time_ms=1 << 50,
        node="n" * 64,
        cause="\u20ac" * TEXT_CHARS,
        more={"count": 1, "of_epoch": 1, "transactions": [told]},
    )
    assert MAX_BYTES - 65_536 > len(whole.to_bytes()) > RECORD_BYTES
