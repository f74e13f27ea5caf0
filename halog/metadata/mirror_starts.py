"""This module keeps where another site can begin to read a log whose beginning was trimmed by a site that only mirrored
it (F2).

places/<partition>   JSON: `Checkpoint`, in the coordinator of the site whose log it is

A site that mirrors reads a log from where it stood last, or from its beginning. A site that has served until now has
never stood in the log of the one that takes over. What the other log led to at the offset of its last snapshot is all
that it needs instead: the site that is mirrored has everything that was mirrored from it. Whoever takes that snapshot
writes the place before the log is trimmed, and the log is trimmed up to the place at most. The place never goes back.
So it is behind no trimmed offset, as long as the site only mirrors. A site that merges another's branch offers the
place in front of the merge: there the other one can begin, whatever it has, since its own branch is in what comes next.
Once the site serves, its active node trims by its holds alone. Whoever asked for the switch has registered a hold for
the other site before (`halog.runtime.sites.switchover`), and what is held then has the place in it.
"""

from __future__ import annotations

import logging

import msgspec

from halog.core.log.chain import ChainState
from halog.core.sites.mirror import Checkpoint
from halog.errors import RefusedError
from halog.metadata.cas import put
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator

logger = logging.getLogger("halog.mirror")

_CHECKPOINT = ZnodeFormat(msgspec.json.Decoder(Checkpoint).decode, "is no place in a log")


def offered(coordinator: Coordinator, partition: str) -> Checkpoint | None:
    """Return the place in the log of this coordinator's site; None if there is none, or none that can be read."""
    return _CHECKPOINT.read_or_none(coordinator, f"places/{partition}", logger)


def leads_on(place: Checkpoint, own: ChainState, begins: int) -> bool:
    """Say whether a site that holds `own` can begin there, in a log that begins at the offset `begins`."""
    return place.offset >= begins and place.state.log_id == own.log_id


def offer(coordinator: Coordinator, partition: str, place: Checkpoint) -> None:
    """Let others begin there from now on, unless they may at a later place by now. To be called before the log is
    trimmed."""
    path, data = f"places/{partition}", msgspec.json.encode(place)

    def made(before: bytes | None) -> bytes | None:
        there = _CHECKPOINT.decode_or_none(path, before, logger)
        later = there is not None and there.state.log_id == place.state.log_id and there.offset >= place.offset
        return None if later else data

    if not put(coordinator, path, made):
        raise RefusedError(f"others trim the log of {partition}, too", partition=partition)
