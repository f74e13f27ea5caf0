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
from halog.errors import CoordinatorError, RefusedError
from halog.metadata.cas import put
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator

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


_RESTORE = ZnodeFormat(TolerantDecoder(RestoreRequest).decode, "is no restore")
_CLOSED = ZnodeFormat(msgspec.json.Decoder(ClosedBranch).decode, "does not say where a branch ended")


def restore_of(coordinator: Coordinator, partition: str) -> RestoreRequest | None:
    """Return what was asked for last. Raises CoordinatorError if it cannot be read."""
    return _RESTORE.read(coordinator, f"restores/{partition}", partition=partition)


def read_restore(partition: str, data: bytes) -> RestoreRequest:
    """Decode what is in the znode. Raises CoordinatorError if that is no restore."""
    return _RESTORE.decode(f"restores/{partition}", data, partition=partition)


def last_merge(last: RestoreRequest | None) -> str:
    """Return the name of the last merge that was made here, in hex digits; "": none is known. `last` is what was asked
    for last."""
    if last is None:
        return ""
    return last.merge if last.phase == DONE and not last.undo else last.merged_before


def ask(coordinator: Coordinator, partition: str, wanted: RestoreRequest) -> None:
    """Write the request. Raises RefusedError while another one goes on; the same one may be asked for again."""

    def asked(before: bytes | None) -> bytes | None:
        now = None if before is None else read_restore(partition, before)
        if _goes_on(partition, now, wanted):
            return None
        return tolerant.encode(msgspec.structs.replace(wanted, merged_before=last_merge(now)))

    if not put(coordinator, f"restores/{partition}", asked):
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

    def written(before: bytes | None) -> bytes | None:
        there = None if before is None else read_restore(partition, before)
        over = there is None or there.at_ms != now.at_ms or there.ended or there.tries > now.tries
        return None if over else tolerant.encode(now)

    put(coordinator, f"restores/{partition}", written)


def _kind_of(one: RestoreRequest) -> tuple[str, str, bool, bool]:
    return one.site, one.undo, one.two_way, one.classified


def close(coordinator: Coordinator, partition: str, closed: ClosedBranch) -> None:
    """Write where this site's branch ended; an earlier end is of an earlier branch. Raises CoordinatorError if it
    cannot be written."""
    data = msgspec.json.encode(closed)
    if not put(coordinator, f"closed/{partition}", lambda before: data):
        raise CoordinatorError(f"znode closed/{partition} cannot be written: others write it, too", partition=partition)


def closed_branch(coordinator: Coordinator, partition: str) -> ClosedBranch | None:
    """Return the end of the branch that the site of this coordinator closed last. Raises CoordinatorError if it cannot
    be read."""
    return _CLOSED.read(coordinator, f"closed/{partition}", partition=partition)


def closed_at(coordinator: Coordinator, partition: str) -> ChainState | None:
    """Return where this site's branch ended when it was closed last. Raises CoordinatorError if it cannot be read."""
    closed = closed_branch(coordinator, partition)
    return None if closed is None else closed.checkpoint.state
