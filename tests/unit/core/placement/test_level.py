"""What may go from where to where, as levelling keeps it: the cheapest step between two nodes is always known (P2)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from halog.core.placement.level import Step, _Edges

pytestmark = pytest.mark.feature("P2")

NODES, THINGS = "ABCD", "wxyz"
STEPS = st.lists(
    st.tuples(st.sampled_from(NODES), st.sampled_from(NODES), st.integers(-1, 1), st.booleans()),
    max_size=6,
    unique_by=lambda step: step[:2],
)
EVENTS = st.lists(st.tuples(st.sampled_from(THINGS), STEPS | st.none()), max_size=20)


def cheapest(steps: dict[str, list[Step]], source: str) -> set[Step]:
    """One to each target, of all there are: of those that cost the same not the last ones, then the first things."""
    able = [s for thing in THINGS for s in steps[thing] if s.source == source]
    return {min((s for s in able if s.target == to), key=lambda s: (s.cost, s.last)) for to in {s.target for s in able}}


@given(EVENTS)
def test_the_cheapest_steps_are_those_of_all_that_there_are(
    events: Sequence[tuple[str, Sequence[tuple[str, str, int, bool]] | None]],
) -> None:
    """A thing went elsewhere, or the cheapest step from a node turned out to be none."""
    steps: dict[str, list[Step]] = {thing: [] for thing in THINGS}
    edges = _Edges(THINGS, lambda thing: steps[thing])
    for thing, now in events:
        if now is not None:
            steps[thing] = [Step(source, to, cost, thing, last) for source, to, cost, last in now]
            edges.renew(thing)
        elif found := edges.cheapest(NODES[THINGS.index(thing)]):
            step = found[0][-1]
            steps[step.thing].remove(step)
            edges.drop(step)
        for node in NODES:
            known = edges.cheapest(node)
            assert {step for _, _, step in known} == cheapest(steps, node)
            assert all((to, cost) == (step.target, step.cost) for to, cost, step in known)


def test_a_path_looks_only_at_what_has_changed_since_the_one_before() -> None:
    """Each looks at all nodes: with many nodes nearly all of the time goes there."""
    steps = {"w": [Step("A", "B", 0, "w")], "x": [Step("C", "D", 0, "x")]}
    edges = _Edges("wx", lambda thing: steps[thing])
    there = {node: edges.cheapest(node) for node in NODES}
    steps["w"] = [Step("B", "A", 0, "w")]
    edges.renew("w")
    assert [node for node in NODES if edges.cheapest(node) is not there[node]] == ["A", "B"]
