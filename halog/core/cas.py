"""How a compare-and-set went; see `halog.core.events`."""

from __future__ import annotations

import enum


class Cas(enum.Enum):
    """What is known of it."""

    OK = "ok"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
