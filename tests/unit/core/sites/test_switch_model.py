"""Two sites that switch back and forth while appends of every kind land late: one history, nothing acknowledged lost.
What is played is in `switching_model`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from halog.core.ids import digest
from halog.core.log import records
from halog.core.log.chain import Chain, Verdict
from tests.unit.core.sites.switch_model import Site, World

pytestmark = pytest.mark.feature("M5", "X3")

SITE = st.sampled_from(["west", "east"])
STEPS = st.one_of(
    st.tuples(st.just("commit"), SITE),
    st.tuples(st.just("commit"), SITE),
    st.tuples(st.just("elect"), SITE, st.integers(0, 1)),
    st.tuples(st.just("land"), SITE, st.integers(-6, -1), st.integers(1, 4)),
    st.tuples(st.just("land"), SITE, st.integers(-6, -1), st.integers(1, 4)),
    st.tuples(st.just("land"), SITE, st.integers(0, 8), st.integers(1, 4)),
    st.tuples(st.just("mirror"), SITE, st.integers(0, 6)),
    st.tuples(st.just("promote"), SITE),
    st.tuples(st.just("give_away"), SITE),
    st.tuples(st.just("ask"), SITE),
)


@settings(max_examples=600)
@given(st.lists(STEPS, min_size=20, max_size=60))
def test_sites_that_switch_have_one_history_whatever_lands_late(steps: list[tuple[str, ...]]) -> None:
    world = World()
    for name, *args in steps:
        getattr(world, name)(*args)
        world.check()
    for site in world.sites.values():  # whoever wrote is told that it wrote for nothing, or is in the history
        for session in site.sessions:
            site.land(session, 1_000)
    world.check()
    serving = max(world.sites.values(), key=lambda s: len(s.accepted))
    both = world.west.acknowledged | world.east.acknowledged
    assert both <= transactions(serving)


def transactions(site: Site) -> set[bytes]:
    """Those that count in a site's log, read anew from its beginning."""
    chain, found = Chain(Site.beginning(site.name)), set()
    for data in site.log:
        record = records.decode(data)
        if chain.read(record, digest(data)) is Verdict.ACCEPTED:
            found.add(record.header.tx)
    return found


def test_without_the_fence_an_acknowledged_commit_is_lost() -> None:
    """The model can fail: a writer that lost only its session goes on, and what it appends counts at its site."""
    world = World(fences=False)
    world.commit("west")
    world.land("west", -1, 9)
    world.promote("east")
    world.commit("west")
    world.land("west", 1, 9)
    world.commit("east")
    world.land("east", -1, 9)
    assert len(world.west.acknowledged) == 2
    with pytest.raises(AssertionError, match="two histories"):
        world.check()
