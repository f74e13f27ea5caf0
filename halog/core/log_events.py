"""What a copy asks of the log beside appends, and what it hears: does it answer?"""

from __future__ import annotations

import msgspec


class LogAnswered(msgspec.Struct, frozen=True):
    """The log has answered the question `round`, which was asked of it behind `AskLog`, and a session is there to
    append with."""

    round: int


class AskLog(msgspec.Struct, frozen=True):
    """Ask the log whether it answers for this partition, and report LogAnswered(round) once it does, however long that
    takes. A later question replaces an earlier one. `since_ms`: since when it is not known to."""

    round: int
    since_ms: int
    serves: bool = False
    """The copy is active, and only measures the log's time: no epoch waits for the answer."""
