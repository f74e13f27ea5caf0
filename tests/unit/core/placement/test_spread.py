"""Where copies go: evenly, apart, and with the fewest moves; beside every other way there is (P2, P5)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random

import pytest
from hypothesis import example, given, strategies as st

from halog.core.placement.level import Step, level
from halog.core.placement.spread import PlacementZone, spread

pytestmark = pytest.mark.feature("P2", "P5")

NODES = "ABCD"
Hosts = Mapping[str, Sequence[str]]
Given = tuple[dict[str, tuple[str, ...]], int, PlacementZone, Collection[str]]
"""What `spread` is asked."""


def uneven(hosts: Hosts, nodes: Sequence[str] = NODES) -> int:
    load = Counter(n for each in hosts.values() for n in each)
    return sum(load[n] ** 2 for n in nodes)


def gap(hosts: Hosts, nodes: Sequence[str]) -> int:
    """Copies of the fullest node beyond those of the emptiest."""
    load = Counter(n for each in hosts.values() for n in each)
    return max(load[n] for n in nodes) - min(load[n] for n in nodes)


def moved(now: Hosts, then: Hosts) -> int:
    return sum(len(set(then[p]) - set(now[p])) for p in now)


def led(hosts: Hosts) -> Counter[str]:
    return Counter(each[0] for each in hosts.values() if each)


def test_a_new_cluster_is_even_in_copies_and_roles() -> None:
    there = spread({f"p{i}": () for i in range(12)}, 2, PlacementZone("ABC", "ABC"))
    assert Counter(n for each in there.values() for n in each) == dict.fromkeys("ABC", 8)
    assert led(there) == dict.fromkeys("ABC", 4)


def test_a_node_that_joins_takes_its_share_and_nothing_else_moves() -> None:
    now = {f"p{i}": ("ABC"[i % 3], "ABC"[(i + 1) % 3]) for i in range(12)}
    then = spread(now, 2, PlacementZone("ABCD", "ABCD"))
    assert Counter(n for each in then.values() for n in each) == dict.fromkeys("ABCD", 6)
    assert moved(now, then) == 6
    assert led(then) == dict.fromkeys("ABCD", 3)


def test_what_is_even_stays_as_it_is() -> None:
    now = {f"p{i}": ("ABC"[i % 3], "ABC"[(i + 1) % 3]) for i in range(9)}
    assert spread(now, 2, PlacementZone("ABC", "ABC")) == now


def test_a_node_that_is_to_get_nothing_keeps_what_it_has() -> None:
    now = {"a": ("A", "B"), "b": ("A", "B"), "c": ("A", "B")}
    then = spread(now, 2, PlacementZone("ABC", "BC"))
    assert moved(now, then) == sum("C" in each for each in then.values()) == 2


def test_copies_of_one_partition_are_in_different_domains() -> None:
    racks = {"A": "r1", "B": "r1", "C": "r2", "D": "r2"}
    then = spread({"a": ("A", "B"), "b": ("C", "D")}, 2, PlacementZone(NODES, NODES, racks))
    assert all(len({racks[n] for n in each}) == 2 for each in then.values())
    assert moved({"a": ("A", "B"), "b": ("C", "D")}, then) == 2
    one_rack = spread({"a": ("A",)}, 2, PlacementZone("AB", "AB", racks))
    assert one_rack == {"a": ("A", "B")}, "a second copy in the same rack is better than none"


def test_more_and_fewer_copies() -> None:
    now = {"a": ("A", "B"), "b": ("B", "A")}
    more = spread(now, 3, PlacementZone("ABC", "ABC"))
    assert more == {"a": ("A", "B", "C"), "b": ("B", "A", "C")}
    assert spread(more, 1, PlacementZone("ABC", "ABC")) == {"a": ("A",), "b": ("B",)}
    assert spread(now, 3, PlacementZone("AB", "AB")) == now, "there are no more nodes"


def test_what_is_fixed_stays_and_is_counted() -> None:
    now = {"a": ("A", "B"), "b": ("A", "B"), "c": ("A", "B")}
    then = spread(now, 2, PlacementZone("ABCD", "ABCD"), fixed={"a", "b"})
    assert then == {"a": ("A", "B"), "b": ("A", "B"), "c": then["c"]}
    assert set(then["c"]) == {"C", "D"}


def test_what_stays_and_prefers_a_node_that_is_gone_counts_for_the_next_of_its_list() -> None:
    """That one is active; whoever is preferred for fewer is not, and the next plan would count anew."""
    now = {"a": ("A", "B"), "b": ("G", "A", "B")}
    then = spread(now, 2, PlacementZone("AB", "AB"), fixed={"b"})
    assert then["a"] == ("B", "A")
    assert spread({**now, "a": then["a"]}, 2, PlacementZone("AB", "AB"), fixed={"b"}) == then


def test_a_node_that_never_leads_is_not_preferred() -> None:
    then = spread({"a": ("A", "B"), "b": ("A", "B")}, 2, PlacementZone("AB", "AB", never={"b": ("B",)}))
    assert then == {"a": ("B", "A"), "b": ("A", "B")}


def test_backup_nodes_have_replicas_and_primary_nodes_are_preferred() -> None:
    then = spread({f"p{i}": () for i in range(12)}, 2, PlacementZone("ABC", "ABC", backup="C"))
    assert Counter(n for each in then.values() for n in each) == dict.fromkeys("ABC", 8)
    assert led(then) == {"A": 6, "B": 6}
    assert spread(then, 2, PlacementZone("ABC", "ABC", backup="C")) == then


def test_primary_nodes_come_before_backup_nodes_in_a_node_list() -> None:
    """The next of the list is active when the first is gone."""
    assert spread({"a": ("A", "D", "B")}, 3, PlacementZone("ABD", "ABD", backup="D")) == {"a": ("A", "B", "D")}


def test_what_has_no_copy_on_a_primary_node_gets_one() -> None:
    now = {"a": ("C", "D"), "b": ("D",)}
    then = spread(now, 2, PlacementZone(NODES, NODES, backup="CD"))
    assert led(then) == {"A": 1, "B": 1}
    assert moved(now, then) == 2
    alone = spread({"a": ("D",)}, 1, PlacementZone("AD", "AD", backup="D"))
    assert alone == {"a": ("A",)}


def test_a_copy_that_makes_room_for_a_primary_node_is_one_of_its_domain() -> None:
    """The primary site is back: the copy at the third site stays, and the next plan has nothing to do."""
    sites = {"A": "s1", "B": "s1", "C": "s2", "D": "s3"}
    zone = PlacementZone(NODES, NODES, sites, backup="BCD")
    then = spread({"a": ("B", "C")}, 2, zone)
    assert then == {"a": ("A", "C")}
    assert spread(then, 2, zone) == then


def test_backup_nodes_are_better_than_none() -> None:
    """The primary ones are down, or there are too few of them."""
    now = {"a": ("C", "D")}
    assert spread(now, 2, PlacementZone(NODES, "CD", backup="CD")) == now
    assert spread({"a": ("A",)}, 3, PlacementZone("ACD", "ACD", backup="CD")) == {"a": ("A", "C", "D")}
    assert spread({"a": ("A",)}, 1, PlacementZone("CD", "CD", backup="CD")) in ({"a": ("C",)}, {"a": ("D",)})


def test_the_copy_on_a_primary_node_comes_into_a_domain_of_its_own() -> None:
    """A would be beside B, a backup node of its rack: B makes room, or the primary node is another one."""
    racks = {"A": "r1", "B": "r1", "C": "r3"}
    then = spread({"p": ("B",)}, 2, PlacementZone("ABC", "ABC", racks, backup="BC"))
    assert then == {"p": ("A", "C")}
    free = spread({"p": ("B",)}, 2, PlacementZone("ABD", "ABD", {"A": "r1", "B": "r1"}, backup="B"))
    assert free == {"p": ("D", "B")}


@pytest.mark.feature("P7", "P2")
def test_a_node_that_may_get_none_of_it_is_left_out_and_the_others_are_even() -> None:
    """C may not get p0: it gets more of the others."""
    now = {f"p{i}": ("AB"[i % 2], "BA"[i % 2]) for i in range(6)}
    then = spread(now, 2, PlacementZone("ABC", "ABC", off={"p0": "C"}))
    assert Counter(n for each in then.values() for n in each) == dict.fromkeys("ABC", 4)
    assert "C" not in then["p0"]
    assert spread({"a": ("C",), "b": ()}, 1, PlacementZone("C", "C", off={"a": "C", "b": "C"})) == {
        "a": ("C",),
        "b": (),
    }


def test_a_node_that_joins_many_is_planned_for_without_looking_at_everything_again() -> None:
    """What may go where is asked for each partition at the beginning, and again only for those that went."""
    asked: Counter[str] = Counter()
    load = {"A": 300, "B": 300, "C": 0}
    where = {f"{n}{i}": n for n in "AB" for i in range(300)}

    def steps(thing: str) -> Iterator[Step]:
        asked[thing] += 1
        yield from (Step(where[thing], n, 1, thing) for n in "ABC" if n != where[thing])

    def take(step: Step) -> bool:
        where[step.thing] = step.target
        return True

    level(load, "ABC", list(where), steps, take)
    assert load == dict.fromkeys("ABC", 200)
    assert asked.total() == 600 + 200


def test_a_path_that_stands_in_its_own_way_is_taken_back_and_another_one_is_found() -> None:
    """From A to C there is only x by way of B, then y, which x blocks; or z at a higher price."""
    load, where = {"A": 3, "B": 2, "C": 0}, {"x": "A", "y": "B", "z": "A"}
    ways = {"x": ("A", "B", 0), "y": ("B", "C", 0), "z": ("A", "C", 1)}
    done = []

    def steps(thing: str) -> Iterator[Step]:
        source, target, cost = ways[thing]
        if where[thing] == source:
            yield Step(source, target, cost, thing)

    def take(step: Step) -> bool:
        able = where[step.thing] == step.source and not (step.thing == "y" and where["x"] == "B")
        if able:
            where[step.thing] = step.target
            done.append(step.thing)
        return able

    level(load, "ABC", list(where), steps, take)
    assert (load, where) == ({"A": 2, "B": 2, "C": 1}, {"x": "A", "y": "B", "z": "C"})
    assert done == ["x", "x", "z"], "x went, and came back"


def test_of_what_is_as_even_the_one_with_fewer_copies_made_is_taken() -> None:
    """Another node is fuller then, by as much."""
    now = {"v": "EAB", "w": "AC", "x": "E", "y": "ABC"}
    then = spread(now, 2, PlacementZone("ABCDE", "ABCDE", off={"v": "CBE", "w": "DC", "x": "BCD", "y": "CDA"}))
    assert (uneven(then, "ABCDE"), moved(now, then)) == (14, 2)


@st.composite
def clusters(draw: st.DrawFn, backups: bool = False, shut: bool = False, most: int = 3) -> Given:
    nodes = NODES[: draw(st.integers(2, 4))]
    backup = draw(st.lists(st.sampled_from(nodes[1:]), unique=True)) if backups else []
    domains = {n: draw(st.sampled_from(["", "r1", "r2"])) for n in nodes} if draw(st.booleans()) else {}
    some = st.lists(st.sampled_from(nodes), max_size=3, unique=True).map(tuple)
    now = {p: draw(some) for p in "xyzuvw"[: draw(st.integers(1, most))]}
    off = {p: draw(some) for p in now} if shut else {}
    open_ = draw(st.sampled_from([nodes, nodes[:-1]])) if shut else nodes
    return (
        now,
        draw(st.integers(1, min(3, len(nodes)))),
        PlacementZone(nodes, open_, domains, backup=backup, off=off),
        (),
    )


def groups(p: str, now: Hosts, copies: int, zone: PlacementZone) -> list[tuple[str, ...]]:
    """Every way to place it: as many copies as can be, one on a primary node and in as many domains as can be."""
    able = [n for n in zone.nodes if n in now[p] or (n in zone.open and n not in zone.off.get(p, ()))]
    all_ = list(itertools.combinations(able, min(copies, len(able))))
    all_ = [g for g in all_ if not set(g) <= set(zone.backup)] or all_
    apart = len({zone.domain(n) for n in zone.nodes}) >= copies
    most = max(len({zone.domain(n) for n in g}) for g in all_)
    return [g for g in all_ if not apart or len({zone.domain(n) for n in g}) == most]


def best(now: Hosts, copies: int, zone: PlacementZone, fixed: Collection[str] = ()) -> tuple[int, int]:
    """How uneven the best of all placements is, and how many copies it makes: for each load that the nodes can have,
    the fewest that give it, from every way to place the first partition, the first two, and so on."""
    fewest = {(0,) * len(zone.nodes): 0}
    for p in now:
        stays = [tuple(n for n in now[p] if n in zone.nodes)]
        further: dict[tuple[int, ...], int] = {}
        for (load, made), way in itertools.product(
            fewest.items(), stays if p in fixed else groups(p, now, copies, zone)
        ):
            then = tuple(each + (n in way) for each, n in zip(load, zone.nodes, strict=True))
            count = made + len(set(way) - set(now[p]))
            further[then] = min(count, further.get(then, count))
        fewest = further
    return min((sum(each * each for each in load), made) for load, made in fewest.items())


@st.composite
def mixed_clusters(draw: st.DrawFn) -> Given:
    """Domains of both kinds of nodes, of different sizes, and nodes without one; members that are gone, more copies
    than are wanted, nodes that may get nothing, and partitions that stay."""
    nodes = "ABCDEF"[: draw(st.integers(3, 6))]
    domains = {n: draw(st.sampled_from(["r1", "r1", "r2", "r2", "r3", ""])) for n in nodes}
    backup = draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=4, unique=True))
    some = st.lists(st.sampled_from(nodes + "XY"), max_size=4, unique=True).map(tuple)
    now = {p: draw(some) for p in "wxyz"[: draw(st.integers(1, 4))]}
    off = (
        {p: draw(st.lists(st.sampled_from(nodes), max_size=3, unique=True)) for p in now} if draw(st.booleans()) else {}
    )
    open_ = nodes[draw(st.sampled_from([0, 0, 0, 1])) :]
    fixed = draw(st.sampled_from([(), (), "w", "wx"]))
    return now, draw(st.integers(1, 3)), PlacementZone(nodes, open_, domains, backup=backup, off=off), fixed


ONLY_COPY_LEAVES: Given = (
    {"x": ("A",), "y": ()},
    3,
    PlacementZone("ABCDE", "ABCDE", {"A": "r2", "B": "r2", "C": "r3", "D": "r3", "E": "r1"}, backup="BDE"),
    (),
)
"""By single steps six copies are made where five suffice."""

TWO_AT_ONCE: Given = (
    {"x": ("C",), "y": ("B",)},
    2,
    PlacementZone(NODES, NODES, {"B": "r1", "C": "r2", "D": "r2"}, backup="BC", off={"y": "D"}),
    (),
)
"""By single steps A has two copies and D none, where each could have one; two copies more would be made for it."""


@example(ONLY_COPY_LEAVES)
@example(TWO_AT_ONCE)
@given(clusters(backups=True, shut=True) | clusters(backups=True) | mixed_clusters())
def test_no_other_way_is_more_even_or_moves_less(given: Given) -> None:
    now, copies, zone, fixed = given
    then = spread(now, copies, zone, fixed)
    for p, nodes in then.items():
        assert p in fixed or tuple(sorted(nodes)) in groups(p, now, copies, zone), p
    assert (uneven(then, zone.nodes), moved(now, then)) == best(now, copies, zone, fixed)


def racks(*sizes: tuple[int, int]) -> PlacementZone:
    """Of so many primary and backup nodes each."""
    kinds = {
        f"{kind}{k}-{rack}": rack for rack, each in enumerate(sizes) for kind, n in zip("pb", each) for k in range(n)
    }
    domains = {n: f"r{rack}" for n, rack in kinds.items()}
    return PlacementZone(list(kinds), list(kinds), domains, backup=[n for n in kinds if n[0] == "b"])


def loads(hosts: Hosts, zone: PlacementZone) -> list[int]:
    load = Counter(n for each in hosts.values() for n in each)
    return [load[n] for n in zone.nodes]


def test_where_primary_nodes_are_few_they_share_what_only_they_can_have() -> None:
    """Each of 120 partitions has a copy in each rack, and at least one on one of the two primary nodes: a are on the
    first, 120 - a on the second, the others on four backup nodes. The sum of all squares is least for a = 48."""
    zone = racks((1, 3), (1, 1))
    then = spread({f"p{i}": () for i in range(120)}, 2, zone)
    assert loads(then, zone) == [48, 24, 24, 24, 72, 48]
    assert spread(then, 2, zone) == then


@pytest.mark.parametrize(
    ("zone", "most"),
    [(racks((1, 4), (3, 2), (0, 3), (2, 0)), 24), (racks((2, 4), (1, 5), (3, 1), (0, 2)), 36)],
    ids=["15 nodes", "18 nodes"],
)
def test_many_partitions_over_mixed_racks_are_even_when_a_node_comes(zone: PlacementZone, most: int) -> None:
    """It gets its share, and nothing else moves. Where a third of 18 nodes is primary, no partition may have two there
    for that, and some change places."""
    before = spread({f"p{i}": () for i in range(120)}, 3, zone._replace(nodes=zone.nodes[:-1], open=zone.nodes[:-1]))
    then = spread(before, 3, zone)
    assert gap(then, zone.nodes) == 0
    assert moved(before, then) <= most
    assert spread(then, 3, zone) == then


def rooms(triples: Sequence[tuple[int, int, int]], size: int) -> Given:
    """Triples that are to be chosen so that each number is in one of them, at each place: a partition for each triple.
    Chosen, its copies are on `a` and `d`, else on `b` and `c`; and each node is as full as another when it has as many
    as the numbers want (decision 25)."""
    nodes = [f"{kind}{i}" for kind in "abd" for i in range(size)] + ["c"]
    wanted = dict.fromkeys(nodes, 1) | {"c": len(triples) - size}
    wanted |= {f"b{z}": sum(t[2] == z for t in triples) - 1 for z in range(size)}
    off, now = {}, dict[str, tuple[str, ...]]()
    for x, y, z in triples:
        p = f"{x}{y}{z}"
        now[p], off[p] = (), set(nodes) - {f"a{x}", f"b{z}", "c", f"d{y}"}
    there = {f"{n}-{i}": (n,) for n in nodes for i in range(len(triples) - wanted[n])}
    domains = {n: "east" if n[0] in "ab" else "west" for n in nodes}
    backup = [n for n in nodes if n[0] in "bd"]
    return now | there, 2, PlacementZone(nodes, nodes, domains, backup=backup, off=off), list(there)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_as_hard_as_a_matching_in_three_dimensions_is_found_where_it_is_small(seed: int) -> None:
    chance = Random(seed)
    triples = chance.sample(list(itertools.product(range(3), range(3), range(3))), 6)
    there_is = any(
        all(len(set(place)) == 3 for place in zip(*some, strict=True)) for some in itertools.combinations(triples, 3)
    )
    now, copies, zone, fixed = rooms(triples, 3)
    then = spread(now, copies, zone, fixed)
    assert (gap(then, zone.nodes) == 0) is there_is


def test_what_cannot_be_searched_to_the_end_is_valid_and_nearly_even() -> None:
    """Sixty triples of twelve numbers."""
    triples = Random(1).sample(list(itertools.product(range(12), range(12), range(12))), 60)
    now, copies, zone, fixed = rooms(triples, 12)
    then = spread(now, copies, zone, fixed)
    for p in then:
        assert p in fixed or tuple(sorted(then[p])) in groups(p, now, copies, zone), p
    assert gap(then, zone.nodes) <= 2


@given(clusters(backups=True, shut=True, most=6) | mixed_clusters())
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(given: Given) -> None:
    now, copies, zone, fixed = given
    then = spread(now, copies, zone, fixed)
    assert spread(then, copies, zone, fixed) == then


@given(clusters(backups=True, shut=True))
def test_preferred_nodes_are_as_even_as_the_copies_allow(given: Given) -> None:
    now, copies, zone, fixed = given
    then = {p: nodes for p, nodes in spread(now, copies, zone, fixed).items() if nodes}
    now = {p: now[p] for p in then}

    def rank(leads: Sequence[str]) -> tuple[int, int]:
        changed = sum(lead != (now[p][0] if now[p] else "") for p, lead in zip(now, leads, strict=True))
        return sum(n * n for n in Counter(leads).values()), changed

    mine = rank([then[p][0] for p in now])
    able = [[n for n in then[p] if n not in zone.backup] or then[p] for p in now]
    assert mine == min(rank(leads) for leads in itertools.product(*able))
