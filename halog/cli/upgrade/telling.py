"""A command that upgrades says who it is, and writes its steps into the event history (U1, O2)."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from halog.cli.shared.event_log import note_or_say
from halog.events import UPGRADE, EventPlace, event
from halog.metadata.identity import who
from halog.runtime.support.clock import wall_ms
from halog.runtime.upgrade.record import UpgradeCommand

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.metadata.upgrades import Upgrade


def command_now() -> UpgradeCommand:
    """Return this command's mark for the record, drawn anew."""
    return UpgradeCommand(secrets.token_hex(8), who(), wall_ms())


def tell_step(connection: ClusterConnection, upgrade: Upgrade, step: str, cause: str, node: str = "") -> None:
    """Write a step into the event history. It is about who called the command, unless it is about a node."""
    by, now_ns = who(), time.time_ns()
    one = event(
        UPGRADE,
        EventPlace(connection.config.cluster.name, connection.name),
        name=f"{connection.name}/upgrade/{node}/{now_ns}",
        time_ms=now_ns // 1_000_000,
        node=node or by,
        cause=cause or f"{by} asked for it",
        more={"to": upgrade.to, "step": step, "by": by},
    )
    note_or_say(connection, [one])
