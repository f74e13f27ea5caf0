"""This module writes and reads the bytes of a `Commit`, a `Prepare` and an `Outcome` by hand. Every transaction has
these records, so every transaction pays for them. It also writes a `MergePart`, since a partition serves nobody while
it merges.

The bytes are Avro, byte for byte what fastavro makes of the schemas in `records` (a test holds them equal), at a third
of the price and less. Reading gives None for anything that is not recognised as the plain form; `records` then asks
fastavro, which judges. The module never looks inside object values.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from halog.core.ids import HASH_BYTES, LOG_ID_BYTES, REF_BYTES, TX_BYTES, EpochId

_LONGEST = 10
"""Bytes of the longest 64-bit varint."""

_LAST_OP = 2
"""The highest `op` of a change that is known here; `records` names them, and judges what is beyond."""

RawChange = tuple[int, bytes, bytes, bytes | None, int, bytes | None]


def _varint(n: int) -> bytes:
    """Encode a number that is already zigzagged."""
    if 16_383 < n < 2_097_152:  # most lsns
        return bytes((n & 127 | 128, n >> 7 & 127 | 128, n >> 14))
    if n >> 64:
        raise OverflowError("a number does not fit 64 bits")
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


_SMALL = [_varint(n << 1) for n in range(2048)]
"""Zigzag varints of sizes and counts, which are most numbers of a record."""


def _long(n: int) -> bytes:
    """Encode a number as a zigzag varint."""
    return _SMALL[n] if 0 <= n < 2048 else _varint((n << 1) ^ (n >> 63))


def _fixed(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise ValueError(f"{len(value)} bytes where {size} are fixed")
    return value


@lru_cache(maxsize=256)  # one entry for each epoch written or read lately
def _beginning(prefix: bytes, log_id: bytes, epoch: EpochId) -> bytes:
    site = epoch.site.encode()
    return b"".join(
        (prefix, _fixed(log_id, LOG_ID_BYTES), _long(epoch.number), _long(len(site)), site, _long(epoch.nonce))
    )


def write(prefix: bytes, log_id: bytes, epoch: EpochId, lsn: int, prev: bytes, tx: bytes, changes: Any) -> bytes:
    """Encode a commit without origin. `changes` have the fields of `records.Change`."""
    parts = [_beginning(prefix, log_id, epoch), _long(lsn), _fixed(prev, HASH_BYTES), _fixed(tx, TX_BYTES)]
    _add_changes(parts, changes)
    parts.append(b"\0")  # no origin
    return b"".join(parts)


def _add_changes(parts: list[bytes], changes: Any) -> None:
    if changes:
        parts.append(_long(len(changes)))
        for c in changes:
            key, value, before, replaced = c.key, c.value, c.before, c.replaced
            parts += (_SMALL[c.op], _fixed(c.ref, REF_BYTES), _long(len(key)), key)
            parts += (b"\0",) if value is None else (b"\2", _long(len(value)), value)
            parts.append(_long(replaced))
            parts += (b"\0",) if before is None else (b"\2", _long(len(before)), before)
    parts.append(b"\0")


def write_prepare(prefix: bytes, header: Any, record: Any) -> bytes:
    """Encode a vote; `header` and `record` have the fields of `records.Header` and `records.Prepare`."""
    parts = [_beginning(prefix, header.log_id, header.epoch), _long(header.lsn), _fixed(header.prev, HASH_BYTES)]
    parts += (_fixed(header.tx, TX_BYTES), _text(record.first))
    if record.participants:
        parts.append(_long(len(record.participants)))
        parts += map(_text, record.participants)
    parts += (b"\0", _long(record.mapper_version), _long(len(record.digest)), record.digest)
    _add_changes(parts, record.changes)
    if record.reads:
        parts.append(_long(len(record.reads)))
        for key, version in record.reads:
            parts += (_long(len(key)), key, _long(version))
    parts.append(b"\0")
    return b"".join(parts)


def write_part(prefix: bytes, header: Any, record: Any) -> bytes:
    """Encode a part of a merge; `record` has the fields of `records.MergePart`."""
    parts = [_beginning(prefix, header.log_id, header.epoch), _long(header.lsn), _fixed(header.prev, HASH_BYTES)]
    parts += (_fixed(header.tx, TX_BYTES), _long(record.index))
    if record.merged:
        parts.append(_long(len(record.merged)))
        for m in record.merged:
            key, ref, value, evidence = m.key, m.ref, m.value, m.evidence
            parts += (_long(len(key)), key, _long(len(ref)), ref)
            parts += (b"\0",) if value is None else (b"\2", _long(len(value)), value)
            parts += (_long(len(evidence)), evidence)
    parts.append(b"\0")
    if record.happened:
        parts.append(_long(len(record.happened)))
        parts += (_fixed(tx, TX_BYTES) for tx in record.happened)
    parts.append(b"\0")
    if record.decided:
        parts.append(_long(len(record.decided)))
        parts += (_fixed(tx, TX_BYTES) + (b"\1" if commit else b"\0") for tx, commit in record.decided)
    parts.append(b"\0")
    return b"".join(parts)


def write_outcome(prefix: bytes, header: Any, commit: bool) -> bytes:
    """Encode a decision."""
    beginning = _beginning(prefix, header.log_id, header.epoch)
    head = (beginning, _long(header.lsn), _fixed(header.prev, HASH_BYTES), _fixed(header.tx, TX_BYTES))
    return b"".join((*head, b"\1" if commit else b"\0"))


@lru_cache(maxsize=1_024)  # names of partitions, the same again and again
def _text(text: str) -> bytes:
    data = text.encode()
    return _long(len(data)) + data


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    n = data[at]
    if n < 128:
        return (n >> 1) ^ -(n & 1), at + 1
    n &= 127
    byte = data[at + 1]
    if byte < 128:
        n |= byte << 7
        return (n >> 1) ^ -(n & 1), at + 2
    for i in range(1, _LONGEST):
        byte = data[at + i]
        n |= (byte & 127) << 7 * i
        if byte < 128:
            if n >> 64:
                break
            return (n >> 1) ^ -(n & 1), at + i + 1
    raise ValueError("a number does not fit 64 bits")


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_long(data, at)
    if size < 0:
        raise ValueError("bytes of negative length")
    return data[at : at + size], at + size


def _read_optional(data: bytes, at: int) -> tuple[bytes | None, int]:
    if data[at] == 0:
        return None, at + 1
    if data[at] != 2:
        raise ValueError("no branch of the union")
    return _read_bytes(data, at + 1)


Head = tuple[bytes, EpochId, int, bytes, bytes]


def read(data: bytes) -> tuple[Head, list[RawChange]] | None:
    """Read a commit behind two bytes of prefix: ((log id, epoch, lsn, prev, tx), changes). None: it is not the plain
    form."""
    try:
        head, at = _read_head(data)
        changes, at = _read_changes(data, at)
        # A slice past the end is short and silent, but then `at` is past it too.
        return (head, changes) if data[at] == 0 and at + 1 == len(data) else None
    except (IndexError, ValueError):
        return None


_seen: tuple[bytes, bytes, EpochId] = (b"?", b"", EpochId(0, "", 0))
"""How the last record read began, with its log id and epoch: the next record is nearly always of the same epoch."""


def _read_beginning(data: bytes) -> tuple[bytes, bytes, EpochId]:
    global _seen
    at = 2 + LOG_ID_BYTES
    number, at = _read_long(data, at)
    site, at = _read_bytes(data, at)
    nonce, at = _read_long(data, at)
    _seen = found = (data[:at], data[2 : 2 + LOG_ID_BYTES], EpochId(number, site.decode(), nonce))
    return found


def _read_head(data: bytes) -> tuple[Head, int]:
    beginning, log_id, epoch = _seen
    if not data.startswith(beginning):
        beginning, log_id, epoch = _read_beginning(data)
    lsn, at = _read_long(data, len(beginning))
    tx = at + HASH_BYTES
    end = tx + TX_BYTES
    return (log_id, epoch, lsn, data[at:tx], data[tx:end]), end


def read_head(data: bytes) -> Head | None:
    """Read (log id, epoch, lsn, prev, tx) of any record with a plain head. None: the record ends before."""
    try:
        head, end = _read_head(data)
    except (IndexError, ValueError):
        return None
    return head if end < len(data) else None  # at least one byte follows the head of any record


def _read_changes(data: bytes, at: int) -> tuple[list[RawChange], int]:
    count, at = _read_long(data, at)
    if count == 0:
        return [], at
    if count < 0 or count > len(data):
        raise ValueError("not one plain block")
    changes = []
    for _ in range(count):
        op, at = _read_long(data, at)
        if not 0 <= op <= _LAST_OP:
            raise ValueError("no change that is known here")
        ref, at = data[at : at + REF_BYTES], at + REF_BYTES
        key, at = _read_bytes(data, at)
        value, at = _read_optional(data, at)
        replaced, at = _read_long(data, at)
        before, at = _read_optional(data, at)
        changes.append((op, ref, key, value, replaced, before))
    if data[at] != 0:
        raise ValueError("more than one block")
    return changes, at + 1


Named = tuple[str, tuple[str, ...], int, bytes]
RawReads = tuple[tuple[bytes, int], ...]


def read_prepare(data: bytes) -> tuple[Head, Named, list[RawChange], RawReads] | None:
    """Read a vote: ((log id, epoch, lsn, prev, tx), (first, participants, mapper version, digest), changes, reads).
    None: it is not the plain form."""
    try:
        head, at = _read_head(data)
        first, at = _read_bytes(data, at)
        participants, at = _read_texts(data, at)
        mapper_version, at = _read_long(data, at)
        digest, at = _read_bytes(data, at)
        changes, at = _read_changes(data, at)
        reads, at = _read_reads(data, at)
        named = (first.decode(), participants, mapper_version, digest)
        return (head, named, changes, reads) if at == len(data) else None
    except (IndexError, ValueError):
        return None


def read_outcome(data: bytes) -> tuple[Head, bool] | None:
    """Read a decision: ((log id, epoch, lsn, prev, tx), commit). None: it is not the plain form."""
    try:
        head, at = _read_head(data)
        return (head, data[at] == 1) if data[at] <= 1 and at + 1 == len(data) else None
    except (IndexError, ValueError):
        return None


def _read_texts(data: bytes, at: int) -> tuple[tuple[str, ...], int]:
    count, at = _read_count(data, at)
    found = []
    for _ in range(count):
        text, at = _read_bytes(data, at)
        found.append(text.decode())
    return tuple(found), _past(data, at) if count else at


def _read_reads(data: bytes, at: int) -> tuple[RawReads, int]:
    count, at = _read_count(data, at)
    found = []
    for _ in range(count):
        key, at = _read_bytes(data, at)
        version, at = _read_long(data, at)
        found.append((key, version))
    return tuple(found), _past(data, at) if count else at


def _read_count(data: bytes, at: int) -> tuple[int, int]:
    count, at = _read_long(data, at)
    if count < 0 or count > len(data):
        raise ValueError("not one plain block")
    return count, at


def _past(data: bytes, at: int) -> int:
    """Return the place behind the end of a block's array."""
    if data[at] != 0:
        raise ValueError("more than one block")
    return at + 1
