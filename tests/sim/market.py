"""Histories of objects whose mapper is no function of the key, with their directory (P6, T8): a market.

As the shop (`tests.sim.shop`), with goods that are put into any partition and have an entry where their key hashes to.
What traders and movers ask and write is what `halog.core.keys.directory` says, through all faults; operators change the
ring, and how many partitions there are. In every second history they also change the mapper to one that needs no
directory, and back. Histories of their own, from 5 * 2^20 on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from halog.core.ids import ABSENT
from halog.core.keys import directory
from halog.core.keys.directory import Looking, StoredEntry, entry_key, is_entry, object_key
from halog.core.keys.mapping import (
    BY_KEY,
    LISTED,
    LISTING,
    UNLISTING,
    Layout,
    Place,
    PolicyMapping,
    begun,
    opened,
    turned_back,
    why_not,
)
from halog.core.log.records import CREATE, DELETE, UPDATE, Change
from tests.sim.bank import MARKET_SEEDS
from tests.sim.bank_world import REF
from tests.sim.shop import STEP_MS, Customer, Errand, Located, Mover, Shop, owner, place as place_by_ring, staffed
from tests.sim.violation import demand

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.node import Process

SEEDS = MARKET_SEEDS
TYPE = b"the type"
"""With which every value begins."""
ROUNDS = 40
"""So often an object is looked for that is not where its entry says; then its seeker gives up."""


class Shown(NamedTuple):
    """What a process shows."""

    ref: bytes
    version: int
    value: bytes


def place(key: bytes, mapping: PolicyMapping) -> Place:
    """As `halog.runtime.keys.key_owners.Owner.place`."""
    return place_by_ring(key, mapping)._replace(listed=mapping.kind)


class Market(Shop):
    """Several partitions in one world, and what the coordinator holds of their mapping."""

    def __init__(
        self, seed: int, *, verbose: bool = False, calm: bool = False, worlds: int = 0, nodes: int = 0
    ) -> None:
        super().__init__(seed, verbose=verbose, calm=calm, worlds=worlds, nodes=nodes)
        self.changes_kind = bool(seed % 2)
        mapper = "consistent_hash" if seed % 4 == 3 else "round_robin"
        self.mapping = PolicyMapping(Layout(mapper, len(self.names), 0, names=self.names))

    def change(self) -> None:
        """Another ring, partitions more or less, or back to what was before."""
        now, chance = self.mapping.now, self.engine.rng
        if self.mapping.changing is None and self.changes_kind and chance.random() < 0.6:
            wished = msgspec.structs.replace(now, mapper="consistent_hash" if now.listed else "round_robin")
            assert why_not(self.mapping, wished) is None
            self.mapping = opened(begun(self.mapping, wished))
            self.cover.hit("entries are made" if wished.listed else "entries go")
        elif self.mapping.changing is None:
            count = chance.choice((len(now.names), len(self.names), max(1, len(self.names) - 1)))
            wished = msgspec.structs.replace(
                now, partitions=count, names=self.names[:count], ring_size=now.ring_size + 1
            )
            self.mapping = opened(begun(self.mapping, wished))
            self.cover.hit("a partition is emptied" if count < len(now.names) else "a change is open")
        elif chance.random() < 0.4 and not self.mapping.changing.back:
            self.mapping = turned_back(self.mapping)
            self.cover.hit("a change is turned back")

    def elsewhere(self, name: str, p: Process, mapping: PolicyMapping) -> list[bytes]:
        """What does not belong in a partition, or lacks its entry, or is one that is not wanted any more."""
        newest, kind = mapping.newest, mapping.kind
        if kind == BY_KEY:
            return super().elsewhere(name, p, mapping)
        if kind == UNLISTING:
            return sorted(k for k in p.copy.objects if is_entry(k))
        if kind == LISTING:
            bare = [k for k in p.copy.objects if not is_entry(k) and entry_key(k) not in p.copy.objects]
            return sorted(k for k in bare if owner(k, newest) == name)
        goods = [k for k in p.copy.objects if not is_entry(k) and name not in newest.names]
        entries = [k for k in p.copy.objects if is_entry(k) and owner(object_key(k), newest) != name]
        return sorted(goods) or sorted(entries)


class Sale(Errand):
    """One transaction on goods; what was read of their entry on the way."""

    standing: StoredEntry | None = None
    existed = False
    """Was the object known to be there when it was first asked for?"""


class Trader(Customer):
    """At most one sale at a time."""

    def errand(self, kind: str, key: bytes) -> Sale:
        made = self.make(kind)
        sale = Sale(made.id, made.name, kind)
        sale.key, sale.mapping = key, self.known.version
        return sale

    # --- looking ---

    def locate(self, errand: Errand, at: Place, turn: int, done: Callable[[Located], None]) -> None:
        """As the directory says what to ask, some time apart."""
        assert isinstance(errand, Sale)
        at = at._replace(listed=self.known.kind)
        if not at.listed:
            super().locate(errand, at, turn, done)
            return
        errand.existed = errand.key in self.shop.exists
        asking: Looking[Shown] = directory.look(errand.key, at)
        self._ask(errand, at, asking, next(asking), done, True)

    def _ask(
        self,
        sale: Sale,
        at: Place,
        asking: Looking[Shown],
        asked: tuple[str, bytes],
        done: Callable[[Located], None],
        rightful: bool,
    ) -> None:
        """`rightful`: was everybody who was asked so far the one to ask? Who was replaced shows what was."""
        if self.deal is not sale:
            return
        name, key = asked
        sale.step += 1
        p = self.bank.target(name)
        shown = None if p is None else self.shown(p, key, at.version)
        if p is None or shown is None or sale.step > ROUNDS:
            self._end(sale, False)
            return
        version, value = shown
        found = None if value is None else Shown(REF, version, value)
        if found is not None and is_entry(key):
            sale.standing = directory.standing(name, found)
        if found is None and not is_entry(key):
            self.bank.cover.hit("not where its entry says")
        rightful = rightful and p is self.bank.worlds[name].active()
        try:
            asked = asking.send(found)
        except StopIteration as end:
            self._located(sale, end.value, done, rightful=rightful)
        else:
            self.later(partial(self._ask, sale, at, asking, asked, done, rightful), STEP_MS)

    def _located(
        self, sale: Sale, found: tuple[str, Shown | None], done: Callable[[Located], None], *, rightful: bool
    ) -> None:
        partition, what = found
        if what is None:
            demand(not rightful or not sale.existed, f"P6: {sale.key!r} was missed")
            done(None)
        else:
            done((partition, what.version, what.value))

    # --- changing ---

    def go_on(self, errand: Errand, found: Located) -> None:
        """It was looked for."""
        if errand.kind == "find" or found is None:
            super().go_on(errand, found)
            return
        home, version, value = found
        gone = errand.kind == "come and go"
        new = None if gone else TYPE + b"%d" % (int(value.removeprefix(TYPE)) + 1)
        self._written(errand, home, Change(DELETE if gone else UPDATE, REF, errand.key, new, version))

    def create(self, errand: Errand) -> None:
        """In any partition that the newest layout has; all owners of the key's entry vouch that there is none."""
        at = place(errand.key, self.known)
        errand.mapping = at.version
        if at.before:
            errand.reads[at.before] = [(entry_key(errand.key) if at.listed else errand.key, ABSENT)]
        home = self.rng.choice(self.known.newest.names) if at.listed in (LISTED, LISTING) else at.partition
        self._written(errand, home, Change(CREATE, REF, errand.key, TYPE + b"0", ABSENT))

    def _written(self, errand: Errand, home: str, change: Change) -> None:
        """With what changes in the directory."""
        assert isinstance(errand, Sale)
        standing = {errand.key: errand.standing} if errand.standing is not None else {}
        errand.changes[home] = [change]
        kind, known = self.known.kind, self.known
        for at, row in directory.beside([change], home, lambda key: place(key, known), standing.get) if kind else ():
            errand.changes.setdefault(at, []).append(Change(*row))
        if kind in (LISTING, UNLISTING):
            for at, key in directory.vouching([change], home, lambda key: place(key, known), standing.get):
                errand.reads.setdefault(at, []).append((key, ABSENT))
        self.present(errand)


