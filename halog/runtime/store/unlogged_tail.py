"""This module keeps what a copy that stops leaves on its disk: commits it held, and that its log never had (E6,
decision 13).

Key, behind the first 8 bytes of the log id:
    u   MessagePack list of records, one lsn behind the other, from the end of the copy's history on

A copy that is opened again brings them along: if what its log lost was put back, the next epoch appends them. Whatever
else a copy stores is in `halog.runtime.store.object_table`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.state.tail import Tail
from halog.errors import LaterRecordError, RecordFormatError, StoreError
from halog.ports import Store
from halog.runtime.store import replaced_mark as replaced
from halog.runtime.store.object_table import ObjectTable

logger = logging.getLogger("halog.partition")

_RECORDS = msgspec.msgpack.Decoder(tuple[bytes, ...])


def leave(objects: ObjectTable, partition: str, datas: Sequence[bytes]) -> None:
    """Write records down to the disk, behind all that was taken. A store that fails keeps no copy from stopping."""
    try:
        objects.save()
        objects.store.write([(_key(objects), msgspec.msgpack.encode(datas))], flush=True)
    except Exception:
        logger.exception("partition %s: %d commits that the log never had cannot be stored", partition, len(datas))


def found(objects: ObjectTable, state: ChainState) -> Tail:
    """Return what was left, and the pushed records, as far as either may still come behind `state`. Also return the
    incarnations for which the store stands. What was left and may not come is deleted. LaterRecordError if a later
    version of halog wrote some of it; nothing is changed then."""
    tail = _empty(objects)
    tail.adopt(objects.pushed.load(), state)
    _adopt_left(tail, objects, state)
    return tail


def unread(objects: ObjectTable) -> Tail:
    """Return what stands for records that a later version of halog stored here: nobody goes on without them as if there
    were none."""
    tail = _empty(objects)
    tail.unread = True
    return tail


def _empty(objects: ObjectTable) -> Tail:
    before = replaced.found(objects.store)
    return Tail(objects.pushed.stood(), None if before is None else before.runs)


def stored(store: Store, prefix: bytes) -> tuple[bytes, ...]:
    """Return what a copy that stopped left in this store; nothing is changed. Raises StoreError if it cannot be
    read."""
    data = store.get(prefix + b"u")
    try:
        return () if data is None else _RECORDS.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise StoreError(f"what a stopped copy left cannot be read: {e}") from e


def carry_over(before: Tail, tail: Tail, objects: ObjectTable, partition: str, state: ChainState) -> None:
    """Take over what may still come of `before`, which a dropped copy held: into `tail`, and on the disk, since the
    store is about to stand for this run of the node again. Where a later version of halog wrote some of what
    the store has, what was left there stays as it is."""
    if tail.unread and objects.store.get(_key(objects)) is not None:
        return
    tail.adopt([records.encode(record) for record in before.run], state)
    if tail.run:
        leave(objects, partition, [records.encode(record) for record in tail.run])


def _adopt_left(tail: Tail, objects: ObjectTable, state: ChainState) -> None:
    data = objects.store.get(_key(objects))
    if data is None:
        return
    try:
        datas = _RECORDS.decode(data)
        for record in datas:
            records.decode(record)
    except LaterRecordError as e:
        raise e.at("what a stopped copy left on this disk includes") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecordFormatError) as e:
        raise StoreError(f"what a stopped copy left cannot be read: {e}; delete the data directory") from e
    tail.adopt(datas, state)
    if not tail.run:
        objects.store.write([(_key(objects), None)])


def _key(objects: ObjectTable) -> bytes:
    return objects.prefix + b"u"
