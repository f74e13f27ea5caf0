"""Which other sites mirror what this one serves, as their nodes say here (F2).

A node that mirrors says so in the coordinator of the site that it mirrors, with its session there: where the node ends,
or the line is cut, its word goes with the session. What it says are the partitions that it brings, without those that
stand still. Nothing is decided by it; operators see what has no copy elsewhere any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from halog.core.ids import Member
from halog.ports import Coordinator

MIRRORING = "mirroring"


class Word(msgspec.Struct, frozen=True):
    """What one node says under `mirroring/<site>/<node>`."""

    incarnation: int
    partitions: tuple[str, ...]


_WORD = msgspec.json.Decoder(Word)


def announce(there: Coordinator, site: str, me: Member, partitions: Iterable[str]) -> None:
    """Say to the site of `there` what this node of `site` mirrors from it. What an earlier session said is replaced;
    where what this one says was lost, the next call says it again."""
    path = f"{MIRRORING}/{site}/{me.node}"
    said = msgspec.json.encode(Word(me.incarnation, tuple(sorted(partitions))))
    found = there.get(path)
    if found is not None and found.data == said:
        return
    if found is not None:
        there.delete(path, found.version)
    there.create(path, said, ephemeral=True)


def mirrored_at(here: Coordinator, sites: Collection[str]) -> dict[str, frozenset[str]]:
    """By other site, the partitions of this one that its nodes bring there now."""
    return {site: frozenset(_said(here, site)) for site in sites}


def _said(here: Coordinator, site: str) -> Iterable[str]:
    for node in here.children(f"{MIRRORING}/{site}"):
        found = here.get(f"{MIRRORING}/{site}/{node}")
        if found is not None:
            yield from _WORD.decode(found.data).partitions
