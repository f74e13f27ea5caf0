"""Reads to the end of a branch that was closed, in the log of its site."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.metadata.restore_requests import closed_branch
from halog.ports import TopicPartition
from restore.branch import Side, read_on

if TYPE_CHECKING:
    from halog.runtime.support.adapters import SiteAccess


def closed_side(remote: SiteAccess, here: str, partition: str, tp: TopicPartition) -> Side | str:
    """Return the other site's whole branch, or why it may still grow. It is whole if no epoch was begun behind the one
    it was closed with. An epoch that was begun and not opened yet may still be opened. A branch that mirrors site
    `here` grows no more by itself."""
    closed = closed_branch(remote.coordinator, partition)
    if closed is None:
        return f"site {remote.name} has not closed its branch"
    end = remote.log.bounds(tp)[1]
    start = Side(remote.name, remote.log, tp, closed.checkpoint.state, closed.checkpoint.offset, closed.in_doubt)
    side = read_on(start, end)
    if side.state.owner not in ("", here):
        return f"site {remote.name} mirrors site {side.state.owner}"
    if not side.state.owner and (side.state.opened or side.state.epoch != closed.checkpoint.state.epoch):
        return f"site {remote.name} has not closed its branch: epoch {side.state.epoch.number} was begun"
    return side
