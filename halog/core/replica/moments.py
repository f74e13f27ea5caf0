"""This module keeps moments of one copy: what each object was at that time, whatever became of it since. Readers take
no lock (R5).

The theory: whoever changes objects first writes down, in the moment that ends, what they were. A reader looks at the
object first, and then at what was written down since its moment began. So it sees the object before the change, or what
was written down before the change. A moment points to the next one and never back, and only readers hold moments that
are over. So what nobody can ask for any more is freed by itself, and where nobody reads nothing is written down.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Final, Generic, TypeVar

V = TypeVar("V")

LIMIT: Final = 16 << 20
"""So many bytes of earlier objects are kept for readers of one copy; readers of older moments are told that theirs is
over. At 200 bytes an object this is what some 40,000 changes leave."""

ENTRY: Final = 200
"""An entry takes so many bytes beside its value."""

_ABSENT: Final = object()


class OverError(Exception):
    """An `OverError` says that the objects of a moment are not known any more."""


class Moment(Generic[V]):
    """A `Moment` is one state of a copy, from the end of a change to the end of the next one."""

    __slots__ = ("__weakref__", "lost", "next", "size", "was")

    def __init__(self) -> None:
        self.size = 0
        """The number of bytes that are written down here."""
        self.was: dict[bytes, V | None] = {}
        """What the next change found, by index key. It grows while that change is under way."""
        self.next: Moment[V] | None = None
        """The moment after that change. None while this moment is current, or while objects are being changed."""
        self.lost = False


class Moments(Generic[V]):
    """Keeps the moments of one copy. Objects are changed under the copy's lock, between `begin` and `end`."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.now: Moment[V] | None = Moment()
        """None while objects change and nobody reads. A new reader then waits for the lock."""
        self.noting: dict[bytes, V | None] | None = None
        """Where to write down what is about to change; None if nobody needs it."""
        self.limit = limit
        self._ending: Moment[V] | None = None
        self._depth = self._bytes = 0
        self._over: deque[tuple[weakref.ref[Moment[V]], int]] = deque()
        """Moments that somebody held when they ended, oldest first, each with the bytes that were written down before
        it."""

    def begin(self) -> None:
        """Prepare a change of objects. If `noting` is set, `note` is called for each object first."""
        self._depth += 1
        if self._depth > 1 or self.now is None:
            return
        held = weakref.ref(self.now)
        self.now = None  # from here on no reader can take it
        self._ending = ending = held()
        if ending is not None:
            self.now = ending
            self.noting = ending.was

    def note(self, key: bytes, was: V | None, size: int) -> None:
        """Write down an object as it is now, of `size` bytes: once for each object, before its first change."""
        assert self._ending is not None
        self._ending.was[key] = was
        self._ending.size += size + ENTRY

    def end(self) -> None:
        """Finish the change, and begin the next moment."""
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
        """Forget all moments: the copy is given up. Moments taken from now on are lost too, since a reader may have
        found the copy just before."""
        self._let_go(self.now)
        while self._over:
            self._let_go(self._over.popleft()[0]())
        self.now = Moment()
        self.now.lost = True

    def restart(self) -> None:
        """Begin a new moment: objects are known again, and nobody reads yet."""
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
            moment.lost = True  # first: a concurrent reader looks at this last
            moment.was, moment.next = {}, None


class MomentReader(Generic[V]):
    """A `MomentReader` reads one moment. It is used by one thread at a time."""

    __slots__ = ("_at", "_left", "_was")

    def __init__(self, moment: Moment[V], limit: int = LIMIT) -> None:
        self._at = moment
        self._left = limit
        self._was: dict[bytes, V | None] | None = None
        """What all objects that changed since were at the moment, up to the moment in `_at` now; None: nothing has
        changed."""

    def of(self, key: bytes, now: V | None) -> V | None:
        """Return what the object was. `now` is what the object is, looked up before this call. Raises OverError."""
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
        """Return all objects that have changed, as they were. The copy's lock must be held. Raises OverError."""
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
