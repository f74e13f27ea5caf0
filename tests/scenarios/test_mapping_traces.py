"""The traces of the protocol that are about a mapping that changes (T8), told in a calm shop of two partitions."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest

from halog.core import events as ev, results as res
from halog.core.ids import ABSENT
from halog.core.keys.mapping import begun, opened
from halog.core.log.records import CREATE, Change, MapperChanged, Prepare, decode
from tests.sim.bank_world import REF
from tests.sim.goods import finish
from tests.sim.node import Process
from tests.sim.shop import SEEDS, STEADY, Customer, Mover, Shop, owner, place
from tests.sim.twin import history

pytestmark = pytest.mark.feature("P6", "P13")

S = TypeVar("S", bound=Shop)


def plain(made: type[S], seeds: range) -> S:
    """A shop without local NO_SYNC, quorums or leases."""
    for seed in seeds:
        shop = made(seed, calm=True, worlds=2, nodes=2)
        settings = [w.settings for w in shop.worlds.values()]
        if not any(
            w.unlogged or w.leased or s.min_stay_ms for w, s in zip(shop.worlds.values(), settings, strict=True)
        ):
            return shop
    raise AssertionError


class Story:
    """Two partitions; one thing that the next layout has elsewhere."""

    asks: type[Customer] = Customer

    def __init__(self) -> None:
        self.shop = shop = self.opened()
        for world in shop.worlds.values():
            world.nature.abandoned_lost = 0.0
            for name in world.nodes:
                world.start(name)
        self.run(300)
        self.customer = self.asks(shop, "teller0", quota=0)
        shop.tellers.append(self.customer)
        layout = shop.mapping.now
        self.wished = msgspec.structs.replace(layout, ring_size=layout.ring_size + 1)
        self.key = next(k for k in (b"%04d" % i for i in range(99)) if owner(k, layout) != owner(k, self.wished))
        self.old, self.new = owner(self.key, layout), owner(self.key, self.wished)

    def opened(self) -> Shop:
        """Before anything is in it."""
        return plain(Shop, SEEDS)

    def run(self, ms: float = 60.0) -> None:
        self.shop.engine.run(self.shop.engine.now + ms)

    def active(self, name: str) -> Process:
        process = self.shop.worlds[name].active()
        assert process is not None
        return process

    def open(self) -> None:
        """The change is begun, and routed by from now on."""
        self.shop.mapping = opened(begun(self.shop.mapping, self.wished))

    def create(self, at: str, mapping: int) -> res.Result:
        """Ask a partition to create the thing, having been led there by a version of the mapping."""
        return self.submit(at, Change(CREATE, REF, self.key, b"0", ABSENT), mapping)

    def submit(self, at: str, change: Change, mapping: int = 0) -> res.Result:
        """Ask a partition for this change."""
        said: list[res.Result] = []
        token = self.shop.token(at, lambda result, _: said.append(result))
        p = self.active(at)
        tx = self.customer.make("create").id
        p.submit(ev.Submitted(token, tx, [], [change], {}, mapping=mapping), p.partition.state.chain.state.led)
        self.run()
        assert len(said) == 1
        return said[0]

    def told(self, at: str, version: int) -> None:
        """A request by that version comes to the partition, which has its log say so."""
        self.active(at).deliver(ev.MappingAsked(0, version))
        self.run()

    def carry(self) -> None:
        """Movers move until there is nothing to move."""
        mover = Mover(self.shop, "mover5", quota=0)
        self.shop.movers.append(mover)
        mover.known = self.shop.mapping
        mover.begin()
        for _ in range(100):
            if self.shop.mapping.changing is None:
                return
            self.run()
        raise AssertionError("the change is not done")

    def logged(self, at: str) -> list[int]:
        """The versions that a partition's log names."""
        found = [a.record for a in history(self.shop.worlds[at].log.entries)]
        return [r.mapper_version for r in found if isinstance(r, MapperChanged)]


