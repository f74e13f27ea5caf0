"""Bytes of records: every kind comes back as it was, anything else is refused with a named error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from halog.core.ids import EpochId
from halog.core.log import records
from halog.errors import LaterRecordError, RecordFormatError
from halog.ports import Entry, TopicPartition
from halog.release import RELEASE

LONG = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(max_size=12)
EPOCHS = st.builds(EpochId, LONG, TEXT, LONG)


def fixed(n: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=n, max_size=n)


HEADERS = st.builds(records.Header, fixed(16), EPOCHS, LONG, fixed(16), fixed(16))
CHANGES = st.lists(
    st.builds(
        records.Change,
        st.integers(0, 2),
        fixed(24),
        st.binary(max_size=9),
        st.none() | st.binary(max_size=9),
        LONG,
        st.none() | st.binary(max_size=9),
    ),
    max_size=3,
).map(tuple)
AT = st.tuples(EPOCHS, LONG)
RECORDS: st.SearchStrategy[records.Record] = st.one_of(
    st.builds(records.EpochStarted, HEADERS, EPOCHS, LONG),
    st.builds(records.EpochOpened, HEADERS, st.lists(AT, max_size=3).map(tuple)),
    st.builds(records.Commit, HEADERS, CHANGES, st.none() | st.builds(records.Origin, EPOCHS, LONG)),
    st.builds(
        records.Prepare, HEADERS, TEXT, st.lists(TEXT, max_size=3).map(tuple), LONG, st.binary(max_size=9), CHANGES
    ),
    st.builds(records.Outcome, HEADERS, st.booleans()),
    st.builds(records.HandedOver, HEADERS, TEXT),
    st.builds(records.MapperChanged, HEADERS, LONG),
    st.builds(records.SiteSwitched, HEADERS, TEXT, AT),
    st.builds(records.Horizon, HEADERS, LONG),
)
SAMPLE = records.encode(
    records.Commit(
        records.Header(bytes(16), EpochId(1, "s", 2), 3), (records.Change(0, bytes(24), b"k", b"value", -1),)
    )
)


@given(RECORDS)
def test_every_record_comes_back_as_it_was(record: records.Record) -> None:
    assert records.decode(records.encode(record)) == record


def test_every_kind_has_a_byte_of_its_own() -> None:
    assert sorted(records.KINDS.values()) == list(range(1, 13))
    assert set(records.KINDS) == set(records.SCHEMAS)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "they begin with version - and kind -"),
        (b"\x01", "they begin with version 01 and kind -"),
        (b"\x02", "they begin with version 02 and kind -"),
        (b"\x00\x03" + SAMPLE[2:], "they begin with version 00 and kind 03"),
        (b"\x01\x00" + SAMPLE[2:], "kind 00"),
        (b"text that went astray", "they begin with version 74"),
        (SAMPLE + b"\x00", "1 bytes left over"),
    ],
)
def test_bytes_that_are_no_record_are_refused_saying_why(data: bytes, says: str) -> None:
    with pytest.raises(RecordFormatError, match=says) as caught:
        records.decode(data)
    assert not isinstance(caught.value, LaterRecordError)


@pytest.mark.feature("U1")
@pytest.mark.parametrize("read", [records.decode, records.linked])
@pytest.mark.parametrize(("version", "kind"), [(2, 3), (31, 0), (1, 13), (1, 255)])
def test_a_version_or_a_kind_beyond_those_known_is_a_later_versions_record(
    read: Callable[[bytes], object], version: int, kind: int
) -> None:
    """What was read, what is known here, and what to do."""
    data = bytes((version, kind)) + SAMPLE[2:]
    with pytest.raises(LaterRecordError) as caught:
        read(data)
    said = f"a record of version {version} and kind {kind}, which a later version of halog wrote: halog {RELEASE} reads"
    assert str(caught.value).startswith(said + " version 1, kinds up to 12. Upgrade")
    assert caught.value.evidence == {"version": version, "kind": kind, "head": data[:16].hex()}


@pytest.mark.feature("U1")
@pytest.mark.parametrize("read", [records.read, records.read_linked])
def test_a_later_versions_record_is_told_with_its_place(read: Callable[[Entry], object]) -> None:
    entry = Entry(TopicPartition("c.p.log", 4), 17, b"\x01\x0d" + SAMPLE[2:], 0)
    with pytest.raises(
        LaterRecordError, match=r"^c\.p\.log/4, offset 17: a record of version 1 and kind 13,"
    ) as caught:
        read(entry)
    assert (caught.value.evidence["topic"], caught.value.evidence["index"]) == ("c.p.log", 4)
    assert (caught.value.evidence["offset"], caught.value.evidence["kind"]) == (17, 13)


def with_op(op: int, *, vote: bool, recovered: bool = False) -> bytes:
    """A record whose second change has this op; with an origin it is not in the plain form, and fastavro reads it."""
    header = records.Header(bytes(16), EpochId(1, "s", 2), 3)
    changes = tuple(records.Change(n, bytes(24), b"k", b"value", -1) for n in (records.UPDATE, op))
    if vote:
        return records.encode(records.Prepare(header, "p-0", ("p-0", "p-1"), 1, b"", changes))
    origin = records.Origin(EpochId(1, "s", 1), 2) if recovered else None
    return records.encode(records.Commit(header, changes, origin))


RECORDS_WITH_CHANGES = pytest.mark.parametrize(("vote", "recovered"), [(False, False), (False, True), (True, False)])


@pytest.mark.feature("U1")
@RECORDS_WITH_CHANGES
@pytest.mark.parametrize("op", [3, 40, 63])
def test_a_change_of_an_op_beyond_those_known_is_a_later_versions(op: int, vote: bool, recovered: bool) -> None:
    """It is never applied as a change that is known here, whichever decoder reads it."""
    data = with_op(op, vote=vote, recovered=recovered)
    with pytest.raises(LaterRecordError, match=rf"change of op {op}, .*{RELEASE} knows ops up to 2\.") as caught:
        records.decode(data)
    evidence = {"version": 1, "kind": 4 if vote else 3, "op": op, "lsn": 3, "head": data[:16].hex()}
    assert caught.value.evidence == evidence


@pytest.mark.feature("U1")
@RECORDS_WITH_CHANGES
def test_a_change_of_a_negative_op_is_damage(vote: bool, recovered: bool) -> None:
    data = with_op(3, vote=vote, recovered=recovered).replace(b"\x06" + bytes(24), b"\x01" + bytes(24))
    with pytest.raises(RecordFormatError, match="op -1") as caught:
        records.decode(data)
    assert not isinstance(caught.value, LaterRecordError)


@pytest.mark.parametrize("length", range(2, len(SAMPLE)))
def test_a_record_cut_anywhere_is_refused(length: int) -> None:
    with pytest.raises(RecordFormatError):
        records.decode(SAMPLE[:length])


@given(st.binary(max_size=200))
def test_hostile_bytes_never_raise_anything_else(data: bytes) -> None:
    """Nor are they ever taken for a record by chance: 100 bytes of header would have to fit."""
    with pytest.raises(RecordFormatError) as caught:
        records.decode(b"\x01" + data[:50])
    assert caught.value.evidence["head"] == (b"\x01" + data[:50])[:16].hex()


@given(st.integers(2, len(SAMPLE) - 1), st.integers(0, 255))
def test_a_flipped_byte_is_another_record_or_refused(at: int, byte: int) -> None:
    data = SAMPLE[:at] + bytes((byte,)) + SAMPLE[at + 1 :]
    try:
        record = records.decode(data)
    except RecordFormatError:
        return
    assert isinstance(record, records.Commit)
