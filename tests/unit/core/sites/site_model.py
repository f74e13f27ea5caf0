"""For models of two sites: one site, with whoever writes to its log, and mirrors into it. Appends wait in sessions, and
land in order, late or never."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from halog.core.ids import ABSENT, NO_TX, EpochId, digest
from halog.core.log import records
from halog.core.log.chain import ChainState, Verdict
from halog.core.log.records import CREATE, DELETE, UPDATE, Change, Header
from halog.core.sites.mirror import Checkpoint, Mirror
from halog.metadata.restore_requests import ClosedBranch
from tests.unit.core.kit import LOG_ID
from tests.unit.core.sites.copy_model import TP, Copy, MemoryLog, change

HOME = "west"


@dataclass
class Session:
    """Appends under way: bytes, and the transaction that waits for each."""

    todo: deque[tuple[bytes, bytes]] = field(default_factory=deque)

    def put(self, data: bytes, tx: bytes = NO_TX) -> None:
        self.todo.append((data, tx))


class Writer:
    """Who opened an epoch, or wants to; it may have been deposed since and not know it."""

    def __init__(self, epoch: EpochId, copy: Copy, session: Session) -> None:
        self.epoch = epoch
        self.session = session
        self.lsn = copy.chain.state.lsn
        self.prev = copy.chain.state.hash
        self.objects = dict(copy.objects)
        self.undecided = {tx: u.prepare.changes for tx, u in copy.ledger.undecided.items()}
        self.done = False
        """Its last record was written."""

    def header(self, tx: bytes = NO_TX) -> Header:
        return Header(LOG_ID, self.epoch, self.lsn + 1, self.prev, tx)

    def write(self, record: records.Record) -> None:
        data = records.encode(record)
        self.lsn = record.header.lsn
        self.prev = digest(data)
        waits = isinstance(record, records.Commit) or (isinstance(record, records.Outcome) and record.commit)
        self.session.put(data, record.header.tx if waits else NO_TX)

    def is_locked(self, key: bytes) -> bool:
        return any(c.key == key for changes in self.undecided.values() for c in changes)

    def change(self, key: bytes, ref: bytes, value: bytes, *, gone: bool, before: bool) -> Change:
        there = self.objects.get(key)
        if there is None:
            return Change(CREATE, ref, key, value, ABSENT)
        old = there.value if before else None
        if gone:
            return Change(DELETE, there.ref, key, None, there.version, old)
        return Change(UPDATE, there.ref, key, value, there.version, old)

    def commit(self, tx: bytes, changes: tuple[Change, ...]) -> None:
        self.write(records.Commit(self.header(tx), changes))
        change(self.objects, changes, self.lsn)

    def prepare(self, tx: bytes, changes: tuple[Change, ...]) -> None:
        self.write(records.Prepare(self.header(tx), "first", ("first", "model"), 0, b"d" * 16, changes))
        self.undecided[tx] = changes

    def decide(self, tx: bytes, *, commit: bool) -> None:
        changes = self.undecided.pop(tx)
        self.write(records.Outcome(self.header(tx), commit))
        if commit:
            change(self.objects, changes, self.lsn)


class Site:
    def __init__(self, name: str, other: str) -> None:
        self.name = name
        self.other = other
        self.copy = Copy(self.beginning(name))
        self.log = MemoryLog()
        self.sessions: list[Session] = []
        self.owner = "" if name == HOME else HOME
        """By its znode."""
        self.epoch = 0
        """Of its znode."""
        self.writer: Writer | None = None
        self.closed: ClosedBranch | None = None
        self.fence: EpochId | None = None
        """What it would give its log away with."""
        self.standing: Checkpoint | None = None
        self.mirrors: list[tuple[Mirror, Session]] = []
        self.acknowledged: set[bytes] = set()

    @staticmethod
    def beginning(name: str) -> ChainState:
        return ChainState(LOG_ID, name, owner="" if name == HOME else HOME)

    @property
    def state(self) -> ChainState:
        return self.copy.chain.state

    @property
    def serves(self) -> bool:
        s, w = self.state, self.writer
        return w is not None and not w.done and not s.owner and s.opened and not s.void and s.epoch == w.epoch

    # --- its log ---

    def session(self) -> Session:
        self.sessions.append(Session())
        return self.sessions[-1]

    def land(self, session: Session, count: int) -> None:
        for _ in range(min(count, len(session.todo))):
            data, tx = session.todo.popleft()
            verdict = self.copy.read(self.log.append(data), data)
            if verdict is Verdict.ACCEPTED and tx != NO_TX:  # where it was appended, it is answered
                self.acknowledged.add(tx)

    # --- epochs ---

    def start(self, floor: int = 0) -> EpochId:
        """An epoch above all that is known here, in the znode and in the log at once: nothing comes between."""
        self.epoch = max(self.epoch, self.state.epoch.number, floor) + 1
        epoch = EpochId(self.epoch, self.name, self.epoch)
        session = self.session()
        session.put(records.encode(records.EpochStarted(Header(LOG_ID, epoch), self.state.epoch, 0)))
        self.land(session, 1)
        return epoch

    def elect(self, landing: int = 1) -> None:
        """Whoever led goes on appending for all it knows; its session lands late."""
        if self.owner:
            return
        epoch = self.start()
        writer = self.writer = Writer(epoch, self.copy, self.session())
        writer.write(records.EpochOpened(writer.header(), self.state.lineage[-1:]))
        self.land(writer.session, landing)

    def close(self, *, hand_over: bool) -> None:
        """It is to give its log away, and tells what its branch ends with. Nobody serves from here on."""
        if self.state.owner:
            return
        self.owner = self.other
        if hand_over and self.serves and self.writer is not None:
            self.writer.write(records.HandedOver(self.writer.header(), self.other))
            self.writer.done = True
            self.land(self.writer.session, 1_000)
        self.fence = self.start()
        in_doubt = tuple(u.offset for u in self.copy.ledger.undecided.values())
        self.closed = ClosedBranch(Checkpoint(len(self.log.entries), self.state), in_doubt)

    def give(self, other: Site, landing: int) -> None:
        """Its log becomes the other's, if that has all that is in it, or has merged it."""
        if not self.owner or self.state.owner or self.fence != self.state.epoch:
            return
        found = Mirror(self._start(other), self.state)
        for entry in other.log.read(TP, found.offset, len(other.log.entries)):
            found.read(entry.offset, entry.value)
        if found.chain.state.owner or not found.met:
            return
        session = self.session()
        switched = records.SiteSwitched(Header(LOG_ID, self.fence), other.name, self.state.head)
        session.put(records.encode(switched))
        self.land(session, landing)

    # --- mirrors ---

    def _start(self, other: Site) -> Checkpoint:
        kept = self.standing
        if kept is not None and kept.state.lsn <= self.state.lsn:
            return kept
        return Checkpoint(0, self.beginning(other.name))

    def mirror(self, other: Site) -> None:
        """Another one, from where those before it were."""
        if self.state.owner:
            self.mirrors.append((Mirror(self._start(other), self.state), self.session()))

    def look(self, other: Site, which: int, count: int) -> None:
        if not self.mirrors:
            return
        mirror, session = self.mirrors[which % len(self.mirrors)]
        for entry in other.log.read(TP, mirror.offset, min(mirror.offset + count, len(other.log.entries))):
            for data in mirror.read(entry.offset, entry.value):
                session.put(data)

    def stand(self, which: int) -> None:
        """As the line from the other site does: it writes down what is here for certain."""
        if self.mirrors:
            mirror, session = self.mirrors[which % len(self.mirrors)]
            if self.state.owner and not session.todo and self.state.lsn >= mirror.checkpoint.state.lsn:
                self.standing = mirror.checkpoint

    def stop_mirror(self, which: int) -> None:
        """What it sent may still land, from the front."""
        if self.mirrors:
            self.mirrors.pop(which % len(self.mirrors))

    def bring_all(self, other: Site) -> None:
        if self.state.owner:
            self.mirror(other)
            self.look(other, -1, 10_000)
            self.land(self.mirrors[-1][1], 10_000)
            self.stand(-1)
