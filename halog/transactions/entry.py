"""This module holds one object inside a transaction: its committed state, its state now, and the binding that its
methods ask where to run.

It never talks to a node. Changes are found by comparing bytes, not values: `1 == True` must not hide a wrong type, nor
`1.0 == 1` a changed one. (`work_set.compared` skips objects that still hold the very values they were given.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from halog.backend import Write
from halog.core.log.records import CREATE, DELETE, UPDATE
from halog.errors import FieldTypeError
from halog.schema.methods import BINDING
from halog.schema.renewing import renewed
from halog.schema.typeinfo import TypeInfo
from halog.transactions.ended_objects import end

if TYPE_CHECKING:
    from halog.transactions.reading import Reading
    from halog.transactions.space import Image

_new = object.__new__


class ObjectEntry(msgspec.Struct, eq=False):  # one is made with most objects read: half a plain class's cost
    """Holds the object under one index key, inside one transaction."""

    tx: Reading
    key: bytes
    partition: str
    image: Image | None = None
    ref: bytes | None = None
    """The object's reference; None: there is no object now."""
    obj: Any = None
    known: bool = True
    """Was the committed state read (`image`, or its absence)?"""
    pending: bytes | None = None
    """The encoded value that a call on another node has left, until the object is next looked at."""
    made: bool = False
    """Was its object given to `create`?"""

    def __reduce__(self) -> Any:
        """Make copies and pickles of an object plain objects, bound to no transaction."""
        return type(None), ()

    def call(self, obj: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a method where the object is active (`Binding`)."""
        return self.tx.call(self, obj, name, args, kwargs)

    # --- the object ---

    def get(self) -> Any:
        """Return the Python object, made when first asked for; None if there is none now."""
        if self.obj is None and self.ref is not None:
            self._make()
        return self.obj

    def _make(self) -> None:
        image = self.image
        if self.pending is not None:
            info, read = self.tx.space.reader_of(self.pending[:8])
            cls, values = info.cls, read(self.pending)
            self.pending = None
        else:
            assert image is not None
            cls, values = image.cls, image.fresh()
        self.obj = obj = _new(cls)
        if image is not None and image.values is values and image.flat:
            obj.__dict__ = d = values.copy()
        else:
            d = obj.__dict__
            d.update(values)
        d[BINDING] = self

    def detach(self) -> None:
        """Let the Python object go: it was deleted, or another instance took its place."""
        obj = self.obj
        self.obj = None
        if obj is not None:
            nothing = obj.__dict__[BINDING] = ObjectEntry(self.tx, self.key, self.partition)
            nothing.made = self.made
            self.made = False
            end(obj)

    def assume(self, values: dict[str, Any], had: dict[str, Any] | None = None) -> None:
        """Give the existing Python object these values.

        Its lists, dicts and nested objects stay the same Python objects, so references that were taken out of it stay
        valid. Attributes that begin with _ stay, too. Other attributes that are no fields were worked out from fields
        (`functools.cached_property`), and go. `had`: what counts as the object's attributes until then. An interruption
        leaves a whole object, and the step can be done again.
        """
        obj = self.obj
        d, info, met = obj.__dict__ if had is None else had, type(obj).__halog__, set[int]()
        for name in info.inside:
            if name in values:
                values[name] = renewed(d.get(name), values[name], met)
        values[BINDING] = self
        values.update({n: d[n] for n in others(info, d) if n.startswith("_")})
        object.__setattr__(obj, "__dict__", values)

    # --- changes ---

    def writes(self) -> list[Write]:
        """Return what would have to be written now, in order; FieldTypeError if a value does not fit."""
        image, ref = self.image, self.ref
        if ref is None:
            return [] if image is None else [self._delete(image)]
        if image is not None and image.ref == ref:
            data = self.changed(image)
            return [] if data is None else [Write(UPDATE, ref, self.key, data, image.version)]
        create = Write(CREATE, ref, self.key, self._value(), -1)
        return [create] if image is None else [self._delete(image), create]

    def _delete(self, image: Image) -> Write:
        return Write(DELETE, image.ref, self.key, None, image.version)

    def _value(self) -> bytes:
        if self.obj is None:
            assert self.pending is not None
            return self.pending
        return encode(self.tx.space.info_of(type(self.obj)), self.obj)

    def changed(self, image: Image) -> bytes | None:
        """Return the new bytes of an object that was read, or None if it is as it was."""
        obj = self.obj
        if obj is None:
            return self.pending
        data = self._value()
        return None if data == image.data else data


def others(info: TypeInfo, d: dict[str, Any]) -> list[str]:
    """Return the attributes of an object that are no fields, and that it alone has."""
    if len(d) <= len(info.fields) + (BINDING in d):
        return []
    return [name for name in d if name not in info.fields and name != BINDING]


def encode(info: TypeInfo, obj: Any) -> bytes:
    """Return the object's bytes. FieldTypeError, also for an attribute that is no field: it would be lost in
    silence."""
    for name in others(info, obj.__dict__):
        if not name.startswith("_") and not hasattr(info.cls, name):
            raise FieldTypeError(
                f"{info.name}.{name}: not a field of the class, so it would be lost; declare it, or begin its name "
                "with _ if it should not be kept",
                type=info.name,
                field=name,
            )
    return info.encode(obj)
