"""A command that is killed at any of its steps on the disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
STEPS = [(os, "replace"), (os, "open"), (os, "fsync"), (Path, "unlink")]


class KilledError(BaseException):
    """Stands for the end of the process: nothing of the command handles it."""


class Countdown:
    """Lets so many steps happen; the next one kills."""

    def __init__(self, left: int) -> None:
        self.left = left

    def counting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **more: Any) -> Any:
            if self.left == 0:
                raise KilledError
            self.left -= 1
            return real(*args, **more)

        return step


def killed_at_each_step(
    monkeypatch: pytest.MonkeyPatch, prepare: Callable[[], T], command: Callable[[T], object]
) -> Iterator[T]:
    """For each n, prepare anew, run the command until its n-th step on the disk, which does not happen, and yield what
    was prepared. It ends when the command had all its steps."""
    n = 0
    while not runs_through(monkeypatch, prepared := prepare(), command, n):
        yield prepared
        n += 1
    assert n > 5, "the steps of the command are not counted"


def runs_through(monkeypatch: pytest.MonkeyPatch, prepared: T, command: Callable[[T], object], steps: int) -> bool:
    """Does the command end within so many steps?"""
    countdown = Countdown(steps)
    with monkeypatch.context() as patch:
        for owner, name in STEPS:
            patch.setattr(owner, name, countdown.counting(getattr(owner, name)))
        try:
            command(prepared)
        except KilledError:
            return False
    return True
