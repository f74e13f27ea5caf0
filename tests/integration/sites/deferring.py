"""The application of the other tests, which leaves every conflict to an operator."""

from __future__ import annotations

import halog
from restore.compensation import Conflict, Defer, Verdict
from tests.integration.cluster.fleet import Aircraft


@halog.on_conflict(Aircraft)
def ask(conflict: Conflict) -> Verdict:
    return Defer("ask the tower")
