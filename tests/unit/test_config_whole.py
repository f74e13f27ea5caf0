"""One file for all sites of a cluster: nodes say at which site they are, and zones span sites (P5, M5)."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halog.config import Config, NodeConfig, RemoteSiteConfig, SiteConfig, load_config, parse_config
from halog.config.active_merge import disagreements, live, merged, waiting
from halog.config.changes import AT_ONCE, OWN_FILE, RESTART, differences, tree
from halog.config.multi_site import at_site, check_site, sites_named
from halog.config.read import problems_of
from halog.errors import ConfigError
from halog.metadata.config_versions import digest
from halog.runtime.membership.node_quorum import zones_of
from halog.runtime.placement.bootstrap import planned_tables

pytestmark = pytest.mark.feature("P5", "M5")

SERVERS: dict[str, dict[str, Any]] = {
    "west": {"bootstrap": "w:1", "zookeeper": "w:2"},
    "east": {"bootstrap": "e:1", "zookeeper": "e:2"},
}


def nodes(site: str, *names: str) -> dict[str, dict[str, Any]]:
    return {name: {"data_dir": f"var/{name}", "site": site} for name in names}


WHOLE: dict[str, Any] = {
    "cluster": {"name": "fleet"},
    "site": {"name": "west", **SERVERS["west"]},
    "sites": SERVERS,
    "zones": {
        "west": {"nodes": ["A", "B", "C"]},
        "east": {"nodes": ["[DEF]"]},
        "dr": {"nodes": ["B", "C", "E", "F"], "quorum": {"percentage": 51}},
    },
    "policies": {
        "fleet": {"zone": "dr", "home": "west", "partitions": 4},
        "local": {"zone": "west", "partitions": 2},
        "other": {"zone": "east", "partitions": 2},
    },
    "bindings": {"*": "fleet", "Local": "local", "Other": "other"},
    "nodes": {**nodes("west", "A", "B", "C"), **nodes("east", "D", "E", "F")},
}
"""The manual's figure: two nodes of each data centre are in the zone for disasters, too."""


def parsed(table: dict[str, Any], site: str = "west") -> Config:
    table = copy.deepcopy(table)
    table["site"] = {"name": site, **SERVERS[site]}
    return parse_config(table, "/etc/halog.toml", Path("/etc"))


def changed(site: str = "west", **sections: Any) -> Config:
    return parsed({**WHOLE, **sections}, site)


def policies(**changes: Any) -> dict[str, Any]:
    return {**WHOLE["policies"], **changes}


WEST, EAST = parsed(WHOLE), parsed(WHOLE, "east")


def test_a_site_runs_with_what_a_file_of_its_own_would_say() -> None:
    """So nothing that runs knows of the tree, and no rule is another one for it."""
    alone = parsed(
        {
            **WHOLE,
            "zones": {"east": {"nodes": ["[DEF]"]}, "dr": {"nodes": ["E", "F"], "quorum": {"percentage": 51}}},
            "policies": {name: WHOLE["policies"][name] for name in ("fleet", "other")},
            "bindings": {"*": "fleet", "Other": "other"},
            "nodes": {name: {"data_dir": f"var/{name}"} for name in "DEF"},
        },
        "east",
    )
    plain = {name: replace(node, site="") for name, node in EAST.nodes.items()}
    assert replace(EAST, whole=None, nodes=plain, bindings=alone.bindings) == alone


def test_zones_and_policies_are_where_their_nodes_are() -> None:
    assert (set(WEST.nodes), set(EAST.nodes)) == ({"A", "B", "C"}, {"D", "E", "F"})
    assert (WEST.nodes_of("dr"), EAST.nodes_of("dr")) == (("B", "C"), ("E", "F"))
    assert (set(WEST.zones), set(EAST.zones)) == ({"west", "dr"}, {"east", "dr"})
    assert (set(WEST.policies), set(EAST.policies)) == ({"fleet", "local"}, {"fleet", "other"})
    assert (WEST.mirrored("fleet"), EAST.mirrored("fleet")) == (False, True)
    assert {n for t in planned_tables(EAST) if t.policy == "fleet" for n in t.configured} == {"E", "F"}
    assert WEST.all_sites.nodes_of("dr") == EAST.all_sites.nodes_of("dr") == ("B", "C", "E", "F")


