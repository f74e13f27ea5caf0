"""Objects that a transaction has only looked at so far: what binds them, and whether they are as they were given.

Most objects are read and dropped, so they get the least that keeps every promise: no `Entry`, one thing for the garbage
collector (the object; its `__dict__` holds nothing it follows), and one look at all of them together at the end. The
theory: an `Entry` can be made later from what the object was made from, so whoever needs one asks
(`Reading.entries`, `Bond.entry`) and all those looked at get theirs. A bond is invisible to the collector, so it knows
its transaction weakly: one that is never ended can still be freed.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Collection, Sequence
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any, Final

import msgspec

from halog.transactions.ended_objects import end
from halog.transactions.entry import Entry
from halog.transactions.space import Image, Space

if TYPE_CHECKING:
    from halog.transactions.reading import Reading

_refs: Final = sys.getrefcount


class Life(msgspec.Struct, eq=False, gc=False):
    """A transaction, as the objects it has looked at know it; they may outlive it."""

    tx: weakref.ref[Reading]
    kind: type[Reading]
    space: Space
    state: int
    """In which it ended; until then, what becomes of one that nobody ends."""

    def now(self) -> Reading:
        """The transaction; if it is gone, one without objects that says the same in errors."""
        tx = self.tx()
        if tx is None:
            tx = self.kind(self.space)
            tx.state = self.state
        return tx


class Bond(msgspec.Struct, eq=False, gc=False):
    """`Binding` of an object that was only looked at."""

    life: Life
    image: Image

    def __reduce__(self) -> Any:
        """As `Entry`'s: copies through pickle and deepcopy are bound to nothing."""
        return type(None), ()

    def call(self, obj: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`Binding`: run a method where the object is active."""
        return self.entry().call(obj, name, args, kwargs)

    @property
    def ref(self) -> bytes:
        """As `Entry`'s."""
        return self.image.ref

    def entry(self) -> Entry:
        """The transaction's entry for the object; after its end, one without an object."""
        tx, image = self.life.now(), self.image
        return tx.entries.get(image.key) or Entry(tx, image.key, image.partition, image, image.ref)


def images(given: Sequence[Any]) -> list[Image]:
    """What the objects were made from, in the order they were looked at."""
    return [one.image for one in given if type(one) is Bond]


def untouched(objects: Collection[Any], given: Sequence[Any]) -> bool:
    """Has each object still the very values it was given, and no others?

    Asked of all at once, without a step of Python for each, and of one list: what they were made from would be a dozen
    cache misses an object more. Each one's bond is among the values and unlike any other, so they cannot be confused.
    """
    dicts = [obj.__dict__ for obj in objects]
    now = chain.from_iterable(map(dict.values, dicts))
    return sum(map(len, dicts)) == len(given) and all(map(is_, now, given))


def let_go(objects: Collection[Any]) -> None:
    """Their transaction is over and about to drop them: those that somebody else holds refuse assignments from now on.
    What nobody holds cannot be assigned to, and ending it costs as much as making it did."""
    for obj in [obj for obj in objects if _refs(obj) > _ALONE]:
        end(obj)


_ALONE: Final = [_refs(obj) for obj in {0: object()}.values()][0]  # noqa: RUF015 - counted just as `let_go` counts
"""References to an object that only the collection holds."""
