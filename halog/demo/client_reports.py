"""This module reads what a client process reports, on a thread of its own, and notices a client that will never be
done."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from halog.demo.processes import Child
from halog.demo.scene import Scene
from halog.errors import DeadlineError, HalogError


class ClientReports:
    """A `ClientReports` holds a client's reports and shows them in a scene. With `stall_s` it takes a client for stuck
    that has finished no row for so many seconds."""

    def __init__(self, child: Child, scene: Scene, *, stall_s: float | None = None) -> None:
        self.child = child
        self.scene = scene
        self.stall_s = stall_s
        self.done: dict[str, Any] | None = None
        """The last report of a client that has done all its work."""
        self.error: str | None = None
        self.first: float | None = None
        """When the client's first work was acknowledged, by the machine's clock, if it says so."""
        self.moved = time.monotonic()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self.child.said:
            said = json.loads(line)
            if "error" in said:
                self.error = said["error"]
                continue
            if said["rows"] != self.scene.done:
                self.moved = time.monotonic()
            self.first = said.get("first")
            self.scene.progress(said, time.monotonic())
            if said.get("done"):
                self.done = said

    def check(self) -> None:
        """Raise HalogError if the client will never be done."""
        if self.done is not None:
            return
        if not self.child.running:
            self._thread.join(1.0)
            if self.done is None:
                raise HalogError(f"the {self.child.name} ended early: {self.error or self.child.last_words()}")
        if self.stall_s is not None and time.monotonic() - self.moved > self.stall_s:
            raise DeadlineError(f"the client finished no row for {self.stall_s:.0f} s; see {self.child.log}")
