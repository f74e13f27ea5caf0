"""Several sites in a configuration: how the others are reached, and where the partitions of a policy begin (M5)."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halog.config import Config, RemoteSiteConfig, SiteConfig, load_config, parse_config
from halog.config.active_merge import disagreements, merged, waiting
from halog.config.changes import AT_ONCE, OWN_FILE, RESTART, differences, tree
from halog.config.read import problems_of
from halog.core.settings import Sites
from halog.errors import ConfigError
from halog.runtime.node.assembly import copy_policy
from halog.runtime.node.wiring import addresses, remote_site

pytestmark = pytest.mark.feature("M5")

WEST: dict[str, Any] = {"bootstrap": "w:1", "zookeeper": "w:2,w:3/halog"}
EAST: dict[str, Any] = {"bootstrap": "e:1", "zookeeper": "e:2"}
TABLE: dict[str, Any] = {
    "cluster": {"name": "fleet"},
    "site": {"name": "east", **EAST},
    "sites": {"west": WEST, "south": {"embedded": "var/south"}},
    "zones": {"main": {"nodes": ["A", "B"]}},
    "policies": {"p": {"zone": "main", "home": "west"}, "q": {"zone": "main"}},
    "bindings": {"*": "p"},
    "nodes": {"A": {"data_dir": "var/A"}, "B": {"data_dir": "var/B"}},
}


def parsed(table: dict[str, Any], source: str = "/etc/halog.toml") -> Config:
    return parse_config(table, source, Path(source).parent)


def changed(**sections: Any) -> Config:
    return parsed({**TABLE, **sections})


def policy(**values: Any) -> dict[str, Any]:
    return {**TABLE["policies"], "p": {"zone": "main", "home": "west", **values}}


def test_other_sites_are_read_and_say_where_a_policy_begins(tmp_path: Path) -> None:
    config = changed()
    assert config.sites["west"] == RemoteSiteConfig("w:1", "w:2,w:3/halog")
    assert config.sites["south"] == RemoteSiteConfig(embedded=Path("/etc/var/south")), "relative to the file"
    assert (config.home_of("p"), config.mirrored("p")) == ("west", True)
    assert (config.home_of("q"), config.mirrored("q")) == ("east", False), "without home: here, and nowhere else"
    written = tmp_path / "halog.toml"
    written.write_text(config.to_toml())
    assert load_config(written) == config
    assert parsed(tree(config)) == config


def test_sites_whose_logs_commits_wait_for_are_the_same_list_everywhere(tmp_path: Path) -> None:
    config = changed(policies=policy(sync_sites=["west", "east"], sync_site_away="drop", sync_site_away_ms=9_000))
    written = tmp_path / "halog.toml"
    written.write_text(config.to_toml())
    assert load_config(written) == config
    assert parsed(tree(config)) == config
    assert copy_policy(config, "p").sites == Sites(("west",), strict=False, away_ms=9_000)
    west = replace(config, site=SiteConfig("west", **WEST), sites={"east": RemoteSiteConfig(**EAST)})
    assert copy_policy(west.validate(), "p").sites.names == ("east",)
    assert copy_policy(config, "q").sites == Sites()


def test_how_parted_histories_are_compared_is_the_policys_say(tmp_path: Path) -> None:
    config = changed(policies=policy(comparison="two-way"))
    assert (config.policies["p"].two_way, config.policies["q"].two_way) == (True, False)
    written = tmp_path / "halog.toml"
    written.write_text(config.to_toml())
    assert load_config(written) == config
    assert parsed(tree(config)) == config
    assert [(c.text, c.effect) for c in differences(changed(), config)] == [("policies.p.comparison", AT_ONCE)]
    assert waiting(changed(), config) == []


def test_how_nodes_of_another_site_are_reached_is_each_machines_own_say(tmp_path: Path) -> None:
    asked = {"requests": False, "nodes": {"W1": "gate:7001", "W2": "gate:7002"}}
    config = changed(sites={**SITES, "west": {**WEST, **asked}})
    assert (config.sites["west"].requests, dict(config.sites["west"].nodes)) == (False, asked["nodes"])
    assert changed().sites["west"].requests, "as inside a site, unless somebody says otherwise"
    written = tmp_path / "halog.toml"
    written.write_text(config.to_toml())
    assert load_config(written) == config
    assert parsed(tree(config)) == config
    effects = {c.text: c.effect for c in differences(changed(), config)}
    keys = ("requests", "nodes.W1", "nodes.W2")
    assert effects == dict.fromkeys([f"sites.west.{key}" for key in keys], OWN_FILE)
    assert merged(config, changed()).sites["west"] == config.sites["west"]


def test_one_file_serves_all_sites_but_for_its_own(tmp_path: Path) -> None:
    """The entry of this very site is kept and not used."""
    both = {"west": WEST, "east": EAST}
    east, west = changed(sites=both), changed(sites=both, site={"name": "west", **WEST})
    assert east.sites == west.sites
    assert (set(east.other_sites), set(west.other_sites)) == ({"west"}, {"east"})
    assert (east.mirrored("p"), west.mirrored("p")) == (True, False)
    assert east.home_of("p") == west.home_of("p") == "west"


def test_a_file_without_sites_is_what_it_was() -> None:
    """Nothing of them stands in its versions, so that their digests stay the same."""
    alone = parsed({**TABLE, "sites": {}, "policies": {"p": {"zone": "main"}}})
    assert "sites" not in tree(alone)
    of_sites = {"home", "sync_sites", "sync_site_away", "sync_site_away_ms", "takeover", "takeover_after_ms"}
    assert not {*of_sites, "comparison"} & tree(alone)["policies"]["p"].keys()
    assert not alone.mirrored("p")


SITES = TABLE["sites"]
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"sites": {"west": {"bootstrap": "w:1"}}}, "sites.west.zookeeper", "is missing; give bootstrap and zookeeper, or"),
    ({"sites": {"west": {}}}, "sites.west.bootstrap", "is missing; give bootstrap and zookeeper, or embedded"),
    ({"sites": {"west": {**WEST, "embedded": "x"}}}, "sites.west.bootstrap", "excludes sites.west.embedded"),
    ({"sites": {"west": {"embedded": ""}}}, "sites.west.embedded", "must not be empty"),
    ({"sites": {"west": {**WEST, "bootstrap": "w"}}}, "sites.west.bootstrap", "'w' must be host:port"),
    ({"sites": {"west": {**WEST, "zookeeper": "a:1,b:0"}}}, "sites.west.zookeeper", "needs a port"),
    ({"sites": {"west": {**WEST, "zookeeper": "::1:2181"}}}, "sites.west.zookeeper", "an IPv6 address in brackets"),
    ({"sites": {"west": {**WEST, "bootstrap": "a:1, b c:2"}}}, "sites.west.bootstrap", "'b c:2' must be host:port"),
    ({"sites": {"west": {**WEST, "bootstrap": "a:1/"}}}, "sites.west.bootstrap", "Kafka has no paths"),
    ({"sites": {"west": {**WEST, "zookeeper": "a:1/x,b:1/x"}}}, "sites.west.zookeeper", "a chroot stands once"),
    *(
        ({"sites": {"west": {**WEST, "zookeeper": f"a:1/{chroot}"}}}, "sites.west.zookeeper", "no path of ZooKeeper's")
        for chroot in ("a/../b", ".", "a//b", "a/\x07")
    ),
    ({"sites": {"west": {**WEST, "nodes": {"W1": "w"}}}}, "sites.west.nodes.W1", "'w' must be host:port"),
    ({"sites": {"west": {**WEST, "nodes": {"W1": "w:0"}}}}, "sites.west.nodes.W1", "needs a port"),
    ({"sites": {"west": {**WEST, "nodes": {"W1": "[::]:1"}}}}, "sites.west.nodes.W1", "every interface"),
    ({"sites": {"west": {**WEST, "bootstrap": "w:1,0.0.0.0:2"}}}, "sites.west.bootstrap", "every interface"),
    ({"sites": {"west": {**WEST, "nodes": "w:1"}}}, "sites.west.nodes", "must be a table"),
    ({"sites": {"west": {**WEST, "requests": "no"}}}, "sites.west.requests", "must be true or false"),
    ({"sites": {"west": {**WEST, "bootstrapp": "w:1"}}}, "sites.west.bootstrapp", "did you mean 'bootstrap'?"),
    ({"sites": {"west": {**WEST, "name": "x"}}}, "sites.west.name", "is unknown"),
    ({"sites": {"west": {**WEST, "bootstrap": 3}}}, "sites.west.bootstrap", "must be a string"),
    ({"sites": {"west": WEST, "a b": EAST}}, "sites.a b", "1 to 100 of"),
    ({"sites": {"west": "w:1"}}, "sites.west", "must be a table"),
    (
        {"sites": {**SITES, "west": {**WEST, "bootstrap": "e:1"}}},
        "sites.west.bootstrap",
        "is that of [site], whose",
    ),
    ({"sites": {**SITES, "old": {**WEST, "bootstrap": "o:1"}}}, "sites.old.zookeeper", "is that of [sites.west]; each"),
    ({"sites": {"north": WEST}}, "policies.p.home", "neither this site, 'east', nor in [sites]; name its servers in"),
    ({"policies": policy(home="wset")}, "policies.p.home", "did you mean 'west'?"),
    ({"policies": policy(home=3)}, "policies.p.home", "must be a string"),
    ({"policies": policy(local_sync="NO_SYNC")}, "policies.p.local_sync", "NO_SYNC excludes home: its log may lack"),
    (
        {"policies": policy(local_sync="NO_SYNC", home="east")},
        "policies.p.local_sync",
        "use WRITE_NO_SYNC, or take out policies.p.home",
    ),
    ({"policies": policy(sync_sites=["wset"])}, "policies.p.sync_sites", "nor in [sites]; did you mean 'west'?"),
    ({"policies": policy(sync_sites=["oslo"])}, "policies.p.sync_sites", "name its servers in [sites.oslo]"),
    ({"policies": policy(sync_sites=["east", "east"])}, "policies.p.sync_sites", "names 'east' twice"),
    ({"policies": policy(sync_sites=["west"])}, "policies.p.sync_sites", "names only the home, 'west'"),
    ({"policies": policy(sync_sites="east")}, "policies.p.sync_sites", "must be a list of strings"),
    (
        {"policies": {"p": {"zone": "main", "sync_sites": ["west"]}, "q": {"zone": "main"}}},
        "policies.p.sync_sites",
        "needs policies.p.home",
    ),
    (
        {"policies": policy(sync_sites=["east"], sync_site_away="wait")},
        "policies.p.sync_site_away",
        "must be one of refuse, drop",
    ),
    ({"policies": policy(sync_site_away="drop")}, "policies.p.sync_site_away", "needs policies.p.sync_sites"),
    (
        {"policies": policy(sync_sites=["east"], sync_site_away_ms=100)},
        "policies.p.sync_site_away_ms",
        "must be 2000 to 600000, is 100",
    ),
    ({"policies": policy(comparison="2-way")}, "policies.p.comparison", "must be one of three-way, two-way"),
    (
        {"policies": {"p": {"zone": "main", "comparison": "two-way"}, "q": {"zone": "main"}}},
        "policies.p.comparison",
        "'two-way' needs policies.p.home",
    ),
    ({"policies": policy(takeover="votes")}, "policies.p.takeover", "must be one of operator, quorum, always"),
    (
        {"policies": policy(takeover="always", takeover_after_ms=100)},
        "policies.p.takeover_after_ms",
        "must be 2000 to 3600000, is 100",
    ),
    (
        {"policies": {"p": {"zone": "main", "takeover": "always"}, "q": {"zone": "main"}}},
        "policies.p.takeover",
        "'always' needs policies.p.home",
    ),
    (
        {"policies": policy(takeover="quorum"), "sites": {"west": WEST}},
        "policies.p.takeover",
        "'quorum' lets no site go on alone: of 2 votes each has 1",
    ),
    (
        {"policies": policy(takeover="quorum", lease_ttl_ms=2_000)},
        "policies.p.lease_ttl_ms",
        "excludes takeover 'quorum'",
    ),
    ({"site": {"name": "east", **EAST, "votes": -1}}, "site.votes", "must be 0 to 1000, is -1"),
    ({"sites": {**SITES, "west": {**WEST, "votes": 1_001}}}, "sites.west.votes", "must be 0 to 1000, is 1001"),
    ({"sites": {**SITES, "east": {**EAST, "votes": 2}}}, "sites.east.votes", "is 2, and site.votes, of the same site"),
]


@pytest.mark.parametrize(("sections", "key", "why"), WRONG, ids=[f"{key}: {why}" for _, key, why in WRONG])
def test_what_is_wrong_is_named(sections: dict[str, Any], key: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed(**sections)
    message = str(caught.value)
    assert message.startswith(f"/etc/halog.toml: {key}: "), message
    assert why in message
    assert key in [where for where, _ in problems_of({**TABLE, **sections}, "f")]


@pytest.mark.parametrize("server", ["bootstrap", "zookeeper"])
@pytest.mark.parametrize("path", ["", "/halog"])
def test_spaces_may_stand_around_an_address(server: str, path: str) -> None:
    """Each client takes others, so none is told of any."""
    path = path if server == "zookeeper" else ""
    config = changed(
        site={"name": "east", **EAST, server: f" e:1,\te:2 ,[::1]:3 {path}"},
        sites={"west": {**WEST, server: f"w:1, w:2{path}"}},
    )
    which = ["bootstrap", "zookeeper"].index(server)
    assert addresses(config)[which] == f"e:1,e:2,[::1]:3{path}"
    assert remote_site(config, "west")[which] == f"w:1,w:2{path}"


def test_the_same_servers_are_the_same_with_spaces() -> None:
    with pytest.raises(ConfigError, match=r"is that of \[sites.west\]"):
        changed(sites={"west": {**WEST, "bootstrap": "w:1,w:2"}, "old": {**EAST, "bootstrap": "w:1, w:2"}})


@pytest.mark.parametrize(
    ("address", "v6"), [("::1", True), ("z:1:2", True), ("z:x", False), ("z z:1", False), ("z:" + "9" * 5_000, False)]
)
def test_an_address_that_is_none_is_told_once(address: str, v6: bool) -> None:
    """Of IPv6 speaks only what is told of a host with a colon."""
    found = problems_of({**TABLE, "site": {"name": "east", **EAST, "zookeeper": address}}, "f")
    assert [key for key, _ in found] == ["site.zookeeper"]
    assert ("IPv6" in found[0][1], len(found[0][1]) < 200) == (v6, True), found


def test_the_entry_of_this_very_site_is_checked_like_the_others() -> None:
    """Another site reads the same file."""
    with pytest.raises(ConfigError, match=r"sites\.east\.zookeeper: is missing"):
        changed(sites={**SITES, "east": {"bootstrap": "e:1"}})
    assert changed(sites={**SITES, "east": EAST}), "its addresses may be those of [site]"


# --- versions ---


def test_a_version_says_which_sites_there_are_and_a_file_how_it_reaches_them(tmp_path: Path) -> None:
    own = parsed({**TABLE, "sites": {"west": {"embedded": "w"}, "gone": {"embedded": "g"}}}, str(tmp_path / "own.toml"))
    active = parse_config(TABLE, "version 1", Path())
    made = merged(own, active)
    assert made.sites == {
        "west": RemoteSiteConfig(embedded=tmp_path / "w"),
        "south": RemoteSiteConfig(embedded=tmp_path / "var/south"),
    }
    bare = parsed({"cluster": TABLE["cluster"], "site": EAST}, str(tmp_path / "own.toml"))
    made = merged(bare, active)
    assert (made.site.name, made.sites["west"], made.mirrored("p")) == ("east", RemoteSiteConfig(**WEST), True)


def test_votes_are_the_versions_whatever_a_file_says_or_leaves_out() -> None:
    """Two sites that count by different numbers could each have more than half."""
    south, east = {"embedded": "var/south", "votes": 0}, {**EAST, "votes": 3}
    weighed = {"west": {**WEST, "votes": 2}, "south": south, "east": east}
    active = parse_config({**TABLE, "site": {**TABLE["site"], "votes": 3}, "sites": weighed}, "version 1", Path())
    bare = parsed({"cluster": TABLE["cluster"], "site": EAST})
    other = changed(site={**TABLE["site"], "votes": 5}, sites={"west": {"embedded": "w"}, "east": {**EAST, "votes": 5}})
    for own in (bare, changed(), other):
        made = merged(own, active)
        assert made.site_votes == {"east": 3, "west": 2, "south": 0}
        assert {name: site.votes for name, site in made.sites.items()} == {"east": 3, "west": 2, "south": 0}
    assert merged(other, active).sites["west"].embedded == other.sites["west"].embedded, "its address is the file's"
    assert {c.text for c in disagreements(other, active, "A")} >= {"site.votes", "sites.east.votes"}


def test_a_file_disagrees_where_it_names_other_sites_than_the_version() -> None:
    active = changed()
    more = changed(sites={**SITES, "west": {"embedded": "w"}, "north": {"embedded": "n"}})
    assert [c.text for c in disagreements(more, active, "A")] == ["sites.north"]
    assert disagreements(changed(sites={"west": WEST}), active, "A")[0].text == "sites.south"
    says_nothing = parsed({k: v for k, v in TABLE.items() if k not in ("sites", "policies", "bindings")})
    assert disagreements(says_nothing, active, "A") == []


def test_what_a_change_of_sites_means() -> None:
    table = copy.deepcopy(TABLE)
    table["sites"]["west"] = {"embedded": "w"}
    table["sites"]["north"] = {"embedded": "n"}
    table["policies"]["q"]["home"] = "north"
    table["policies"]["p"]["sync_sites"] = ["west", "east"]
    old, new = changed(), parsed(table)
    assert {c.text: c.effect for c in differences(old, new)} == {
        "sites.west.bootstrap": OWN_FILE,
        "sites.west.zookeeper": OWN_FILE,
        "sites.west.embedded": OWN_FILE,
        "sites.north": RESTART,
        "policies.p.sync_sites": RESTART,
        "policies.p.sync_site_away": RESTART,
        "policies.p.sync_site_away_ms": RESTART,
        "policies.q.home": RESTART,
    }
    told = [".".join(key) for key in waiting(old, new)]
    keys = ("sync_sites", "sync_site_away", "sync_site_away_ms")
    assert told == [*(f"policies.p.{key}" for key in keys), "policies.q.home", "sites.north"]


# --- who goes on without whom ---


@pytest.mark.parametrize(
    ("site", "policy", "key", "why"),
    [
        ({}, {"takeover": "perhaps"}, "policies.p.takeover", "must be one of operator, quorum, always"),
        ({}, {"takeover": "always", "takeover_after_ms": 1_999}, "policies.p.takeover_after_ms", "2000 to 3600000"),
        ({}, {"takeover": "always", "home": ""}, "policies.p.takeover", "'always' needs policies.p.home"),
        ({}, {"takeover": "always", "mapper": "round_robin"}, "policies.p.takeover", "excludes mapper 'round_robin'"),
        ({}, {"takeover": "always", "mapper": "least_loaded"}, "policies.p.takeover", "cannot be merged again"),
        ({}, {"takeover": "quorum"}, "policies.p.takeover", "of 2 votes each has 1"),
        ({"votes": 2}, {"takeover": "quorum", "lease_ttl_ms": 500}, "policies.p.lease_ttl_ms", "excludes takeover"),
        ({"votes": -1}, {}, "site.votes", "must be 0 to 1000"),
    ],
)
def test_a_takeover_that_cannot_be_is_refused(site: dict[str, int], policy: dict[str, Any], key: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        voted(site, **policy)
    assert key in str(refused.value)


@pytest.mark.parametrize("takeover", ["operator", "quorum", "always"])
def test_a_takeover_is_read_back_as_it_was_written(takeover: str, tmp_path: Path) -> None:
    path = tmp_path / "halog.toml"
    path.write_text(voted({"votes": 2}, takeover=takeover).to_toml())
    again = load_config(path)
    assert again.policies["p"].takeover == takeover
    assert again.site_votes == {"east": 2, "west": 1}


def voted(site: dict[str, int], **policy: Any) -> Config:
    """East's, which has one other site."""
    return changed(
        site={"name": "east", **EAST, **site},
        sites={"west": WEST},
        policies={"p": {"zone": "main", "home": "west", **policy}},
    )
