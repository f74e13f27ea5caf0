"""What the runtime asks of the world: a log, a coordinator, a store, a channel. Protocols with their obligations.

Adapters implement them, `halog.adapters.memory` is the readable reference, and one contract suite runs against all.
Nothing here decides anything: an adapter reports what happened, the core judges it. Callbacks may come on any thread
and must not block; adapters never call back while holding a lock of their own.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol


class TopicPartition(NamedTuple):
    """A log partition."""

    topic: str
    partition: int


class Entry(NamedTuple):
    """One log entry as read: its offset, its bytes, the broker's append time in ms since 1970."""

    tp: TopicPartition
    offset: int
    value: bytes
    timestamp_ms: int


class OutOfRange(NamedTuple):
    """The tail asked for `offset`, but the log now begins at `start` and ends (exclusively) at `end`."""

    tp: TopicPartition
    offset: int
    start: int
    end: int


Delivery = Callable[[int | None, str | None], None]
"""Called once per append, in append order within a partition: (offset, None), or (None, why) for failed or unknown."""


class LogSession(Protocol):
    """One producer instance. Its appends to one partition land in order or not at all behind a failed one."""

    def append(self, tp: TopicPartition, data: bytes, done: Delivery, *, patience_s: float = 0.0) -> None:
        """Queue `data`; returns at once. Never retries under another session. OverloadedError if the queue is full.
        `patience_s`: so long it may wait for others to travel with, since nobody waits for it."""

    def poll(self, timeout_s: float) -> int:
        """Run delivery callbacks that are due, waiting up to `timeout_s` for the first; returns how many ran."""

    @property
    def failed(self) -> str | None:
        """Why this session can append no more, or None. A failed session has failed every append it still held."""

    def abandon(self) -> None:
        """Fail what is queued and in flight (outcome unknown) and let go. What was sent may still land."""


class LogTail(Protocol):
    """Reads partitions from chosen offsets. One thread polls; the other methods may be called from any thread."""

    def follow(self, tp: TopicPartition, offset: int) -> None:
        """Deliver entries of `tp` from `offset` on (also moves a followed partition)."""

    def unfollow(self, tp: TopicPartition) -> None:
        """Deliver nothing more of `tp`; entries already fetched are dropped."""

    def poll(self, timeout_s: float, limit: int = 2000) -> Sequence[Entry | OutOfRange]:
        """Up to `limit` entries, in offset order per partition; waits up to `timeout_s` for the first, no longer.

        Out of range is told once, and the partition no longer followed. So is one that cannot be read (a bad checksum):
        LogError, with evidence topic, partition, offset, at the poll behind its last good entry. ClosedError after
        `close`."""

    def known_end(self, tp: TopicPartition) -> int:
        """Where a followed partition ended when it was read last; -1: not known. Asks nobody; the polling thread's."""

    def wake(self) -> None:
        """Make a waiting `poll` return soon (best effort, within 100 ms)."""

    def close(self) -> None: ...


class KeyedLog(Protocol):
    """The part of a `Log` that reading compacted topics takes."""

    def bounds(self, tp: TopicPartition, timeout_s: float = 5.0) -> tuple[int, int]:
        """As `Log.bounds`."""

    def read_keyed(self, tp: TopicPartition, start: int = 0) -> Iterator[tuple[bytes, bytes | None]]:
        """As `Log.read_keyed`."""


