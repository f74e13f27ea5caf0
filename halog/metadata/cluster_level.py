"""This module keeps the level of a cluster, in level (U1).

level    JSON: `ClusterLevel`

A level says what may be written to the cluster's logs, znodes and stores. Nothing of a higher one is, so that every
process that knows the level reads all there is. It is raised when all nodes run a halog that knows the higher one, and
never lowered.
"""

from __future__ import annotations

from typing import Final

import msgspec

from halog.core import tolerant
from halog.core.tolerant import TolerantDecoder, TolerantStruct
from halog.errors import CoordinatorError, VersionMismatchError
from halog.metadata.cas import attempts
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator, Versioned
from halog.release import RELEASE

LEVEL: Final = 1
"""The highest level that this halog knows."""

LEVEL_PATH: Final = "level"


class ClusterLevel(TolerantStruct, frozen=True):
    """A `ClusterLevel` says what may be written, and who said so."""

    level: int
    floor: int = 1
    """The lowest level of which something may still be there."""
    since_ms: int = 0
    by: str = ""


FIRST: Final = ClusterLevel(level=1)
"""The level of a cluster that says none."""

_LEVEL = ZnodeFormat(TolerantDecoder(ClusterLevel).decode, "is no level")


def read_level(coordinator: Coordinator) -> ClusterLevel:
    """Return the cluster's level. CoordinatorError if what stands there cannot be read."""
    return _LEVEL.read(coordinator, LEVEL_PATH) or FIRST


def raise_level(coordinator: Coordinator, level: int, by: str, at_ms: int) -> ClusterLevel:
    """Raise the cluster's level, and return what stands there then. What is as high already stays: a level is never
    lowered. `floor` stays what it was: what was written under it is still there. Raises CoordinatorError if others were
    quicker each time."""
    for attempt in attempts(coordinator, LEVEL_PATH):
        before = FIRST if attempt.found is None else _LEVEL.decode(LEVEL_PATH, attempt.found.data)
        if before.level >= level:
            return before
        now = msgspec.structs.replace(before, level=level, since_ms=at_ms, by=by)
        if attempt.write(tolerant.encode(now)):
            return now
    raise CoordinatorError(f"znode {LEVEL_PATH} cannot be written: others were quicker each time; repeat this")


def check_level(coordinator: Coordinator, cluster: str) -> None:
    """Raise VersionMismatchError where this halog does not know the cluster's level: it could read, and write, what it
    does not understand."""
    _check(read_level(coordinator), cluster)


def check_found(found: Versioned | None, cluster: str) -> None:
    """Do the same with what stands there; None: nothing does. CoordinatorError if it cannot be read."""
    if found is not None:
        _check(_LEVEL.decode(LEVEL_PATH, found.data), cluster)


def _check(now: ClusterLevel, cluster: str) -> None:
    if now.level > LEVEL:
        by = f" (raised by {now.by})" if now.by else ""
        raise VersionMismatchError(
            f"cluster {cluster} is at level {now.level}{by}; this process runs halog {RELEASE}, which knows levels up "
            f"to {LEVEL}; nothing was done: it needs a later halog",
            level=now.level,
            known=LEVEL,
            release=RELEASE,
        )
