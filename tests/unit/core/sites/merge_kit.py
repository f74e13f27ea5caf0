"""Worlds of two sites that have parted: what traces of merges, and tests of what reads branches, begin with."""

from __future__ import annotations

from tests.unit.core.sites.merge_model import World


def land_all(world: World, at: str) -> None:
    for session in world.sites[at].sessions:
        world.sites[at].land(session, 1_000)


def bring(world: World, at: str) -> None:
    world.sites[at].bring_all(world.other(at))


def forked() -> World:
    """Both sites have key 0; west has key 1 alone, east key 2."""
    world = World(verdicts=-1)
    world.commit("west", 0)
    land_all(world, "west")
    bring(world, "east")
    world.alone("east")
    world.commit("west", 1)
    world.commit("east", 2)
    land_all(world, "west"), land_all(world, "east")
    return world


def closed() -> World:
    """East's branch is closed, and west's merge has begun: everything is to be appended with the next steps."""
    world = forked()
    world.close("east")
    world.merge("west")
    world.go_on("west", 0)
    world.go_on("west", 0)
    assert world.begun["west"].session is not None
    return world


def parted_again() -> World:
    """West has merged; east, which was closed for that, went on alone and never saw it."""
    world = forked()
    world.close("east")
    world.merge("west")
    for _ in range(3):
        world.go_on("west", 9)
    world.alone("east")
    world.commit("east", 3)
    land_all(world, "east")
    return world


def merged() -> World:
    """West has merged; east has given its log away, and mirrored nothing of it yet."""
    world = closed()
    world.go_on("west", 9)
    assert len(world.merges) == 1
    world.give("east", 1)
    assert world.sites["east"].state.owner == "west"
    return world


def is_one(world: World) -> None:
    assert world.sites["west"].state.hash == world.sites["east"].state.hash
    assert set(world.sites["west"].copy.objects) == {b"a", b"b", b"c"}
    world.level()
    world.readers()
    world.accounted()
