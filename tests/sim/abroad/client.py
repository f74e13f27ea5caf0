"""Clients at one of two sites: both sites' create, change, delete and replace the same few objects, and count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core.ids import ABSENT
from halog.core.log.records import CREATE, DELETE, UPDATE, Change
from tests.sim.client import KEYS, Client, Transaction

if TYPE_CHECKING:
    from tests.sim.abroad.site import SiteWorld
    from tests.sim.node import Process

LOOK_MS = 25.0
AGAIN = 6
"""Every so many updates write what is there."""
COUNTER = KEYS[3]
"""Counts everybody's steps; never deleted."""
PASSING = KEYS[2::-1]
"""What is deleted first comes first: the one where a trigger may keep the initiating site's state, even if that is
nothing."""


class SiteClient(Client):
    """Each object it makes is an instance of its own, and each value but the counter's is made once. Some are written
    again where they stand: the state is the same then, and the version another one."""

    world: SiteWorld
    _source: Process | None = None
    _waits = False
    """Nobody here serves: it looks again later."""
    empties = 0
    """So many of its next transactions delete."""
    fleeting = False
    """It creates what is not there, and deletes it."""
    _created: bytes | None = None

    def begin(self) -> None:
        self._waits = False
        super().begin()

    def _later(self, fn: object) -> None:
        if fn != self.begin or self.current is not None:
            super()._later(fn)
        elif not self._waits:
            self._waits = True
            self.world.engine.at(self.world.engine.rng.random() * LOOK_MS, self.begin)

    def _made(self, source: Process) -> Transaction:
        self._source = source
        special = (self.empties and self._emptying(source)) or (self.fleeting and self._passing(source))
        return special or super()._made(source)

    def _emptying(self, source: Process) -> Transaction | None:
        """Some object that is there is deleted."""
        self.empties -= 1
        there = [k for k in PASSING if source.version(k) != ABSENT]
        return self.make([], [self.change(k, source.version(k), delete=True) for k in there[:1]]) if there else None

    def _passing(self, source: Process) -> Transaction | None:
        """An object that is not there is created, or the one that was created is deleted."""
        key, self._created = self._created, None
        if key is not None and source.version(key) != ABSENT:
            return self.make([], [self.change(key, source.version(key), delete=True)])
        self._created = next((k for k in PASSING if source.version(k) == ABSENT), None)
        if self._created is None:
            return None
        return self.make([], [self.change(self._created, ABSENT)])

    def change(self, key: bytes, version: int, *, delete: bool = False) -> Change:
        assert self._source is not None
        there = None if version == ABSENT else self._source.copy.objects.get(key)
        pair = self.world.pair
        if there is None:
            value = b"1" if key == COUNTER else pair.value()
            return Change(CREATE, pair.reference(), key, value, ABSENT)
        before = there.value if pair.keeps_before else None
        if key == COUNTER:
            return Change(UPDATE, there.ref, key, b"%d" % (int(there.value) + 1), version, before)
        if delete:
            return Change(DELETE, there.ref, key, None, version, before)
        value = pair.value()
        again = before is not None and int(value[1:]) % AGAIN == 0
        return Change(UPDATE, there.ref, key, there.value if again else value, version, before)
