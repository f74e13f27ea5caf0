"""Any two branches of one history, for properties of what is made of them."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from halog.core.ids import ABSENT
from halog.core.log.records import CREATE, DELETE, UPDATE, Change
from restore.merge import BranchCommit, Instance

Step = tuple[bytes, bool, bytes]
"""A key; is what is there deleted, if it is; a value."""
KEYS, VALUES = st.sampled_from([b"x", b"y", b"z"]), st.sampled_from([b"1", b"2", b"3"])
Objects = dict[bytes, Instance]


def steps_of(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(KEYS, st.booleans(), values), max_size=8)


STEPS = steps_of(VALUES)


def played(base: Objects, steps: list[Step], side: bytes) -> tuple[list[BranchCommit], Objects]:
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
        log.append(BranchCommit(side + b"t%d" % lsn, lsn, lsn, changes))
    return log, now


class World(NamedTuple):
    base: Objects
    source: list[BranchCommit]
    initiating: list[BranchCommit]
    ends: tuple[Objects, Objects]


@st.composite
def worlds(draw: st.DrawFn, values: st.SearchStrategy[bytes] = VALUES, first: bytes = b"1") -> World:
    """`first`: what stands at the fork."""
    base = {key: Instance(b"b" + key, first) for key in draw(st.sets(KEYS))}
    source, s = played(base, draw(steps_of(values)), b"s")
    initiating, i = played(base, draw(steps_of(values)), b"i")
    return World(base, source, initiating, (s, i))
