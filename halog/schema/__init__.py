"""This package holds schemas: how classes are declared, and how their objects become bytes and come back, also after
the class changed.

It is pure: no I/O, no threads, no clock, no chance. It never imports by name and never unpickles or evaluates foreign
text. Annotations become *shapes*; shapes become codecs, Avro schemas and canonical definitions. A definition's hash is
the type id that stands in front of every object's bytes. See `declare`, `typeinfo`, `evolution`, `foreign`.
"""

from __future__ import annotations

from halog.schema.annotations import Decimals
from halog.schema.declare import managed
from halog.schema.definition import Definition
from halog.schema.foreign import ForeignType, decode_foreign
from halog.schema.methods import Binding, MethodInfo
from halog.schema.reference import Ref
from halog.schema.registry import DEFAULT, Registry
from halog.schema.typeinfo import TypeInfo

__all__ = [
    "DEFAULT",
    "Binding",
    "Decimals",
    "Definition",
    "ForeignType",
    "MethodInfo",
    "Ref",
    "Registry",
    "TypeInfo",
    "decode_foreign",
    "managed",
]
