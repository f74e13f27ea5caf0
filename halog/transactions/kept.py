"""This module warns of changes to lists, dicts and nested objects that an application took out of an object and keeps
after the transaction.

They stay what they are, so a change cannot be refused (in the object itself it is refused, see `ended_objects`); it is
logged. Few are remembered, and not for long: each is looked at when the next transaction begins, once more later, and
when the node is closed. Only values that somebody else still holds are looked at, which costs no more than encoding
them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from halog.schema.scalars import Encoder
from halog.schema.typeinfo import TypeInfo

logger = logging.getLogger("halog.transactions")

AGAIN_S: Final = 1.0
"""Seconds before the second look."""
MOST: Final = 256
"""So many values are remembered of one transaction, and for the second look."""


class _One(msgspec.Struct):
    key: bytes
    field: str
    value: Any
    encode: Encoder
    data: bytes
    due: float = 0.0

    def is_changed(self) -> bool:
        try:
            return self.encode(self.value) != self.data
        except Exception:  # what does not fit was put in
            return True


class TakenOutValues:
    """`TakenOutValues` holds the values of one node's ended transactions that somebody still holds. Thread-safe.
    `pending` is not empty if there is something to look at; one look tells that."""

    def __init__(self, name_of: Callable[[bytes], str]) -> None:
        self._name_of = name_of
        self._new: list[_One] = []
        self._later: deque[_One] = deque(maxlen=MOST)
        self._told: set[str] = set()
        self._lock = threading.Lock()
        self.pending: list[bool] = []

    def note(self, info: TypeInfo, key: bytes, values: dict[str, Any]) -> None:
        """Remember the values of an object whose transaction is about to end."""
        if len(self._new) >= MOST:
            return
        for name, is_held, encode in info.kept:
            if is_held(map(values.get, (name,))):
                value = values[name]
                try:
                    data = encode(value)
                except Exception:  # this value was never committed
                    continue
                with self._lock:
                    self._new.append(_One(key, f"{info.name}.{name}", value, encode, data))
                    self.pending[:] = [True]

    def leave_behind(self) -> None:
        """Forget everything in a forked child: the parent warns, and a thread that is not here may hold the lock."""
        self._lock = threading.Lock()
        self._new = []
        self.pending[:] = []
        self._later.clear()

    def look(self, *, last: bool = False) -> None:
        """Warn of what was changed. `last`: there will be no other look."""
        now = time.monotonic()
        if not (self._new or last or (self._later and self._later[0].due <= now)):
            return
        with self._lock:
            again = [self._later.popleft() for one in [*self._later] if last or one.due <= now]
            new = self._new
            self._new = []
        for one in (*again, *new):
            if one.is_changed():
                self._tell(one)
        for one in () if last else new:
            one.due = now + AGAIN_S
            with self._lock:
                self._later.append(one)
        with self._lock:
            self.pending[:] = [True] if self._new or self._later else []

    def _tell(self, one: _One) -> None:
        if one.field in self._told:
            return
        self._told.add(one.field)
        logger.warning(
            "%s: a %s that was taken out of %s was changed after its transaction had ended: that is lost, unless it "
            "was meant as a copy (%s(…) makes one); get the object again in a new transaction to change it",
            one.field,
            type(one.value).__name__,
            self._name_of(one.key),
            type(one.value).__name__ if type(one.value) in (list, dict) else "copy.copy",
        )
