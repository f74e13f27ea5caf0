"""Copies are compared object by object; whatever is not the same everywhere is counted once."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from halog.backend import CommittedObject
from halog.demo import cluster, verify_copies
from halog.demo.model import Flight, Probe
from halog.demo.result import CopyCheck
from halog.embedded.model import SiteInfo
from halog.errors import HalogError
from halog.runtime.keys.key_owners import Places
from halog.runtime.rpc import frames
from halog.schema.registry import DEFAULT


def obj(key: bytes, version: int = 1, value: bytes = b"v", ref: bytes = b"r") -> CommittedObject:
    return CommittedObject(ref, version, value, key)


SAME = [obj(b"a"), obj(b"b"), obj(b"c")]


def test_equal_copies_have_no_mismatch() -> None:
    assert verify_copies.compare({"p-0": "AB", "p-1": "AB"}, lambda n, p: SAME) == CopyCheck(2, 6, 0)


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
def test_a_different_missing_or_doubled_object_is_one_mismatch(other: list[CommittedObject]) -> None:
    assert verify_copies.compare_one([SAME, other, SAME]) == (3, 1)
    assert verify_copies.compare_one([other, SAME, SAME]) == (3, 1)


def test_one_too_many_is_a_mismatch() -> None:
    assert verify_copies.compare_one([SAME, SAME, [*SAME, obj(b"d")]]) == (4, 1)


def test_a_store_is_read_page_by_page_from_the_named_node() -> None:
    asked = []

    def ask(node: str, frame: frames.Request, timeout_s: float) -> frames.Reply:
        assert isinstance(frame, frames.Scan)
        asked.append((node, frame.partition, frame.after, frame.local))
        left = [f for f in SAME if f.key > frame.after]
        return frames.Objects([*left[: frame.limit]], end=len(left) <= frame.limit)

    assert list(verify_copies.read_store(ask, "B", "p-0", page=2)) == SAME
    assert asked == [("B", "p-0", b"", True), ("B", "p-0", b"b", True)]


def test_an_answer_that_is_no_page_is_an_error() -> None:
    with pytest.raises(HalogError, match="node B"):
        list(verify_copies.read_store(lambda n, f, t: frames.Confirmation(), "B", "p-0"))


@pytest.mark.feature("P6")
def test_an_object_in_another_partition_than_the_mapper_says_is_misplaced() -> None:
    """Counted once for all copies; equal copies of a misplaced object are equal all the same."""
    found = verify_copies.compare({"p-0": "AB", "p-1": "AB"}, lambda n, p: SAME, lambda key: f"p-{key == b'b':d}")
    assert found == CopyCheck(2, 6, 0, 1 + 2)


@pytest.mark.feature("P6")
def test_the_mapper_of_the_configuration_says_where_a_key_belongs(tmp_path: Path) -> None:
    """The very partition that a node of the same configuration routes it to; of another ring another one."""
    config = cluster.make_config(SiteInfo("localhost:1", "localhost:2", ""), tmp_path, "demo", 12)
    departure = (dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC), "UA", 1545, "N14228")
    for cls, key in ((Flight, departure), (Probe, ("probe-1",))):
        info = DEFAULT.info(cls)
        for named in (config, cluster.with_ring(config, cluster.RING)):
            owner = Places(named, lambda name: DEFAULT.info(name).parsed).owner(info.name)
            want = owner.partition(info.name, info.routing_key(key))
            assert verify_copies.placed_by(named, cluster.POLICY)(info.index_key(key)) == want
    with pytest.raises(HalogError, match="no type"):
        verify_copies.placed_by(config, cluster.POLICY)(b"none of ours")
