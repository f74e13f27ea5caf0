"""This module defines what the runtime asks of the world: a log, a coordinator, a store, a channel. Each is a protocol
with its obligations.

Adapters implement them; `halog.adapters.memory` is the readable reference, and one contract suite runs against all.
Nothing here decides anything: an adapter reports what happened, the core judges it. Callbacks may come on any thread
and must not block; adapters never call back while holding a lock of their own.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol


class TopicPartition(NamedTuple):
    """Names a partition of a topic of the log."""

    topic: str
    partition: int


class Entry(NamedTuple):
    """Holds one log entry as read: its offset, its bytes, the broker's append time in ms since 1970."""

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
"""This is called once per append, in append order within a partition: with (offset, None), or with (None, why) for
failed or unknown."""


class LogSession(Protocol):
    """A `LogSession` is one producer instance. Its appends to one partition land in order; none lands behind a failed
    one."""

    def append(self, tp: TopicPartition, data: bytes, done: Delivery, *, patience_s: float = 0.0) -> None:
        """Put `data` into the queue; return at once. It never retries under another session. OverloadedError if the
        queue is full. `patience_s`: so many seconds the data may wait to travel with others, since no caller waits for
        it."""

    def poll(self, timeout_s: float) -> int:
        """Run delivery callbacks that are due, waiting up to `timeout_s` for the first; returns how many ran."""

    @property
    def failed(self) -> str | None:
        """Say why this session can append no more, or None. A failed session has failed every append it still held."""

    def abandon(self) -> None:
        """Fail everything queued and in flight (outcome unknown) and let go. Sent data may still land."""


class LogTail(Protocol):
    """A `LogTail` reads partitions from chosen offsets. One thread polls; any thread may call the other methods."""

    def follow(self, tp: TopicPartition, offset: int) -> None:
        """Deliver entries of `tp` from `offset` on (also moves a followed partition)."""

    def unfollow(self, tp: TopicPartition) -> None:
        """Deliver nothing more of `tp`; entries already fetched are dropped."""

    def poll(self, timeout_s: float, limit: int = 2000) -> Sequence[Entry | OutOfRange]:
        """Return up to `limit` entries, in offset order per partition; wait up to `timeout_s` for the first, no longer.

        An OutOfRange is reported once; then the partition is no longer followed. A partition that cannot be read (a bad
        checksum) is no longer followed either: LogError, with evidence topic, partition, offset, at the poll behind its
        last good entry. ClosedError after `close`.
        """

    def known_end(self, tp: TopicPartition) -> int:
        """Return where a followed partition ended when it was read last; -1: not known. It asks no server; only the
        polling thread may call it."""

    def wake(self) -> None:
        """Make a waiting `poll` return soon (best effort, within 100 ms)."""

    def close(self) -> None: ...


class KeyedLog(Protocol):
    """A `KeyedLog` is the part of a `Log` that reading compacted topics takes."""

    def bounds(self, tp: TopicPartition, timeout_s: float = 5.0) -> tuple[int, int]:
        """See `Log.bounds`."""

    def read_keyed(self, tp: TopicPartition, start: int = 0) -> Iterator[tuple[bytes, bytes | None]]:
        """See `Log.read_keyed`."""


class Log(Protocol):
    """A `Log` is the log of one site."""

    def ensure_topic(
        self, topic: str, partitions: int, *, compacted: bool = False, flushed: bool = False, keep_ms: int | None = None
    ) -> None:
        """Create the topic with the settings halog needs, or check an existing one. RefusedError names an unsafe or
        different setting (cleanup policy, unclean election), or says that the topic has fewer partitions. `keep_ms`:
        the topic is for people, and its entries are deleted after that long; an existing topic may keep them longer or
        shorter."""

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Give an existing topic so many partitions; do nothing if it has as many or more."""

    def partitions(self, topic: str) -> int:
        """Return how many partitions the topic has; 0: it does not exist. UnreachableError if no server answers."""

    def session(self) -> LogSession:
        """Open a warm producer session: idempotent, all replicas, gap-less, without a delivery timeout of its own."""

    def tail(self, *, patient: bool = False, slow: bool = False) -> LogTail:
        """Open a warm tail. It reads committed entries only, checks CRCs, and never resets offsets by itself.
        `patient`: it hears of new entries only every few ms, which costs the log and the reader less; for copies that
        no commit waits for. `slow`: it fetches little beyond what was polled; for readers that are held to a rate."""

    def bounds(self, tp: TopicPartition, timeout_s: float = 5.0) -> tuple[int, int]:
        """Return (first offset, end offset exclusive) now; UnreachableError if no server answers."""

    def read(self, tp: TopicPartition, start: int, end: int, timeout_s: float = 10.0) -> Iterator[Entry]:
        """Yield the entries in [start, end) that exist, in order; DeadlineError if they do not come in time."""

    def read_keyed(self, tp: TopicPartition, start: int = 0) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield all committed (key, value) of a compacted partition from offset `start` up to its end now; later ones
        win."""

    def read_headers(self, tp: TopicPartition) -> Iterator[tuple[bytes, dict[str, bytes]]]:
        """Yield (key, headers) of all committed entries of a compacted partition."""

    def put(self, tp: TopicPartition, key: bytes, value: bytes | None) -> None:
        """Make one acknowledged keyed write to a compacted topic (definitions; not the commit path)."""

    def journal(self, tp: TopicPartition) -> LogJournal:
        """Open a writer of entries for people (the event history). Nothing relies on these entries."""

    def transaction(self, transactional_id: str) -> LogTransaction:
        """Open a transactional writer; initialising it fences older ones with the same id."""

    def trim(self, tp: TopicPartition, before: int) -> None:
        """Delete entries with offsets below `before`."""

    def close(self) -> None: ...


