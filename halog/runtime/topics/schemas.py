"""This module reads the `<cluster>.schemas` topic: the definitions that stored objects were written by
(docs/protocol.md; U2, U3).

Key: type id (8 bytes). Value: the definition's canonical JSON. The topic never holds a class: tools that import nothing
of the application read all they need from here, and the object layer finds the writer of bytes that an older class left
behind. A definition is published before the first object of it is written, and never changes. So whoever sees an
object's bytes finds its definition, at the latest after reading the topic's end again.

What may be published is said in `halog.runtime.topics.schema_publication`.
"""

from __future__ import annotations

import difflib
import logging
import threading

from halog.errors import LaterRecordError, RecordFormatError, UnknownTypeError
from halog.ports import KeyedLog, Log, TopicPartition
from halog.release import RELEASE
from halog.schema import Definition, ForeignType
from halog.schema.definition import ID_BYTES, is_id_of

logger = logging.getLogger("halog.schemas")


class Definitions:
    """Holds the stored definitions by type id and by name, as last read; reads again on a miss. Thread-safe."""

    def __init__(self, log: KeyedLog, topic: str) -> None:
        self.log = log
        self.tp = TopicPartition(topic, 0)
        self._lock = threading.Lock()
        self._read_to = 0
        self._stored: dict[bytes, Definition] = {}
        """In the topic's order: the first definition of a name stands before later ones."""
        self._bad: dict[bytes, RecordFormatError] = {}
        self._foreign: dict[bytes, ForeignType] = {}

    def refresh(self, *, all_written: bool = False) -> bool:
        """Read what the topic got since; return False if there is nothing. `all_written`: also what was committed just
        now, which counts as the topic's end a moment later."""
        with self._lock:
            end = self.log.bounds(self.tp)[1]
            if end <= self._read_to and not all_written:
                return False
            for key, value in self.log.read_keyed(self.tp, self._read_to):
                self._take(key, value)
            self._read_to = max(end, self._read_to)
            return True

    def _take(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._stored.pop(key, None)
            self._bad.pop(key, None)
            return
        try:
            definition = Definition.parse(value)
            if definition.type_id != key:
                raise RecordFormatError(f"{definition.name}: its type id is {definition.type_id.hex()}")
        except RecordFormatError as error:
            self._bad[key] = bad = self._unread(key, value, error)
            logger.warning("%s; objects of this type id cannot be read", bad)
        else:
            self._stored.setdefault(key, definition)

    def _unread(self, key: bytes, value: bytes, error: RecordFormatError) -> RecordFormatError:
        """Return the error of an entry. Its key is the hash of its bytes: where that is right they are what somebody
        wrote, by rules that are not known here."""
        where, shown = f"topic {self.tp.topic}, key {key[:16].hex()}", key[:16].hex()
        if is_id_of(key, value):
            return LaterRecordError(
                f"{where}: a definition that a later version of halog wrote, or another program: halog {RELEASE} does "
                f"not know all of it ({error}). Upgrade the installation that says so",
                key=shown,
            )
        return RecordFormatError(f"{where}: {error}", key=shown)

    def find(self, type_id: bytes) -> Definition:
        """Return the definition behind a type id. Raises UnknownTypeError, or RecordFormatError if what is stored is
        damaged."""
        found = self._stored.get(type_id)
        if found is None and self.refresh():
            found = self._stored.get(type_id)
        if found is None:
            raise self._bad.get(type_id) or UnknownTypeError(
                f"type id {type_id.hex()} is not in topic {self.tp.topic}; it was deleted there, or the topic is "
                "another cluster's",
                type_id=type_id.hex(),
            )
        return found

    def of(self, value: bytes) -> Definition:
        """Return the definition that wrote an object's bytes."""
        return self.find(bytes(value[:ID_BYTES]))

    def text(self, type_id: bytes) -> str | None:
        """Return the canonical JSON behind a type id, or None if nobody published it; the object layer asks for it."""
        try:
            return self.find(type_id).text
        except UnknownTypeError:
            return None

    def of_family(self, family_id: bytes) -> Definition | None:
        """Return the first definition of a key space: it reads the index keys of all its types."""
        for fresh in (False, True):
            if fresh and not self.refresh():
                return None
            for definition in list(self._stored.values()):
                if definition.family_id == family_id:
                    return definition
        return None

    def foreign(self, type_id: bytes) -> ForeignType:
        """Return a reader and writer of plain values for a type id."""
        made = self._foreign.get(type_id)
        if made is None:
            made = self._foreign[type_id] = ForeignType(self.find(type_id))
        return made

    def all(self) -> tuple[Definition, ...]:
        """Return every stored definition, in the topic's order."""
        self.refresh()
        return tuple(self._stored.values())

    def named(self, name: str) -> tuple[Definition, ...]:
        """Return every definition of a type name, oldest first. Raises UnknownTypeError, which names the nearest known
        one."""
        found = self._named(name) or (self._named(name) if self.refresh() else ())
        if found:
            return found
        names = sorted({d.name for d in list(self._stored.values())})
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names[:10]) or 'none'}"
        if later := sum(isinstance(bad, LaterRecordError) for bad in list(self._bad.values())):
            what = "definitions" if later > 1 else "definition"
            hint += f"; {later} {what} that halog {RELEASE} does not know all of may be of it: ask with a later halog"
        raise UnknownTypeError(f"no type named {name} was ever published in this cluster; {hint}", type=name)

    def _named(self, name: str) -> tuple[Definition, ...]:
        same = [d for d in list(self._stored.values()) if d.name == name]
        return tuple(sorted(same, key=lambda d: -1 if d.version is None else d.version))

    def of_name(self, name: str) -> tuple[Definition, ...]:
        """Return every definition of a type name, oldest first, as last read; asks nobody."""
        return self._named(name)

    def has(self, type_id: bytes) -> bool:
        """Say whether there is a definition behind a type id, as last read; asks nobody."""
        return type_id in self._stored

    def before(self, type_id: bytes) -> tuple[Definition, ...] | None:
        """Return the definitions of the same type name that stand before this one in the topic, as last read; None if
        this one is not there."""
        order = list(self._stored)
        if type_id not in self._stored:
            return None
        name = self._stored[type_id].name
        found = (self._stored[i] for i in order[: order.index(type_id)])
        return tuple(d for d in found if d.name == name)

    def newest(self, name: str) -> Definition | None:
        """Return the newest definition of a type name, or None; asks nobody."""
        found = self._named(name)
        return found[-1] if found else None

    def current(self, name: str) -> Definition:
        """Return the newest definition of a type name: the highest version, then the last published."""
        return self.named(name)[-1]

    def family(self, name: str) -> tuple[str, ...]:
        """Return the name and those of all types derived from it, as published."""
        self.named(name)
        below = {d.name for d in list(self._stored.values()) if name in d.bases}
        return (name, *sorted(below))


def bring(there: KeyedLog, here: Log, tp: TopicPartition, since: int = 0) -> int:
    """Bring definitions here that only another site has: its nodes may run a newer version of the application. What is
    before the offset `since` there was brought before. Returns where its topic ends by now."""
    end = there.bounds(tp)[1]
    if end <= since:
        return since
    have = dict(here.read_keyed(tp))
    for key, value in there.read_keyed(tp, since):
        if value is not None and have.get(key) != value:
            here.put(tp, key, value)
    return end


def of_both(source: KeyedLog, own: Definitions) -> tuple[Definition, ...]:
    """Return the definitions of two sites in the order in which the source has them, or will: what it lacks is brought
    there."""
    there = Definitions(source, own.tp.topic).all()
    known = {d.type_id for d in there}
    return (*there, *(d for d in own.all() if d.type_id not in known))
