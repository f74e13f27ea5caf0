"""This module keeps the upgrade of a cluster that is under way, or was the last one, in upgrade (U1).

upgrade      JSON: `Upgrade`
upgrading    ephemeral, JSON: by, mark; the command that is at it, and what it drew to know its own again

The record says what is wanted and what was proved. What nodes run stands in their registrations, and nobody goes by
this record instead: a command that died at any step leaves one that the next command goes on with. Each command that
goes on writes its own `run` into it, and does nothing more once another one stands there.

No command line stands in it: whoever may write to ZooKeeper need not be one who may run programs where the command
runs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from halog.core import tolerant
from halog.core.tolerant import TolerantDecoder, TolerantStruct
from halog.errors import CoordinatorError, HalogError, RefusedError
from halog.metadata.cas import attempts
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator, UnknownResult

PATH: Final = "upgrade"
DRIVEN_PATH: Final = "upgrading"

RUNNING, PAUSED, COMPLETE, FINISHED = "running", "paused", "complete", "finished"
"""`complete`: every node was proved to run the release; the level is to be raised, or all go back. `finished`: it is
over, and another one may begin."""

STEPS_ASIDE: Final = (RUNNING, PAUSED)
"""In these states nodes stop and start: no node makes plans of its own meanwhile."""


class Upgrade(TolerantStruct, frozen=True, omit_defaults=True):
    """An `Upgrade` says which release the nodes of a cluster are brought to, one after the other, and how far that
    is."""

    to: str
    before: dict[str, str] = msgspec.field(default_factory=dict)
    """The release that each node ran when it was first seen: where it goes back to."""
    knew: dict[str, int] = msgspec.field(default_factory=dict)
    """The highest level that this release of each of them knows."""
    order: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    """Nodes that were proved to run what they should, level with the others: `to`, or with `back` what they ran
    before."""
    state: str = RUNNING
    back: bool = False
    """Do they go back?"""
    node: str = ""
    """The node that the command is at."""
    why: str = ""
    """Why it does not go on."""
    run: str = ""
    """Drawn by the command that goes on with it."""
    since_ms: int = 0
    """When it began, in ms since 1970."""
    at_ms: int = 0
    """When this was written."""
    by: str = ""

    @property
    def over(self) -> bool:
        """Is nothing of it left to do?"""
        return self.state == FINISHED


_UPGRADE = ZnodeFormat(TolerantDecoder(Upgrade).decode, "holds no upgrade")


def read_upgrade(coordinator: Coordinator) -> Upgrade | None:
    """Return the upgrade under way, or the last one; None: there was none. CoordinatorError if it cannot be read."""
    return _UPGRADE.read(coordinator, PATH)


def under_way(coordinator: Coordinator) -> Upgrade | None:
    """Return the upgrade that is not over."""
    found = read_upgrade(coordinator)
    return None if found is None or found.over else found


def change(coordinator: Coordinator, made: Callable[[Upgrade | None], Upgrade | None]) -> Upgrade | None:
    """Write what `made` makes of what is there, and return what is there then. Where it returns None, what is there
    stays. `made` may be asked again: others write it, too. Its errors come out, and nothing is changed."""
    for attempt in attempts(coordinator, PATH):
        before = None if attempt.found is None else _UPGRADE.decode(PATH, attempt.found.data)
        now = made(before)
        if now is None:
            return before
        if attempt.write(tolerant.encode(now)):
            return now
    raise CoordinatorError(f"znode {PATH} cannot be written: others were quicker each time; repeat this")


@contextmanager
def alone(coordinator: Coordinator, by: str, wait_s: float = 0.0) -> Iterator[None]:
    """Keep every other command from going on with an upgrade, as long as this session lasts. RefusedError if one is at
    it for `wait_s`: the session of one that was killed lasts for a while.

    A session may end meanwhile, and another command begin: its znode stays."""
    ours = msgspec.json.encode({"by": by, "mark": secrets.token_hex(8)})
    until = time.monotonic() + wait_s
    while not (is_ours := _taken(coordinator, ours)):
        if time.monotonic() >= until:
            break
        time.sleep(0.05)
    if not is_ours:
        raise RefusedError(
            "another command is at the upgrade of this cluster; `halog upgrade pause` stops it behind its step",
            by=driven_by(coordinator),
        )
    try:
        yield
    finally:
        with suppress(HalogError, UnknownResult):  # it goes with this session, too
            found = coordinator.get(DRIVEN_PATH)
            if found is not None and found.data == ours:
                coordinator.delete(DRIVEN_PATH, found.version)


def _taken(coordinator: Coordinator, ours: bytes) -> bool:
    """Write the mark of a command, and return whether it stands there; also where the answer was lost."""
    with suppress(UnknownResult):
        if coordinator.create(DRIVEN_PATH, ours, ephemeral=True):
            return True
    found = coordinator.get(DRIVEN_PATH)
    return found is not None and found.data == ours


def driven_by(coordinator: Coordinator) -> str:
    """Return who is at the upgrade now; "": nobody."""
    found = coordinator.get(DRIVEN_PATH)
    if found is None:
        return ""
    try:
        return str(msgspec.json.decode(found.data)["by"])
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError):
        return "somebody"
