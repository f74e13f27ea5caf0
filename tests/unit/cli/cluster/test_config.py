"""config check, diff, activate, show and history, against a cluster on the memory adapters."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import Attempt
from halog.cli.shared.surroundings import Surroundings
from halog.metadata import config_versions as versions
from halog.metadata.config_versions import VERSIONS
from halog.release import RELEASE
from tests.unit.cli.conftest import find_around, wait_until

pytestmark = pytest.mark.feature("P11", "O1")

Run = Callable[..., Any]
BELOW = ("async_replicas = 1", 'async_replicas = 1\nbelow_quorum = "wait"')
IMAGES = ("async_replicas = 1", "async_replicas = 1\nbefore_images = false")


def written(cluster: Any, *changes: tuple[str, str], name: str = "new.toml") -> Path:
    """The cluster's file with other text in it."""
    text = cluster.path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path: Path = cluster.directory / name
    path.write_text(text)
    return path


def effects(ran: Any) -> dict[str, str]:
    return {c["key"]: c["effect"] for c in ran.json["changes"]}


def of_nodes(halog: Run) -> dict[str, tuple[int, int, list[str]]]:
    listed = halog("node", "list", "--format", "json").json
    return {n["node"]: (n["config"], n["knows"], n["restart_for"]) for n in listed}


def know(cluster: Any, number: int) -> None:
    """Every node has taken up a version, as far as it can."""
    wait_until(lambda: all(n.runtime.status()["config"]["active"] == number for n in cluster.nodes.values()))


def test_a_good_file_is_good_and_a_bad_one_says_all_that_is_wrong(cluster: Any, halog: Run) -> None:
    assert halog("config", "check").out == f"{cluster.path}: ok\n"
    bad = written(cluster, ("partitions = 6", "partitions = 0\npartitoins = 6"), ('"*" = "p"', '"*" = "q"'))
    ran = halog("config", "check", bad)
    assert ran.code == 2
    assert [line.split(": ")[1] for line in ran.out.splitlines()] == [
        "policies.p.partitoins",
        "policies.p.partitions",
        'bindings."*"',
    ]
    document = halog("config", "check", bad, "--format", "json").json
    assert (document["ok"], document["problems"][1]["key"]) == (False, "policies.p.partitions")
    assert halog("config", "check", cluster.directory / "none.toml").code == 2


@pytest.mark.feature("O3", "P11")
def test_one_address_for_two_nodes_is_not_activated(cluster: Any, halog: Run) -> None:
    """Whoever starts with such a file is not hindered: it goes by its own node's address."""
    text = cluster.path.read_text()
    shared = cluster.directory / "shared.toml"
    shared.write_text(text.replace('data_dir = "A"', 'data_dir = "A"\naddress = "h:7400"'))
    assert shared.read_text() != text
    assert halog("config", "check", shared).code == 0
    shared.write_text(shared.read_text().replace('data_dir = "B"', 'data_dir = "B"\naddress = "h:07400"'))
    told = "nodes.B.address: 'h:07400' is node A's too"
    ran = halog("config", "check", shared)
    assert (ran.code, told in ran.out) == (2, True), ran
    for command in ("diff", "activate"):
        ran = halog("config", command, shared)
        assert (ran.code, told in ran.err) == (2, True), ran
    assert halog("config", "show").code == 1, "nothing was activated"
    assert halog("config", "show", "--config", shared).code == 1, "a tool goes on with it"


@pytest.mark.feature("M3")
@pytest.mark.parametrize("comparison", ["three-way", "two-way"])
def test_what_histories_that_part_could_not_be_compared_by_is_said(cluster: Any, halog: Run, comparison: str) -> None:
    """It is no error: the sites may never part, and other types may need nothing of it."""
    of_sites = written(cluster, (IMAGES[0], f'{IMAGES[1]}\nhome = "home"\ncomparison = "{comparison}"'))
    ran = halog("config", "check", of_sites)
    told = "policies.p.before_images: warning: false, and with a home" in ran.out
    assert (ran.code, told, ran.out.endswith(": ok\n")) == (0, comparison == "three-way", True), ran
    document = halog("config", "check", of_sites, "--format", "json").json
    assert document["ok"]
    assert [w["key"] for w in document["warnings"]] == ["policies.p.before_images"] * told
    assert halog("config", "check", written(cluster, IMAGES), "--format", "json").json["warnings"] == []


