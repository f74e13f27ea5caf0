"""Says how often a node looks at other sites, and how long it waits for them.

A node goes by `PACES`. Whoever cannot wait for them gives others to `halog.testing.cluster.Cluster`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from halog.metadata.branch_holds import KEEP_S
from restore.touched import MOST


class SitePaces(NamedTuple):
    """Holds the paces of what one node does about other sites. Those that end with `_s` are in seconds."""

    home_s: float = 30.0
    """Nodes of a home site that start at the same time have so long: each of them is up in some seconds."""
    watch_s: float = 5.0
    """The other site's tables are read this often: a split lasts until somebody decides, so seconds do not matter."""
    count_s: float = 2.0
    """It is looked this often what has parted, and what was not found out yet is tried again."""
    recount_s: float = 30.0
    """What each side has done is counted on this often: deciding about a split takes minutes."""
    keep_s: float = KEEP_S
    """The hold on the own branch of a split is renewed this often."""
    most: int = MOST
    """How many records of one branch are counted."""
    report_s: float = 2.0
    """A standing is written this often where something changed; it costs the coordinator a few ms for each
    partition."""
    hold_s: float = 60.0
    """The hold on the other site's log is renewed this often."""
    retry_s: float = 30.0
    """Pause between attempts at a partition that cannot be mirrored: it may take an operator."""
    stuck_s: float = 5.0
    """If everything brought is in the log for so long, and the copy here has not taken it, mirroring begins again."""
    stale_s: float = 10.0
    """If a standing stays the same for so long, the node that should have written another one does not mirror."""
    gone_s: float = 10.0
    """A site may be silent for so long: servers that are started again answer by then."""
    served_s: float = 2.0
    """Pause between questions whether the site that a log was given to serves by now: it does in about a second."""
    repeat_s: float = 0.5
    """All positions are repeated to a site whose commits wait this often, changed or not: a site is away after several
    of these."""
    given_look_s: float = 10.0
    """Pause between looks whether another site has given this one something that nobody takes."""
    given_s: float = 90.0
    """This is half as long again as the command of a planned switch tries by itself, before it gives back what it has
    not taken. (A command that was told to try for longer runs beside this: whichever is first takes the partition.)"""


PACES: Final = SitePaces()
