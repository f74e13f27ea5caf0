"""Branches that are to become one: what the operator asked for, how far it is, and what a closed branch ends with (M2).

In the coordinator of the site that merges:      restores/<partition>   JSON: `Restore`
In that of the site whose branch is overruled:   closed/<partition>     JSON: `Closed`
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from halog.core.log.chain import ChainState
from halog.core.sites.mirror import Checkpoint
from halog.errors import CoordinatorError, RefusedError, VersionError
from halog.metadata.cas import put
from halog.ports import Coordinator, UnknownResult

ASKED, READING, SETTLING, MERGING, DONE, NOTHING, FAILED = (
    "asked",
    "reading",
    "settling",
    "merging",
    "done",
    "nothing",
    "failed",
)
ENDED: Final = frozenset({DONE, NOTHING, FAILED})

ATTEMPTS = 10


class Restore(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One partition's."""

    site: str
    """The initiating one, whose branch is merged into this site's; "" where a merge is undone."""
    by: str
    """Who asked for it."""
    at_ms: int
    """When, in ms since 1970: it tells two of them apart."""
    two_way: bool = False
    classified: bool = False
    """By what a Spark job has found (`halog.runtime.merge.spark_results`)."""
    active: str = ""
    """The source's node that is to serve afterwards; "": the one that merges."""
    undo: str = ""
    """The merge that is to be undone, in hex digits."""
    phase: str = ASKED
    node: str = ""
    """Which is at it."""
    tries: int = 0
    """So many have begun with it."""
    begun: bool = False
    """One of them has ended its epoch for it: an undo that is found since then is this one."""
    why: str = ""
    """What it waits for, or failed of."""
    merge: str = ""
    """Its name, in hex digits."""
    result: dict[str, Any] = {}
    """In numbers."""
    merged_before: str = ""
    """The last merge that was made here before it was asked for, in hex digits."""

    @property
    def ended(self) -> bool:
        return self.phase in ENDED


class Closed(msgspec.Struct, frozen=True):
    """Where a branch ended when its site gave up its log: behind an epoch that fences it, and that nobody opened."""

    checkpoint: Checkpoint
    in_doubt: tuple[int, ...] = ()
    """Offsets of the votes that were in doubt."""


_RESTORE, CLOSED = msgspec.json.Decoder(Restore), msgspec.json.Decoder(Closed)


def restore_of(coordinator: Coordinator, partition: str) -> Restore | None:
    """What was asked for last. CoordinatorError if it cannot be read."""
    return _found(coordinator, partition)[0]


def _found(coordinator: Coordinator, partition: str) -> tuple[Restore | None, int | None]:
    """With the znode's version."""
    found = coordinator.get(f"restores/{partition}")
    return (None, None) if found is None else (read_restore(partition, found.data), found.version)


def read_restore(partition: str, data: bytes) -> Restore:
    """What is in the znode. CoordinatorError if that is none."""
    try:
        return _RESTORE.decode(data)
    except msgspec.MsgspecError as e:
        raise CoordinatorError(f"znode restores/{partition} is no restore: {e}", partition=partition) from e


def last_merge(last: Restore | None) -> str:
    """Of those that were made here, its name in hex digits; "": none is known. `last`: what was asked for last."""
    if last is None:
        return ""
    return last.merge if last.phase == DONE and not last.undo else last.merged_before


def ask(coordinator: Coordinator, partition: str, wanted: Restore) -> None:
    """Ask for it. RefusedError while another one goes on; the same one may be asked for again."""
    for _ in range(ATTEMPTS):
        now, version = _found(coordinator, partition)
        if _goes_on(partition, now, wanted):
            return
        if _put(coordinator, partition, msgspec.structs.replace(wanted, merged_before=last_merge(now)), version):
            return
    raise RefusedError(f"partition {partition}: others ask for restores at the same time", partition=partition)


def check(coordinator: Coordinator, partition: str, wanted: Restore) -> None:
    """RefusedError where it would be refused."""
    _goes_on(partition, restore_of(coordinator, partition), wanted)


def _goes_on(partition: str, now: Restore | None, wanted: Restore) -> bool:
    """Is the same asked for already? RefusedError where another is."""
    if now is None or now.ended:
        return False
    if _kind_of(now) != _kind_of(wanted) or wanted.active not in ("", now.active):
        raise RefusedError(
            f"partition {partition}: {now.by} has asked for another restore, which is {now.phase}: ask again once it "
            "has ended",
            partition=partition,
        )
    return True


def progress(coordinator: Coordinator, partition: str, now: Restore) -> None:
    """Say how far it is; unless it is not this one any more, or another node has begun with it since."""
    for _ in range(ATTEMPTS):
        there, version = _found(coordinator, partition)
        if there is None or there.at_ms != now.at_ms or there.ended or there.tries > now.tries:
            return
        if _put(coordinator, partition, now, version):
            return


def _kind_of(one: Restore) -> tuple[str, str, bool, bool]:
    return one.site, one.undo, one.two_way, one.classified


def _put(coordinator: Coordinator, partition: str, now: Restore, version: int | None) -> bool:
    """In the place of that version of the znode; None: there was none."""
    path, data = f"restores/{partition}", msgspec.json.encode(now)
    try:
        if version is None:
            return coordinator.create(path, data)
        coordinator.set(path, data, version)
    except (VersionError, UnknownResult):
        return False
    return True


def close(coordinator: Coordinator, partition: str, closed: Closed) -> None:
    """Say where this site's branch ended; an earlier end is of an earlier branch. CoordinatorError if it cannot be
    said."""
    data = msgspec.json.encode(closed)
    if not put(coordinator, f"closed/{partition}", lambda before: data):
        raise CoordinatorError(f"znode closed/{partition} cannot be written: others write it, too", partition=partition)


def closed_at(coordinator: Coordinator, partition: str) -> ChainState | None:
    """Where this site's branch ended when it was closed last."""
    found = coordinator.get(f"closed/{partition}")
    return None if found is None else CLOSED.decode(found.data).checkpoint.state
