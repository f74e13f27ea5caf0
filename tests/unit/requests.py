"""Tells requests between nodes apart, for the faults that they are to meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halog.adapters.memory import SentFrame
from halog.runtime.rpc import frames


def asks(*kinds: type[Any], at: str = "", of_all: bool = False) -> Callable[[SentFrame], bool]:
    """Requests of these kinds; of votes the last one, or `of_all`. `at`: of one node, by its address."""

    def concerns(sent: SentFrame) -> bool:
        r = frames.decode_incoming(sent.frame)
        return isinstance(r, kinds) and (of_all or getattr(r, "last", True)) and at in ("", sent.address)

    return concerns
