"""This module writes znodes that several may write: by compare-and-set, and again until it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from halog.errors import VersionError
from halog.ports import Coordinator, UnknownResult

ATTEMPTS: Final = 10
"""Each fails only because somebody else was quicker, or because an answer was lost."""


def put(coordinator: Coordinator, path: str, made: Callable[[bytes | None], bytes | None]) -> bool:
    """Write what `made` makes of what is there; `made` gets None where nothing is. If it returns None, what is there
    stays. What it makes may be written twice, where an answer was lost. Returns False if others were quicker each
    time."""
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