class JournalResult(NamedTuple):
    """Says what became of values given to a journal."""

    left: int
    """How many, counted from the last one back, are not known to be in the log."""
    refused: int = 0
    """How many before those the log will never take: each is too large."""


class LogJournal(Protocol):
    """A `LogJournal` makes appends with a producer of its own, so it slows down no other writer. One thread writes."""

    def note(self, values: Sequence[bytes]) -> JournalResult:
        """Append in order, waiting a few seconds at most. Values that are left may be written again, and may then be in
        the log twice. A value that the log will never take is skipped, and holds up none behind it."""

    def close(self) -> None:
        """End a write that is under way, and let go."""


class LogTransaction(Protocol):
    """A `LogTransaction` writes Kafka transactions. After any error it is dead: open a new one, and trust nothing
    unread."""

    def write(self, tp: TopicPartition, items: Iterable[tuple[bytes, bytes | None, dict[str, bytes]]]) -> None:
        """Write all (key, value, headers) in one transaction and commit it; RefusedError if fenced by a newer one."""

    def close(self) -> None: ...


class SessionState(enum.Enum):
    """Says what this client knows of its coordinator session. A replaced session reports LOST, then CONNECTED."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Versioned(NamedTuple):
    """Holds the bytes and the version of a coordinator node."""

    data: bytes
    version: int


class UnknownResult(Exception):
    """A coordinator write was sent and not answered: it may have happened. This is no HalogError: callers must handle
    it."""


MAX_ZNODE_BYTES: Final = 1_000_000
"""The most bytes that a node of the coordinator may hold. ZooKeeper's servers take requests of 1,048,575 bytes, path
included."""

COLLECTIONS: Final = ("partitions",)
"""Nodes whose members can be watched together, however many there are. Members are persistent and have no children."""


class Coordinator(Protocol):
    """A `Coordinator` is a small tree of versioned nodes with sessions (ZooKeeper). Paths are relative to the cluster's
    root."""

    def connect(self, on_state: Callable[[SessionState], None], wait_s: float | None = None) -> None:
        """Connect within the session timeout or raise UnreachableError; report every later change of state. `wait_s`:
        wait this many seconds instead, and no longer for the answer to any request; nor for all answers together, until
        the caller says `joined`. Nor does `close` then wait for a server that does not answer."""

    def joined(self) -> None:
        """Say that the caller has joined and no longer needs patience: from now on a request without a connection fails
        at once."""

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
        """Create a node with its parents; False if it exists (after a lost reply, compare its bytes with yours).
        CoordinatorError for more than MAX_ZNODE_BYTES; then nothing was sent."""

    def get(self, path: str) -> Versioned | None:
        """Return the node as the connected server has it, or None."""

    def get_many(self, paths: Sequence[str]) -> Sequence[Versioned | None]:
        """Return what `get` does for each path, in the order asked, in far less time. They are not of one moment."""

    def set(self, path: str, data: bytes, version: int) -> int:
        """Set the node's bytes if it has this version, and return the new version. VersionError on mismatch,
        UnknownResult if no answer came, CoordinatorError as `create`."""

    def confirm(self, path: str, version: int) -> None:
        """Check that the node had this version at some moment between this call and its return. Unlike a read, this is
        ordered with every set. VersionError if it had another, UnknownResult if no answer came."""

    def delete(self, path: str, version: int = -1) -> bool:
        """Delete the node; False if it does not exist."""

    def children(self, path: str) -> list[str]:
        """Return the names below `path`, sorted; empty if it does not exist."""

    def watch(self, path: str, changed: Callable[[str, Versioned | None], None]) -> None:
        """Call `changed(path, value)` now and after every change of this node, also across sessions. Values in between
        may be skipped; the newest value is always delivered last."""

    def watch_children(self, path: str, changed: Callable[[list[str]], None]) -> None:
        """Call `changed(names)` now and after every change of the set of children, also across sessions."""

    def watch_members(self, path: str, changed: Callable[[str, Versioned | None], None]) -> None:
        """Watch every member of one of the COLLECTIONS as `watch` does, later members included: `changed(path, value)`
        with the member's path."""

    def sync(self, path: str) -> None:
        """Wait until reads through this connection are at least as new as this call."""

    def close(self) -> None: ...


