"""What is to become of an acknowledged commit: the table of docs/guides/durability.md, which
`tests/unit/docs/test_durability.py` compares with this one."""

from __future__ import annotations

from enum import Enum

EVENTS = ("process", "machine", "nodes", "outage", "brokers", "power")
"""The columns: a node's process is killed, its machine is lost, both nodes are killed at once; all brokers are killed
at once, or lose power, or do so together with the nodes."""
UNWAITED = ("NO_SYNC", "NO_SYNC")
"""The combination whose commits are in memory only until the log has them. Others that do not wait for the log are in a
replica's store."""


class Fate(Enum):
    """Of what was acknowledged."""

    SERVED = "the log has all of it, and so has whoever asks"
    KEPT = "the log lacks some, which a node's own copy holds: for an operator to decide on"
    LOST = "some of it is nowhere"


def fate(local: str, remote: str, event: str) -> Fate:
    """With one sync replica."""
    if event == "nodes":
        return Fate.LOST if (local, remote) == UNWAITED else Fate.SERVED
    if local == "SYNC" or event in ("process", "machine", "outage"):
        return Fate.SERVED
    return Fate.KEPT if event == "brokers" or remote == "SYNC" else Fate.LOST
