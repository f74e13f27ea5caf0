"""This module keeps which job moves the objects of a change for the nodes (S1, T8): it announces itself, and they leave
the bulk to it.

sweeps/<policy>    JSON: the job (`by`), for which `version` of the mapping, and for how long it is believed (`for_ms`)
                   behind each renewal; by compare-and-set only. The last job that announces itself is the one

A job only changes who does the work. A node that believes an announcement only puts off looking at all objects of its
partitions, and it looks at all of them before it notes one as clean, whoever moved what. It believes it for `for_ms`,
at most `LONGEST_MS`, by its own clock, since it first saw this version of the znode. So no two clocks are compared: a
driver that dies, or whose clock is a year ahead, holds a change up for that long and no longer. A driver that lives and
does nothing is not renewed either (`halog.runtime.remap.announcement`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from halog.errors import HalogError
from halog.ports import Coordinator, Versioned

FOR_MS: Final = 60_000
"""Longer than it takes to see that a driver was killed and to start it and its Spark anew, 15 to 30 s, so that it finds
the work it had."""
LONGEST_MS: Final = 120_000
"""No node believes an announcement for longer, whatever it says."""


class JobAnnouncement(msgspec.Struct, frozen=True):
    """Holds what stands under `sweeps/<policy>`."""

    by: str
    """Names one run of one job; for people, too."""
    version: int
    for_ms: int = FOR_MS


_ANNOUNCED = msgspec.json.Decoder(JobAnnouncement)


def path_of(policy: str) -> str:
    """Return the path of the znode of a policy's job."""
    return f"sweeps/{policy}"


def parse(found: Versioned) -> JobAnnouncement | None:
    """Return what stands there; None for what is no announcement: of a later version perhaps, which this node cannot
    leave anything to."""
    try:
        return _ANNOUNCED.decode(found.data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class MoveJobs:
    """Knows the jobs that a node believes."""

    def __init__(self, coordinator: Coordinator, clock: Callable[[], float] = time.monotonic) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._seen: dict[str, tuple[Versioned, float]] = {}
        """By policy: what stands there, and when this node saw it first."""

    def at_work(self, policy: str, version: int) -> str | None:
        """Return the job that says that it moves the objects of this change, if it is believed."""
        with suppress(HalogError):  # what was seen is believed as long as it said
            self._look(policy)
        found, since = self._seen.get(policy, (None, 0.0))
        announced = None if found is None else parse(found)
        if announced is None or announced.version != version:
            return None
        lasts_s = min(announced.for_ms, LONGEST_MS) / 1_000
        return announced.by if self._clock() - since < lasts_s else None

    def _look(self, policy: str) -> None:
        found = self._coordinator.get(path_of(policy))
        if found is None:
            self._seen.pop(policy, None)
        elif policy not in self._seen or self._seen[policy][0] != found:
            self._seen[policy] = found, self._clock()
