"""An operator says which site should serve; the command that did it writes that into the event history (F6).

No node can tell it: the coordinator's table says what is so, but not who ordered it, nor that he knew it may fork.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from halog.cli.shared.event_log import note_or_say
from halog.events import SITES_ASKED, EventPlace, event
from halog.metadata.identity import who

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection


class SiteChange(NamedTuple):
    """Says what became of one partition."""

    partition: str
    action: str
    """The action is "promote", "demote" or "let-go"."""
    site: str
    """The other site."""
    to: str
    """The site that serves from now on."""
    epoch: int
    """The last epoch of this site before."""
    may_fork: bool = False
    """True if nobody knows what the other site does meanwhile."""
    lacks: str = ""

    @property
    def what(self) -> str:
        """Return it in words."""
        forks = ", and the history may split" if self.may_fork else ""
        match self.action:
            case "promote":
                return f"site {self.to} serves it in place of site {self.site}{forks}"
            case "demote":
                return f"it was given to site {self.to}{forks}"
            case _:
                return f"commits go on without site {self.site}{forks}"


def tell(connection: ClusterConnection, asked: Iterable[SiteChange], reason: str) -> None:
    """Write who has done it, and why. It is done, whether or not the history takes it."""
    by = who()
    told = []
    for one in asked:
        now_ms = time.time_ns() // 1_000_000
        more = {
            "what": one.what,
            "action": one.action,
            "site": one.site,
            "to": one.to,
            "may_fork": one.may_fork,
            "lacks": one.lacks,
            "by": by,
            "reason": reason,
        }
        told.append(
            event(
                SITES_ASKED,
                EventPlace(connection.config.cluster.name, connection.name, one.partition, one.epoch),
                name=f"{connection.name}/{one.action}/{one.partition}/{now_ms}",
                time_ms=now_ms,
                node=by,
                cause=f"by {by}" + (f": {reason}" if reason else ""),
                more=more,
            )
        )
    note_or_say(connection, told)
