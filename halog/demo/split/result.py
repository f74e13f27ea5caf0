"""This module holds the result of a split that was healed: one document, exactly these keys."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class AcknowledgedWrites:
    """Counts writes to single objects that each site's client was told are done."""

    west: int = 0
    east: int = 0


@dataclass(frozen=True)
class Conflicts:
    """Counts objects in the report of the merge. `delete_update`: deleted at one site and changed at the other, either
    way."""

    instance_added: int = 0
    key: int = 0
    state: int = 0
    delete_update: int = 0


@dataclass(frozen=True)
class Timings:
    """Holds seconds. `cut_to_serve`: from the cut to the first write acknowledged at the other site, the operator's
    command included. `restore`: from the operator's `halog restore` until every partition is merged. `follow`: from
    then until both sites have the same copies."""

    cut_to_serve: float | None = None
    restore: float | None = None
    follow: float | None = None


@dataclass(frozen=True)
class SplitResult:
    """Holds what came out. An acknowledged write is `merged` if it stands, or is contained in a sum; `superseded` if a
    later one of its own branch replaced it; or it is in the report of conflicts with both states. Else it is
    `unaccounted`."""

    ok: bool = False
    unaccounted: int = 0
    acknowledged: AcknowledgedWrites = field(default_factory=AcknowledgedWrites)
    merged: int = 0
    superseded: int = 0
    conflicts: Conflicts = field(default_factory=Conflicts)
    undone_equal: bool = False
    timings: Timings = field(default_factory=Timings)

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `--format json` prints."""
        return asdict(self)