def test_trace_33_a_partition_that_fails_over_has_not_forgotten_the_change() -> None:
    """The old owner serves the new mapping, then its active node dies. A create that was routed by the old one is
    refused by the next active, and by one that starts from an empty disk; so the key exists once."""
    story = Story()
    story.open()
    story.told(story.old, 1)
    first = story.active(story.old)
    world = story.shop.worlds[story.old]
    world.crash(first.name)
    story.run(600)
    assert story.active(story.old).name != first.name
    assert story.create(story.old, 0) == res.StaleMapping(1)
    world.start(first.name, wipe=True)
    story.run(300)
    world.crash(story.active(story.old).name)
    story.run(600)
    assert story.active(story.old).name == first.name
    assert story.create(story.old, 0) == res.StaleMapping(1)
    assert isinstance(story.create(story.new, 1), res.Success)
    assert story.logged(story.old) == [1]


def test_trace_33_a_create_of_either_mapping_that_came_first_wins() -> None:
    """One by the old mapping is in the old owner's log; one by the new mapping keeps its key from there, and fails."""
    story = Story()
    assert isinstance(story.create(story.old, 0), res.Success)
    story.open()
    customer = story.customer
    customer.known = story.shop.mapping
    errand = customer.deal = customer.errand("create", story.key)
    customer.create(errand)
    assert errand.parts == tuple(sorted((story.old, story.new)))
    story.run(400)
    assert errand.told is False
    assert story.active(story.new).value(story.key) is None
    story.carry()
    assert story.active(story.new).value(story.key) == b"0"
    assert story.active(story.old).value(story.key) is None


def test_trace_34_a_look_up_by_the_old_mapping_is_refused_not_told_that_nothing_is_there() -> None:
    """It was routed before the change and arrives when the thing has moved."""
    story = Story()
    assert isinstance(story.create(story.old, 0), res.Success)
    before = place(story.key, story.shop.mapping)
    story.open()
    story.carry()
    customer = story.customer
    customer.deal = customer.errand("find", story.key)
    assert customer.shown(story.active(story.old), story.key, before.version) is None, "refused"
    assert customer.known == story.shop.mapping, "and learned"
    now = place(story.key, customer.known)
    assert now.owners == (story.new,)
    assert customer.shown(story.active(story.new), story.key, now.version) == (
        story.active(story.new).version(story.key),
        b"0",
    )


@pytest.mark.parametrize("between", [False, True], ids=["before", "between"])
def test_trace_34_a_look_up_finds_what_moves_past_it(between: bool) -> None:
    """It asks the old owner, then the new one: what left the old one is in the new one by then."""
    story = Story()
    story.shop.exists.add(story.key)
    assert isinstance(story.create(story.old, 0), res.Success)
    story.open()
    customer = story.customer
    customer.known = story.shop.mapping
    for name in (story.old, story.new):
        story.told(name, 1)
    if not between:
        story.carry()
    errand = customer.deal = customer.errand("find", story.key)
    at, found = place(story.key, customer.known), []
    if between:
        assert at.owners == (story.old, story.new)
        assert customer.shown(story.active(story.old), story.key, at.version) is not None
        story.carry()
    customer.locate(errand, place(story.key, customer.known), 0, found.append)
    story.run()
    assert [where for where, _, _ in found if where] == [story.new]


def test_a_move_is_in_both_logs_or_in_none() -> None:
    """The same id, version and decision on both sides; then the change is done, and all is where it belongs."""
    story = Story()
    for name in (story.old, story.new):
        story.told(name, 0)
    assert isinstance(story.create(story.old, 0), res.Success)
    story.open()
    story.carry()
    told = {}
    for name in (story.old, story.new):
        found = [decode(e.data) for e in story.shop.worlds[name].log.entries]
        told[name] = [(r.header.tx, r.mapper_version) for r in found if isinstance(r, Prepare)]
    assert told[story.old] == told[story.new]
    assert [version for _, version in told[story.old]] == [1]
    assert story.shop.mapping.now == story.wished
    story.run(600)
    assert STEADY  # none of them was made
    finish(story.shop)
