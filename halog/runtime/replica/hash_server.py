"""This module tells the hash of a copy's objects to whoever compares copies (U1), and looks at what is stored if that
is asked for."""

from __future__ import annotations

from halog.errors import RefusedError
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames
from halog.runtime.store.state_hash import to_bytes, total


def told(copy: Copy, *, scan: bool) -> frames.StateHashesReply:
    """Return what this copy knows of its hash, at its lsn and before. Raises RefusedError from one whose objects are
    not those of the log at its lsn, or not yet."""
    with copy.lock:
        if copy.error is not None:
            raise RefusedError(f"the copy of {copy.name} stopped: {copy.error}", partition=copy.name)
        kept = copy.objects.state_hash
        if not kept.settled:
            raise RefusedError(
                f"the copy of {copy.name} still reads what it missed of its log; ask again once it follows",
                partition=copy.name,
            )
        reply = frames.StateHashesReply(kept.lsn, kept.now, kept.marks)
        if not scan:
            return reply
        copy.objects.save()
        source = copy.node.store.snapshot()
    return frames.StateHashesReply(reply.lsn, reply.hash, reply.marks, to_bytes(total(copy.objects.objects(source))))
