"""This module writes a node's audit entries to the cluster's topic, by a thread of its own (O4, Q5).

Whoever notes an entry never waits: it goes into a bounded queue, and is tried again while the log is away. What the
queue cannot hold is counted, and told once there is room: by an entry, and by an event. What is refused or fails may
come in floods, and from strangers: of one principal's such requests the first is written at once, and the others of the
next minute as one entry with their count. The thread begins with the first entry.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from halog.audit import DONE, LOST, REQUEST, TEXT_CHARS, AuditEntry
from halog.events import AUDIT_LOST
from halog.ports import LogJournal
from halog.runtime.events.history import History
from halog.runtime.events.retried_journal import RetriedJournal

logger = logging.getLogger("halog.audit")

MAX_WAITING: Final = 1_000
"""Entries kept while the log is away."""
AGAIN_S: Final = 0.5
"""Pause after a write that failed."""
GATHERED_S: Final = 60.0
"""So long what one principal repeats is gathered into one entry."""
MOST_GATHERED: Final = 100
"""So many kinds of repeated requests are told apart at a time; beyond that they are one."""
OTHERS: Final = "others"

_Kind = tuple[str, str, str]


class _GatheredEntries:
    """Holds how often something was repeated since its first entry, until when, and the last one."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.count = 0
        self.last: AuditEntry | None = None


class AuditTrail:
    """A node's `AuditTrail` writes the audit of one run. Thread-safe; only `close` ever waits."""

    def __init__(
        self,
        history: History,
        journal: Callable[[], LogJournal],
        *,
        again_s: float = AGAIN_S,
        gathered_s: float = GATHERED_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write nothing yet. `history`: says which node this is, which run of it, and is told of what is lost."""
        self.dropped = 0
        """Entries that the audit does not hold."""
        self._history = history
        self._journal = RetriedJournal("the audit", journal, logger)
        self._again_s = again_s
        self._gathered_s = gathered_s
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._under_way = 0
        self._gathered: dict[_Kind, _GatheredEntries] = {}
        self._count = 0
        self._gap = 0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def note(
        self,
        principal: str,
        command: str,
        outcome: str,
        *,
        proven: bool,
        role: str = "",
        process: str = "",
        address: str = "",
        arguments: Mapping[str, object] | None = None,
        reason: str = "",
        gathered: bool = False,
    ) -> None:
        """Note a request. Never blocks and never raises. `gathered`: one that is done may come in floods, too."""
        try:
            with self._changed:
                entry = AuditEntry(
                    id=self._new_id(),
                    time_ms=time.time_ns() // 1_000_000,
                    cluster=self._history.cluster,
                    by=self._history.node,
                    kind=REQUEST,
                    principal=principal[:TEXT_CHARS],  # it is kept for a minute, and a stranger may have said it
                    proven=proven,
                    role=role,
                    process=process,
                    address=address,
                    command=command,
                    outcome=outcome,
                    arguments=dict(arguments or {}),
                    reason=reason,
                )
                if (outcome == DONE and not gathered) or not self._gather(entry):
                    self._keep(entry)
                if self._thread is None and not self._closing.is_set():
                    self._thread = threading.Thread(target=self._work, name="halog-audit", daemon=True)
                    self._thread.start()
                self._changed.notify()
        except Exception:  # what cannot be noted must not fail the caller
            logger.exception("%s of %s is not in the audit", command, principal)

    def _new_id(self) -> str:
        self._count += 1
        return f"{self._history.node}/{self._history.run}/audit/{self._count}"

    def _gather(self, entry: AuditEntry) -> bool:
        """Say whether this is told later, with others."""
        kind = entry.principal, entry.command, entry.outcome
        if kind not in self._gathered and len(self._gathered) >= MOST_GATHERED:
            kind = OTHERS, "", entry.outcome
        found = self._gathered.get(kind)
        if found is None:
            self._gathered[kind] = _GatheredEntries(self._clock() + self._gathered_s)
            return False
        found.count += 1
        found.last = entry
        return True

    def _tell_gathered(self, now: float) -> None:
        """Keep one entry for each kind whose time is over. Called with the lock held."""
        for kind in [k for k, found in self._gathered.items() if found.until <= now]:
            found = self._gathered.pop(kind)
            if found.last is not None:
                principal = {"principal": OTHERS, "proven": False} if kind[0] == OTHERS else {}
                self._keep(msgspec.structs.replace(found.last, count=found.count, **principal))

    def _keep(self, entry: AuditEntry) -> None:
        if len(self._waiting) + self._under_way < MAX_WAITING and not self._closing.is_set():
            self._waiting.append(entry.to_bytes())
        else:
            self._lose(entry.count)

    def _lose(self, count: int) -> None:
        self.dropped += count
        self._gap += count

    # --- the thread ---

    def _work(self) -> None:
        while batch := self._next():
            noted = self._journal.note(batch)
            with self._changed:
                self._under_way = 0
                self._lose(noted.refused)
                self._waiting.extendleft(reversed(batch[len(batch) - noted.left :]))
                if noted.left and self._closing.is_set():
                    self.dropped += len(self._waiting)
                    return
            if noted.left:
                self._closing.wait(self._again_s)
            else:
                self._tell_gap()

    def _next(self) -> list[bytes]:
        """Return what waits; nothing if the node closes and all is written."""
        with self._changed:
            while not self._waiting and not self._closing.is_set():
                first = min((found.until for found in self._gathered.values()), default=None)
                self._changed.wait(None if first is None else max(0.0, first - self._clock()))
                self._tell_gathered(self._clock())
            batch = list(self._waiting)
            self._waiting.clear()
            self._under_way = len(batch)
            return batch

    def _tell_gap(self) -> None:
        """Say how many entries are missing, once there is room again."""
        with self._changed:
            if not self._gap or self._waiting or self._closing.is_set():
                return
            count, self._gap = self._gap, 0
            why = "the log was away for longer than entries can wait, or refused them as too large"
            lost = AuditEntry(
                id=self._new_id(),
                time_ms=time.time_ns() // 1_000_000,
                cluster=self._history.cluster,
                by=self._history.node,
                kind=REQUEST,
                principal=f"node {self._history.node}",
                proven=False,
                role="",
                process=self._history.node,
                address="",
                command="",
                outcome=LOST,
                reason=why,
                count=count,
            )
            self._keep(lost)
        self._history.tell(AUDIT_LOST, why, more={"count": count})

    def close(self, timeout_s: float = 1.0) -> None:
        """Write what waits and what was gathered, if the log takes it in time, and end the thread."""
        with self._changed:
            for found in self._gathered.values():
                found.until = 0.0
            self._tell_gathered(0.0)
            self._closing.set()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._journal.close()
        if self.dropped:
            logger.warning("%d entries are not in the audit", self.dropped)
