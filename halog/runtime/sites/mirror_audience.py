"""Says which other sites mirror what this one serves, as their nodes report here (F2).

A node that mirrors reports it in the coordinator of the site that it mirrors, with its session there. If the node ends,
or the line is cut, the report goes with the session. It names the partitions that the node brings, without those that
stand still. Nothing is decided by it; operators see what has no copy elsewhere any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from halog.core.ids import Member
from halog.ports import Coordinator

MIRRORING = "mirroring"


class MirrorReport(msgspec.Struct, frozen=True):
    """A `MirrorReport` is what one node says under `mirroring/<site>/<node>`."""

    incarnation: int
    partitions: tuple[str, ...]


_WORD = msgspec.json.Decoder(MirrorReport)


def announce(there: Coordinator, site: str, me: Member, partitions: Iterable[str]) -> None:
    """Report to the site of `there` what this node of `site` mirrors from it. This replaces the report of an earlier
    session; if a report was lost, the next call makes it again."""
    path = f"{MIRRORING}/{site}/{me.node}"
    said = msgspec.json.encode(MirrorReport(me.incarnation, tuple(sorted(partitions))))
    found = there.get(path)
    if found is not None and found.data == said:
        return
    if found is not None:
        there.delete(path, found.version)
    there.create(path, said, ephemeral=True)


def mirrored_at(here: Coordinator, sites: Collection[str]) -> dict[str, frozenset[str]]:
    """Return, by other site, the partitions of this one that its nodes mirror now."""
    return {site: frozenset(_said(here, site)) for site in sites}


def _said(here: Coordinator, site: str) -> Iterable[str]:
    for node in here.children(f"{MIRRORING}/{site}"):
        found = here.get(f"{MIRRORING}/{site}/{node}")
        if found is not None:
            yield from _WORD.decode(found.data).partitions
