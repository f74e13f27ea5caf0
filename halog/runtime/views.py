"""A copy as operators see it."""

from __future__ import annotations

from halog.runtime.copy import Copy


def view(copy: Copy) -> dict[str, object]:
    """Plain values."""
    core, lag = copy.core, copy.lag()
    s = core.chain.state
    return {
        "partition": copy.name,
        "role": core.role.value,
        "epoch": s.epoch.number,
        "lsn": s.lsn,
        "hash": s.hash.hex(),
        "next_offset": core.next_offset,
        "began_at": copy.began_at,
        "lag_records": lag.records,
        "lag_ms": lag.ms,
        "discarded_objects": copy.objects.consistency.discarded,
        "error": None if copy.error is None else str(copy.error),
    }