class Carrier(Trader, Mover):
    """Carries entries to their new owners, and goods out of partitions that are emptied."""

    def carry(self, name: str, p: Process, elsewhere: list[bytes]) -> bool:
        if self.known.kind == BY_KEY:
            return super().carry(name, p, elsewhere)
        key = self.rng.choice(elsewhere)
        version, value, _ = p.copy.objects[key]
        sale = self.errand("move", b"")
        if self.known.kind == LISTING:
            row = directory.listing(key, Shown(REF, version, value), name)
            sale.changes[name], sale.reads[name] = [Change(*row)], [(key, version)]
        elif self.known.kind == UNLISTING:
            if not self._without_entry(sale, name, object_key(key), Shown(REF, version, value)):
                return False
        elif is_entry(key):
            to = owner(object_key(key), self.known.newest)
            sale.changes[name] = [Change(DELETE, REF, key, None, version)]
            sale.changes[to] = [Change(CREATE, REF, key, value, ABSENT)]
        elif not self._with_entry(sale, name, key, Shown(REF, version, value)):
            return False
        self.deal = sale
        self.present(sale)
        return True

    def _with_entry(self, sale: Sale, name: str, key: bytes, found: Shown) -> bool:
        """Its entry says so in the same transaction, if it is to be had just now."""
        now = next((s for at in place(key, self.known).owners if (s := self._standing(at, key)) is not None), None)
        if now is None or now.said.partition != name:
            return False
        for at, row in directory.moved(key, found, now, self.rng.choice(self.known.newest.names)):
            sale.changes.setdefault(at, []).append(Change(*row))
        return True

    def _without_entry(self, sale: Sale, name: str, key: bytes, entry: Shown) -> bool:
        """Its object comes along, if it is to be had just now."""
        now, found = directory.standing(name, entry), None
        if now.said.partition != name:
            p = self.bank.target(now.said.partition)
            shown = None if p is None else self.shown(p, key, self.known.version)
            if shown is None or shown[1] is None:
                return False
            found = Shown(REF, shown[0], shown[1])
        for at, row in directory.unlisting(key, found, now):
            sale.changes.setdefault(at, []).append(Change(*row))
        return True

    def _standing(self, at: str, key: bytes) -> StoredEntry | None:
        p = self.bank.target(at)
        shown = None if p is None else self.shown(p, entry_key(key), self.known.version)
        if shown is None or shown[1] is None:
            return None
        return directory.standing(at, Shown(REF, shown[0], shown[1]))


def make(seed: int, *, verbose: bool = False) -> Shop:
    """A market of this seed: how many partitions and nodes, which faults, how unkind, when the mapping changes."""
    return staffed(Market(seed, verbose=verbose), seed, Trader, Carrier)
