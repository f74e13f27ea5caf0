"""This module is the table of a copy's roles: `TRANSITIONS[role][happening]` is the next role; a missing pair is a bug.

LOADING    reads the log up to where it ended at start; takes no part in elections
FOLLOWING  applies what the log accepts
ELECTING   the active node is gone: has asked the others for their positions
CLAIMING   won the election: the compare-and-set of the znode is under way
STARTING   has appended `EpochStarted`; reads up to it
OPENING    has appended `EpochOpened`, or waits for the merge that opens the epoch; reads up to it
ACTIVE     takes commits; reads nothing, its log comes back as acknowledgements
VERIFYING  an acknowledgement came at an unexpected offset: reads the gap like any reader (W3)
DRAINING   hands over: takes no commits, waits for those in flight
HANDING    has appended `HandedOver`; the hand-over cannot be called off any more (H4)
OFFLINE    this node has no quorum in one of its zones (Q1): takes part in nothing; the next role is LOADING
FAILED     this copy's history is not the log's, or the log no longer holds what it needs: rebuild
"""

from __future__ import annotations

import enum


class Role(enum.Enum):
    """A `Role` is what a copy does now; the module lists the roles."""

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
"""Roles in which this copy has not yet read what was in the log before: it shows nothing to anybody (P11)."""

CLAIMANT = frozenset({Role.CLAIMING, Role.STARTING, Role.OPENING})
"""Roles between winning an election and serving."""


def next_role(role: Role, happening: str) -> Role:
    """Return the next role, as the table has it. An AssertionError names role and happening where the table has no
    entry."""
    try:
        return TRANSITIONS[role][happening]
    except KeyError:
        raise AssertionError(f"no transition from {role.value!r} on {happening!r}") from None