class Snapshot(Protocol):
    """A `Snapshot` is a store as it was at one moment."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys with `prefix` that are greater than `after`, ascending, with their values."""


class Store(Protocol):
    """A `Store` is an ordered map of bytes on the node's disk. One process owns it (StoreError names the holder's
    directory)."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return what `get` does for each key, in the order asked."""

    def scan(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys with `prefix` that are greater than `after`, ascending, as of the call."""

    def write(self, items: Iterable[tuple[bytes, bytes | None]], *, flush: bool = False) -> None:
        """Apply all items in one atomic step (None deletes). They survive the process. With `flush` they survive the
        machine, too, and so does everything written before, even if there are no items."""

    def fill(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Put very many items in one atomic step, with ascending keys, each once. They survive the machine; none is
        visible before this returns."""

    def drop(self, prefix: bytes) -> None:
        """Delete every key with `prefix`."""

    def snapshot(self) -> Snapshot: ...

    def close(self) -> None: ...


class Principal(NamedTuple):
    """A `Principal` is whom a certificate names: its URI `halog://<cluster>/node/<name>`, or `…/user/<name>`."""

    cluster: str
    kind: str
    """Is "node" or "user"."""
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Renewal(NamedTuple):
    """A `Renewal` says what came of certificates whose files changed. `error`: why they are not taken; "": they are."""

    files: str
    error: str


class Peer(Protocol):
    """A `Peer` is an open connection to a node, or a node's connection to us."""

    @property
    def remote(self) -> str:
        """Return the remote node's name, or its address before it introduced itself."""

    @property
    def principal(self) -> Principal | None:
        """Return whom its certificate names; None: the connection has no TLS."""

    @property
    def refusal(self) -> str:
        """Return why the two sides came not to trust each other, by TLS, once the connection has ended so; "": it did
        not."""

    @property
    def aged(self) -> bool:
        """Say whether another connection should take its place, since certificates may have changed."""

    def send(self, frame: bytes) -> None:
        """Send one frame in order, at once or from a queue; UnreachableError if the connection is known to be
        broken."""

    def offer(self, frame: bytes) -> None:
        """Send a frame as `send` does, but drop it if it would have to wait behind others."""

    def close(self) -> None: ...


class Channel(Protocol):
    """A `Channel` carries frames between nodes over TCP. A frame is 4 bytes length (big-endian), then that many
    bytes."""

    def introduce(self, frame: bytes, answered: Callable[[str, bytes], object]) -> None:
        """Set the frame that every pooled connection begins with, before its first request. Its one reply is given to
        `answered(address, reply)`, on the calling thread; what that raises ends the connection, and the request, of
        which nothing was sent."""

    def expect(self, address: str, node: str, *, tls: bool) -> None:
        """Note which node is registered at an address, and whether it takes TLS: whoever connects there by TLS goes on
        only if the certificate names that node."""

    def listen(
        self,
        address: str,
        on_frame: Callable[[Peer, bytes], None],
        on_closed: Callable[[Peer], None],
        on_refused: Callable[[str, str], None] = ...,
    ) -> str:
        """Accept connections; return host:port. Frames of one peer come in order, on that peer's thread.
        `on_refused(host, why)` is told, on any thread, of each connection that is refused before its first frame."""

    def dial(
        self,
        address: str,
        timeout_s: float,
        on_frame: Callable[[Peer, bytes], None],
        on_closed: Callable[[Peer], None],
    ) -> Peer:
        """Connect; UnreachableError says whether it was refused (`evidence["refused"]`) or timed out."""

    def request(self, address: str, frame: bytes, timeout_s: float, *, connect_s: float | None = None) -> bytes:
        """Send on a pooled connection and wait for its one reply on the calling thread. `connect_s`: a new connection
        must stand by then, its greeting answered; None: it has as long as the request. UnreachableError has
        `evidence["sent"]` False if nobody can have acted on the frame; any other exception that comes so early, as
        Ctrl-C may, is marked with the frame (`errors.mark_unsent`). DeadlineError: no reply in time."""

    def renew(self, *, again: bool = False) -> Renewal | None:
        """Take this process's certificates anew, for connections to come, if their files changed; None: they did not.
        Files that do not hold together change nothing. `again`: try them though they did not change."""

    @property
    def principal(self) -> Principal | None:
        """Return whom this process's own certificate names; None: it has no TLS."""

    def drop(self, address: str) -> None:
        """Close all pooled connections to `address`, also those in use: requests waiting there fail at once."""

    def close(self) -> None: ...
