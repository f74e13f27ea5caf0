"""The brute-force twin of `restore.divergence`: sites that write, follow, take over, recover and merge, every record of
which is kept and knows its parents. What is expected is found by walking all of them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from halog.core.ids import NO_EPOCH, NO_HASH, NO_TX, EpochId, digest
from restore.divergence import AcceptedRecord, Behind, Fork, History, OpenedEpoch, Place, Same, compare

LOG_ID = b"0123456789abcdef"
SITES = 3


@dataclass(frozen=True, eq=False)
class Node:
    """A record."""

    epoch: EpochId
    lsn: int
    hash: bytes
    parents: tuple[Node, ...] = ()
    tx: bytes = NO_TX
    origin: Place | None = None
    opens: bool = False

    @property
    def place(self) -> Place:
        return self.epoch, self.lsn


ROOT = Node(NO_EPOCH, 0, NO_HASH)


def ancestors(node: Node) -> set[Node]:
    """Itself and everything it stands on."""
    found, todo = {node}, [node]
    while todo:
        for parent in todo.pop().parents:
            if parent not in found:
                found.add(parent)
                todo.append(parent)
    return found


@dataclass
class Site:
    """One site: the record its log ends with, and the epoch it may write in."""

    name: str
    head: Node = ROOT
    writes: EpochId | None = None


@dataclass
class World:
    """Sites that write, follow, take over, recover and merge."""

    sites: list[Site] = field(default_factory=lambda: [Site(f"s{i}") for i in range(SITES)])
    count: int = 0

    def _add(self, site: Site, epoch: EpochId, *more: Node, **what: Any) -> None:
        self.count += 1
        site.head = Node(epoch, site.head.lsn + 1, digest(b"%d" % self.count), (site.head, *more), **what)

    def take_over(self, site: Site, *more: Node) -> None:
        site.writes = EpochId(site.head.epoch.number + 1, site.name, self.count)
        self._add(site, site.writes, *more, opens=True)

    def commit(self, site: Site, origin: Node | None = None) -> None:
        if site.writes is None:
            self.take_over(site)
        assert site.writes is not None
        if origin is None:
            self._add(
                site, site.writes, tx=self.count.to_bytes(16, "big", signed=False) if self.count else b"\x01" * 16
            )
        elif origin.tx not in {n.tx for n in ancestors(site.head)}:
            self._add(site, site.writes, tx=origin.tx, origin=origin.origin or origin.place)

    def follow(self, site: Site, other: Site, at: int) -> None:
        """The mirror of a record the other has, and of all before it: only what continues its own history."""
        line = [n for n in ancestors(other.head) if site.head in ancestors(n)]
        line.sort(key=lambda n: n.lsn)
        if line:
            target = line[at % len(line)]
            if target is not site.head:
                site.head, site.writes = target, None

    def merge(self, site: Site, other: Site) -> None:
        """The other branch is closed, and becomes the second parent."""
        mine, theirs = ancestors(site.head), ancestors(other.head)
        if site.head not in theirs and other.head not in mine:
            other.writes = None
            self.take_over(site, other.head)


OPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "take over", "follow", "follow", "recover", "merge", "merge"]),
        st.integers(0, SITES - 1),
        st.integers(0, SITES - 1),
        st.integers(0, 50),
    ),
    max_size=40,
)


def played(ops: list[tuple[str, int, int, int]]) -> World:
    world = World()
    for op, i, j, n in ops:
        site, other = world.sites[i], world.sites[j]
        if op == "commit":
            world.commit(site)
        elif op == "take over":
            world.take_over(site)
        elif op == "follow":
            world.follow(site, other, n)
        elif op == "merge":
            world.merge(site, other)
        else:
            lost = sorted((r for r in ancestors(other.head) if r.tx != NO_TX), key=lambda r: r.place)
            if lost:
                world.commit(site, lost[n % len(lost)])
    return world


def history(site: Site, keep: float = 1.0, seed: int = 0) -> History:
    """A site's branch: its whole lineage, and those records of its log that were kept."""
    chance = random.Random(seed)
    lineage = {
        n.epoch: OpenedEpoch(n.epoch, n.lsn, tuple(p.place for p in n.parents)) for n in ancestors(site.head) if n.opens
    }
    return History(
        LOG_ID,
        site.head.place,
        tuple(sorted(lineage.values())),
        [
            AcceptedRecord(n.epoch, n.lsn, n.hash, n.tx, n.origin)
            for n in log(site)
            if n is not ROOT and chance.random() < keep
        ],
    )


def log(site: Site) -> list[Node]:
    """What the site's own log accepted: the line of first parents."""
    line = [site.head]
    while line[-1].parents:
        line.append(line[-1].parents[0])
    return line[::-1]


def expected(one: Site, other: Site) -> tuple[str, Any]:
    """By walking every record."""
    ours, theirs = ancestors(one.head), ancestors(other.head)
    if one.head is other.head:
        return "same", None
    if one.head in theirs:
        return "behind", (True, one.head.place)
    if other.head in ours:
        return "behind", (False, other.head.place)
    shared = ours & theirs
    below = {parent for node in shared for parent in ancestors(node) - {node}}
    last = sorted(n.place for n in shared - below)
    pairs = [
        (r.place, s.place)
        for r in log(one)
        for s in log(other)
        if r not in shared
        and s not in shared
        and r.tx != NO_TX
        and (r.tx, r.origin or r.place) == (s.tx, s.origin or s.place)
    ]
    return "fork", (last, pairs)


def found(one: History, other: History) -> tuple[str, Any]:
    relation = compare(one, other)
    match relation:
        case Same():
            return "same", None
        case Behind(first=first, at=at):
            return "behind", (first, (at.epoch, at.lsn))
        case Fork(at=points, common=common):
            return "fork", ([(p.epoch, p.lsn) for p in points], [(a.place, b.place) for a, b in common])
        case _:
            return "unrelated", None
