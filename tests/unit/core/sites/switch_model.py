"""A model of two sites that switch back and forth while appends of every kind land late.

It does what `halog.runtime.sites.switchover`, `line` and `giving` do, with the real chain and the real mirror: whoever
takes over fences the other log and waits for all of it; whoever gives its log away fences it and compares. Appends wait
in sessions, and land in order, when chance says so: those of mirrors that died, and of writers that were deposed and do
not know it, and go on.
"""

from __future__ import annotations

from collections import deque

from halog.core.ids import EpochId, digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.core.log.records import Header
from halog.core.sites.mirror import Checkpoint, Mirror
from halog.errors import PartedError
from tests.unit.core.kit import LOG_ID, create

HOME = "west"


class Site:
    """Its log, what readers make of it, and whoever writes to it."""

    def __init__(self, name: str, other: str) -> None:
        self.name = name
        self.other = other
        self.chain = Chain(self.beginning(name))
        self.log: list[bytes] = []
        self.accepted: list[bytes] = []
        self.sessions: list[deque[tuple[bytes, bytes | None]]] = []
        """Appends under way: bytes, and the transaction that waits for it."""
        self.owner = "" if name == HOME else HOME
        """By its znode."""
        self.epoch = 0
        """Of its znode."""
        self.writer: deque[tuple[bytes, bytes | None]] | None = None
        self.number = 0
        self.lsn = 0
        self.prev = b""
        self.acknowledged: set[bytes] = set()

    @staticmethod
    def beginning(name: str) -> ChainState:
        return ChainState(LOG_ID, name, owner="" if name == HOME else HOME)

    def session(self) -> deque[tuple[bytes, bytes | None]]:
        self.sessions.append(deque())
        return self.sessions[-1]

    def land(self, session: deque[tuple[bytes, bytes | None]], count: int) -> None:
        for _ in range(min(count, len(session))):
            data, tx = session.popleft()
            self.log.append(data)
            if self.chain.read(records.decode(data), digest(data)) in (Verdict.ACCEPTED, Verdict.OPENED):
                self.accepted.append(digest(data))
                if tx is not None:  # where it was appended, it is answered
                    self.acknowledged.add(tx)

    def start(self) -> EpochId:
        """An epoch above all that is known here, in the znode and in the log at once: nothing comes between."""
        self.epoch = max(self.epoch, self.chain.state.epoch.number) + 1
        epoch = EpochId(self.epoch, self.name, self.epoch)
        session = self.session()
        session.append((records.encode(records.EpochStarted(Header(LOG_ID, epoch), self.chain.state.epoch, 0)), None))
        self.land(session, 1)
        return epoch

    def elect(self, landing: int = 1) -> None:
        """Whoever led goes on appending for all it knows; its session lands late."""
        if self.owner:
            return
        epoch, state = self.start(), self.chain.state
        self.writer = self.session()
        self.number = epoch.number
        header = Header(LOG_ID, epoch, state.lsn + 1, state.hash)
        self.write(records.EpochOpened(header, state.lineage[-1:]))
        self.land(self.writer, landing)

    def write(self, record: records.Record, tx: bytes | None = None) -> None:
        assert self.writer is not None
        data = records.encode(record)
        self.lsn = record.header.lsn
        self.prev = digest(data)
        self.writer.append((data, tx))

    def commit(self, tx: bytes) -> None:
        if self.writer is not None:
            epoch = EpochId(self.number, self.name, self.number)
            self.write(records.Commit(Header(LOG_ID, epoch, self.lsn + 1, self.prev, tx), (create(),)), tx)

    @property
    def serves(self) -> bool:
        return not self.chain.state.owner and self.chain.state.opened and not self.chain.state.void


class World:
    def __init__(self, *, fences: bool = True) -> None:
        self.west = Site("west", "east")
        self.east = Site("east", "west")
        self.sites = {"west": self.west, "east": self.east}
        self.fences = fences
        self.tx = 0
        self.west.elect()

    def commit(self, at: str) -> None:
        self.tx += 1
        self.sites[at].commit(self.tx.to_bytes(16, "big"))

    def elect(self, at: str, landing: int) -> None:
        self.sites[at].elect(landing)

    def land(self, at: str, which: int, count: int) -> None:
        sessions = self.sites[at].sessions
        self.sites[at].land(sessions[which % len(sessions)], count) if sessions else None

    def mirror(self, at: str, landing: int) -> None:
        """Another mirror, from the own log's end; so much of what it brings lands at once."""
        site = self.sites[at]
        if site.chain.state.owner:
            session = site.session()
            for data in self.brought(site):
                session.append((data, None))
            site.land(session, landing)

    def brought(self, site: Site) -> list[bytes]:
        other = self.sites[site.other]
        mirror = Mirror(Checkpoint(0, Site.beginning(other.name)), site.chain.state)
        found = [data for offset, entry in enumerate(other.log) for data in mirror.read(offset, entry)]
        if mirror.parted is not None:
            raise mirror.parted
        return found

    def promote(self, at: str) -> None:
        """As an operator asks: the other one stops, its log is fenced, all of it is mirrored, then this one elects."""
        site, other = self.sites[at], self.sites[self.sites[at].other]
        if not site.owner or site.chain.state.owner != other.name:
            return
        other.owner = site.name
        if self.fences:
            other.start()
        self.mirror(at, 1_000)
        site.owner = ""
        site.elect()

    def ask(self, at: str) -> None:
        """The same by somebody who was killed behind the first step."""
        site, other = self.sites[at], self.sites[self.sites[at].other]
        if site.owner:
            other.owner = site.name

    def give_away(self, at: str) -> None:
        """What a site does whose znode says that the other one is to serve."""
        site = self.sites[at]
        if not site.owner or site.chain.state.owner:
            return
        epoch = site.start()
        state, other = site.chain.state, self.sites[site.other]
        found = Mirror(Checkpoint(0, Site.beginning(other.name)), state)
        for offset, data in enumerate(other.log):
            found.read(offset, data)
        theirs = found.chain.state
        if theirs.owner or (not theirs.opened and theirs.lsn < state.lsn):  # that site does not claim it yet
            return
        if not found.met:
            raise PartedError("parted")
        session = site.session()
        switched = records.SiteSwitched(Header(LOG_ID, epoch), other.name, state.head)
        session.append((records.encode(switched), None))
        site.land(session, 1)

    def check(self) -> None:
        a, b = self.west.accepted, self.east.accepted
        assert a[: len(b)] == b[: len(a)], "two histories"
        assert not (self.west.serves and self.east.serves and self.west.owner == self.east.owner == "")
