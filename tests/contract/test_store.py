"""The Store port: atomic writes, ordered scans, one owner, nothing lost with the process. Memory and RocksDB."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from halog.errors import ClosedError, StoreError
from tests.contract.rigs_store import StoreRig


def test_writes_are_read_back_and_deleted(stores: StoreRig) -> None:
    """The last value of a key counts, None deletes, and values may be empty."""
    s = stores.open()
    s.write([(b"a", b"1"), (b"b", b""), (b"a", b"2")])
    assert (s.get(b"a"), s.get(b"b"), s.get(b"c")) == (b"2", b"", None)
    s.write([(b"a", None), (b"c", None)], flush=True)
    assert s.get(b"a") is None


def test_many_are_read_in_the_order_asked(stores: StoreRig) -> None:
    """Absent ones are None, in their place; asked twice, answered twice."""
    s = stores.open()
    s.write([(b"a", b"1"), (b"b", b"")])
    assert [*s.get_many([b"b", b"no", b"a", b"b"])] == [b"", None, b"1", b""]
    assert [*s.get_many([])] == []


@pytest.mark.feature("R6")
def test_what_was_written_before_can_be_flushed_alone(stores: StoreRig) -> None:
    s = stores.open()
    s.write([(b"a", b"1")])
    s.write([], flush=True)
    s.write([])
    assert list(s.scan(b"")) == [(b"a", b"1")]


def test_scan_is_ordered_bounded_and_as_of_the_call(stores: StoreRig) -> None:
    """A prefix's keys ascend, stop at the prefix, start behind `after`, and ignore writes made since the call."""
    s = stores.open()
    s.write([(k, k) for k in (b"a", b"p\x00", b"p1", b"p2", b"p\xff", b"q", b"\xff\xff", b"\xff")])
    assert [k for k, _ in s.scan(b"p")] == [b"p\x00", b"p1", b"p2", b"p\xff"]
    assert [k for k, _ in s.scan(b"p", b"p1")] == [b"p2", b"p\xff"]
    assert [k for k, _ in s.scan(b"p", b"a")] == [b"p\x00", b"p1", b"p2", b"p\xff"]
    assert [k for k, _ in s.scan(b"\xff")] == [b"\xff", b"\xff\xff"]
    assert len(list(s.scan(b""))) == 8
    rows = s.scan(b"p")
    s.write([(b"p1", None), (b"p9", b"new")])
    assert [k for k, _ in rows] == [b"p\x00", b"p1", b"p2", b"p\xff"]


def test_a_snapshot_stays_as_it_was(stores: StoreRig) -> None:
    """Later writes and drops do not show in it."""
    s = stores.open()
    s.write([(b"a1", b"1"), (b"a2", b"2")])
    before = s.snapshot()
    s.write([(b"a1", b"9"), (b"a3", b"3")])
    s.drop(b"a2")
    assert (before.get(b"a1"), before.get(b"a2"), before.get(b"a3")) == (b"1", b"2", None)
    assert list(before.scan(b"a")) == [(b"a1", b"1"), (b"a2", b"2")]
    assert list(before.scan(b"a", b"a1")) == [(b"a2", b"2")]


def test_drop_takes_the_prefix_and_nothing_else(stores: StoreRig) -> None:
    """Neighbours on both sides stay, also where the prefix ends with the highest byte; writes after it stay, too."""
    s = stores.open()
    s.write([(k, b"") for k in (b"a", b"b\xff", b"b\xff\x01", b"b\xff\xff", b"c", b"\xff", b"\xff\xff\x01")])
    s.drop(b"b\xff")
    assert [k for k, _ in s.scan(b"")] == [b"a", b"c", b"\xff", b"\xff\xff\x01"]
    s.drop(b"\xff")
    s.write([(b"b\xff\x01", b"again")])
    assert list(s.scan(b"")) == [(b"a", b""), (b"b\xff\x01", b"again"), (b"c", b"")]


def test_an_iterable_that_raises_changes_nothing(stores: StoreRig) -> None:
    """A write is all or nothing, also when its items fail half-way."""
    s = stores.open()

    def items() -> object:
        yield b"a", b"1"
        raise ValueError("broken source")

    with pytest.raises(ValueError, match="broken source"):
        s.write(items())  # type: ignore[arg-type]
    assert s.get(b"a") is None


def test_a_fill_puts_all_of_it_or_nothing(stores: StoreRig) -> None:
    """Its items replace older ones and are no special ones afterwards; if their source fails half-way none is there."""
    s = stores.open()
    s.write([(b"k1", b"old"), (b"k9", b"other")])

    def items() -> Iterator[tuple[bytes, bytes]]:
        yield b"k1", b"1"
        raise ValueError("broken source")

    with pytest.raises(ValueError, match="broken source"):
        s.fill(items())
    s.fill([])
    assert list(s.scan(b"k")) == [(b"k1", b"old"), (b"k9", b"other")]
    before = s.snapshot()
    s.fill([(b"k1", b"1"), (b"k2", b"2"), (b"k3", b"")])
    s.write([(b"k2", None), (b"k3", b"3")])
    assert list(s.scan(b"k")) == [(b"k1", b"1"), (b"k3", b"3"), (b"k9", b"other")]
    assert list(before.scan(b"k")) == [(b"k1", b"old"), (b"k9", b"other")]


def test_a_fill_behind_a_drop_stays(stores: StoreRig) -> None:
    """What was dropped before does not take along what was filled in since; a later drop does; a closed store keeps."""
    s = stores.open()
    s.write([(b"a1", b"old"), (b"a2", b"old")])
    s.drop(b"a")
    s.fill([(b"a2", b"new"), (b"a3", b"new")])
    s.close()
    s = stores.open()
    assert list(s.scan(b"a")) == [(b"a2", b"new"), (b"a3", b"new")]
    s.drop(b"a")
    assert list(s.scan(b"")) == []


@pytest.mark.feature("P1", "P10")
def test_what_was_written_outlives_the_store(stores: StoreRig) -> None:
    """Closed and opened again, everything is there, without a flush."""
    s = stores.open()
    s.write([(b"%d" % n, b"v") for n in range(1000)])
    s.close()
    s.close()
    assert len(list(stores.open().scan(b""))) == 1000


def test_one_owner_at_a_time(stores: StoreRig) -> None:
    """A second opening is refused with the directory's name and says that it is held; after a close it is free."""
    s = stores.open()
    with pytest.raises(StoreError, match="held by another node") as caught:
        stores.open()
    assert caught.value.evidence["held"] is True
    assert caught.value.evidence["directory"] in str(caught.value)
    s.close()
    stores.open()


def test_a_closed_store_says_so(stores: StoreRig) -> None:
    """Used after close: ClosedError, never old data."""
    s = stores.open()
    s.write([(b"a", b"1")])
    s.close()
    with pytest.raises(ClosedError):
        s.get(b"a")
    with pytest.raises(ClosedError):
        s.write([(b"a", b"2")])