class Log(Protocol):
    """The log of one site."""

    def ensure_topic(
        self, topic: str, partitions: int, *, compacted: bool = False, flushed: bool = False, keep_ms: int | None = None
    ) -> None:
        """Create the topic with the settings halog needs, or check an existing one; RefusedError names an unsafe or
        different setting (cleanup policy, unclean election), or that it has fewer partitions. `keep_ms`: a topic for
        people, whose entries go after that long; an existing one may keep them longer or shorter."""

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Give an existing topic so many partitions; nothing if it has as many or more."""

    def partitions(self, topic: str) -> int:
        """How many it has; 0: there is no such topic. UnreachableError if nobody answers."""

    def session(self) -> LogSession:
        """A new, warm producer session: idempotent, all replicas, gap-less, without a delivery timeout of its own."""

    def tail(self, *, patient: bool = False, slow: bool = False) -> LogTail:
        """A new, warm tail: reads committed entries only, checks CRCs, never resets offsets by itself. `patient`: told
        every few ms of what came, which costs the log and the reader less; for copies nobody waits for. `slow`: fetches
        little beyond what was polled; for whoever reads no faster than he may."""

    def bounds(self, tp: TopicPartition, timeout_s: float = 5.0) -> tuple[int, int]:
        """(first offset, end offset exclusive) now; UnreachableError if nobody answers."""

    def read(self, tp: TopicPartition, start: int, end: int, timeout_s: float = 10.0) -> Iterator[Entry]:
        """The entries in [start, end) that exist, in order; DeadlineError if they do not come in time."""

    def read_keyed(self, tp: TopicPartition, start: int = 0) -> Iterator[tuple[bytes, bytes | None]]:
        """All committed (key, value) of a compacted partition from offset `start` up to its end now; later ones
        win."""

    def read_headers(self, tp: TopicPartition) -> Iterator[tuple[bytes, dict[str, bytes]]]:
        """The same of all that is there: (key, headers)."""

    def put(self, tp: TopicPartition, key: bytes, value: bytes | None) -> None:
        """One acknowledged keyed write to a compacted topic (definitions; not the commit path)."""

    def journal(self, tp: TopicPartition) -> LogJournal:
        """A writer of entries for people (the event history): nothing rests on them."""

    def transaction(self, transactional_id: str) -> LogTransaction:
        """A transactional writer; initialising it fences older ones with the same id."""

    def trim(self, tp: TopicPartition, before: int) -> None:
        """Delete entries with offsets below `before`."""

    def close(self) -> None: ...


class Noted(NamedTuple):
    """What became of values given to a journal."""

    left: int
    """How many, counted from the last one back, are not known to be in the log."""
    refused: int = 0
    """How many before those the log will never take: each is too large."""


class LogJournal(Protocol):
    """Ordinary appends of its own producer, so that it slows down nobody. One thread writes."""

    def note(self, values: Sequence[bytes]) -> Noted:
        """Append in order, waiting a few seconds at most. What is left may be written again (it may be there twice
        then); a value the log will never take is passed over, and holds up none behind it."""

    def close(self) -> None:
        """End a write that is under way, and let go."""


class LogTransaction(Protocol):
    """A Kafka transaction writer. After any error it is dead: make a new one, and trust nothing unread."""

    def write(self, tp: TopicPartition, items: Iterable[tuple[bytes, bytes | None, dict[str, bytes]]]) -> None:
        """Write all (key, value, headers) in one transaction and commit it; RefusedError if fenced by a newer one."""

    def close(self) -> None: ...


class SessionState(enum.Enum):
    """The coordinator session as far as this client knows. A replaced session reports LOST, then CONNECTED."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Versioned(NamedTuple):
    """A coordinator node's bytes and version."""

    data: bytes
    version: int


class UnknownResult(Exception):
    """A coordinator write was sent and not answered: it may have happened. Not a HalogError: callers must handle it."""


MAX_ZNODE_BYTES: Final = 1_000_000
"""Of a node of the coordinator. ZooKeeper's servers take requests of 1,048,575 bytes, path and all."""

COLLECTIONS: Final = ("partitions",)
"""Nodes whose members may be watched together, however many they are. Members are persistent, and have no children."""


