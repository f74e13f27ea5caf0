"""How much goes into one frame, one Kafka transaction, one request: by bytes, whatever is counted besides."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from halog.backend import CommittedObject
from halog.core.log.transactions import Decision, Ledger
from halog.runtime.rpc import frames
from halog.runtime.rpc.pages import ITEM_BYTES, first_of, page, pieces, room_in, size_of
from halog.runtime.topics import ledger_rows
from spark_jobs.mover import Misplaced

SIZES = st.lists(st.integers(0, 3_000), max_size=40)


def objects(sizes: Sequence[int]) -> list[CommittedObject]:
    return [CommittedObject(bytes(24), i, bytes(size), b"%06d" % i) for i, size in enumerate(sizes)]


@pytest.mark.feature("R5")
@given(SIZES, st.integers(1, 5_000), st.integers(1, 12))
def test_pages_have_every_object_once_and_only_the_last_one_says_that_it_is_the_end(
    sizes: list[int], room: int, limit: int
) -> None:
    found = objects(sizes)
    at, ended = 0, False
    while not ended:
        made = page(iter(found[at:]), room, limit)
        assert made.items == found[at : at + len(made.items)]
        assert len(made.items) == 1 or sum(map(size_of, made.items)) <= room
        assert made.items or not found
        assert len(made.items) <= limit
        at += len(made.items)
        ended = made.end
        assert ended is (at == len(found))
    assert at == len(found)


@given(SIZES, st.integers(1, 5_000), st.integers(1, 12))
def test_pieces_have_everything_once_in_order_and_no_more_than_there_is_room_for(
    sizes: list[int], room: int, limit: int
) -> None:
    made = list(pieces(sizes, lambda size: size, room, limit))
    assert [size for piece in made for size in piece] == sizes
    assert all(0 < len(piece) <= limit and (len(piece) == 1 or sum(piece) <= room) for piece in made)
    assert [size for piece in pieces(sizes, lambda size: size, room) for size in piece] == sizes


def test_a_page_and_the_largest_object_behind_it_fit_the_smallest_frame() -> None:
    """`limits.max_frame_bytes` may be no more than twice the largest record."""
    for most in (1_000, 100_000, 5_000_000):
        value, key = bytes(most // 2 - ITEM_BYTES), bytes(most // 3)
        made = page([CommittedObject(bytes(24), 2**62, value, key)] * 40, room_in(2 * most))
        assert not made.end
        assert len(frames.encode(made)) <= 2 * most
    assert room_in(16_000_000) < 16_000_000 // 2


def test_keys_are_asked_for_by_their_size() -> None:
    keys = [bytes(400_000)] * 5
    assert [len(first_of(keys, at)) for at in range(6)] == [2, 2, 2, 2, 1, 0]


@pytest.mark.feature("S1")
def test_objects_that_are_to_move_go_in_requests_that_fit_a_frame() -> None:
    """Five hundred in each at most, and fewer whose keys are long."""
    keys = [b"%06d" % i + bytes(100_000) for i in range(200)]
    found = Misplaced("T", keys, [f"p-{i}" for i in range(200)], list(range(200)))
    slices = list(found.slices(500))
    assert all(sum(map(len, some.keys)) <= 1_000_000 for some in slices)
    assert [k for some in slices for k in some.keys] == keys
    assert [t for some in slices for t in some.targets] == found.targets
    assert [v for some in slices for v in some.lsns] == list(range(200))


@pytest.mark.feature("R8", "D4")
def test_decisions_in_the_state_topic_are_cut_by_the_names_they_hold() -> None:
    """A thousand decisions over hundreds of partitions each are many rows, none of them larger than a broker takes."""
    names = tuple(f"some-policy-of-a-long-name-{i}" for i in range(400))
    decided = [(i.to_bytes(16, "big"), Decision(True, i, i, names[0], names)) for i in range(1_000)]
    ledger = Ledger([], decided)
    rows = ledger_rows.rows(ledger)
    assert len(rows) > 10
    assert max(map(len, rows)) <= 1_000_000
    topic = {key: value for key, value, _ in ledger_rows.keyed(9, rows)}
    assert dict(ledger_rows.restored(topic, 9, len(rows), b"").decided) == dict(decided)