def test_nothing_is_active_until_somebody_activates(cluster: Any, halog: Run) -> None:
    """Nodes go by their files, and the commands say so."""
    for words in ((), ("--format", "toml"), ("--format", "json")):
        ran = halog("config", "show", *words)
        assert (ran.code, ran.out) == (1, "null\n" if "json" in words else ""), ran
        assert ran.err.startswith("halog: nothing was ever activated: every process goes by its own file"), ran
        assert "`halog config activate`" in ran.err
    shown = halog("config", "history", "--format", "json")
    assert (shown.code, shown.json, "`halog config activate`" in shown.err) == (0, [], True)
    assert halog("config", "diff").code == 0
    assert of_nodes(halog) == dict.fromkeys("ABC", (0, 0, []))
    assert "config" not in halog("status").out
    assert halog("status", "--format", "json").json["config"] == {"version": None, "behind": []}


def test_a_version_is_activated_and_stands_in_the_history(cluster: Any, halog: Run) -> None:
    first = halog("config", "activate", "--comment", "as it was")
    assert (first.code, "version 1 is active" in first.err) == (0, True), first
    know(cluster, 1)
    assert of_nodes(halog) == dict.fromkeys("ABC", (1, 1, [])), "they run with just that"
    again = halog("config", "activate")
    assert (again.code, again.out) == (0, "version 1 is this configuration already; nothing was changed\n")
    second = halog("config", "activate", written(cluster, BELOW), "--comment", "rather wait", "--format", "json")
    assert (second.json["activated"], effects(second)) == (2, {"policies.p.below_quorum": "at once"})
    kept = halog("config", "history", "--format", "json").json
    assert [(v["number"], v["comment"]) for v in kept] == [(2, "rather wait"), (1, "as it was")]
    assert kept[0]["file"] == str(cluster.directory / "new.toml")
    assert "@" in kept[0]["by"]
    assert len(kept[0]["digest"]) == 64
    assert "rather wait" in halog("config", "history").out
    told = [e for e in halog("events", "--format", "json").json if e["code"] == "HALOG-1028"]
    assert [(e["more"]["version"], e["more"]["comment"]) for e in told] == [(1, "as it was"), (2, "rather wait")]
    assert told[0]["node"] == kept[0]["by"]


def test_what_is_shown_can_be_activated_again(cluster: Any, halog: Run) -> None:
    halog("config", "activate")
    halog("config", "activate", written(cluster, BELOW))
    shown = halog("config", "show", "--version", 1).out
    assert shown.startswith("# version 1, ")
    assert tomllib.loads(shown)["nodes"]["A"]["data_dir"] == "A", "relative, as in the file"
    old = cluster.directory / "old.toml"
    old.write_text(shown)
    assert "say the same" in halog("config", "diff", old, "--version", 1).err
    back = halog("config", "activate", old, "--format", "json")
    assert (back.json["activated"], effects(back)) == (3, {"policies.p.below_quorum": "at once"})
    active = halog("config", "show", "--format", "json").json
    assert (active["number"], active["config"]["policies"]["p"]["below_quorum"]) == (3, "refuse")
    between = halog("config", "diff", "--version", 2, "--with", 3)
    assert between.out.splitlines()[0].split()[:4] == ["key", "version", "2", "version"]
    assert halog("config", "show", "--version", 9).err.endswith(
        "there is no version 9 of the configuration; there are 3, 2, 1\n"
    )


def test_a_dry_run_changes_nothing(cluster: Any, halog: Run) -> None:
    halog("config", "activate")
    ran = halog("config", "activate", written(cluster, IMAGES), "--dry-run", "--format", "json")
    assert (ran.code, ran.json["activated"]) == (0, None)
    assert effects(ran) == {"policies.p.before_images": "at each node's restart"}
    assert halog("config", "show", "--format", "json").json["number"] == 1


MANUAL = '\nrebalance = "manual"'
REFUSED = [
    (("partitions = 6", f"partitions = 7{MANUAL}"), "policies.p.partitions", "made with 6, not 7"),
    (("partitions = 6", f"partitions = 6\nring_size = 4096{MANUAL}"), "policies.p.ring_size", "`halog rebalance --pol"),
    (("partitions = 6", f"partitions = 6\nring_size = 131072{MANUAL}"), "policies.p.ring_size", "65536"),
    (("partitions = 6", 'partitions = 6\nlocal_sync = "WRITE_NO_SYNC"'), "policies.p.local_sync", "SYNC"),
    (("partitions = 6", "partitions = 6\nlease_ttl_ms = 1000"), "policies.p.lease_ttl_ms", "made with 0"),
    (("partitions = 6", "partitions = 6\nquorum = true"), "policies.p.quorum", "made with false"),
    (("partitions = 6", "partitions = 6\ncount_never = true"), "policies.p.count_never", "made with false"),
    (('name = "ops"', 'name = "others"'), "cluster.name", "this is cluster ops"),
    (('zookeeper = "127.0.0.1:2"', 'zookeeper = "127.0.0.1:2"\nname = "east"'), "site.name", "epoch of site home"),
    (('[nodes.C]\ndata_dir = "C"', '[nodes.D]\ndata_dir = "D"'), "nodes.C", "has a copy of p-0"),
    (("[policies.p]", "[policies.q]"), "policies.p", "never removed"),
    (('["A", "B", "C"]', '["A", "B", "C"]\n[zones.home.quorum]\nminimum_votes = 4'), "", "would go offline"),
]
RENAMED = {
    "nodes.C": [('["A", "B", "C"]', '["A", "B", "D"]')],
    "policies.p": [('"*" = "p"', '"*" = "q"')],
    "": [('data_dir = "C"', 'data_dir = "C"\n[nodes.D]\ndata_dir = "D"\nvotes = 2')],
}


