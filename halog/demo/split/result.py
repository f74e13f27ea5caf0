"""The result of a split that was healed: one document, exactly these keys."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Acknowledged:
    """Writes to single objects that a client was told are done."""

    west: int = 0
    east: int = 0


@dataclass(frozen=True)
class Conflicts:
    """Objects in the report of the merge. `delete_update`: deleted at one site and changed at the other, either way."""

    instance_added: int = 0
    key: int = 0
    state: int = 0
    delete_update: int = 0


@dataclass(frozen=True)
class Timings:
    """Seconds. From the cut to the first write acknowledged at the other site, the operator's command included; from
    the operator's `halog restore` until every partition is merged; from then until both sites have the same copies."""

    cut_to_serve: float | None = None
    restore: float | None = None
    follow: float | None = None


@dataclass(frozen=True)
class SplitResult:
    """What came out. An acknowledged write is `merged` if it stands, or is contained in a sum, `superseded` by a later
    one of its own branch, or in the report of conflicts with both states; else it is `unaccounted`."""

    ok: bool = False
    unaccounted: int = 0
    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    merged: int = 0
    superseded: int = 0
    conflicts: Conflicts = field(default_factory=Conflicts)
    undone_equal: bool = False
    timings: Timings = field(default_factory=Timings)

    def to_dict(self) -> dict[str, Any]:
        """As printed by `--format json`."""
        return asdict(self)
