"""This module stores what a replica was pushed before the log brought it (`halog.core.replica.pushed_store`, decision
38).

Keys, behind the first 8 bytes of the log id:
    h <lsn>   a record, until the position that is stored has passed it
    w         MessagePack [incarnations of this node for which the store stands, the run of the machine when it did,
              whether all of it was flushed]

What was handed to the operating system is there after each end of the process. So what another run of the machine noted
counts only where all of it was flushed. Whatever else a copy stores is in `halog.runtime.store.object_table`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator

import msgspec

from halog.core import effects as fx
from halog.core.replica.pushed_store import last_run
from halog.errors import LaterRecordError, RecordFormatError, StoreError
from halog.ports import Store
from halog.runtime.support.clock import machine_run

_LSN = struct.Struct(">Q")


class _StandNote(msgspec.Struct, array_like=True, frozen=True):
    incarnations: tuple[int, ...]
    run: str
    """Of the machine; "": unknown."""
    flushed: bool = False
    """Is what they told on the disk, as the note itself is?"""


_STANDS = msgspec.msgpack.Decoder(_StandNote)


class PushedRecords:
    """Keeps the pushed records of one copy. Changes run under the copy's lock."""

    def __init__(self, store: Store, prefix: bytes) -> None:
        self._store = store
        self._h = prefix + b"h"
        self._w = prefix + b"w"
        self._lsns: deque[int] = deque()
        """Lsns of what is stored, ascending."""

    def store(self, e: fx.StorePushed) -> None:
        """Store the records; they are handed to the operating system when this returns."""
        items: list[tuple[bytes, bytes | None]] = []
        if e.anew:
            items += [(self._h + _LSN.pack(lsn), None) for lsn in self._lsns]
            self._lsns.clear()
        first = e.upto + 1 - len(e.records)
        items += [(self._h + _LSN.pack(first + i), data) for i, data in enumerate(e.records)]
        self._lsns.extend(range(first, e.upto + 1))
        self._store.write(items)

    def passed(self, lsn: int) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield changes that drop what is not needed any more once the position of that lsn is stored; they go with
        it."""
        while self._lsns and self._lsns[0] <= lsn:
            yield self._h + _LSN.pack(self._lsns.popleft()), None

    def stand(self, e: fx.Stand) -> None:
        """Note for whom this store stands."""
        noted = _StandNote(e.incarnations, machine_run(), e.flush)
        self._store.write([(self._w, msgspec.msgpack.encode(noted))], flush=e.flush)

    def dropped(self) -> None:
        """Forget what is stored: nothing of this partition is in the store any more."""
        self._lsns.clear()

    # --- when the copy is opened ---

    def stood(self) -> tuple[int, ...]:
        """Return for whom the store stands. What the policy is now says nothing of what was flushed then."""
        noted = self._noted()
        return noted.incarnations if _counts(noted) else ()

    @property
    def void(self) -> bool:
        """Say whether the store stood for somebody in an earlier run of the machine, which may have ended before the
        flush."""
        noted = self._noted()
        return bool(noted.incarnations) and not _counts(noted)

    def _noted(self) -> _StandNote:
        data = self._store.get(self._w)
        try:
            return _StandNote((), "") if data is None else _STANDS.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as e:
            raise StoreError(
                f"the local store's note of whom it stands for cannot be read: {e}; delete the data directory"
            ) from e

    def load(self) -> list[bytes]:
        """Return what may still come of what is stored: see `halog.core.replica.pushed_store.last_run`.
        LaterRecordError if a later version of halog wrote some of it."""
        stored = list(self._store.scan(self._h))
        self._lsns = deque(_LSN.unpack(key[len(self._h) :])[0] for key, _ in stored)
        try:
            return last_run(data for _, data in stored)
        except LaterRecordError as e:
            raise e.at("what a replica was pushed, and has stored, includes") from None
        except RecordFormatError as e:
            raise StoreError(f"what a replica was pushed cannot be read: {e}; delete the data directory") from e


def forget(store: Store, prefix: bytes) -> None:
    """Delete what a store has of this partition's pushed records: it stands for nobody."""
    store.drop(prefix + b"h")
    store.drop(prefix + b"w")


def _counts(noted: _StandNote) -> bool:
    return noted.flushed or bool(noted.run and noted.run == machine_run())
