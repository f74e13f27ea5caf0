"""Znodes that several may write: by compare-and-set, and again until it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from halog.errors import VersionError
from halog.ports import Coordinator, UnknownResult

ATTEMPTS: Final = 10
"""Each fails only because somebody else was quicker, or an answer was lost."""


def put(coordinator: Coordinator, path: str, made: Callable[[bytes | None], bytes | None]) -> bool:
    """Write what `made` makes of what is there, which is None where nothing is; None from it: that stays. What it makes
    may be written twice, where an answer was lost. False: others were quicker each time."""
    for _ in range(ATTEMPTS):
        found = coordinator.get(path)
        data = made(None if found is None else found.data)
        if data is None:
            return True
        try:
            if found is None:
                if coordinator.create(path, data):
                    return True
            else:
                coordinator.set(path, data, found.version)
                return True
        except (VersionError, UnknownResult):
            continue
    return False
