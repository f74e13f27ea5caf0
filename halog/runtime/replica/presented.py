"""This module looks up what a commit rests on and changes in this copy: the versions now, and the bytes it replaces."""

from __future__ import annotations

from halog.backend import CommittedObject, Work
from halog.core.log import records
from halog.runtime.store.object_table import ObjectTable


def presented(work: Work, objects: ObjectTable, *, keeps_before: bool) -> tuple[list[records.Change], dict[bytes, int]]:
    """Return the record's changes, each with what it replaces if `keeps_before`; and the version of every key read or
    changed (-1: absent). Called with the copy's lock held."""
    found: dict[bytes, int] = {}
    version = objects.version
    for key, _ in work.reads:
        found[key] = version(key)
    look = objects.lookup([w.key for w in work.writes])
    changes: list[records.Change] = []
    for w in work.writes:
        before: CommittedObject | None = None
        if w.op != records.CREATE or w.key not in found:
            before = look(w.key)
            found.setdefault(w.key, -1 if before is None else before.version)
        keep = keeps_before and before is not None and w.op != records.CREATE
        old = before.value if keep and before else None
        changes.append(records.Change(w.op, w.ref, w.key, w.value, w.replaced, old))
    return changes, found
