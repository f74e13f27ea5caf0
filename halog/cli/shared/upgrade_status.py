"""This module says what overviews show of an upgrade: how far it is, and whether anybody is at it (U1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from halog.metadata.nodes import NodeInfo
from halog.metadata.upgrades import COMPLETE, RUNNING, Upgrade, driven_by, under_way
from halog.ports import Coordinator


class UpgradeView(msgspec.Struct, frozen=True):
    """Describes the upgrade that is not over."""

    to: str
    state: str
    back: bool
    done: int
    of: int
    driven_by: str
    """Who is at it now; "": no command is."""
    why: str

    @property
    def stands_still(self) -> bool:
        """Does it go on only once somebody gives a command?"""
        return not self.driven_by

    def text(self) -> str:
        """Return it on one line."""
        what = f"back from halog {self.to} under way" if self.back else f"to halog {self.to} under way"
        said = f"{what} ({self.done} of {self.of})"
        if self.state == COMPLETE:
            return f"{said}: every node runs it; `halog upgrade finish` ends it"
        if self.state == RUNNING and not self.stands_still:
            return said
        why = f": {self.why}" if self.why else ""
        return f"{said}, stands still{why}; go on with `halog upgrade {'rollback' if self.back else 'start'}`"


def view_of(upgrade: Upgrade | None, driven: str) -> UpgradeView | None:
    """Return the view of an upgrade; None where none is under way."""
    if upgrade is None or upgrade.over:
        return None
    u = upgrade
    return UpgradeView(u.to, u.state, u.back, len(u.done), len(u.order), driven, u.why)


def upgrade_of(coordinator: Coordinator) -> UpgradeView | None:
    """Return the view of the upgrade that is under way."""
    return view_of(under_way(coordinator), driven_by(coordinator))


def upgrade_json(view: UpgradeView | None) -> dict[str, Any] | None:
    """Return the view as a document."""
    return None if view is None else {**msgspec.to_builtins(view), "stands_still": view.stands_still}


def releases(nodes: Iterable[NodeInfo]) -> Mapping[str, list[str]]:
    """Return the hosting nodes by the release that they run."""
    found: dict[str, list[str]] = {}
    for info in sorted(nodes, key=lambda i: i.name):
        if info.hosts:
            found.setdefault(info.version, []).append(info.name)
    return found
