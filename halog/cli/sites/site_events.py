"""Which site is to serve, as an operator has said it: told into the event history by the command that did it (F6).

No node can tell it: the coordinator's table says what is so, and not who had it so, or that he knew it may fork.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from halog.cli.shared.event_log import note
from halog.cli.shared.messages import say
from halog.events import SITES_ASKED, At, event
from halog.metadata.identity import who

if TYPE_CHECKING:
    from halog.cli.shared.connection import Connection


class Asked(NamedTuple):
    """What became of one partition."""

    partition: str
    action: str
    """"promote", "demote" or "let-go"."""
    site: str
    """The other one."""
    to: str
    """Who serves from now on."""
    epoch: int
    """The last one of this site before."""
    may_fork: bool = False
    """Nobody knows what the other site does meanwhile."""
    lacks: str = ""

    @property
    def what(self) -> str:
        """In words."""
        forks = ", and the history may split" if self.may_fork else ""
        match self.action:
            case "promote":
                return f"site {self.to} serves it in place of site {self.site}{forks}"
            case "demote":
                return f"it was given to site {self.to}{forks}"
            case _:
                return f"commits go on without site {self.site}{forks}"


def tell(connection: Connection, asked: Iterable[Asked], reason: str) -> None:
    """Who has done it, and why. It is done, whether or not the history takes it."""
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
                At(connection.config.cluster.name, connection.name, one.partition, one.epoch),
                name=f"{connection.name}/{one.action}/{one.partition}/{now_ms}",
                time_ms=now_ms,
                node=by,
                cause=f"by {by}" + (f": {reason}" if reason else ""),
                more=more,
            )
        )
    if told and not note(connection, *told):
        say("the event history does not have it: its log does not answer")
