"""Interrupts at a chosen line: what Ctrl-C, or a library for time limits, may meet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def interrupted_at(line: int, by: type[BaseException], *modules: str) -> Iterator[None]:
    """`by` is raised at this one of the lines, and ends of functions, of these modules and packages that are run from
    now on, counted from 0; once."""
    left = line

    def step(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if not frame.f_globals.get("__name__", "").startswith(modules):
            return None
        if event in ("line", "return"):
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise by
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        yield
    finally:
        sys.settrace(before)
