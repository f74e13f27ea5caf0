"""A `Tell` is what a copy tells operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from halog.events import Kind


class Tell(msgspec.Struct, frozen=True):
    """A `Tell` is something an operator should know (Q4): what kind, which node it is about ("": the one that tells),
    and why."""

    kind: Kind
    node: str
    cause: str
    more: Mapping[str, Any] = {}
    once: str = ""
    """The id of something that several nodes tell, because none of them can know whether another has told it: it counts
    once. "": only this node tells it."""
    logged: bool = False
    """Is it for this node's log file alone? The history then has it from whoever did it."""