@pytest.mark.parametrize("active", [True, False], ids=["active", "first"])
@pytest.mark.parametrize(("change", "key", "why"), REFUSED, ids=[k or "quorum" for _, k, _ in REFUSED])
def test_what_a_running_cluster_cannot_have_is_refused_by_name(
    cluster: Any, halog: Run, change: tuple[str, str], key: str, why: str, active: bool
) -> None:
    """Whether something was activated before or not: it is the cluster that cannot have it."""
    if active:
        assert halog("config", "activate").code == 0
    if not key:  # votes that only a fourth node has
        change = ('["A", "B", "C"]', '["A", "B", "C", "D"]\n[zones.home.quorum]\nminimum_votes = 4')
    new = written(cluster, change, *RENAMED.get(key, []))
    ran = halog("config", "activate", new)
    assert (ran.code, why in ran.err, (key or "zones.home.quorum.minimum_votes") in ran.err) == (5, True, True), ran
    assert "nothing was activated" in ran.err
    assert len(halog("config", "history", "--format", "json").json) == active
    assert halog("config", "diff", new).code == 0


def test_what_only_the_versions_tell_is_refused(cluster: Any, halog: Run) -> None:
    """Where the objects of a type are, and how many brokers have a topic."""
    cluster.create(cluster.Aircraft("N1"))
    factor = ('zookeeper = "127.0.0.1:2"', 'zookeeper = "127.0.0.1:2"\nreplication_factor = 2')
    halog("config", "activate", written(cluster, factor))
    other = ("[timing]", '[policies.q]\nzone = "home"\n[timing]')
    bound = ('"*" = "p"', '"*" = "p"\nAircraft = "q"\nOrder = "q"')
    ran = halog("config", "activate", written(cluster, factor, other, bound), "--dry-run", "--format", "json")
    assert ran.code == 5
    assert effects(ran) == {
        "policies.q": "at each node's restart",
        "bindings.Aircraft": "refused",
        "bindings.Order": "at each node's restart",
    }
    more = ('zookeeper = "127.0.0.1:2"', 'zookeeper = "127.0.0.1:2"\nreplication_factor = 3')
    assert "topics were made with at least 2" in halog("config", "activate", written(cluster, more)).err
    assert halog("config", "activate", written(cluster)).code == 0, "lower is possible"


def test_an_operator_who_comes_second_is_refused(cluster: Any, halog: Run) -> None:
    """Between the look and the compare-and-set another one activated; or --on says on what the comparison rests."""
    halog("config", "activate")
    assert halog("config", "activate", written(cluster, BELOW), "--on", 0).code == 5
    quicker = written(cluster, IMAGES, name="quicker.toml")

    def second(attempt: Attempt[int]) -> int:
        assert halog("config", "activate", quicker).code == 0
        return attempt.land()

    cluster.tree.faults.add("set", second, versions.ACTIVE, times=1)
    ran = halog("config", "activate", written(cluster, BELOW), "--on", 1)
    assert (ran.code, "activated version 2 meanwhile" in ran.err) == (5, True), ran
    assert halog("config", "history", "--format", "json").json[0]["file"] == str(quicker)


