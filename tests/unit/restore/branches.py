"""Any two branches of one history, for properties of what is made of them."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from halog.core.ids import ABSENT
from halog.core.records import CREATE, DELETE, UPDATE, Change
from restore.merge import Committed, Instance

Step = tuple[bytes, bool, bytes]
"""A key; is what is there deleted, if it is; a value."""
KEYS, VALUES = st.sampled_from([b"x", b"y", b"z"]), st.sampled_from([b"1", b"2", b"3"])
STEPS = st.lists(st.tuples(KEYS, st.booleans(), VALUES), max_size=8)
Objects = dict[bytes, Instance]


def played(base: Objects, steps: list[Step], side: bytes) -> tuple[list[Committed], Objects]:
    """A branch, and what there is at its end."""
    now, log = dict(base), []
    for lsn, (key, gone, value) in enumerate(steps, 1):
        there = now.get(key)
        if there is None:
            now[key] = Instance(side + b"%d" % lsn, value)
            changes = [Change(CREATE, now[key].ref, key, value, ABSENT)]
        elif gone:
            del now[key]
            changes = [Change(DELETE, there.ref, key, None, 1, there.value)]
        else:
            now[key] = Instance(there.ref, value)
            changes = [Change(UPDATE, there.ref, key, value, 1, there.value)]
        log.append(Committed(side + b"t%d" % lsn, lsn, lsn, changes))
    return log, now


class World(NamedTuple):
    base: Objects
    source: list[Committed]
    initiating: list[Committed]
    ends: tuple[Objects, Objects]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    base = {key: Instance(b"b" + key, b"1") for key in draw(st.sets(KEYS))}
    source, s = played(base, draw(STEPS), b"s")
    initiating, i = played(base, draw(STEPS), b"i")
    return World(base, source, initiating, (s, i))
