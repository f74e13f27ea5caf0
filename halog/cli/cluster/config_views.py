"""This module has what `halog config` shows: two configurations key by key, and the event of an activation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from halog.cli.shared.event_log import note
from halog.cli.shared.messages import say
from halog.cli.shared.output import emit_table
from halog.config import Config
from halog.config.changes import MOVES, REFUSED, KeyChange, key_text
from halog.events import ACTIVATED, EventPlace, event
from halog.metadata.config_versions import Version, says_the_same
from halog.runtime.placement.config_admission import Facts, facts, judged, turned_away

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection

DIGITS = 12
"""So many digits of a digest tell a few hundred versions apart."""


class ConfigComparison(NamedTuple):
    """Holds the comparison of two configurations. `left` is None where nothing was ever activated."""

    left: Version | None
    right: str
    same: bool
    changes: list[KeyChange]
    away: str = ""
    """The keys whose objects are moving to where another configuration has them, each with what to do."""

    @property
    def refused(self) -> str:
        """Return the keys that are refused, each with the reason; "": none."""
        return "; ".join(f"{c.text}: {c.why}" for c in self.changes if c.effect == REFUSED)

    @property
    def moving(self) -> list[str]:
        """Return the policies whose objects move, unless something is refused."""
        moving = dict.fromkeys(c.key[1] for c in self.changes if c.effect == MOVES)
        return [] if self.refused else list(moving)

    @property
    def document(self) -> dict[str, Any]:
        """Return the comparison for programs."""
        changes = [{"key": c.text, "was": c.was, "now": c.now, "effect": c.effect, "why": c.why} for c in self.changes]
        return {"version": None if self.left is None else self.left.number, "with": self.right, "changes": changes}


def compare(connection: ClusterConnection, left: Version | None, right: Config, name: str) -> ConfigComparison:
    """Return what differs, and what would become of it on the cluster as it is now."""
    same = left is not None and says_the_same(left, right)
    there = known(connection)
    changes = judged(None if left is None else left.parsed(checked=False), right, there)
    away = "; ".join(f"{key_text(key)}: {why}" for key, why in turned_away(right, there))
    return ConfigComparison(left, name, same, changes, away)


def known(connection: ClusterConnection) -> Facts:
    """Return the facts of the cluster that a change is judged by. A cluster that does not exist yet has none."""
    types = {d.name: d.bases for d in connection.definitions.all()} if connection.tables else {}
    nodes, own = connection.nodes.values(), connection.config
    return facts(connection.coordinator, own.cluster.name, connection.tables, nodes, types, own.other_sites)


def show(compared: ConfigComparison) -> None:
    """Show the comparison as a table of keys."""
    if compared.left is None:
        say(
            "nothing was ever activated: nodes go by their files, and `halog node list` will show who must be restarted"
        )
    elif not compared.changes:
        say(f"{compared.right} and version {compared.left.number} say the same")
    if compared.changes:
        left = "active" if compared.left is None else f"version {compared.left.number}"
        rows = [(c.text, _text(c.was), _text(c.now), c.effect, c.why) for c in compared.changes]
        emit_table(["key", left, compared.right, "takes effect", ""], rows)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return "(a table)" if isinstance(value, Mapping) else json.dumps(value, ensure_ascii=False)


def when(version: Version) -> str:
    """Return when a version was activated, in UTC, to the second."""
    return datetime.fromtimestamp(version.made_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def tell(connection: ClusterConnection, version: Version) -> bool:
    """Write the activation into the event history; where no node runs, nobody else would. Return False if the history
    does not take it."""
    why = f"by {version.by} from {version.file}" + (f": {version.comment}" if version.comment else "")
    more = {"version": version.number, "by": version.by, "file": version.file, "digest": version.digest}
    told = event(
        ACTIVATED,
        EventPlace(connection.config.cluster.name, connection.name),
        name=f"{connection.name}/{version.made_ms}/1",
        time_ms=version.made_ms,
        node=version.by,
        cause=why,
        more={**more, "comment": version.comment},
    )
    return note(connection, told)
