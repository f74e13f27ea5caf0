"""This module hands objects that belong elsewhere to the nodes, which move them (S1, T8).

Each request goes to the node that is then active for the objects' partition. It maps each of them anew, so handing over
twice is harmless. Some requests are under way at once, of different partitions where there is a choice; more have to
wait. A request that cannot be served now is repeated until a deadline; after that the job ends, and can be started
again. An object that can never be moved holds up no other, and is counted. The nodes report it, too, and do not end the
change before it is moved.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final

from halog.errors import AvailabilityError, ConflictError, HalogError, OutcomeUnknownError, RefusedError, RemappedError
from halog.runtime.rpc import frames
from halog.runtime.rpc.router import Router
from spark_jobs.mover import Counts, Misplaced

logger = logging.getLogger("halog.spark")

MOVED: Final = "moved"
STAYED: Final = "stayed"
AGAIN: Final = "remapped_again"
FAILED: Final = "refused"
"""Names of counts. Stayed: belongs where it is, is gone, or has moved before. Remapped again: was changed since it was
found, or while it was moved, and so was mapped anew. Refused: requests with an object that can never be moved."""

REQUEST: Final = 500
"""How many objects a request has: five transactions of the default size, a fraction of a second."""
AT_ONCE: Final = 8
"""How many requests are under way. Nodes commit moves of several partitions side by side; more would only wait
there."""
WAITING: Final = 2 * AT_ONCE
"""How many requests may be unanswered, including those that wait here. Their keys are in memory, 50 kB each."""
DEADLINE_S: Final = 60.0
"""How long one request is repeated: a failover takes under a second, a restart of brokers some ten."""
ATTEMPT_S: Final = 10.0
"""How long one attempt takes: a slow node on a busy machine is not asked again while it still works on the request."""
AGAIN_S: Final = 0.05
"""The pause before objects that others were changing are asked for again."""

RETRIED = (ConflictError, AvailabilityError, OutcomeUnknownError)


class NodeMover:
    """A `NodeMover` is a `Mover` for one change, of mapping `version`. `beat` is called with everything that is handed
    over; what it raises ends the job. Use it in a with-block."""

    def __init__(
        self,
        router: Router,
        version: int,
        beat: Callable[[], None] = lambda: None,
        deadline_s: float = DEADLINE_S,
        *,
        request: int = REQUEST,
    ) -> None:
        """Begin with nothing handed over; a request hands over `request` objects."""
        self._request = request
        self._router = router
        self._version = version
        self._beat = beat
        self._deadline_s = deadline_s
        self._pool = ThreadPoolExecutor(AT_ONCE, "halog-move")
        self._room = threading.BoundedSemaphore(WAITING)
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._error: Exception | None = None
        self._said = False
        self._closed = threading.Event()

    def __enter__(self) -> NodeMover:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed.set()
        self._pool.shutdown(cancel_futures=True)

    # --- by the job's thread ---

    def move(self, partition: str, objects: Misplaced) -> Counts:
        """Hand these objects over; `settle` tells what became of them (see Mover)."""
        for some in objects.slices(self._request):
            self._wait_for_room(1)
            self._pool.submit(self._work, partition, some)
        return {}

    def gone(self, partition: str, keys: Sequence[bytes]) -> Counts:
        """Do nothing: the nodes have seen them go (see Mover)."""
        return {}

    def settle(self) -> Counts:
        """Wait until every request is answered (see Mover)."""
        self._wait_for_room(WAITING)
        for _ in range(WAITING):
            self._room.release()
        with self._lock:
            counts = self._counts
            self._counts = {}
        return counts

    def _wait_for_room(self, places: int) -> None:
        """Take so many places. It raises what a request has failed with."""
        for taken in range(places):
            while not self._room.acquire(timeout=1.0):
                self._beat()  # the job does not hang here: each request has its deadline
            if self._error is not None:
                for _ in range(taken + 1):
                    self._room.release()
                raise self._error
        self._beat()

    # --- by the pool's threads ---

    def _work(self, partition: str, objects: Misplaced) -> None:
        try:
            if self._error is None:
                self._move(partition, objects)
        except Exception as error:
            self._error = self._error or error
        finally:
            self._room.release()

    def _move(self, partition: str, objects: Misplaced) -> None:
        """Repeat the request until everything has moved that can, or the deadline is over."""
        keys, versions = list(objects.keys), list(objects.lsns)
        frame = frames.Move(partition, keys, self._version, versions)
        until, moved = time.monotonic() + self._deadline_s, 0
        while True:
            try:
                reply = self._router.ask(partition, frame, max(0.0, until - time.monotonic()), self._closed.is_set)
            except RemappedError as error:
                raise RefusedError(
                    f"partition {partition} serves another mapping than version {self._version} by now: the change "
                    "was turned back; nothing is left to this job",
                    partition=partition,
                ) from error
            except RETRIED as error:
                moved += self._count(error)
                if time.monotonic() >= until or self._closed.is_set():
                    raise
                time.sleep(AGAIN_S)
            except HalogError as error:
                moved += self._count(error)
                self._say(partition, error)
                self._add(FAILED, 1)
                self._add(STAYED, len(keys) - moved - 1)
                return
            else:
                assert isinstance(reply, frames.MoveReply)
                self._add(MOVED, reply.moved)
                self._add(AGAIN, reply.again)
                self._add(STAYED, len(keys) - moved - reply.moved)
                return

    def _count(self, error: HalogError) -> int:
        """Count what had moved all the same, and return how many."""
        moved = int(error.evidence.get("moved", 0))
        self._add(MOVED, moved)
        self._add(AGAIN, int(error.evidence.get("again", 0)))
        return moved

    def _add(self, name: str, n: int) -> None:
        if n:
            with self._lock:
                self._counts[name] = self._counts.get(name, 0) + n

    def _say(self, partition: str, error: HalogError) -> None:
        """Log it once: there may be thousands."""
        if not self._said:
            self._said = True
            logger.warning("an object of %s cannot be moved, and others may be alike: %s", partition, error.message)
