"""Moments of one copy: what each object was then, whatever became of it since, for readers that take no lock (R5).

The theory: whoever changes objects first writes down, in the moment that ends, what they were. A reader looks at the
object first and then at what was written down since its moment began: so it sees the object before it was changed, or
what was written down before that. A moment leads to the next one and none leads back, and only readers hold those that
are over: what nobody can ask for any more is freed by itself, and where nobody reads nothing is written down.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Final, Generic, TypeVar

V = TypeVar("V")

LIMIT: Final = 16 << 20
"""Bytes of objects as they were that are kept for readers of one copy; readers of older moments are told. At 200 bytes
an object that is what some 40,000 changes leave behind."""

ENTRY: Final = 200
"""Bytes that one of them takes beside its value."""

_ABSENT: Final = object()


class OverError(Exception):
    """What objects were at this moment is not known any more."""


class Moment(Generic[V]):
    """One state of a copy, from the end of a change to the end of the next one."""

    __slots__ = ("__weakref__", "lost", "next", "size", "was")

    def __init__(self) -> None:
        self.size = 0
        """Bytes of what is written down here."""
        self.was: dict[bytes, V | None] = {}
        """What the next change found, by index key; it grows while that is under way."""
        self.next: Moment[V] | None = None
        """Behind that change; None while this is what objects are, or while they are being changed."""
        self.lost = False


class Moments(Generic[V]):
    """Of one copy. What changes objects does so under the copy's lock, between `begin` and `end`."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.now: Moment[V] | None = Moment()
        """None while objects change and nobody reads; who begins to read then waits for the lock."""
        self.noting: dict[bytes, V | None] | None = None
        """Where to write down what is about to change; None if nobody needs it."""
        self.limit = limit
        self._ending: Moment[V] | None = None
        self._depth = self._bytes = 0
        self._over: deque[tuple[weakref.ref[Moment[V]], int]] = deque()
        """Moments that somebody held when they ended, oldest first, with all bytes that were written down before."""

    def begin(self) -> None:
        """Objects are about to change: for each of them `note` is called first, if anything is `noting`."""
        self._depth += 1
        if self._depth > 1 or self.now is None:
            return
        held = weakref.ref(self.now)
        self.now = None  # from here on nobody takes it up
        self._ending = ending = held()
        if ending is not None:
            self.now = ending
            self.noting = ending.was

    def note(self, key: bytes, was: V | None, size: int) -> None:
        """An object as it is, `size` bytes; once for each that changes, before the first change of it."""
        assert self._ending is not None
        self._ending.was[key] = was
        self._ending.size += size + ENTRY

    def end(self) -> None:
        """All of it is done."""
        self._depth -= 1
        if self._depth:
            return
        ending = self._ending
        self._ending = None
        self.noting = None
        made: Moment[V] = Moment()
        if ending is not None:
            ending.next = made
            self._over.append((weakref.ref(ending), self._bytes))
            self._bytes += ending.size
            self._forget()
        self.now = made

    def lose(self) -> None:
        """Nothing is known any more, of no moment: the copy is given up. Nor of those that are taken up from now on: a
        reader may have found the copy just before."""
        self._let_go(self.now)
        while self._over:
            self._let_go(self._over.popleft()[0]())
        self.now = Moment()
        self.now.lost = True

    def restart(self) -> None:
        """Objects are known again: nobody reads yet."""
        self.now = Moment()

    def _forget(self) -> None:
        over = self._over
        while over:
            moment, before = over[0][0](), over[0][1]
            if moment is not None and self._bytes - before <= self.limit:
                return
            over.popleft()
            self._let_go(moment)

    @staticmethod
    def _let_go(moment: Moment[V] | None) -> None:
        if moment is not None:
            moment.lost = True  # before anything goes: who looks meanwhile looks at this last
            moment.was, moment.next = {}, None


class MomentReader(Generic[V]):
    """One reader's moment. Used by one thread at a time."""

    __slots__ = ("_at", "_left", "_was")

    def __init__(self, moment: Moment[V], limit: int = LIMIT) -> None:
        self._at = moment
        self._left = limit
        self._was: dict[bytes, V | None] | None = None
        """What all that changed since was at the moment, up to the one that `_at` is by now; None: nothing has."""

    def of(self, key: bytes, now: V | None) -> V | None:
        """What the object was; `now`: what it is, looked at before this call. OverError."""
        at = self._at
        if at.next is not None or at.lost:
            at = self._go_on()
        known = self._was
        if known is not None and (was := known.get(key, _ABSENT)) is not _ABSENT:
            return was  # type: ignore[return-value]
        if at.was and (was := at.was.get(key, _ABSENT)) is not _ABSENT:
            now = was  # type: ignore[assignment]
        if at.lost:
            raise OverError
        return now

    def changed(self) -> dict[bytes, V | None]:
        """All that is not what it was, and what it was; with the copy's lock held. OverError."""
        at = self._go_on()
        return {**at.was, **(self._was or {})}

    def _go_on(self) -> Moment[V]:
        at = self._at
        known = self._was = {} if self._was is None else self._was
        while True:
            was, after, lost = at.was, at.next, at.lost
            if lost:
                raise OverError
            if after is None:
                return at
            self._left -= at.size
            if self._left < 0:
                raise OverError
            for key, value in was.items():
                known.setdefault(key, value)
            self._at = at = after
