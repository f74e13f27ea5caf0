"""This module writes marks beside the members of a collection, so that few watches hear of a change of any of them.

A mark is a znode for each 64th of a collection, by member's name. Whoever writes a member writes its mark in the same
multi, whatever version the mark has: so writers of other members are not in the way. The mark names the member, and
says what has become of it; its own version counts the changes. A reader that has seen each change has read the members
as well; one that has missed some reads the members of that mark.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from kazoo.exceptions import KazooException, NoAuthError, NodeExistsError, NoNodeError

from halog.ports import COLLECTIONS, Versioned

SLOTS: Final = 64
"""With so many members, or fewer, most have a mark of their own. Of a thousand, what was missed is looked for among
16."""

ABSENT, UNKNOWN = -1, -2
"""Instead of a version. ABSENT: the member was deleted. UNKNOWN: it was set, whatever version it had, or is too large
to be repeated here."""

REPEATED_BYTES: Final = 10_000
"""Most bytes of a member that its mark repeats, so that both fit one request: tables have some hundred."""


class VersionMark(msgspec.Struct, array_like=True, frozen=True):
    """Holds the last change among its members."""

    name: str
    version: int
    data: bytes = b""

    @property
    def value(self) -> Versioned | None:
        """Return what the member is by then; not asked for where that is UNKNOWN."""
        return None if self.version == ABSENT else Versioned(self.data, self.version)


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(VersionMark)


def read(data: bytes) -> VersionMark | None:
    """Decode a mark; None: somebody else has written there, or the version is not known."""
    try:
        mark = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return None if mark.version == UNKNOWN else mark


def slot_of(name: str) -> int:
    """Return which mark a member has."""
    return zlib.crc32(name.encode()) % SLOTS


def path_of(collection: str, slot: int) -> str:
    """Return the path of the mark's znode."""
    return f"changes/{collection}/{slot:02x}"


def member_of(path: str) -> tuple[str, str] | None:
    """Return the collection and the name, where this is a member of one that has marks."""
    collection, _, name = path.strip("/").partition("/")
    return (collection, name) if collection in COLLECTIONS and name and "/" not in name else None


class MarkWriter:
    """Writes members with their marks. `write` waits for a request's answer and says which errors there are; `absolute`
    makes a path of the tree one of the server."""

    def __init__(self, client: Any, absolute: Callable[[str], str], write: Callable[[str, Any], Any]) -> None:
        self._client = client
        self._abs = absolute
        self._write = write

    def set(self, path: str, data: bytes, version: int) -> Any:
        """Set a member and its mark; return the member's new stat. Raises as its own `set`."""
        known = UNKNOWN if version < 0 else version + 1
        return self._both("set", path, known, data, lambda t: t.set_data(self._abs(path), data, version))

    def create(self, path: str, data: bytes) -> None:
        """Create a member and write its mark. Raises as its own `create`."""
        self._both("create", path, 0, data, lambda t: t.create(self._abs(path), data))

    def delete(self, path: str, version: int) -> None:
        """Delete a member and write its mark. Raises as its own `delete`."""
        self._both("delete", path, ABSENT, b"", lambda t: t.delete(self._abs(path), version))

    def _both(self, what: str, path: str, version: int, data: bytes, add: Callable[[Any], Any]) -> Any:
        member = member_of(path)
        assert member is not None
        collection, name = member
        mark = self._abs(path_of(collection, slot_of(name)))
        if len(data) > REPEATED_BYTES:
            version = UNKNOWN
        said = _ENCODER.encode(VersionMark(name, version, b"" if version == UNKNOWN else data))
        while True:
            asked = self._client.transaction()
            add(asked)
            asked.set_data(mark, said, -1)
            done, marked = self._write(f"{what} {path}", asked.commit_async())
            if isinstance(marked, NoAuthError):
                raise marked
            if isinstance(marked, NoNodeError):
                self._make(mark)
            elif isinstance(done, NoNodeError) and what == "create":
                self._make(self._abs(collection))
            elif isinstance(done, KazooException):
                raise done
            else:
                return done

    def _make(self, path: str) -> None:
        with suppress(NodeExistsError):  # somebody else was quicker
            self._write(f"create {path}", self._client.create_async(path, b"", makepath=True))