def test_a_quorum_is_counted_by_each_site_alone() -> None:
    """What happens to the line takes no node offline, and no site counts votes of the other one."""
    zones = {c.site.name: {z.name: z for z in zones_of(c, node)} for c, node in ((WEST, "B"), (EAST, "E"))}
    assert zones["west"]["dr"].votes == {"B": 1, "C": 1}
    assert zones["east"]["dr"].votes == {"E": 1, "F": 1}
    assert zones["west"]["dr"].demand == zones["east"]["dr"].demand == "51 % of 2 votes"


def test_the_manuals_node_lists_are_written_as_they_stand_there() -> None:
    """A is on One, Two and Four, B on Three, Four and Two; each site has its part of the list, in its order."""
    table = {
        **WHOLE,
        "zones": {"dr": {"nodes": ["*"]}},
        "policies": {
            "a": {"kind": "static", "zone": "dr", "home": "west", "partitions": {"A": ["One", "Two", "Four"]}},
            "b": {
                "kind": "static",
                "zone": "dr",
                "home": "east",
                "partitions": {"B": {"nodes": ["Three", "Four", "Two"], "async": ["Four", "Two"]}},
            },
        },
        "bindings": {},
        "nodes": {**nodes("west", "One", "Two"), **nodes("east", "Three", "Four")},
    }
    north, south = parsed(table), parsed(table, "east")
    placed = {c.site.name: {t.name: t.configured for t in planned_tables(c)} for c in (north, south)}
    assert placed == {
        "west": {"A": ("One", "Two"), "B": ("Two",)},
        "east": {"A": ("Four",), "B": ("Three", "Four")},
    }
    late = south.policies["b"].static["B"]
    assert (late.asynchronous, late.sync_replicas(south.policies["b"])) == (("Four",), 0)
    assert north.policies["b"].static["B"].asynchronous == (), "who is first there is no replica while it serves"


def test_backup_nodes_are_so_inside_their_site() -> None:
    """Where all of a site are for replicas they are alike there: one of them serves what the site takes over."""
    made = policies(fleet={"zones": ["west", "dr"], "home": "west", "backup": ["C", "E", "F"]})
    assert changed(policies=made).backups_of("fleet") == ("C",)
    east = changed("east", policies=made)
    assert (east.policies["fleet"].zones, east.hosts_of("fleet"), east.backups_of("fleet")) == (("dr",), ("E", "F"), ())


def test_the_tree_is_what_is_written_shown_and_activated(tmp_path: Path) -> None:
    written = tmp_path / "halog.toml"
    written.write_text(EAST.to_toml())
    assert load_config(written) == EAST
    assert parsed(tree(EAST), "east") == EAST
    assert digest(EAST) != digest(changed("east", nodes={**WHOLE["nodes"], **nodes("west", "G")})), "of another site"
    hand = {"kind": "static", "zone": "west", "partitions": {"X": ["A"], "Y": ["B"]}}
    turned = {**hand, "partitions": {"Y": ["B"], "X": ["A"]}}
    one, other = (changed("east", policies=policies(local=p)) for p in (hand, turned))
    assert digest(one) != digest(other), "which is their index, at the other site"
    assert load_config(EAST) is EAST, "as it is: it is one site's already"
    assert replace(EAST, policies=dict(EAST.policies)).validate().whole == EAST.whole


def test_a_file_of_one_site_says_nothing_new() -> None:
    """Nothing of it stands in versions, which an older halog reads, too."""
    plain = {name: {"data_dir": name} for name in "ABC"}
    one = changed(
        nodes=plain,
        zones={"west": WHOLE["zones"]["west"]},
        bindings={},
        sites={},
        policies={"local": WHOLE["policies"]["local"]},
    )
    assert one.whole is None
    assert "site" not in tree(one)["nodes"]["A"]
    assert "\nsite = " not in one.to_toml()


def test_a_tree_built_in_python_is_taken_apart_as_well() -> None:
    built = replace(WEST.all_sites, site=SiteConfig("east", "e:1", "e:2"))
    assert load_config(built) == EAST


def test_a_node_of_another_site_is_not_started_here() -> None:
    check_site(WEST, "A")
    check_site(WEST, "client-1")
    with pytest.raises(ConfigError, match="node D is of site east, and this is site west"):
        check_site(WEST, "D")


# --- what is wrong ---

