"""This module keeps requests to make one history of two branches: what the operator asked for, how far it is, and what
a closed branch ends with (M2).

In the coordinator of the site that merges:      restores/<partition>   JSON: `RestoreRequest`
In that of the site whose branch is overruled:   closed/<partition>     JSON: `ClosedBranch`
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from halog.core import tolerant
from halog.core.log.chain import ChainState
from halog.core.sites.mirror import Checkpoint
from halog.core.tolerant import TolerantDecoder, TolerantStruct
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


class RestoreRequest(TolerantStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A `RestoreRequest` asks for the restore of one partition."""

    site: str
    """The initiating site, whose branch is merged into this site's; "" where a merge is undone."""
    by: str
    """Who asked for it."""
    at_ms: int
    """When, in ms since 1970: it tells two of them apart."""
    two_way: bool = False
    classified: bool = False
    """Is it merged by what a Spark job has found (`halog.runtime.merge.spark_results`)?"""
    active: str = ""
    """The source's node that is to serve afterwards; "": the one that merges."""
    undo: str = ""
    """The merge that is to be undone, in hex digits."""
    phase: str = ASKED
    node: str = ""
    """The node that works on it."""
    tries: int = 0
    """How many nodes have begun with it."""
    begun: bool = False
    """Has one of them ended its epoch for it? An undo that is found since then is this one."""
    why: str = ""
    """What it waits for, or why it failed."""
    merge: str = ""
    """The name of the merge, in hex digits."""
    result: dict[str, Any] = msgspec.field(default_factory=dict)
    """What came of it, in numbers."""
    merged_before: str = ""
    """The last merge that was made here before it was asked for, in hex digits."""

    @property
    def ended(self) -> bool:
        return self.phase in ENDED


class ClosedBranch(msgspec.Struct, frozen=True):
    """Says where a branch ended when its site gave up its log: behind an epoch that fences it, and that nobody
    opened."""

    checkpoint: Checkpoint
    in_doubt: tuple[int, ...] = ()
    """Offsets of the votes that were in doubt."""


_RESTORE, CLOSED = TolerantDecoder(RestoreRequest), msgspec.json.Decoder(ClosedBranch)


def restore_of(coordinator: Coordinator, partition: str) -> RestoreRequest | None:
    """Return what was asked for last. Raises CoordinatorError if it cannot be read."""
    return _found(coordinator, partition)[0]


def _found(coordinator: Coordinator, partition: str) -> tuple[RestoreRequest | None, int | None]:
    """Return it with the znode's version."""
    found = coordinator.get(f"restores/{partition}")
    return (None, None) if found is None else (read_restore(partition, found.data), found.version)


def read_restore(partition: str, data: bytes) -> RestoreRequest:
    """Decode what is in the znode. Raises CoordinatorError if that is no restore."""
    try:
        return _RESTORE.decode(data)
    except msgspec.MsgspecError as e:
        raise CoordinatorError(f"znode restores/{partition} is no restore: {e}", partition=partition) from e


def last_merge(last: RestoreRequest | None) -> str:
    """Return the name of the last merge that was made here, in hex digits; "": none is known. `last` is what was asked
    for last."""
    if last is None:
        return ""
    return last.merge if last.phase == DONE and not last.undo else last.merged_before


def ask(coordinator: Coordinator, partition: str, wanted: RestoreRequest) -> None:
    """Write the request. Raises RefusedError while another one goes on; the same one may be asked for again."""
    for _ in range(ATTEMPTS):
        now, version = _found(coordinator, partition)
        if _goes_on(partition, now, wanted):
            return
        if _put(coordinator, partition, msgspec.structs.replace(wanted, merged_before=last_merge(now)), version):
            return
    raise RefusedError(f"partition {partition}: others ask for restores at the same time", partition=partition)


def check(coordinator: Coordinator, partition: str, wanted: RestoreRequest) -> None:
    """Raise RefusedError where the request would be refused."""
    _goes_on(partition, restore_of(coordinator, partition), wanted)


def _goes_on(partition: str, now: RestoreRequest | None, wanted: RestoreRequest) -> bool:
    """Say whether the same is asked for already. Raises RefusedError where another is."""
    if now is None or now.ended:
        return False
    if _kind_of(now) != _kind_of(wanted) or wanted.active not in ("", now.active):
        raise RefusedError(
            f"partition {partition}: {now.by} has asked for another restore, which is {now.phase}: ask again once it "
            "has ended",
            partition=partition,
        )
    return True


def progress(coordinator: Coordinator, partition: str, now: RestoreRequest) -> None:
    """Write how far it is; unless it is not this one any more, or another node has begun with it since."""
    for _ in range(ATTEMPTS):
        there, version = _found(coordinator, partition)
        if there is None or there.at_ms != now.at_ms or there.ended or there.tries > now.tries:
            return
        if _put(coordinator, partition, now, version):
            return


def _kind_of(one: RestoreRequest) -> tuple[str, str, bool, bool]:
    return one.site, one.undo, one.two_way, one.classified


def _put(coordinator: Coordinator, partition: str, now: RestoreRequest, version: int | None) -> bool:
    """Write a request in the place of that version of the znode; None: there was none."""
    path, data = f"restores/{partition}", tolerant.encode(now)
    try:
        if version is None:
            return coordinator.create(path, data)
        coordinator.set(path, data, version)
    except (VersionError, UnknownResult):
        return False
    return True


def close(coordinator: Coordinator, partition: str, closed: ClosedBranch) -> None:
    """Write where this site's branch ended; an earlier end is of an earlier branch. Raises CoordinatorError if it
    cannot be written."""
    data = msgspec.json.encode(closed)
    if not put(coordinator, f"closed/{partition}", lambda before: data):
        raise CoordinatorError(f"znode closed/{partition} cannot be written: others write it, too", partition=partition)


def closed_at(coordinator: Coordinator, partition: str) -> ChainState | None:
    """Return where this site's branch ended when it was closed last."""
    found = coordinator.get(f"closed/{partition}")
    return None if found is None else CLOSED.decode(found.data).checkpoint.state
