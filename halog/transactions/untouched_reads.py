"""This module holds objects that a transaction has only looked at so far: their binding, and the check whether they are
as they were given.

Most objects are read and dropped, so they get the least that keeps every promise: no `ObjectEntry`, one object for the
garbage collector (its `__dict__` holds nothing the collector follows), and one check of all of them together at the
end. An `ObjectEntry` can be made later from what the object was made from; code that needs one calls `Reading.entries`
or `Bond.entry`, and all objects looked at get theirs. A bond is invisible to the collector, so it references its
transaction weakly: a transaction that is never ended can still be freed.
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
from halog.transactions.entry import ObjectEntry
from halog.transactions.space import Image, Space

if TYPE_CHECKING:
    from halog.transactions.reading import Reading

_refs: Final = sys.getrefcount


class TransactionHandle(msgspec.Struct, eq=False, gc=False):
    """A `TransactionHandle` stands for a transaction to the objects that it has looked at; they may outlive it."""

    tx: weakref.ref[Reading]
    kind: type[Reading]
    space: Space
    state: int
    """The state in which the transaction ended. Until it ends: the state of one that is dropped without an end."""

    def now(self) -> Reading:
        """Return the transaction; if it is gone, one without objects that gives the same errors."""
        tx = self.tx()
        if tx is None:
            tx = self.kind(self.space)
            tx.state = self.state
        return tx


class Bond(msgspec.Struct, eq=False, gc=False):
    """A `Bond` is the `Binding` of an object that was only looked at."""

    life: TransactionHandle
    image: Image

    def __reduce__(self) -> Any:
        """Make copies through pickle and deepcopy plain objects, as `ObjectEntry` does."""
        return type(None), ()

    def call(self, obj: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a method where the object is active (`Binding`)."""
        return self.entry().call(obj, name, args, kwargs)

    @property
    def ref(self) -> bytes:
        """Return the object's reference, as `ObjectEntry` has it."""
        return self.image.ref

    def entry(self) -> ObjectEntry:
        """Return the transaction's entry for the object; after its end, one without an object."""
        tx, image = self.life.now(), self.image
        return tx.entries.get(image.key) or ObjectEntry(tx, image.key, image.partition, image, image.ref)


def images(given: Sequence[Any]) -> list[Image]:
    """Return what the objects were made from, in the order they were looked at."""
    return [one.image for one in given if type(one) is Bond]


def untouched(objects: Collection[Any], given: Sequence[Any]) -> bool:
    """Has each object still the very values it was given, and no others?

    One check covers all objects, without a step of Python for each, and one list: looking at each image would be a
    dozen cache misses more per object. Each object's bond is among the values and unlike any other, so values of two
    objects cannot be confused.
    """
    dicts = [obj.__dict__ for obj in objects]
    now = chain.from_iterable(map(dict.values, dicts))
    return sum(map(len, dicts)) == len(given) and all(map(is_, now, given))


def let_go(objects: Collection[Any]) -> None:
    """Leave the objects of a transaction that is over: those that somebody else holds refuse assignments from now on.
    Objects that nobody holds cannot be assigned to, and ending one costs as much as making it did."""
    for obj in [obj for obj in objects if _refs(obj) > _ALONE]:
        end(obj)


_ALONE: Final = [_refs(obj) for obj in {0: object()}.values()][0]  # noqa: RUF015 - counted just as `let_go` counts
"""References to an object that only the collection holds."""
