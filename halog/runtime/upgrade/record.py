"""This module says what the record of an upgrade becomes when a command begins, goes on, pauses, turns back or ends it
(U1). It is arithmetic only; `halog.metadata.upgrades.change` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from halog.errors import NothingToDoError, RefusedError
from halog.metadata.nodes import NodeInfo
from halog.metadata.upgrades import FINISHED, PAUSED, RUNNING, Upgrade
from halog.runtime.upgrade.order import hosting, release_for


class UpgradeCommand(NamedTuple):
    """An `UpgradeCommand` is who changes the record, and when."""

    run: str
    by: str
    now_ms: int


def begun(
    before: Upgrade | None, to: str, order: Sequence[str], nodes: Mapping[str, NodeInfo], command: UpgradeCommand
) -> Upgrade:
    """Return the record of an upgrade that begins, or that goes on. `order`: of all nodes there are; those that
    are new come last. RefusedError if another one is under way."""
    if before is None or before.over:
        now = Upgrade(to=to, order=tuple(order), since_ms=command.now_ms)
    elif before.to != to:
        raise RefusedError(
            f"an upgrade to halog {before.to} is under way; nothing was changed. `halog upgrade status` shows it; end "
            "it with `halog upgrade finish` or `halog upgrade rollback` first",
            to=before.to,
        )
    else:
        now = before if not before.back else msgspec.structs.replace(before, back=False, done=())
        left = (n for n in now.order if n in order)
        now = msgspec.structs.replace(now, order=tuple(dict.fromkeys((*left, *order))))
    return _driven(still_proved(_noting(now, nodes), nodes), command)


def turned_back(before: Upgrade | None, level: int, nodes: Mapping[str, NodeInfo], command: UpgradeCommand) -> Upgrade:
    """Return the record of an upgrade whose nodes go back to what they ran. RefusedError if the level was raised above
    what one of these releases knows: nothing may run it any more."""
    if before is None or before.over:
        raise NothingToDoError("no upgrade is under way; nothing was changed")
    late = [f"halog {before.before[n]} of {n} knows levels up to {k}" for n, k in before.knew.items() if k < level]
    if late:
        raise RefusedError(
            f"the cluster is at level {level}: {'; '.join(late)}; nothing was changed. A level is never lowered",
            level=level,
        )
    now = before if before.back else msgspec.structs.replace(before, back=True, done=())
    return _driven(still_proved(now, nodes), command)


def still_proved(upgrade: Upgrade, nodes: Mapping[str, NodeInfo]) -> Upgrade:
    """Return the record without those among `done` that are registered with another release than they were proved to
    run: somebody restarted them by hand since then."""
    runs = {n: i.version for n, i in hosting(nodes).items()}
    done = tuple(n for n in upgrade.done if n not in runs or release_for(upgrade, n) in ("", runs[n]))
    return upgrade if done == upgrade.done else msgspec.structs.replace(upgrade, done=done)


def paused(before: Upgrade | None, command: UpgradeCommand) -> Upgrade:
    """Return the record of an upgrade that is to stand still."""
    if before is None or before.state != RUNNING:
        state = "no upgrade is under way" if before is None or before.over else f"the upgrade is {before.state} already"
        raise NothingToDoError(f"{state}; nothing was changed")
    return msgspec.structs.replace(before, state=PAUSED, why=f"{command.by} paused it", at_ms=command.now_ms)


def ended(before: Upgrade | None, command: UpgradeCommand) -> Upgrade | None:
    """Return the record of an upgrade that is over; None: there is nothing to change."""
    if before is None or before.over:
        return None
    return msgspec.structs.replace(
        before, state=FINISHED, node="", why=f"{command.by} finished it", run=command.run, at_ms=command.now_ms
    )


def to_come(upgrade: Upgrade) -> list[str]:
    """Return the nodes that were not proved yet, in order; backwards where they go back. One that goes back and of
    which nobody knows what it ran is left as it is."""
    order = upgrade.order[::-1] if upgrade.back else upgrade.order
    return [n for n in order if n not in upgrade.done and (not upgrade.back or n in upgrade.before)]


def _noting(upgrade: Upgrade, nodes: Mapping[str, NodeInfo]) -> Upgrade:
    """Note what nodes run that were not seen before. What already runs the release was put there by hand, and stays
    where all go back."""
    new = {n: i for n, i in nodes.items() if i.hosts and n not in upgrade.before}
    if upgrade.done or upgrade.before:
        new = {n: i for n, i in new.items() if i.version != upgrade.to}
    before = {**upgrade.before, **{n: i.version for n, i in new.items()}}
    knew = {**upgrade.knew, **{n: i.level for n, i in new.items()}}
    return msgspec.structs.replace(upgrade, before=before, knew=knew)


def _driven(upgrade: Upgrade, command: UpgradeCommand) -> Upgrade:
    return msgspec.structs.replace(upgrade, state=RUNNING, why="", run=command.run, by=command.by, at_ms=command.now_ms)
