"""Copies are compared object by object; whatever is not the same everywhere is counted once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from halog.backend import Found
from halog.demo import verify_copies
from halog.demo.result import Copies
from halog.errors import HalogError
from halog.runtime import frames


def obj(key: bytes, version: int = 1, value: bytes = b"v", ref: bytes = b"r") -> Found:
    return Found(ref, version, value, key)


SAME = [obj(b"a"), obj(b"b"), obj(b"c")]


def test_equal_copies_have_no_mismatch() -> None:
    assert verify_copies.compare({"p-0": "AB", "p-1": "AB"}, lambda n, p: SAME) == Copies(2, 6, 0)


@pytest.mark.parametrize(
    "other",
    [
        [obj(b"a"), obj(b"b", version=2), obj(b"c")],
        [obj(b"a"), obj(b"b", value=b"w"), obj(b"c")],
        [obj(b"a"), obj(b"b", ref=b"s"), obj(b"c")],
        [obj(b"a"), obj(b"c")],
        [*SAME, SAME[2]],
    ],
)
def test_a_different_missing_or_doubled_object_is_one_mismatch(other: list[Found]) -> None:
    assert verify_copies.compare_one([SAME, other, SAME]) == (3, 1)
    assert verify_copies.compare_one([other, SAME, SAME]) == (3, 1)


def test_one_too_many_is_a_mismatch() -> None:
    assert verify_copies.compare_one([SAME, SAME, [*SAME, obj(b"d")]]) == (4, 1)


def test_a_store_is_read_page_by_page_from_the_named_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_copies, "PAGE", 2)
    asked = []

    def ask(node: str, frame: frames.Request, timeout_s: float) -> frames.Reply:
        assert isinstance(frame, frames.Scan)
        asked.append((node, frame.partition, frame.after, frame.local))
        left: Iterator[Found] = (f for f in SAME if f.key > frame.after)
        return frames.Objects([f for f, _ in zip(left, range(frame.limit))])

    assert list(verify_copies.read_store(ask, "B", "p-0")) == SAME
    assert asked == [("B", "p-0", b"", True), ("B", "p-0", b"b", True)]


def test_an_answer_that_is_no_page_is_an_error() -> None:
    with pytest.raises(HalogError, match="node B"):
        list(verify_copies.read_store(lambda n, f, t: frames.Valid(), "B", "p-0"))
