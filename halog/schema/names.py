"""This module checks names of types and fields.

Names become Avro names, and type names appear in configuration and on the command line: ASCII, dotted only for nested
classes. The module never looks at what is named.
"""

from __future__ import annotations

import re
from typing import Any, Final

from halog.errors import DeclarationError

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z")
MAX_NAME: Final = 100
"""The limit of every name halog puts into topics and znodes; Kafka's own limit is 249 with prefix and suffix."""


def check_name(name: str, what: str) -> str:
    """Return the name if Avro and configuration can carry it; DeclarationError if not."""
    if len(name) > MAX_NAME or not NAME.match(name):
        shown = repr(name[:MAX_NAME])
        raise DeclarationError(f"{what} {shown}: a name is made of A-Z a-z 0-9 _ and at most {MAX_NAME} long")
    return name


def local_name(cls: type[Any]) -> str:
    """Return a class's name without its module and without the functions it was defined in."""
    return cls.__qualname__.rpartition("<locals>.")[2]
