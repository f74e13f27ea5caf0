"""This module publishes the definitions of declared classes (U2, U3): all of them at once, and judged before anything
is written.

Each process that has something to publish makes a transactional writer of one name, judges, and writes all it lacks in
one transaction. A newer writer fences older ones, so nobody else publishes between the judging and the writing. Of two
that publish at the same moment one begins again, and finds what the other one wrote. So of one start either all new
definitions are there or none is.

A process that only registers meanwhile, and finds its own definitions stored, publishes nothing and fences nobody. It
registers before it looks. So a look at what others run, after the writing, shows it. Then all is taken back, in one
transaction, except what somebody else has begun to run.

A transaction whose end nobody told may be there, or still come. So may one whose writer was fenced, if the newer writer
came after its commit. A newer writer ends it, and each record names the start that wrote it (header `start`). So a
start that is refused, for whatever reason, finds what is there of its own, and takes it back.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

from halog.errors import (
    HalogError,
    LogAccessError,
    LogError,
    OutcomeUnknownError,
    OverloadedError,
    RecordFormatError,
    RefusedError,
    SchemaChangedError,
)
from halog.ports import Log, LogTransaction
from halog.runtime.topics.schema_compatibility import NOTHING, Runs, check_read_by, check_reads, retold
from halog.runtime.topics.schemas import Definitions
from halog.runtime.topics.topic_names import publishing_id
from halog.schema import Definition, Registry

START: Final = "start"
"""The header that names the start which wrote a record."""
PERHAPS: Final = "What this start wrote may be there (`halog type list`; `halog type retire` takes it back)"
LOOK_S: Final = 0.1
ATTEMPTS: Final = 40
"""Attempts to write without being fenced. One is enough, unless others begin with new classes at the same moment."""
PAUSE_S: Final = 0.4
"""Longest pause between two attempts, where the log is fast."""
OTHERS: Final = 8
"""So many processes begin at the same moment and all come through: the pause has room for a transaction of each,
however long one takes on a busy broker."""
LONG_PAUSE_S: Final = 10.0


def publish(
    log: Log,
    topic: str,
    registry: Registry,
    running: Callable[[], Runs] = dict,
    *,
    hosts: bool = True,
    lasts_s: float = 0.0,
    unread: Callable[[Definition, Definition], None] = lambda new, old: None,
    definitions: Definitions | None = None,
    pause_s: float = PAUSE_S,
) -> Definitions:
    """Add the declared definitions the topic lacks, all or none. SchemaChangedError, before anything is written, if a
    declared class cannot read what a stored definition of its name wrote, or a definition that is `running` could not
    read what it writes. `lasts_s`: so long a process that is no more may seem to run. `unread` is told (new, older) of
    what is published although who runs the older one could not read it: nobody does. Returns what the topic has, read
    into `definitions` where that is given. `pause_s`: the longest pause between two attempts, where the log is fast."""
    definitions = definitions or Definitions(log, topic)
    publication = _Publication(log, definitions, [i.parsed for i in registry.by_name.values()], running, hosts, pause_s)
    publication.run(lasts_s)
    for new, older in publication.older:
        if new.type_id in publication.ours:
            unread(new, older)
    return definitions


class _Publication:
    """Publishes the definitions of one start."""

    def __init__(
        self,
        log: Log,
        definitions: Definitions,
        declared: Sequence[Definition],
        running: Callable[[], Runs],
        hosts: bool,
        pause_s: float,
    ) -> None:
        self.pause_s = pause_s
        self.log = log
        self.definitions = definitions
        self.declared = declared
        self.running = running
        self.hosts = hosts
        self.ours: dict[bytes, Definition] = {}
        """What this start wrote, or may have written: how a transaction ended may be unknown."""
        self.begun: dict[bytes, Definition] = {}
        """What it ever began to write."""
        self.name = secrets.token_bytes(16)
        self.older: list[tuple[Definition, Definition]] = []
        self.failed: HalogError | None = None
        """The last error of the log, unless it says that another writer is newer. A broker that two writers ask at the
        same moment may report that as an error of its own."""
        self.fenced_s = 0.0
        """The longest transaction so far that another writer ended."""

    @property
    def missing(self) -> list[Definition]:
        return [d for d in self.declared if not self.definitions.has(d.type_id)]

    def run(self, lasts_s: float) -> None:
        try:
            for _ in self._attempts():
                self._judge_in_time(lasts_s)
                if not self.missing or self._written():
                    break
            if self.ours:
                self._settle()
        except HalogError as error:
            if not self.begun:
                raise
            told = self._undone()
            if told == NOTHING:
                raise
            if isinstance(error, SchemaChangedError):
                raise retold(error, told) from None
            raise type(error)(f"{error}. {told}", **error.evidence) from None

    def _judge_in_time(self, lasts_s: float) -> None:
        """Check the declared classes. What other processes run is asked only where something is new, or wrong: else a
        start costs nothing."""
        until = time.monotonic() + lasts_s
        look = False
        while True:
            self.definitions.refresh()
            look = look or bool(self.missing)
            now = self.running() if look else {}
            try:
                self._judge(now)
                return
            except SchemaChangedError as error:
                if look and (not error.evidence["running"] or time.monotonic() >= until):
                    raise
                time.sleep(LOOK_S if look else 0)
                look = True

    def _judge(self, running: Runs) -> None:
        """Check each declared class. One that is stored already has been judged by whoever published it; it must read
        what came since."""
        for declared in self.declared:
            others = [d for d in self.definitions.of_name(declared.name) if d.type_id != declared.type_id]
            for stored in others:
                check_reads(declared, stored, running)
            if self.definitions.has(declared.type_id):
                continue
            for stored in others:
                if check_read_by(declared, stored, running, hosts=self.hosts) and (declared, stored) not in self.older:
                    self.older.append((declared, stored))

    def _written(self) -> bool:
        """Check once more where nobody else publishes, and write. Returns False if somebody else published, if that
        does not fit, or if the outcome is unknown."""
        try:
            with self._writer() as writer:
                self._look()
                self._judge(self.running())
                missing = self.missing
                self.ours |= {d.type_id: d for d in missing}
                self.begun |= self.ours
                if missing:
                    writer.write(self.definitions.tp, [self._record(d) for d in missing])
            return True
        except SchemaChangedError:
            return False
        except RefusedError:  # fenced before it was written, or by a writer that came after its commit
            self._look()
            return False
        except LogAccessError:  # another attempt would end as this one
            raise
        except (LogError, OutcomeUnknownError) as error:  # it may have been written, whatever the error says
            self.failed = error
            return False

    def _record(self, d: Definition) -> tuple[bytes, bytes, dict[str, bytes]]:
        return d.type_id, d.text.encode(), {START: self.name}

    def _look(self) -> None:
        """Read what is there of this start's own records: where a newer writer has come, each of our transactions has
        ended."""
        self.definitions.refresh(all_written=True)
        if self.begun:
            read = self.log.read_headers(self.definitions.tp)
            landed = {key for key, headers in read if headers.get(START) == self.name}
            self.ours = {i: d for i, d in self.begun.items() if i in landed}

    def _settle(self) -> None:
        """Check what stands before our definitions in the topic: what cannot live with ours wins. A process with an
        older class may have come at the same moment, or a writer of an older halog, which fences nobody."""
        self._look()
        now = self.running()
        for definition in self.ours.values():
            for stored in self._before(definition):
                check_reads(definition, stored, now)
                check_read_by(definition, stored, now, hosts=self.hosts)

    def _before(self, definition: Definition) -> tuple[Definition, ...]:
        before = self.definitions.before(definition.type_id)
        if before is None:
            raise RecordFormatError(
                f"topic {self.definitions.tp.topic} does not hold the definition of {definition.name} that was just "
                "written; is the topic damaged, or compacted away by another cluster?",
                type=definition.name,
            )
        return before

    def _undone(self) -> str:
        """Take back what is there of ours, or still comes, since the start is refused. Returns what the error says of
        it."""
        try:
            for _ in self._attempts():
                if self._ended():
                    break
            kept = self._take_back()
        except HalogError:
            return PERHAPS
        if kept:
            return f"What this start wrote was taken back, but for {', '.join(kept)}, which others run by now"
        return "What this start wrote was taken back" if self.ours else NOTHING

    def _ended(self) -> bool:
        """End what is under way by a newer writer."""
        try:
            with closing(self.log.transaction(self._id)):
                self._look()
            return True
        except (LogError, OutcomeUnknownError, RefusedError) as error:
            self.failed = error
            return False

    def _take_back(self) -> list[str]:
        """Take back all of ours, except what others run: they found it there, and count on it. Returns the names of
        these."""
        self._change({d.type_id: None for d in self._run_by_nobody()})
        kept = set(self.ours) - {d.type_id for d in self._run_by_nobody()}  # who came meanwhile
        self._change({i: self.ours[i].text.encode() for i in kept if not self._stored(i)})
        return sorted(self.ours[i].name for i in kept)

    def _stored(self, type_id: bytes) -> bool:
        self.definitions.refresh(all_written=True)
        return self.definitions.has(type_id)

    def _run_by_nobody(self) -> list[Definition]:
        run = {i for types in self.running().values() if types is not None for i in types}
        return [d for d in self.ours.values() if d.type_id.hex() not in run]

    def _change(self, values: dict[bytes, bytes | None]) -> None:
        for _ in self._attempts() if values else ():
            try:
                with self._writer() as writer:
                    writer.write(self.definitions.tp, [(key, value, {}) for key, value in values.items()])
                return
            except RefusedError:
                continue
            except LogAccessError:
                raise
            except (LogError, OutcomeUnknownError) as error:
                self.failed = error

    @contextmanager
    def _writer(self) -> Iterator[LogTransaction]:
        began = time.monotonic()
        try:
            with closing(self.log.transaction(self._id)) as writer:
                yield writer
        except RefusedError:
            self.fenced_s = max(self.fenced_s, time.monotonic() - began)
            raise

    def _attempts(self) -> Iterator[int]:
        """Yield attempts, with a pause behind each. Of two that fence each other one waits longer: long enough for the
        other one to end."""
        for n in range(ATTEMPTS):
            yield n
            most = min(max(self.pause_s, OTHERS * self.fenced_s), LONG_PAUSE_S)
            time.sleep(random.uniform(0, min(most, 0.02 * 2**n)))
        if self.failed is not None:
            raise self.failed
        changed = "what this start wrote may be there (`halog type list`)" if self.ours else "nothing was published"
        raise OverloadedError(
            f"topic {self.definitions.tp.topic}: other processes began to publish definitions at each of {ATTEMPTS} "
            f"attempts; {changed}; start again",
            topic=self.definitions.tp.topic,
        )

    @property
    def _id(self) -> str:
        return publishing_id(self.definitions.tp.topic)