def test_running_nodes_take_up_what_they_can_and_wait_with_the_rest(cluster: Any, halog: Run) -> None:
    """What needs a restart waits for it, node by node; everybody sees who."""
    halog("config", "activate")
    halog("config", "activate", written(cluster, IMAGES))
    know(cluster, 2)
    waits = (1, 2, ["policies.p.before_images"])
    assert of_nodes(halog) == dict.fromkeys("ABC", waits)
    assert "1, restart for 2" in halog("node", "list").out
    assert "version 2; not yet all of it: A, B, C" in halog("status").out
    cluster.stop("C")
    cluster.start("C")
    assert of_nodes(halog) == {"A": waits, "B": waits, "C": (2, 2, [])}
    assert not cluster.nodes["C"].runtime.config.policies["p"].before_images, "though its file says nothing of it"
    told = [e["more"] for e in halog("events", "--format", "json").json if e["code"] == "HALOG-1029" and e["by"] == "A"]
    assert told[-1] == {"version": 2, "restart_for": ["policies.p.before_images"]}
    halog("config", "activate", cluster.path)
    know(cluster, 3)
    assert of_nodes(halog) == {"A": (3, 3, []), "B": (3, 3, []), "C": (2, 3, ["policies.p.before_images"])}


def test_votes_quorum_and_new_nodes_count_at_once(cluster: Any, halog: Run) -> None:
    """A zone gets a quorum while it runs; a node that no file knows joins, and only needs the site's address."""
    halog("config", "activate")
    quorum = ('["A", "B", "C"]', '["A", "B", "C", "D"]\n[zones.home.quorum]\nminimum_votes = 4')
    votes = ('[nodes.A]\ndata_dir = "A"', '[nodes.A]\ndata_dir = "A"\nvotes = 2')
    fourth = ('data_dir = "C"', 'data_dir = "C"\n[nodes.D]\ndata_dir = "D"')
    new = written(cluster, quorum, votes, fourth)
    assert halog("config", "activate", new, "--format", "json").json["activated"] == 2
    know(cluster, 2)
    zone = halog("zone", "show", "home", "--format", "json").json
    assert zone["quorum"] == "4 of 5 votes"
    assert {n["node"]: (n["state"], n["votes"]) for n in zone["nodes"]} == {
        "A": ("active", 2),
        "B": ("active", 1),
        "C": ("active", 1),
        "D": ("down", 1),
    }
    cluster.path.write_text('[cluster]\nname = "ops"\n[site]\nbootstrap = "127.0.0.1:1"\nzookeeper = "127.0.0.1:2"\n')
    cluster.start("D")
    wait_until(lambda: halog("zone", "show", "home").code == 0)
    assert halog("partition", "migrate", "p-0", "--nodes", "D,A,B", "--timeout", 30).code == 0, (
        "nobody calls it intruder"
    )
    cluster.stop("D")
    cluster.stop("A")
    wait_until(lambda: all(n.runtime.members.offline for n in cluster.nodes.values()))
    lower = new.read_text().replace("minimum_votes = 4", "minimum_votes = 2")
    new.write_text(lower)
    assert halog("config", "activate", new).code == 0
    wait_until(lambda: not any(n.runtime.members.offline for n in cluster.nodes.values()))


def test_more_copies_come_by_a_plan(cluster: Any, halog: Run) -> None:
    """Nodes start with the new number though no partition has it yet, and make the plan; an operator's has nothing to
    do then."""
    halog("config", "activate")
    wait_until(lambda: cluster.tree.get("rebalanced/p") is not None)  # what the nodes go by, before it is changed
    fewer = written(cluster, ("async_replicas = 1", "async_replicas = 0"))
    assert effects(halog("config", "diff", fewer, "--format", "json")) == {"policies.p.async_replicas": "by halog plan"}
    assert halog("config", "activate", fewer).code == 0
    cluster.stop("C")
    cluster.start("C")
    cluster.settle()
    wait_until(lambda: all(len(t.configured) == 2 and t.target is None for t in cluster.tables()), 60)
    planned = halog("plan", "create")
    assert planned.code == 0, planned
    assert f"the plan goes by version 2, not by {cluster.path} in policies.p.async_replicas" in planned.err
    assert halog("plan", "apply", "--timeout", 60).code == 0
    assert {len(t.configured) for t in cluster.tables()} == {2}


def test_a_new_policy_is_there_when_its_nodes_were_restarted(cluster: Any, halog: Run) -> None:
    """One after the other: the first creates its partitions, each of the others becomes a replica when it is back."""
    halog("config", "activate")
    more = ("[timing]", '[policies.q]\nzone = "home"\npartitions = 2\nasync_replicas = 1\n[timing]')
    bound = ('"*" = "p"', '"*" = "p"\nOrder = "q"')
    assert halog("config", "activate", written(cluster, more, bound)).code == 0
    know(cluster, 2)
    assert of_nodes(halog)["A"] == (1, 2, ["policies.q", "bindings.Order"])
    for name in "ABC":
        cluster.stop(name)
        cluster.start(name)
    cluster.settle()
    assert [t.name for t in cluster.tables() if t.policy == "q"] == ["q-0", "q-1"]
    wait_until(lambda: halog("status").code == 0)
    assert cluster.nodes["A"].runtime.partition_of("Order", b"1") in ("q-0", "q-1")


