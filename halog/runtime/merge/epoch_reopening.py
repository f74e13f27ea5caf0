"""Ends an epoch and opens the next one with the records of a merge: the driver's side of
`halog.core.active.epoch_merge`.

Whatever happens between the two epochs, the next one must open, with or without these records: the partition serves
nobody meanwhile. So a failure is reported only once it is open.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from halog.core import effects as fx, events as ev, results as res
from halog.core.sites.mirror import Checkpoint
from halog.errors import DeadlineError
from halog.runtime.merge.merge_paces import PACES
from restore.replay import Opening

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

AGAIN_S: Final = 0.5
"""Pause between attempts."""

OPEN_S: Final = 90.0
"""An epoch has so long to open, or to be given up."""

BACK_S: Final = 10.0
"""This node has so long to serve again, if it is to."""

Due = dict[str, "queue.SimpleQueue[fx.MergeDue | res.Result]"]
"""By partition: the queue of whoever waits for its epoch to be opened."""


def hand_over(due: Due, copy: Copy, e: fx.MergeDue) -> None:
    """Tell whoever waits for it that the epoch was started that a merge is to open. With the copy's lock held."""
    waiting = due.get(copy.name)
    if waiting is not None:
        waiting.put(e)


Made = Callable[[fx.MergeDue], list[bytes]]
"""Makes the records that open the epoch; if there are none, it opens as any other."""


class EpochLost(Exception):
    """Is raised when the epoch is over, and nobody knows with what the next one opens, or on which node: begin
    again."""


class EpochReopening:
    """An `EpochReopening` reopens the epoch of one partition."""

    def __init__(self, host: Host, copy: Copy, due: Due, settle_s: float = PACES.settle_s) -> None:
        self._host = host
        self._copy = copy
        self._due = due
        self._settle_s = settle_s
        self._made = self._asked = False
        self._error: BaseException | None = None
        self.before: Checkpoint
        """Where the log stood before the epoch was opened."""

    def open(self, floor: int, made: Made, told: Callable[[str], None]) -> bool:
        """Wait until an epoch above `floor` has opened with the records of `made`; False if it made none. `told` hears
        why it takes long. EpochLost; DeadlineError; whatever `made` raises: then the epoch has opened without."""
        until = time.monotonic() + self._settle_s
        while True:
            result = self._attempt(floor, made)
            if self._error is not None:
                self._serves()
                raise self._error
            if isinstance(result, res.Success):
                return True
            if self._asked and not self._made:
                return False
            if isinstance(result, res.InactiveCopy | res.Unknown):  # it may have opened all the same: to be begun again
                raise EpochLost
            if time.monotonic() >= until:
                raise DeadlineError(f"the epoch of {self._copy.name} did not end, or did not open again: {result}")
            told(str(result))
            if self._host.pause(AGAIN_S):
                raise EpochLost

    def _serves(self) -> None:
        until = time.monotonic() + BACK_S
        while not self._copy.serving and time.monotonic() < until:
            if self._host.pause(0.05):
                raise EpochLost

    def _attempt(self, floor: int, made: Made) -> res.Result:
        """Try once, and return the result."""
        told: queue.SimpleQueue[fx.MergeDue | res.Result] = queue.SimpleQueue()
        self._made = False
        self._asked = False
        self._due[self._copy.name] = told
        try:
            self._copy.question(told.put, lambda token: ev.MergeAsked(token, floor), served=False)
            while True:
                try:
                    said = told.get(timeout=OPEN_S)
                except queue.Empty:
                    raise DeadlineError(f"the epoch of {self._copy.name} did not open") from None
                if not isinstance(said, fx.MergeDue):
                    return said
                self._copy.post(ev.MergeMade(said.token, said.epoch, self._safely(made, said)))
        finally:
            self._due.pop(self._copy.name, None)

    def _safely(self, made: Made, e: fx.MergeDue) -> list[bytes]:
        self._asked = True
        self._error = None
        self.before = Checkpoint(e.offset, e.state)
        try:
            records = made(e)
        except BaseException as error:  # if the epoch does not open, nobody serves the partition
            self._error = error
            return []
        self._made = bool(records)
        return records


def opening_of(e: fx.MergeDue) -> Opening:
    """Return the epoch that was started."""
    return Opening(e.epoch, e.state, int.from_bytes(e.horizon, "big"), e.mapper_version, dict(e.decided))
