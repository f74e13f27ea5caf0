"""A job that moves the objects of a change for the nodes (S1, T8): it announces itself, and they leave the bulk to it.

sweeps/<policy>    JSON: who (`by`), for which `version` of the mapping, and for how long it is believed (`for_ms`)
                   behind each renewal; by compare-and-set only. Whoever announces himself last is the one

Nothing depends on a job but who does the work: a node that believes an announcement only puts off looking at all
objects of its partitions, and it looks at all of them before it notes one as clean, whoever moved what. It believes it
for `for_ms`, at most `LONGEST_MS`, by its own clock, since it first saw this version of the znode. So no two clocks are
compared: a driver that dies, or whose clock is a year ahead, holds a change up for that long and no longer. A driver
that lives and does nothing is not renewed either: `beat` says that it does something.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final

import msgspec

from halog.errors import HalogError, RefusedError, UnreachableError, VersionError
from halog.ports import Coordinator, UnknownResult, Versioned

logger = logging.getLogger("halog.jobs")

FOR_MS: Final = 60_000
"""Longer than it takes to see that a driver was killed and to start it and its Spark anew, 15 to 30 s, so that it finds
the work it had."""
LONGEST_MS: Final = 120_000
"""No node believes an announcement for longer, whatever it says."""
RENEWALS: Final = 3
"""In the time of one announcement: two may be lost."""
SILENT_S: Final = 120.0
"""A driver that has done nothing for so long hangs: a micro-batch of Spark's takes seconds, a failover less."""
ATTEMPTS: Final = 10
"""At a znode that others change, too."""


class Announced(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands under `sweeps/<policy>`."""

    by: str
    """Of one run of one job; for people, too."""
    version: int
    for_ms: int = FOR_MS


_ANNOUNCED = msgspec.json.Decoder(Announced)


def path_of(policy: str) -> str:
    """The znode of a policy's job."""
    return f"sweeps/{policy}"


def _parse(found: Versioned) -> Announced | None:
    """None for what is no announcement: of a later version perhaps, which this node cannot leave anything to."""
    try:
        return _ANNOUNCED.decode(found.data)
    except msgspec.MsgspecError:
        return None


class Announcement:
    """A job's own. Use it in a with-block: it is renewed by a thread as long as `beat` is called now and then, and
    taken back at the end."""

    def __init__(self, coordinator: Coordinator, policy: str, announced: Announced, silent_s: float = SILENT_S) -> None:
        self._coordinator, self._policy, self._announced = coordinator, policy, announced
        self._silent_s = silent_s
        self._ended = threading.Event()
        self._beaten = time.monotonic()
        self._lost: RefusedError | None = None
        self._thread = threading.Thread(target=self._keep, name="announcement", daemon=True)

    def __enter__(self) -> Announcement:
        self._put(first=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        with suppress(HalogError, UnknownResult):  # it ends by itself
            self._take_back()

    def beat(self) -> None:
        """The job does something. RefusedError if another one has taken its place."""
        self._beaten = time.monotonic()
        if self._lost is not None:
            raise self._lost

    def _keep(self) -> None:
        while not self._ended.wait(self._announced.for_ms / 1_000 / RENEWALS):
            if time.monotonic() - self._beaten > self._silent_s:
                continue
            try:
                self._put(first=False)
            except RefusedError as error:
                self._lost = error
                return
            except HalogError as error:
                logger.warning("the job of policy %s could not say that it lives: %s", self._policy, error)

    def _put(self, *, first: bool) -> None:
        """RefusedError unless it is the `first` time, and if another job has taken this one's place since."""
        path, data = path_of(self._policy), msgspec.json.encode(self._announced)
        for _ in range(ATTEMPTS):
            found = self._coordinator.get(path)
            if not first and (found is None or found.data != data):
                raise RefusedError(
                    f"policy {self._policy}: another job was started later and goes on with this one's work; its "
                    "checkpoint directory, not this one's, is the one to start again with",
                    policy=self._policy,
                )
            with suppress(VersionError, UnknownResult):  # looked at again
                if found is not None:
                    self._coordinator.set(path, data, found.version)
                    return
                if self._coordinator.create(path, data):
                    return
        raise UnreachableError(f"nobody said whether znode {path} was set; try again")

    def _take_back(self) -> None:
        found = self._coordinator.get(path_of(self._policy))
        if found is not None and _parse(found) == self._announced:
            self._coordinator.delete(path_of(self._policy), found.version)


class Jobs:
    """What a node believes."""

    def __init__(self, coordinator: Coordinator, clock: Callable[[], float] = time.monotonic) -> None:
        self._coordinator, self._clock = coordinator, clock
        self._seen: dict[str, tuple[Versioned, float]] = {}
        """By policy: what stands there, and when this node saw it first."""

    def at_work(self, policy: str, version: int) -> str | None:
        """The job that says that it moves the objects of this change, if it is believed."""
        with suppress(HalogError):  # what was seen is believed as long as it said
            self._look(policy)
        found, since = self._seen.get(policy, (None, 0.0))
        announced = None if found is None else _parse(found)
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
