"""The role of one copy as a table: `TRANSITIONS[role][happening]` is the next role; a missing pair is a bug.

LOADING    reads the log up to where it ended at start; takes no part in elections
FOLLOWING  applies what the log accepts
ELECTING   the active is gone: asked the others for their positions
CLAIMING   won: the compare-and-set of the znode is under way
STARTING   `EpochStarted` is appended; reads up to it
OPENING    `EpochOpened` is appended, or what opens the epoch with a merge is waited for; reads up to it
ACTIVE     takes commits; reads nothing, its log comes back as acknowledgements
VERIFYING  an acknowledgement came at an unexpected offset: reads the gap like any reader (W3)
DRAINING   hands over: takes no commits, waits for those in flight
HANDING    `HandedOver` is appended; nothing can be called off any more (H4)
OFFLINE    this node has no quorum in one of its zones (Q1): takes part in nothing; behind it lies LOADING, never more
FAILED     this copy's history is not the log's, or the log no longer holds what it needs: rebuild
"""

from __future__ import annotations

import enum


class Role(enum.Enum):
    """What a copy does now; see the module."""

    LOADING = "loading"
    FOLLOWING = "following"
    ELECTING = "electing"
    CLAIMING = "claiming"
    STARTING = "starting"
    OPENING = "opening"
    ACTIVE = "active"
    VERIFYING = "verifying"
    DRAINING = "draining"
    HANDING = "handing"
    OFFLINE = "offline"
    FAILED = "failed"


_OUT = {"offline": Role.OFFLINE, "lost": Role.FAILED}
_STEP_DOWN = {"deposed": Role.FOLLOWING, "epoch ended": Role.FOLLOWING, **_OUT}

TRANSITIONS: dict[Role, dict[str, Role]] = {
    Role.LOADING: {"loaded": Role.FOLLOWING, **_OUT},
    Role.FOLLOWING: {"active gone": Role.ELECTING, "handed over to me": Role.CLAIMING, **_OUT},
    Role.ELECTING: {
        "won": Role.CLAIMING,
        "stand back": Role.FOLLOWING,
        "handed over to me": Role.CLAIMING,
        "deposed": Role.FOLLOWING,
        **_OUT,
    },
    Role.CLAIMING: {"claimed": Role.STARTING, "deposed": Role.FOLLOWING, **_OUT},
    Role.STARTING: {"started": Role.OPENING, **_STEP_DOWN},
    Role.OPENING: {"opened": Role.ACTIVE, **_STEP_DOWN},
    Role.ACTIVE: {"gap": Role.VERIFYING, "hand over": Role.DRAINING, **_STEP_DOWN},
    Role.VERIFYING: {"gap is dead": Role.ACTIVE, **_STEP_DOWN},
    Role.DRAINING: {"call off": Role.ACTIVE, "drained": Role.HANDING, **_STEP_DOWN},
    Role.HANDING: {"handed over": Role.FOLLOWING, **_STEP_DOWN},
    Role.OFFLINE: {"restored": Role.LOADING, "lost": Role.FAILED},
    Role.FAILED: {},
}

LEADING = frozenset({Role.ACTIVE, Role.VERIFYING, Role.DRAINING, Role.HANDING})
"""Roles in which this copy is the writer of an opened epoch."""

OUT = frozenset({Role.OFFLINE, Role.FAILED})
"""Roles in which this copy takes part in nothing."""

INCOMPLETE = frozenset({Role.LOADING, Role.OFFLINE})
"""Roles in which this copy has not yet read what the log had before: it shows nobody anything (P11)."""

CLAIMANT = frozenset({Role.CLAIMING, Role.STARTING, Role.OPENING})
"""Roles between winning an election and serving."""


def next_role(role: Role, happening: str) -> Role:
    """The table's answer; AssertionError naming both where it has none."""
    try:
        return TRANSITIONS[role][happening]
    except KeyError:
        raise AssertionError(f"no transition from {role.value!r} on {happening!r}") from None
