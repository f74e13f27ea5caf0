"""This module shows moments of the active node to transactions elsewhere (R5): it is the other side of
`partition_views.FarView`."""

from __future__ import annotations

from collections.abc import Callable, Collection

from halog.core.replica.moments import MomentReader, OverError
from halog.runtime.replica.driver import Copy
from halog.runtime.replica.named_moments import ReadMoment, over, undecided, unknown
from halog.runtime.rpc import frames
from halog.runtime.rpc.pages import page


def look(
    copy: Copy, r: frames.MomentFetch, check: Callable[[], object], wait_s: float, room: int
) -> frames.MomentReply:
    """Return the objects under some keys."""
    taken = _at(copy, r, r.keys, check, wait_s, prefixes=False)
    moment = r.moment or copy.named.name(taken)
    if r.after and any(taken.lacks(key, r.after) for key in r.keys):
        raise undecided(copy.name)
    past, find = MomentReader(taken.moment), copy.objects.find
    try:
        if len(r.keys) == 1:
            return frames.MomentReply(moment, [past.of(r.keys[0], find(r.keys[0]))], end=True)
        its = page((past.of(key, find(key)) for key in r.keys), room)
    except OverError:
        raise over(copy.name) from None
    return frames.MomentReply(moment, its.items, its.end)


def look_through(
    copy: Copy, r: frames.MomentScan, check: Callable[[], object], wait_s: float, room: int
) -> frames.MomentReply:
    """Return a page of the objects under a prefix of keys. With the last page a scan that passes by is done, and its
    moment goes."""
    taken = _at(copy, r, (r.prefix,), check, wait_s, prefixes=True)
    if taken.lacks(r.prefix, r.after, prefix=True):
        raise undecided(copy.name)
    try:
        its = page(copy.objects.scan(r.prefix, r.behind, MomentReader(taken.moment)), room, r.limit)
    except OverError:
        raise over(copy.name) from None
    if r.passing and its.end:
        copy.named.let_go(r.moment)
        return frames.MomentReply(b"", its.items, end=True)
    return frames.MomentReply(r.moment or copy.named.name(taken, alone=r.passing), its.items, its.end)


def _at(
    copy: Copy,
    r: frames.MomentFetch | frames.MomentScan,
    under: Collection[bytes],
    check: Callable[[], object],
    wait_s: float,
    *,
    prefixes: bool,
) -> ReadMoment:
    """Return the moment that is asked for; a new one once what is in doubt under these keys is decided. `check` raises
    if this node is not active, or no more: then the wait was for nothing."""
    if r.moment:
        taken = copy.named.find(r.moment)
        if taken is None:
            raise unknown(copy.name)
        return taken
    copy.wait_free(under, wait_s, prefixes=prefixes)
    check()
    taken = copy.take_up()
    copy.check_mapping(r.mapping)
    return taken
