"""What a copy tells operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from halog.events import Kind


class Tell(msgspec.Struct, frozen=True):
    """Something an operator should know (Q4): what kind, which node it is about ("": the one that tells), and why."""

    kind: Kind
    node: str
    cause: str
    more: Mapping[str, Any] = {}
    once: str = ""
    """The id of what others tell, too, who cannot know whether it has been told: it counts once. "": nobody does."""
    logged: bool = False
    """For this node's log file alone: the history has it from whoever did it."""
