"""This module holds a whole cluster's partitions in one process: the smallest `Backend`, and the readable reference of
its promises.

It has no threads, no clock except for ids, no wire. The rules are not written again here: every partition runs the
core's own `Writer` on the core's own records, and its log answers at once. `MemoryBackend(…, active=False)` is a node
that is active for nothing, so that every method call takes the way over the wire.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from halog.backend import CommittedObject, Invocation, InvocationResult, KnownMappings, Lag, Outcome, View, Work
from halog.core import effects as fx, events as ev, results as res
from halog.core.commit.durability_requests import why_not
from halog.core.commit.participant import Participant
from halog.core.commit.writer import Writer
from halog.core.durability import Durability
from halog.core.ids import ABSENT, EpochId, Reference, location_code
from halog.core.keys.mapping import BY_KEY, LISTED, Place
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState
from halog.core.log.outcomes import Outcomes
from halog.core.log.transactions import Applied, DecidedTransaction, Ledger
from halog.core.settings import Settings
from halog.core.table.table import PartitionTable
from halog.errors import ConflictError, HalogError, UnreachableError
from halog.runtime.rpc.result_errors import to_error
from mappers import NewObject

Execute = Callable[[str, Invocation], InvocationResult]

_LOG_ID = b"halog-in-memory!"
_EPOCH = EpochId(1, "memory", 0)
_INVOCATION = msgspec.msgpack.Decoder(Invocation)
_INVOKED = msgspec.msgpack.Decoder(InvocationResult)


class MemoryPartition:
    """A `MemoryPartition` is one partition: the core's writer, a log that accepts everything at once, and the objects
    that follow from it."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.objects: dict[bytes, CommittedObject] = {}
        self.states: list[dict[str, object]] = []
        """States of the backends that are active for it; see `Backend.states`."""
        self.log: list[bytes] = []
        self._writer = Writer(
            Chain(ChainState(_LOG_ID, "memory", _EPOCH, opened=True, led=1)), Outcomes(), settings, 0, 0
        )
        self._votes = Participant(self._writer, Ledger(), name, 0)

    def submit(self, tx: bytes, work: Work) -> int:
        """Commit; return the lsn, or raise the error that a real node would raise."""
        if work.durability is not None and (why := self._refused(work.durability)) is not None:
            raise to_error(res.Refusal(why), self.name)
        with self.lock:
            changes = [records.Change(w.op, w.ref, w.key, w.value, w.replaced) for w in work.writes]
            keys = {k for k, _ in work.reads} | {c.key for c in changes}
            out: list[fx.Effect] = []
            self._writer.submit(ev.Submitted(0, tx, work.reads, changes, self.versions(keys)), 0, out)
            result = self._perform(out)
        if isinstance(result, res.Success):
            return result.lsn
        raise to_error(result, self.name)

    def prepare(self, tx: bytes, participants: tuple[str, ...], work: Work) -> int:
        """Make a vote on a part of a transaction over several partitions; return the lsn, or raise the error."""
        with self.lock:
            changes = [records.Change(w.op, w.ref, w.key, w.value, w.replaced) for w in work.writes]
            found = self.versions({k for k, _ in work.reads} | {c.key for c in changes})
            asked = ev.PrepareAsked(0, tx, participants[0], participants, b"", work.reads, changes, found)
            return self._vote(asked)

    def decide(self, tx: bytes, first: str, *, commit: bool) -> int:
        """Commit or abort a prepared part; return the lsn."""
        with self.lock:
            return self._vote(ev.DecideAsked(1, tx, commit, first == self.name))

    def _vote(self, asked: ev.PrepareAsked | ev.DecideAsked) -> int:
        out: list[fx.Effect] = []
        self._votes.asked(msgspec.structs.replace(asked, token=1), 0, out)
        result = self._perform(out)
        if isinstance(result, res.Success):
            return result.lsn
        raise to_error(result, self.name)

    def knows(self, tx: bytes) -> bool:
        """Has this transaction happened?"""
        return self._writer.outcomes.get(tx) is not None

    @property
    def visible(self) -> int:
        """Return the last lsn."""
        return self._writer.last_lsn

    def _refused(self, durability: Durability) -> str | None:
        """Say why it cannot give this durability: it has no replicas, and its log has everything at once."""
        table = PartitionTable(self.name, _LOG_ID.hex(), "memory", 0, "memory", ("memory",), 0)
        return why_not(durability, table, self._writer.settings.local_sync)

    def versions(self, keys: set[bytes]) -> dict[bytes, int]:
        """Return the version under each key now."""
        return {k: f.version for k in keys if (f := self.objects.get(k)) is not None}

    def _perform(self, out: list[fx.Effect]) -> res.Result:
        for effect in out:
            match effect:
                case fx.Append(data=data):
                    self.log.append(data)
                    more: list[fx.Effect] = []
                    self._writer.logged(len(self.log), more)
                    self._writer.settle(more)
                    return self._perform(more)
                case fx.Apply(records=accepted):
                    self._apply(accepted[0])
                case fx.Reply(result=result):
                    return result
                case fx.Spread():
                    pass
                case _:
                    raise AssertionError(effect)
        raise AssertionError("the writer gave no answer")

    def _apply(self, meant: Applied) -> None:
        record = meant.commit if isinstance(meant, DecidedTransaction) else meant
        if not isinstance(record, records.Commit):
            return
        for states in self.states:
            states.pop(self.name, None)
        for c in record.changes:
            if c.value is None:
                self.objects.pop(c.key, None)
            else:
                self.objects[c.key] = CommittedObject(c.ref, record.header.lsn, c.value, c.key)
        for states in self.states:
            states[self.name] = object()


