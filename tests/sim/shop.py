"""Histories in which a mapping changes while its partitions are used and fail (T8): a shop whose goods move.

As in the bank, each partition is a world of its own. Customers look for goods, change, create and remove them, by what
they know of the mapping, which may be old; movers carry goods to their new owners and die on the way; an operator
begins changes, and turns some back. What is in the znode is taken through the steps of `halog.core.keys.mapping`; what
a node's service does for T8 (asks the core for `MapperChanged`, refuses what is older) is done here. Histories of their
own, from 3 * 2^20 on.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from halog.core import events as ev
from halog.core.ids import ABSENT, digest
from halog.core.keys.mapping import Layout, Place, PolicyMapping, begun, cleaned, opened, turned_back
from halog.core.log.records import CREATE, DELETE, UPDATE, Change
from halog.core.table.states import State, StateChange
from tests.sim import counts
from tests.sim.bank import SHOP_SEEDS
from tests.sim.bank_world import REF, Bank
from tests.sim.faults import FAULTS
from tests.sim.teller import Deal, Teller
from tests.sim.updating import States
from tests.sim.violation import demand

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.sim.node import Process

SEEDS = SHOP_SEEDS
STEADY = tuple(b"s%03d" % i for i in range(4))
"""Goods that exist all the time."""
LOOSE = tuple(b"l%03d" % i for i in range(4))
"""Goods that come and go."""
POLICY = "goods"
STEP_MS = 15.0

Located = tuple[str, int, bytes] | None
"""Where something is, its version and value; None: nowhere."""


class Shop(Bank):
    """Several partitions in one world, and what the coordinator holds of their mapping."""

    def __init__(
        self, seed: int, *, verbose: bool = False, calm: bool = False, worlds: int = 0, nodes: int = 0
    ) -> None:
        super().__init__(seed, verbose=verbose, calm=calm, worlds=worlds, nodes=nodes)
        self.mapping = PolicyMapping(Layout("ring", len(self.names), 0, names=self.names))
        self.states = States(self, POLICY)
        self.movers: list[Mover] = []
        self.exists: set[bytes] = set()
        """Steady goods that are known to be there."""
        self.counted: dict[bytes, int] = dict.fromkeys(STEADY, 0)
        self.doubtful: dict[bytes, int] = dict.fromkeys(STEADY, 0)

    def deals(self) -> list[Deal]:
        return [*super().deals(), *(d for m in self.movers for d in m.done)]

    def change(self) -> None:
        """The operator: another layout, or back to the one before."""
        changing = self.mapping.changing
        if changing is None:
            wished = msgspec.structs.replace(self.mapping.now, ring_size=self.mapping.now.ring_size + 1)
            self.mapping = opened(begun(self.mapping, wished))
            self.cover.hit("a change is open")
        elif self.engine.rng.random() < 0.4:
            self.mapping = turned_back(self.mapping)
            self.cover.hit("a change is turned back")

    keeps_states = True

    def updating(self, p: Process) -> bool:
        return self.states.updating(p)

    def looked(self, p: Process, state: State, steps: Sequence[StateChange]) -> None:
        self.states.looked(p, state, steps)

    def clean(self, name: str, version: int) -> None:
        before = self.mapping
        self.mapping = cleaned(self.mapping, POLICY, version, [name])
        if before.changing is not None and self.mapping.changing is None:
            self.cover.hit("a change is done")

    def elsewhere(self, name: str, p: Process, mapping: PolicyMapping) -> list[bytes]:
        """What does not belong in a partition."""
        return sorted(k for k in p.copy.objects if owner(k, mapping.newest) != name)

    def heal(self) -> None:
        super().heal()
        for mover in self.movers:
            mover.begin()

    def unwell(self) -> str:
        changes = "" if self.mapping.changing is None else "the mapping still changes"
        return super().unwell() or changes or self.states.unwell()


def owner(key: bytes, layout: Layout) -> str:
    """Where a layout has a key."""
    return layout.names[digest(key + bytes((layout.ring_size,)))[0] % len(layout.names)]


def place(key: bytes, mapping: PolicyMapping) -> Place:
    """As `halog.runtime.keys.key_owners.Owner.place`."""
    new = owner(key, mapping.newest)
    old = new if mapping.next is None else owner(key, mapping.now)
    return Place(new, mapping.version, "" if old == new else old)


class Errand(Deal):
    """One transaction on goods."""

    mapping = 0
    key = b""


class Customer(Teller):
    """At most one errand at a time; knows the mapping as it was when it last asked."""

    def __init__(self, shop: Shop, name: str, *, quota: int) -> None:
        super().__init__(shop, name, quota=quota)
        self.shop = shop
        self.known = shop.mapping

    def errand(self, kind: str, key: bytes) -> Errand:
        made = self.make(kind)
        errand = Errand(made.id, made.name, kind)
        errand.key, errand.mapping = key, self.known.version
        return errand

    def begin(self) -> None:
        """The next errand, if any is left to do."""
        if self.deal is not None or self.quota <= 0:
            return
        self.quota -= 1
        if self.rng.random() < 0.2:
            self.known = self.shop.mapping
        kind = self.rng.choices(("update", "find", "race", "come and go"), (4, 4, 2, 4))[0]
        key = self.rng.choice(LOOSE if kind == "come and go" else STEADY)
        if kind == "race" and key not in self.shop.exists:
            kind = "update"
        errand = self.deal = self.errand(kind, key)
        if kind == "race":
            self.create(errand)
        else:
            self.locate(errand, place(key, self.known), 0, lambda found: self.go_on(errand, found))

    # --- looking ---

    def locate(self, errand: Errand, at: Place, turn: int, done: Callable[[Located], None]) -> None:
        """Owner by owner, some time apart (T8): the old one first."""
        if self.deal is not errand:
            return
        name = at.owners[turn]
        p = self.bank.target(name)
        shown = None if p is None else self.shown(p, errand.key, at.version)
        if p is None or shown is None:
            self._end(errand, False)
            return
        version, value = shown
        if value is not None:
            done((name, version, value))
        elif turn + 1 < len(at.owners):
            self.later(lambda: self.locate(errand, at, turn + 1, done), STEP_MS)
        else:
            rightful = p is self.bank.worlds[name].active()  # who was replaced without knowing it shows what was
            demand(not rightful or errand.key not in self.shop.exists, f"T8: {errand.key!r} was missed (trace 34)")
            done(None)

    def shown(self, p: Process, key: bytes, version: int) -> tuple[int, bytes | None] | None:
        """What this process shows to who was led there by that version; None: it refuses, or not now."""
        ledger = p.partition.state.ledger
        if ledger.mapping < version:
            p.deliver(ev.MappingAsked(0, version))
            return None
        if ledger.locks.writer(key) is not None:
            return None
        found = p.version(key), p.value(key)
        if ledger.mapping > version:
            self.bank.cover.hit("a look-up is refused")
            self.known = self.shop.mapping
            return None
        return found

    # --- changing ---

    def go_on(self, errand: Errand, found: Located) -> None:
        """It was looked for."""
        if errand.kind == "find":
            self._end(errand, False)
        elif found is None:
            self.create(errand)
        else:
            home, version, value = found
            gone = errand.kind == "come and go"
            new = None if gone else b"%d" % (int(value) + 1)
            change = Change(DELETE if gone else UPDATE, REF, errand.key, new, version)
            errand.changes[home] = [change]
            self.present(errand)

    def create(self, errand: Errand) -> None:
        """In the new owner; the old one vouches that it has none (T8)."""
        at = place(errand.key, self.known)
        errand.mapping = at.version
        errand.changes[at.partition] = [Change(CREATE, REF, errand.key, b"0", ABSENT)]
        if at.before:
            errand.reads[at.before] = [(errand.key, ABSENT)]
        self.present(errand)

    def present(self, errand: Errand) -> None:
        self.done.append(errand)
        self._single(errand) if len(errand.parts) == 1 else self._prepare(errand)

    def _submit(
        self, deal: Deal, home: str, request: ev.Submitted | ev.PrepareAsked, target: Process, late_ms: float = 0.0
    ) -> None:
        assert isinstance(deal, Errand)
        super()._submit(deal, home, msgspec.structs.replace(request, mapping=deal.mapping), target, late_ms)

    def _end(self, deal: Deal, told: bool | None) -> None:
        if self.deal is not deal:
            return
        assert isinstance(deal, Errand)
        if deal.kind == "race" and told:
            demand(False, f"T8: {deal.key!r} was created twice (trace 33)")
        if deal.kind == "update" and deal.changes:
            created = any(c.op == CREATE for cs in deal.changes.values() for c in cs)
            if told and created:
                self.shop.exists.add(deal.key)
            elif told:
                self.shop.counted[deal.key] += 1
            elif told is None and not created:
                self.shop.doubtful[deal.key] += 1
        if not told and self.rng.random() < 0.5:
            self.known = self.shop.mapping
        super()._end(deal, told)


class Mover(Customer):
    """Carries what belongs elsewhere, partition by partition, and notes which are clean."""

    def begin(self) -> None:
        if self.deal is not None:
            return
        if self.rng.random() < 0.7:
            self.known = self.shop.mapping
        name = self.rng.choice(self.bank.names)
        p = self.bank.target(name)
        if p is None or self.known.next is None or not self.sweep(name, p):
            self.bank.engine.at(STEP_MS * (1 + self.rng.random()), self.begin)

    def sweep(self, name: str, p: Process) -> bool:
        """Is something on its way?"""
        version, ledger = self.known.version, p.partition.state.ledger
        if ledger.mapping != version:
            if ledger.mapping < version:
                p.deliver(ev.MappingAsked(0, version))
            return False
        if p.shown:
            return False
        elsewhere = self.shop.elsewhere(name, p, self.known)
        if not elsewhere:
            if not ledger.older(version):
                self.shop.clean(name, version)
            return False
        return self.carry(name, p, elsewhere)

    def carry(self, name: str, p: Process, elsewhere: list[bytes]) -> bool:
        """Some of it."""
        to = owner(elsewhere[0], self.known.newest)
        errand = self.deal = self.errand("move", b"")
        for key in elsewhere[: self.rng.choice((1, 2))]:
            if owner(key, self.known.newest) == to:
                at, value, _ = p.copy.objects[key]
                errand.changes.setdefault(name, []).append(Change(DELETE, REF, key, None, at))
                errand.changes.setdefault(to, []).append(Change(CREATE, REF, key, value, ABSENT))
        self.present(errand)
        return True


def make(seed: int, *, verbose: bool = False) -> Shop:
    """A shop of this seed: how many partitions and nodes, which faults, how unkind, when the mapping changes."""
    return staffed(Shop(seed, verbose=verbose), seed, Customer, Mover)


def staffed(shop: Shop, seed: int, customer: type[Customer], mover: type[Mover]) -> Shop:
    """With customers and movers, faults and an operator's changes to come."""
    chance = random.Random(seed * 104_729 + 7)
    length = chance.uniform(400.0, 1_200.0)
    for world in shop.worlds.values():
        for name in world.nodes:
            shop.engine.at(chance.choice((0.0, 0.0, 200.0)) * chance.random(), world.start, name)
        kinds = chance.sample(FAULTS, chance.randint(1, 4))
        for _ in range(chance.randint(0, 3)):
            shop.engine.at(150.0 + chance.random() * (length - 150.0), chance.choice(kinds), world)
    shop.tellers = [customer(shop, f"teller{i}", quota=25) for i in range(chance.choice((1, 2, 4)))]
    movers = counts.movers(len(shop.names), chance.choice((1, 2)))
    shop.movers = [mover(shop, f"mover{i + 5}", quota=0) for i in range(movers)]
    for teller in (*shop.tellers, *shop.movers):
        shop.engine.at(30.0 + 60.0 * chance.random(), teller.begin)
    for _ in range(chance.choice((1, 2, 4))):
        shop.engine.at(150.0 + chance.random() * (length - 150.0), shop.change)
    shop.engine.at(length, shop.heal)
    shop.length = length
    return shop
