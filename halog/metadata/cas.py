"""This module writes znodes that several may write: by compare-and-set, and again until it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from halog.errors import UnreachableError, VersionError
from halog.ports import Coordinator, UnknownResult, Versioned

ATTEMPTS: Final = 10
"""Each fails only because somebody else was quicker, or because an answer was lost."""
BACK_S: Final = 2.0
"""A connection that breaks is there again within some 100 ms, where the server lives."""
LOOK_S: Final = 0.05
"""Between looks whether it is."""


def write(coordinator: Coordinator, path: str, data: bytes, version: int) -> int:
    """Write the znode in the place of this version, -1: where nothing is; return the version it has then. Raises
    VersionError if somebody else was quicker."""
    if version >= 0:
        return coordinator.set(path, data, version)
    if not coordinator.create(path, data):
        raise VersionError(f"somebody made {path} meanwhile: repeat this", path=path)
    return 0


class WriteAttempt:
    """A `WriteAttempt` writes a znode only if it is still as it was `found`."""

    def __init__(self, coordinator: Coordinator, path: str, found: Versioned | None) -> None:
        self._coordinator = coordinator
        self._path = path
        self.found = found
        self.failed = False
        """Was somebody else quicker, or did no answer come?"""
        self.unanswered = False
        """Did no answer come? Then it may be written."""

    def write(self, data: bytes) -> bool:
        """Write the znode; return whether that is certain. If it is not, the next attempt looks at what is there."""
        try:
            if self.found is None:
                return self._coordinator.create(self._path, data)
            self._coordinator.set(self._path, data, self.found.version)
        except (VersionError, UnknownResult) as e:
            self.failed = True
            self.unanswered = isinstance(e, UnknownResult)
            return False
        return True


def attempts(
    coordinator: Coordinator, path: str, most: int = ATTEMPTS, *, synced: bool = True
) -> Iterator[WriteAttempt]:
    """Yield attempts at changing a znode, for the caller to end once one has written it, or is not to. `synced`: look
    again only once reads are as new as the failure. Where they end by themselves, others were quicker each time, or no
    answer came."""
    for _ in range(most):
        attempt = WriteAttempt(coordinator, path, coordinator.get(path))
        yield attempt
        if synced and attempt.failed:
            _sync(coordinator, path, BACK_S if attempt.unanswered else 0.0)


def _sync(coordinator: Coordinator, path: str, within_s: float) -> None:
    """See to it that reads are new enough, once there is a connection again: the one that has lost an answer is being
    replaced. UnreachableError: it is away for longer."""
    until = time.monotonic() + within_s
    while True:
        try:
            return coordinator.sync(path)
        except UnreachableError:
            if time.monotonic() >= until:
                raise
        time.sleep(LOOK_S)


def put(coordinator: Coordinator, path: str, made: Callable[[bytes | None], bytes | None]) -> bool:
    """Write what `made` makes of what is there; `made` gets None where nothing is. If it returns None, what is there
    stays. What it makes may be written twice, where an answer was lost. Returns False if others were quicker each
    time."""
    for attempt in attempts(coordinator, path, synced=False):
        data = made(None if attempt.found is None else attempt.found.data)
        if data is None or attempt.write(data):
            return True
    return False
