"""This module tells the hash of a copy's objects to whoever compares copies (U1), and looks at what is stored if that
is asked for."""

from __future__ import annotations

import threading

from halog.errors import RefusedError
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames
from halog.runtime.store.state_hash import to_bytes, total


def told(copy: Copy, counting: threading.Lock, *, scan: bool) -> frames.StateHashesReply:
    """Return what this copy knows of its hash, at its lsn and before. The objects are counted if they never were, or if
    `scan` asks for it; `counting` is held for that, so that one copy of a node is counted at a time, beside what the
    node serves. Raises RefusedError from a copy whose objects are not those of the log at its lsn, or not
    yet."""
    kept = copy.objects.state_hash
    with copy.lock:
        _check(copy)
        if kept.known and not scan:
            return frames.StateHashesReply(kept.lsn, kept.now, kept.marks)
    with counting:
        with copy.lock:
            copy.objects.save()
            lsn, since, source = kept.lsn, kept.since, copy.node.store.snapshot()
            counted = kept.known and not scan  # by the one before
        number = 0 if counted else total(copy.objects.objects(source))
        with copy.lock:
            _check(copy)
            if not counted:
                kept.counted(number, since)
            if scan:
                return frames.StateHashesReply(lsn, kept.after(since), kept.marks, to_bytes(number))
            return frames.StateHashesReply(kept.lsn, kept.now, kept.marks)


def _check(copy: Copy) -> None:
    if copy.error is not None or copy.ended:
        why = "it is hosted there no more" if copy.error is None else copy.error
        raise RefusedError(f"the copy of {copy.name} stopped: {why}", partition=copy.name)
    if not copy.objects.state_hash.settled:
        raise RefusedError(
            f"the copy of {copy.name} still reads what it missed of its log; ask again once it follows",
            partition=copy.name,
        )
