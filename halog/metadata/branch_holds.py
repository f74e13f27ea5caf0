"""This module holds a site's own log while a partition of it has parted from another site's: the branch that a merge
will read (M2).

holders/<partition>/site-<other>     from where that site has read this log up to, or all that was there when the
                                     parting was told first; whoever counts it prolongs it as long as it is told
holders/<partition>/branch-<other>   of a site whose branch was merged there: for a look at it afterwards

An operator who has no room for it lets go of it (`halog log release`): what is gone is not held anew. Once the other
site's history has this branch in it, nobody reads the branch to merge it. To undo a merge takes only what was decided,
which is in the log behind it, at both sites.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from halog.errors import NotFoundError, RefusedError
from halog.metadata import log_holds as retention
from halog.metadata.mirrors import HOLD_MS
from halog.ports import Coordinator

logger = logging.getLogger("halog.retention")

KEEP_S: Final = 60.0
"""How often a hold is prolonged: long before it is over, also where nodes are away for days."""


def begin(coordinator: Coordinator, partition: str, site: str) -> None:
    """Hold what is there, unless it is held already: the partition is about to be reported as parted from that site. A
    hold whose time is over, as of a site that was away for long, is begun anew: it ends with the next trim."""
    now = retention.holds(coordinator, partition).get(_site(site))
    if now is not None and (not now.until_ms or now.until_ms > retention.now_ms()):
        return
    first = 0 if now is None else now.offset
    try:
        retention.hold_the_rest(coordinator, partition, _site(site), first, _why(site), _until())
    except RefusedError as e:  # that they have parted is told all the same
        logger.warning("the branch of %s is not held for site %s: %s", partition, site, e)


def keep(coordinator: Coordinator, partition: str, told: str, sites: Iterable[str]) -> None:
    """Prolong what is held for any of these sites by another week: the parting goes on. Of three sites that have parted
    only one is `told`."""
    for site in sites:
        retention.prolong(coordinator, partition, _site(site), _until(), _why(site) if site == told else "")


def merged(coordinator: Coordinator, partition: str, site: str) -> None:
    """Hold for a week from now on, to look at what was and to undo the merge: the other site's history has this site's
    branch in it."""
    held = retention.holds(coordinator, partition)
    offsets = [held[name].offset for name in (_site(site), branch(site)) if name in held]
    if offsets:
        hold_branch(coordinator, partition, site, min(offsets))
    with suppress(NotFoundError):
        retention.release(coordinator, partition, _site(site))


def hold_branch(coordinator: Coordinator, partition: str, site: str, first: int = 0) -> None:
    """Hold what is there from `first` on, for a week from now on, at the site whose branch is merged at `site`."""
    why = f"the branch that is merged at site {site}"
    retention.hold_the_rest(coordinator, partition, branch(site), first, why, _until())


def branch(site: str) -> str:
    """Return the name of that hold."""
    return f"branch-{site}"


def _site(site: str) -> str:
    return f"site-{site}"


def _why(site: str) -> str:
    return f"for site {site}, which has gone on by itself, too"


def _until() -> int:
    return retention.now_ms() + HOLD_MS