DR = WHOLE["policies"]["fleet"]
BY_HAND = {"kind": "static", "zone": "dr", "home": "west"}
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"nodes": {**WHOLE["nodes"], "D": {"data_dir": "D"}}}, "nodes.D.site", "is missing: node A says at which"),
    ({"nodes": {**WHOLE["nodes"], **nodes("eats", "D")}}, "nodes.D.site", "did you mean 'east'?"),
    ({"nodes": {**WHOLE["nodes"], **nodes("moon", "D")}}, "nodes.D.site", "name its servers in [sites.moon]"),
    ({"policies": policies(fleet={"zone": "dr"})}, "policies.fleet.home", "its nodes are at sites west and east"),
    (
        {"policies": policies(local={"zone": "west", "home": "east"})},
        "policies.local.home",
        "none of its nodes is at site east: they are at west",
    ),
    (
        {"policies": policies(local={"zone": "west", "home": "west", "sync_sites": ["west", "east"]})},
        "policies.local.sync_sites",
        "none of its nodes is at site east",
    ),
    (
        {"policies": policies(hand={**BY_HAND, "partitions": {"P": ["B", "E", "C"]}})},
        "policies.hand.partitions.P",
        "names C, of its home west, behind E, of site east: those of the home come first",
    ),
    (
        {"policies": policies(hand={**BY_HAND, "partitions": {"P": ["E"]}})},
        "policies.hand.partitions.P",
        "names no node of its home west, where it begins; the first one, E, is of site east",
    ),
    (
        {"policies": policies(hand={**BY_HAND, "partitions": {"P": ["B", "E"], "Q": ["C"]}})},
        "policies.hand.partitions.Q",
        "names no node of site east, where its policy has some",
    ),
    (
        {"policies": policies(local={"zone": "west", "home": "west", "takeover": "always"})},
        "policies.local.takeover",
        "'always' needs nodes at another site to take over: all are at west",
    ),
    (
        {"policies": policies(fleet={**DR, "sync_replicas": 2})},
        "policies.fleet.sync_replicas",
        "an active and its replicas need 3 nodes, zone 'dr' has 2 (at sites west and east)",
    ),
    (
        {"policies": policies(fleet={**DR, "zones": ["west", "dr"], "zone": "", "sync_replicas": 2})},
        "policies.fleet.sync_replicas",
        "zone 'dr' has 2 (at site east)",
    ),
    (
        {"zones": {**WHOLE["zones"], "dr": {"nodes": ["B", "C", "E"], "quorum": {"minimum_votes": 2}}}},
        "zones.dr.quorum.minimum_votes",
        "must be 1 to 1 (the votes of all its nodes), is 2 (at site east)",
    ),
    ({"zones": {**WHOLE["zones"], "dr": {"nodes": ["G"]}}}, "zones.dr.nodes", "'G' is not in [nodes]"),
    ({"bindings": {"*": "flet"}}, 'bindings."*"', "'flet' is not in [policies]"),
]


@pytest.mark.parametrize(("sections", "key", "reason"), WRONG)
@pytest.mark.parametrize("site", ["west", "east"])
def test_what_is_wrong_anywhere_is_found_at_every_site(
    sections: dict[str, Any], key: str, reason: str, site: str
) -> None:
    """A file that one site would refuse is not activated at the other."""
    table = {**WHOLE, **sections, "site": {"name": site, **SERVERS[site]}}
    found = problems_of(table, "f")
    assert any(k == key and reason in why for k, why in found), found
    with pytest.raises(ConfigError):
        changed(site, **sections)


def test_sites_are_named_as_people_name_them() -> None:
    """One, two, and more."""
    assert sites_named(["west"]) == "site west"
    assert sites_named(["west", "east"]) == "sites west and east"
    assert sites_named(["west", "east", "moon"]) == "sites west, east and moon"


def test_a_site_without_a_node_is_a_mistake() -> None:
    """Such as a name that nobody has given."""
    table = {**WHOLE, "site": {"bootstrap": "h:1", "zookeeper": "h:2"}}
    assert ("site.name", "'home' is the site of none of [nodes]: they are at west and east") in problems_of(table, "f")


def test_nodes_at_different_sites_may_have_the_same_directory() -> None:
    made = {"A": {"data_dir": "/data", "site": "west"}, "D": {"data_dir": "/data", "site": "east"}}
    assert set(changed(nodes={**WHOLE["nodes"], **made}).nodes) == {"A", "B", "C"}
    assert ("nodes.B.data_dir", "is node A's too, at the same host 127.0.0.1; each node needs its own") in problems_of(
        {**WHOLE, "nodes": {**WHOLE["nodes"], **made, "B": {"data_dir": "/data", "site": "west"}}}, "f"
    )