class Coordinator(Protocol):
    """A small tree of versioned nodes with sessions (ZooKeeper). Paths are relative to the cluster's root."""

    def connect(self, on_state: Callable[[SessionState], None], wait_s: float | None = None) -> None:
        """Connect within the session timeout or raise UnreachableError; report every later change of state. `wait_s`:
        so long, in seconds, instead, and no answer to a request is waited for longer either."""

    def joined(self) -> None:
        """Whoever connected needs it to join no more: from now on a request without a connection fails at once."""

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
        """Create with parents; False if it exists (after a lost reply: compare what is there with what you meant).
        CoordinatorError, and nothing was sent, for more than MAX_ZNODE_BYTES."""

    def get(self, path: str) -> Versioned | None:
        """The node as the connected server has it, or None."""

    def get_many(self, paths: Sequence[str]) -> Sequence[Versioned | None]:
        """As `get` for each, in the order asked, in far less time. Not of one moment."""

    def set(self, path: str, data: bytes, version: int) -> int:
        """Compare-and-set; the new version. VersionError on mismatch, UnknownResult if no answer came, CoordinatorError
        as `create`."""

    def confirm(self, path: str, version: int) -> None:
        """Was that still the node's version at some moment between this call and its return? Ordered with every set, as
        a read is not. VersionError if it was not, UnknownResult if no answer came."""

    def delete(self, path: str, version: int = -1) -> bool:
        """Delete; False if it does not exist."""

    def children(self, path: str) -> list[str]:
        """Names below `path`, sorted; empty if it does not exist."""

    def watch(self, path: str, changed: Callable[[str, Versioned | None], None]) -> None:
        """Call `changed(path, value)` now and after every change of this node, also across sessions. Changes may be
        skipped, the newest value is always delivered last."""

    def watch_children(self, path: str, changed: Callable[[list[str]], None]) -> None:
        """Call `changed(names)` now and after every change of the set of children, also across sessions."""

    def watch_members(self, path: str, changed: Callable[[str, Versioned | None], None]) -> None:
        """As `watch` for every member of one of the COLLECTIONS, also of those that come later: `changed(path, value)`
        with the member's path."""

    def sync(self, path: str) -> None:
        """Afterwards reads through this connection are at least as new as this call."""

    def close(self) -> None: ...


class Snapshot(Protocol):
    """A store as it was at one moment."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys with `prefix` that are greater than `after`, ascending, with their values."""


class Store(Protocol):
    """An ordered map of bytes on the node's disk. One process owns it (StoreError names the holder's directory)."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """As `get` for each, in the order asked."""

    def scan(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys with `prefix` that are greater than `after`, ascending, as of the call."""

    def write(self, items: Iterable[tuple[bytes, bytes | None]], *, flush: bool = False) -> None:
        """Apply all in one atomic step (None deletes). Survives the process; with `flush` the machine too, and so does
        everything written before, also if there are no items."""

    def fill(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Put very many items in one atomic step, their keys ascending and each once. Survives the machine; before it
        returns none of them is there."""

    def drop(self, prefix: bytes) -> None:
        """Delete every key with `prefix`."""

    def snapshot(self) -> Snapshot: ...

    def close(self) -> None: ...


class Peer(Protocol):
    """An open connection to a node, or a node's connection to us."""

    @property
    def remote(self) -> str:
        """The remote node's name, or its address before it introduced itself."""

    def send(self, frame: bytes) -> None:
        """Queue or write one frame, in order; UnreachableError if the connection is known to be broken."""

    def offer(self, frame: bytes) -> None:
        """As `send`, but a frame that would have to wait behind others is dropped."""

    def close(self) -> None: ...


class Channel(Protocol):
    """Frames between nodes over TCP. A frame is 4 bytes length (big-endian), then that many bytes."""

    def introduce(self, frame: bytes) -> None:
        """The frame every pooled connection begins with, before its first request; it has no reply."""

    def listen(self, address: str, on_frame: Callable[[Peer, bytes], None], on_closed: Callable[[Peer], None]) -> str:
        """Accept connections; returns host:port. Frames of one peer come in order, on that peer's thread."""

    def dial(
        self,
        address: str,
        timeout_s: float,
        on_frame: Callable[[Peer, bytes], None],
        on_closed: Callable[[Peer], None],
    ) -> Peer:
        """Connect; UnreachableError says whether it was refused (`evidence["refused"]`) or timed out."""

    def request(self, address: str, frame: bytes, timeout_s: float) -> bytes:
        """Send on a pooled connection and wait for its one reply on the calling thread. UnreachableError:
        `evidence["sent"]` False if the frame cannot have been acted on; what else ends it before, as Ctrl-C may, is
        marked with it (`errors.mark_unsent`). DeadlineError: no reply in time."""

    def drop(self, address: str) -> None:
        """Close all pooled connections to `address`, also those in use: requests waiting there fail at once."""

    def close(self) -> None: ...
