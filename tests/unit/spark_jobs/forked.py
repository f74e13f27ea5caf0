"""Two sites' logs of one partition that forked, as bytes: for tests of those who read them (F4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace

from halog.core.ids import NO_TX, EpochId, digest
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.core.log.records import (
    CREATE,
    Change,
    Commit,
    EpochOpened,
    EpochStarted,
    Header,
    Origin,
    Outcome,
    Prepare,
    Record,
    decode,
    encode,
)
from halog.ports import Entry, TopicPartition
from restore.merge import BranchCommit, Instance
from tests.unit.restore.branches import STEPS, Objects, Step, played

LOG_ID = b"0123456789abcdef"
WEST, EAST = ChainState(LOG_ID, "west"), ChainState(LOG_ID, "east", owner="west")
"""How the two logs begin."""
TP = TopicPartition("p.log", 0)
DOUBT = b"in doubt"
"""The key of a transaction that was prepared in front of the fork, and is decided behind it."""


class Writer:
    """A site's log, and whoever writes it."""

    def __init__(self, begin: ChainState) -> None:
        self.chain = Chain(begin)
        self.values = list[bytes]()

    @property
    def state(self) -> ChainState:
        return self.chain.state

    def put(self, record: Record) -> Verdict:
        data = encode(record)
        self.values.append(data)
        return self.chain.read(record, digest(data))

    def header(self, tx: bytes = NO_TX) -> Header:
        """Of the next record of the chain."""
        return Header(LOG_ID, self.state.epoch, self.state.lsn + 1, self.state.hash, tx)

    def open(self, number: int) -> None:
        epoch = EpochId(number, self.state.site, number)
        self.put(EpochStarted(Header(LOG_ID, epoch), *self.state.head))
        assert self.put(EpochOpened(self.header(), self.state.lineage)) is Verdict.OPENED

    def commit(self, done: BranchCommit, origin: Origin | None = None, *, spans: bool = False) -> Commit:
        """One transaction; `spans`: over several partitions."""
        commit = Commit(self.header(done.tx), tuple(done.changes), origin)
        if spans:
            self.prepare(done)
            assert self.put(Outcome(self.header(done.tx), commit=True)) is Verdict.ACCEPTED
        else:
            assert self.put(commit) is Verdict.ACCEPTED
        return commit

    def prepare(self, done: BranchCommit) -> None:
        parts = ("p-0", "p-1")
        assert self.put(Prepare(self.header(done.tx), "p-0", parts, 0, b"", tuple(done.changes))) is Verdict.ACCEPTED

    def late(self) -> None:
        """Something that does not count any more."""
        self.put(Commit(Header(LOG_ID, EpochId(0, self.state.site, 9), 1, self.state.hash, b"l" * 16), ()))

    def mirror(self, other: Writer) -> None:
        """What another site's log has of the chain."""
        for entry in read(other.values):
            self.values.append(entry.value)
            self.chain.read(decode(entry.value), digest(entry.value))

    def bounds(self, tp: TopicPartition, timeout_s: float = 10.0) -> tuple[int, int]:
        return 0, len(self.values)

    def read(self, tp: TopicPartition, start: int, end: int, timeout_s: float = 10.0) -> Iterator[Entry]:
        return iter(read(self.values)[start:end])


def read(values: Sequence[bytes]) -> list[Entry]:
    return [Entry(TP, offset, value, 1_000 + offset) for offset, value in enumerate(values)]


class Case(NamedTuple):
    """What happens: in front of the fork, at each site, and what of the west's the east recovers."""

    before: list[Step]
    west: list[Step]
    east: list[Step]
    recovered: int
    """The first so many of the west's commits behind the fork, by the east as well."""
    lost: int
    """Before them, commits of the first epoch that both sites recover, each for itself."""
    doubt: tuple[bool, bool] | None
    """How each site decides what was in doubt."""
    spans: bool
    late: bool


CASES = st.builds(
    Case,
    STEPS,
    STEPS,
    STEPS,
    st.integers(0, 3),
    st.integers(0, 2),
    st.none() | st.tuples(st.booleans(), st.booleans()),
    st.booleans(),
    st.booleans(),
)


def forked(case: Case) -> tuple[Writer, Writer]:
    """(west, east): at least the east has gone on; its epoch is its own."""
    west, east = Writer(WEST), Writer(EAST)
    west.open(1)
    before, objects = branch({}, case.before, b"b")
    for done in before:
        west.commit(done, spans=case.spans)
    if case.doubt is not None:
        west.prepare(in_doubt())
    east.mirror(west)
    lost, objects = branch(objects, [(b"x", False, b"8"), (b"y", False, b"9")][: case.lost], b"l")
    first = west.state.epoch, west.state.lsn
    if lost:  # so the first epoch has ended in the west, too, with records that nobody accepted
        west.open(2)
    east.open(3)
    for done in lost:
        origin = Origin(first[0], first[1] + done.lsn)
        west.commit(done, origin)
        east.commit(done, origin)
    ours, _ = branch(objects, case.west, b"w")
    commits = [west.commit(done) for done in ours]
    again = ours[: case.recovered]
    for done, commit in zip(again, commits):
        east.commit(done, Origin(commit.header.epoch, commit.header.lsn))
    theirs, _ = branch(after(objects, again), case.east, b"e")
    for done in theirs:
        east.commit(done, spans=case.spans)
    finish(case, west, east)
    return west, east


def finish(case: Case, west: Writer, east: Writer) -> None:
    for writer, how in zip((west, east), case.doubt or ()):
        writer.put(Outcome(writer.header(in_doubt().tx), commit=how))
    if case.late:
        west.late()
        east.late()


def in_doubt() -> BranchCommit:
    return sized(BranchCommit(b"d", 0, 0, [Change(CREATE, b"d", DOUBT, b"1", -1)]))


def branch(base: Objects, steps: list[Step], name: bytes) -> tuple[list[BranchCommit], Objects]:
    """As `played`, with references and ids that the log can hold."""
    done, end = played(base, steps, name)
    return [sized(one) for one in done], {key: there._replace(ref=sized_ref(there.ref)) for key, there in end.items()}


def after(base: Objects, done: list[BranchCommit]) -> Objects:
    now = dict(base)
    for one in done:
        for change in one.changes:
            if change.value is None:
                del now[change.key]
            else:
                now[change.key] = Instance(change.ref, change.value)
    return now


def sized(done: BranchCommit) -> BranchCommit:
    changes = [replace(change, ref=sized_ref(change.ref)) for change in done.changes]
    return done._replace(tx=done.tx.ljust(16, b"."), changes=changes)


def sized_ref(ref: bytes) -> bytes:
    return ref.ljust(24, b".")