# --- versions ---


def test_a_version_and_a_file_make_one_tree_of_which_a_site_runs_its_part(tmp_path: Path) -> None:
    """A short file is enough, and says what its machine knows."""
    short = parse_config(
        {"cluster": {"name": "fleet"}, "site": {"name": "east", **SERVERS["east"]}}, str(tmp_path / "f"), tmp_path
    )
    made = merged(short, parse_config({**tree(EAST), "site": {"name": "east", **SERVERS["east"]}}, "v", Path()))
    assert (set(made.nodes), set(made.policies)) == ({"D", "E", "F"}, {"fleet", "other"})
    assert set(made.all_sites.nodes) == set("ABCDEF")
    own = changed("east", nodes={**WHOLE["nodes"], "D": {"data_dir": "/disk", "address": "d:9", "site": "east"}})
    assert merged(own, EAST).nodes["D"] == NodeConfig(Path("/disk"), "d:9", site="east")
    assert merged(own, EAST).sites["west"] == RemoteSiteConfig(**SERVERS["west"])
    assert disagreements(own, EAST, "D") == []


def test_what_changes_at_another_site_takes_no_restart_here() -> None:
    """A node that comes there is in the zone at once; a policy of that site alone is none of this one's."""
    more = {**WHOLE["nodes"], **nodes("east", "G")}
    zones = {**WHOLE["zones"], "dr": {"nodes": ["B", "C", "E", "F", "G"]}}
    other = {"zone": "east", "partitions": 2, "before_images": False}
    new = changed(nodes=more, zones=zones, policies=policies(other=other))
    effects = {c.text: c.effect for c in differences(WEST, new)}
    assert effects["nodes.G"] == effects["zones.dr.nodes"] == AT_ONCE
    assert effects["policies.other.before_images"] == RESTART
    assert waiting(WEST, new) == []
    assert live(WEST, new).all_sites.nodes_of("dr") == ("B", "C", "E", "F", "G")
    assert live(WEST, new).nodes_of("dr") == ("B", "C")


def test_a_policy_that_comes_to_a_site_waits_for_a_restart_there() -> None:
    """Its partitions are created by nodes that start."""
    spread = policies(local={"zones": ["west", "dr"], "home": "west", "partitions": 2})
    old = changed("east", policies=policies(local={"zone": "west", "home": "west", "partitions": 2}))
    new = changed("east", policies=spread)
    assert (set(old.policies), set(new.policies)) == ({"fleet", "other"}, {"fleet", "local", "other"})
    assert set(live(old, new).policies) == {"fleet", "other"}
    assert ("policies", "local") in waiting(old, new)


def test_a_cluster_goes_over_to_one_file_and_back() -> None:
    """What its own file said of one site, and then the tree: the same but for where nodes are."""
    alone = replace(
        EAST, whole=None, nodes={n: replace(e, site="") for n, e in EAST.nodes.items()}, bindings={"*": "fleet"}
    ).validate()
    assert alone.whole is None
    there = live(alone, EAST)
    assert (there.nodes, there.zones, there.policies) == (EAST.nodes, EAST.zones, EAST.policies)
    back = live(EAST, alone)
    assert (back.whole, back.nodes, set(back.policies)) == (None, alone.nodes, {"fleet", "other"})


def test_the_key_is_each_nodes_own_and_takes_effect_with_its_start() -> None:
    zones = {**WHOLE["zones"], "west": {"nodes": ["B", "C"]}}
    new = changed(nodes={**WHOLE["nodes"], **nodes("east", "A")}, zones=zones)
    found = {c.text: c.effect for c in differences(WEST, new)}
    assert found == {"nodes.A.site": AT_ONCE, "zones.west.nodes": AT_ONCE}
    assert OWN_FILE not in found.values()


def test_each_site_of_a_tree_can_be_asked_for() -> None:
    """As a tool at one site sees the others: zones, quorums and nodes are theirs."""
    assert (set(at_site(WEST, "east").nodes), at_site(WEST, "east").nodes_of("dr")) == (set("DEF"), ("E", "F"))
    assert at_site(WEST, "west") == WEST
