"""A commit is Avro: what is written by hand equals what fastavro writes, and nothing else is read by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from halog.core.ids import HASH_BYTES, LOG_ID_BYTES, REF_BYTES, TX_BYTES, EpochId
from halog.core.log import commit_codec as commit_bytes, records
from halog.errors import RecordFormatError

longs = st.integers(-(2**63), 2**63 - 1)
lsns = st.one_of(st.integers(0, 300), st.integers(0, 2**62))


def fixed(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


changes = st.builds(
    records.Change,
    st.integers(0, 2),
    fixed(REF_BYTES),
    st.binary(max_size=200),
    st.none() | st.binary(max_size=200),
    longs,
    st.none() | st.binary(max_size=200),
)
headers = st.builds(
    records.Header,
    fixed(LOG_ID_BYTES),
    st.builds(EpochId, lsns, st.text(max_size=20), longs),
    lsns,
    fixed(HASH_BYTES),
    fixed(TX_BYTES),
)
commits = st.builds(records.Commit, headers, st.lists(changes, max_size=4).map(tuple))
votes = st.builds(
    records.Prepare,
    headers,
    st.text(max_size=20),
    st.lists(st.text(max_size=20), max_size=4).map(tuple),
    longs,
    st.binary(max_size=20),
    st.lists(changes, max_size=4).map(tuple),
    st.lists(st.tuples(st.binary(max_size=100), longs), max_size=4).map(tuple),
)
outcomes = st.builds(records.Outcome, headers, st.booleans())
standing = st.builds(
    records.Merged, st.binary(max_size=100), st.binary(max_size=30), st.none() | st.binary(max_size=200), st.binary()
)
parts = st.builds(
    records.MergePart,
    headers,
    st.integers(0, 2**31 - 1),
    st.lists(standing, max_size=4).map(tuple),
    st.lists(fixed(TX_BYTES), max_size=4).map(tuple),
    st.lists(st.tuples(fixed(TX_BYTES), st.booleans()), max_size=4).map(tuple),
)
written = st.one_of(commits, votes, outcomes)


@given(commits)
def test_the_bytes_are_fastavros(commit: records.Commit) -> None:
    data = records.encode(commit)
    assert data == records._encode(commit)
    assert records._decode(records.Commit, data) == commit
    assert records.decode(data) == commit
    assert commit_bytes.read(data) is not None


@given(votes)
def test_the_bytes_of_a_vote_are_fastavros(vote: records.Prepare) -> None:
    data = records.encode(vote)
    assert data == records._encode(vote)
    assert records._decode(records.Prepare, data) == records.decode(data) == vote
    assert commit_bytes.read_prepare(data) is not None


@given(outcomes)
def test_the_bytes_of_a_decision_are_fastavros(outcome: records.Outcome) -> None:
    data = records.encode(outcome)
    assert data == records._encode(outcome)
    assert records._decode(records.Outcome, data) == records.decode(data) == outcome
    assert commit_bytes.read_outcome(data) is not None


@given(parts)
def test_the_bytes_of_a_part_of_a_merge_are_fastavros(part: records.MergePart) -> None:
    data = records.encode(part)
    assert data == records._encode(part)
    assert records.decode(data) == part


@given(written, st.data())
def test_damaged_bytes_are_judged_as_fastavro_judges_them(record: records.Record, data: st.DataObject) -> None:
    raw = bytearray(records.encode(record))
    if data.draw(st.booleans()):
        raw[data.draw(st.integers(2, len(raw) - 1))] = data.draw(st.integers(0, 255))
    else:
        del raw[data.draw(st.integers(2, len(raw) - 1)) :]
    try:
        slow = records._decode(type(record), bytes(raw))
    except RecordFormatError:
        with pytest.raises(RecordFormatError):
            records.decode(bytes(raw))
    else:
        assert records.decode(bytes(raw)) == slow


def test_a_recovered_commit_takes_fastavros_way() -> None:
    header = records.Header(b"l" * 16, EpochId(2, "home", 1), 5, b"p" * 16, b"t" * 16)
    commit = records.Commit(header, (), records.Origin(EpochId(1, "home", 3), 4))
    data = records.encode(commit)
    assert commit_bytes.read(data) is None
    assert records.decode(data) == commit


@pytest.mark.parametrize("ref", [b"", b"r" * 23, b"r" * 25])
def test_a_reference_of_another_length_is_never_written(ref: bytes) -> None:
    header = records.Header(b"l" * 16, EpochId(2, "home", 1), 5, b"p" * 16, b"t" * 16)
    with pytest.raises(ValueError, match="fixed"):
        records.encode(records.Commit(header, (records.Change(0, ref, b"k", b"v", -1),)))


@given(st.one_of(commits, votes, outcomes, parts))
def test_a_link_of_the_chain_has_the_same_head(record: records.Record) -> None:
    """Who only follows the chain need not read what a commit changes; everything else is read whole."""
    linked = records.linked(records.encode(record))
    assert (type(linked), linked.header) == (type(record), record.header)
    assert linked == (records.Commit(record.header, ()) if isinstance(record, records.Commit) else record)


@given(commits, st.integers(1, 2**63 - 1))
def test_a_link_that_was_recovered_says_from_where(commit: records.Commit, lsn: int) -> None:
    origin = records.Origin(EpochId(1, "home", 3), lsn)
    recovered = records.Commit(commit.header, commit.changes, origin)
    assert records.linked(records.encode(recovered)) == recovered


def test_a_link_that_ends_within_its_head_is_refused() -> None:
    whole = records.encode(records.Commit(records.Header(b"l" * LOG_ID_BYTES, EpochId(1, "here", 7), 3), ()))
    head = len(whole) - 2  # no changes, no origin
    for size in range(head + 1):
        with pytest.raises(RecordFormatError):
            records.linked(whole[:size])