class MemoryView:
    """A `MemoryView` is a copy of a partition's objects at one moment."""

    lag = Lag(0, 0.0)

    def __init__(self, objects: dict[bytes, CommittedObject], mapping: int) -> None:
        self._objects = objects
        self.mapping = mapping

    def find(self, key: bytes) -> CommittedObject | None:
        """See `View`."""
        return self._objects.get(key)

    def scan(self, prefix: bytes) -> Iterator[CommittedObject]:
        """See `View`."""
        return (f for k, f in sorted(self._objects.items()) if k.startswith(prefix))


class MemoryCluster:
    """A `MemoryCluster` is shared by all nodes of a test. One policy of `partitions` partitions holds every type."""

    def __init__(self, partitions: int = 12, settings: Settings | None = None) -> None:
        self.names = tuple(f"memory-{i}" for i in range(partitions))
        self.partitions = {n: MemoryPartition(n, settings or Settings()) for n in self.names}
        self.execute: Execute | None = None
        """Runs a call on the active node; the first active backend sets it."""

    def state_hash(self) -> str:
        """Return a digest of every object, its reference and its version; it stays equal if nothing was changed."""
        h = hashlib.sha256()
        for name in self.names:
            for key, f in sorted(self.partitions[name].objects.items()):
                h.update(msgspec.msgpack.encode((name, key, f.ref, f.version, f.value)))
        return h.hexdigest()


