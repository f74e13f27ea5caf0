"""The application's classes, known to every node and client."""

from __future__ import annotations

import halog


@halog.managed(key="tail")
class Aircraft:
    """One aircraft, wherever it is kept."""

    tail: str
    landings: int = 0
    miles: int = 0

    def land(self, miles: int) -> int:
        """One landing more; runs on the node that is active for this aircraft."""
        self.landings += 1
        self.miles += miles
        return self.landings