def test_a_file_that_says_something_else_is_warned_of_once(
    cluster: Any, halog: Run, caplog: pytest.LogCaptureFixture
) -> None:
    halog("config", "activate", written(cluster, BELOW))
    cluster.stop("C")
    cluster.path.write_text(cluster.path.read_text().replace("[timing]", "[timing]\nmin_stay_ms = 1"))
    with caplog.at_level(logging.WARNING, "halog.config"):
        cluster.start("C")
    warned = [r.getMessage() for r in caplog.records if r.name == "halog.config"]
    assert len(warned) == 1
    assert "timing.min_stay_ms" in warned[0]
    assert "version 1" in warned[0]
    assert "below_quorum" not in warned[0], "the file does not say it"
    assert cluster.nodes["C"].runtime.config.timing.min_stay_ms == 30_000


def test_a_version_of_a_newer_halog_changes_no_running_node(cluster: Any, halog: Run) -> None:
    """A value that they cannot use is said; the node goes on as it is, and tools name the key."""
    halog("config", "activate")
    know(cluster, 1)
    active = cluster.tree.get(versions.ACTIVE)
    cluster.tree.set(
        versions.ACTIVE,
        active.data.replace(b'"number":1', b'"number":2').replace(b'"below_quorum":"refuse"', b'"below_quorum":"ask"'),
        0,
    )
    ran = halog("status")
    assert (ran.code, "policies.p.below_quorum: 'ask' must be" in ran.err) == (2, True), ran
    assert all(n.runtime.status()["config"]["active"] == 1 for n in cluster.nodes.values())
    assert halog("config", "history", "--format", "json").json[0]["number"] == 2


@pytest.mark.feature("U1")
def test_keys_of_a_newer_halog_are_passed_over_and_carried(
    cluster: Any, halog: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer tool activated them. Nodes of this version run on, take up the rest, and start; its tools lose none."""
    halog("config", "activate")
    know(cluster, 1)
    active = VERSIONS.decode(versions.ACTIVE, cluster.tree.get(versions.ACTIVE).data)
    later = msgspec.structs.replace(active, number=2)
    later.config["timing"]["naps_ms"] = 7
    later.config["policies"]["p"].update(shape={"of": "a"}, below_quorum="wait")
    later.config["clouds"] = {"k": 1}
    with caplog.at_level(logging.WARNING, "halog.config"):
        cluster.tree.set(versions.ACTIVE, later.to_bytes(), 0)
        know(cluster, 2)
        assert cluster.nodes["A"].runtime.config.policies["p"].below_quorum == "wait"
        warned = [r.getMessage() for r in caplog.records if r.name == "halog.config"]
        assert len(warned) == len(cluster.nodes)
        cluster.stop("C")
        caplog.clear()
        cluster.start("C")
    keys = "clouds, policies.p.shape, timing.naps_ms"
    warned = [r.getMessage() for r in caplog.records if r.name == "halog.config"]
    assert [w for w in warned if "does not know" in w] == [
        f"version 2 of the configuration has keys that halog {RELEASE} does not know: {keys}; this process goes on "
        "without them"
    ]
    wait_until(lambda: halog("status").code == 0)
    assert f"# halog {RELEASE} does not know, and does not show: {keys}\n" in halog("config", "show").out
    same = halog("config", "activate", written(cluster, BELOW))
    assert "version 2 is this configuration already" in same.out
    ran = halog("config", "activate", written(cluster))
    assert (ran.code, f"carried from version 2, as halog {RELEASE} does not know them: {keys}" in ran.err) == (0, True)
    made = halog("config", "show", "--format", "json").json
    assert (made["number"], made["config"]["policies"]["p"]["below_quorum"]) == (3, "refuse")
    assert made["config"]["timing"]["naps_ms"] == 7
    assert made["config"]["policies"]["p"]["shape"] == {"of": "a"}
    assert made["config"]["clouds"] == {"k": 1}


def test_a_cluster_may_be_configured_before_its_first_node(
    tmp_path: Path, halog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.cli.conftest import Cluster

    made = Cluster(tmp_path)
    find_around(monkeypatch, Surroundings(made.adapters))
    monkeypatch.setenv("HALOG_CONFIG", str(made.path))
    assert halog("config", "activate").code == 0
    made.start("A")
    try:
        assert made.nodes["A"].runtime.status()["config"] == {"version": 1, "active": 1, "restart_for": []}
    finally:
        made.stop("A")