class MemoryBackend:
    """A `MemoryBackend` is a node of a `MemoryCluster`. It implements `halog.backend.Backend`."""

    def __init__(
        self,
        cluster: MemoryCluster | None = None,
        *,
        name: str = "memory",
        active: bool = True,
        listed: bool = False,
    ) -> None:
        self.cluster = cluster or MemoryCluster()
        self.active = active
        self.deadline_s = 15.0
        """Longest wait for an answer, of any partition, in seconds."""
        names = self.cluster.names if listed else ()
        self.mapped = KnownMappings(listed=dict.fromkeys(names, LISTED), policies=dict.fromkeys(names, "memory"))
        """With `listed`, objects go to the partitions in turn, and have entries in a key directory."""
        self._turns = itertools.count()
        self.states: dict[str, object] = {}
        if active:
            for at in self.cluster.partitions.values():
                at.states.append(self.states)
                self.states[at.name] = object()
        self.requests = 0
        """Requests to the active node so far, for tests that count."""
        self.unreachable = False
        """Set this to make every request fail."""
        self._lagging: dict[str, dict[bytes, CommittedObject]] = {}
        """Holds what copies have that stay behind."""
        self.before_commit: Callable[[str, Work], None] | None = None
        """Called with every commit before it is judged: here a test lets another transaction be faster."""
        self._location = location_code(name)
        self._installation = time.time_ns()
        self._counter = itertools.count(1)
        self._stamp = time.time_ns()
        self._ids = threading.Lock()

    def _at(self, partition: str) -> MemoryPartition:
        self.requests += 1
        if self.unreachable:
            raise UnreachableError("the memory cluster was made unreachable", partition=partition)
        return self.cluster.partitions[partition]

    # --- Backend ---

    def partition_of(self, type_name: str, routing_key: bytes) -> str:
        """See Backend."""
        names = self.cluster.names
        return names[zlib.crc32(routing_key) % len(names)]

    def deadline_of(self, partition: str) -> float:
        return self.deadline_s

    def epoch_of(self, partition: str) -> int:
        """See Backend. There are none."""
        return 0

    def place_of(self, type_name: str, routing_key: bytes) -> Place:
        """See Backend."""
        return Place(self.partition_of(type_name, routing_key), listed=LISTED if self.mapped.listed else BY_KEY)

    def next_partition(self, type_name: str, made: Callable[[], NewObject]) -> str:
        """See Backend."""
        return self.cluster.names[next(self._turns) % len(self.cluster.names)]

    def relearn(self, partition: str, version: int) -> None:
        """See Backend: the mapping never changes."""

    def gather(self, partition: str, keys: Sequence[bytes]) -> None:
        """See Backend: all are where they belong."""

    def partitions_of(self, type_name: str) -> Sequence[str]:
        """See Backend."""
        return self.cluster.names

    def had(self, type_name: str, partition: str) -> bool:
        """See Backend."""
        return partition in self.cluster.names

    def new_reference(self) -> Reference:
        """See Backend."""
        return Reference(self._location, self._installation, next(self._counter))

    def new_transaction_id(self) -> bytes:
        """See Backend."""
        with self._ids:
            self._stamp = max(self._stamp + 1, time.time_ns())
            return self._stamp.to_bytes(8, "big") + self._location.to_bytes(8, "big")

    def find(self, partition: str, key: bytes, mapping: int = 0) -> CommittedObject | None:
        """See Backend."""
        return self._at(partition).objects.get(key)

    def fetch(
        self,
        partition: str,
        keys: Sequence[bytes],
        *,
        settled: int = 0,
        least: int = 0,
        mapping: int = 0,
        brief: bool = False,
    ) -> Sequence[CommittedObject | None]:
        """See Backend."""
        objects = self._at(partition).objects
        return [objects.get(k) for k in keys]

    def fetch_leased(
        self, partition: str, keys: Sequence[bytes], *, mapping: int = 0
    ) -> Sequence[CommittedObject | None] | None:
        """See Backend: nobody else could be active."""
        return self.fetch(partition, keys)

    def view(
        self, partition: str, under: tuple[bytes, ...], *, after: int = 0, mapping: int = 0, ahead: bool = False
    ) -> View:
        """See Backend."""
        if partition in self._lagging and not (ahead or after):
            return MemoryView(self._lagging[partition], mapping)
        at = self.cluster.partitions[partition]
        with at.lock:
            return MemoryView(dict(at.objects), mapping)

    def lag(self) -> None:
        """Keep this node's copies as they are now: they get nothing more, but for what a session's position or a look
        ahead waits for."""
        self._lagging = {name: dict(at.objects) for name, at in self.cluster.partitions.items()}

    def catch_up(self, *partitions: str) -> None:
        """Let this node's copies of these partitions, or of all, have all that there is again."""
        for name in partitions or tuple(self._lagging):
            self._lagging.pop(name, None)

    def reach(self, partition: str, lsn: int) -> None:
        """See Backend: everything is everywhere at once."""

    def barrier(self, partition: str) -> int:
        """See Backend: nobody else could be active."""
        return self._at(partition).visible

    def scan(self, partition: str, prefix: bytes, *, least: int = 0, mapping: int = 0) -> Iterator[CommittedObject]:
        """See Backend."""
        found = sorted(self._at(partition).objects.items())
        return (f for k, f in found if k.startswith(prefix))

    def commit(self, partition: str, tx: bytes, work: Work) -> int:
        """See Backend."""
        if self.before_commit is not None:
            self.before_commit(partition, work)
        return self._at(partition).submit(tx, work)

    def commit_over(self, tx: bytes, works: Mapping[str, Work]) -> Mapping[str, int]:
        """See Backend."""
        participants = tuple(sorted(works))
        done: dict[str, int] = {}
        for name in participants:
            if self.before_commit is not None:
                self.before_commit(name, works[name])
            try:
                done[name] = self._at(name).prepare(tx, participants, works[name])
            except HalogError as error:
                error.evidence.setdefault("partition", name)
                for prepared in (participants[0], *done):
                    with suppress(HalogError):
                        self.cluster.partitions[prepared].decide(tx, participants[0], commit=False)
                raise
        return {name: self._at(name).decide(tx, participants[0], commit=True) for name in participants}

    def outcome(self, partition: str, tx: bytes, epoch: int, participants: Sequence[str] = ()) -> Outcome:
        """See Backend: nothing is ever late."""
        return "happened" if self._at(partition).knows(tx) else "did not happen"

    def begin_commit(self, partition: str, tx: bytes, work: Work, done: Callable[[int | None], bool]) -> bool:
        """See Backend."""
        if not self.active:
            return False
        if self.before_commit is None:
            self._commit_and_tell(partition, tx, work, done)
        else:  # it may wait
            threading.Thread(target=self._commit_and_tell, args=(partition, tx, work, done), daemon=True).start()
        return True

    def unsent(self, tx: bytes) -> bool:
        """See Backend."""
        return False

    def follow_up(self) -> None:
        """See Backend."""

    def _commit_and_tell(self, partition: str, tx: bytes, work: Work, done: Callable[[int | None], bool]) -> None:
        try:
            lsn = self.commit(partition, tx, work)
        except HalogError:
            done(None)
        else:
            done(lsn)

    def validate(
        self, partition: str, reads: Collection[tuple[bytes, int]], *, least: int = 0, mapping: int = 0
    ) -> None:
        """See Backend."""
        at = self._at(partition)
        now = at.versions({k for k, _ in reads})
        for key, version in reads:
            found = now.get(key, ABSENT)
            if found != version:
                error = to_error(res.VersionConflict(key, version, found), partition)
                assert isinstance(error, ConflictError)
                raise error

    def invoke(self, partition: str, invocation: Invocation) -> InvocationResult:
        """See Backend. Goes through the wire's bytes, so that nothing is shared by accident."""
        self._at(partition)
        if self.cluster.execute is None:
            raise UnreachableError("no node of the memory cluster is active", partition=partition)
        sent = _INVOCATION.decode(msgspec.msgpack.encode(invocation))
        return _INVOKED.decode(msgspec.msgpack.encode(self.cluster.execute(partition, sent)))

    def is_active(self, partition: str) -> bool:
        """See Backend."""
        return self.active
