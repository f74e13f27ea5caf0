"""Whatever command is given a name that nothing has says so in one form, exits with 2, and changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest

from halog.cli.shared.options import Name, NodeAt
from tests.unit.cli.conftest import TOML, Cluster, running
from tests.unit.cli.every_command import CALLS, KNOWN, commands, named, words

UNKNOWN = {"version": "77", "merge": "00ff", "txn": "00" * 15 + "01"}
SAID = {
    "type": "no type named {}",
    "key": "no Aircraft has the key {}",
    "version": "there is no version {}",
    "merge": "there is no merge {}",
    "hold": "nothing of the log of p-0 is held as {}",
    "txn": "transaction {}",
}
CASES = [(call, kind) for calls in CALLS.values() for call in calls for kind in named(call)]
SITES = '[sites.west]\nbootstrap = "127.0.0.1:3"\nzookeeper = "127.0.0.1:4"\n'


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all calls: none of them changes anything."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        toml = TOML.replace("[zones.home]", SITES + "[zones.home]").replace("[site]", '[site]\nname = "east"')
        with running(Cluster(tmp_path_factory.mktemp("names"), toml), monkeypatch) as made:
            made.create(made.Aircraft(tail="N1"))
            yield made


def state(cluster: Cluster) -> dict[str, Any]:
    """What a command could have changed, as the coordinator holds it."""
    places = ("partitions", "policies", "drained", "plan", "holds", "zones", "upgrade", "level")
    found = {path: cluster.tree.get(path) for top in places for path in below(cluster, top)}
    return {path: None if value is None else value.data for path, value in found.items()}


def below(cluster: Cluster, path: str) -> list[str]:
    return [path, *(deeper for name in cluster.tree.children(path) for deeper in below(cluster, f"{path}/{name}"))]


def test_every_command_is_in_the_table() -> None:
    assert sorted(CALLS) == sorted(name for name, _ in commands())


NEW = {
    ("node start", "name"),
    ("log hold", "name"),
    ("mapper explain", "words"),
    ("upgrade start", "to"),
    ("upgrade plan", "to"),
}
"""By command and parameter: a name that is made, or looked up without a cluster; words that begin with a name; a
release."""


def test_every_parameter_that_takes_a_name_is_in_the_table() -> None:
    missing = set()
    for name, command in commands():
        missing |= {(name, p.name) for p in command.params if isinstance(p.type, (Name, NodeAt))}
        for call in CALLS[name]:
            for kind in named(call):
                given = words(call, **{kind: "zz"})[len(name.split()) :]
                context = command.make_context(name, given, resilient_parsing=True)
                missing -= {(name, key) for key, value in context.params.items() if "zz" in str(value)}
    assert missing <= NEW


@pytest.mark.feature("O1")
@pytest.mark.parametrize(("call", "kind"), CASES, ids=[f"{call} {kind}" for call, kind in CASES])
def test_a_name_that_nothing_has_is_named_with_exit_2(
    shared: Cluster, halog: Callable[..., Any], call: str, kind: str
) -> None:
    unknown, before = UNKNOWN.get(kind, "zz"), state(shared)
    ran = halog(*words(call, **{kind: unknown}))
    assert (ran.code, ran.out) == (2, ""), ran
    assert ran.err.count("\n") == 1, ran
    assert SAID.get(kind, f"there is no {kind} {{}}").format(unknown) in ran.err, ran
    assert state(shared) == before


ELSEWHERE = [
    "delete Aircraft N1",
    "partition accept-loss p-0",
    "partition require p-0 0 --may-fork",
    "partition require p-0 1 --may-fork",
    "zone quorum home --off",
    "zone quorum home --on",
    "site promote --may-fork",
    "site promote",
    "site let-go west --may-fork",
    "recover --from-logs --accept-loss A",
]
"""Calls of each command that takes the cluster's name."""


def test_every_command_that_takes_the_clusters_name_is_in_the_table() -> None:
    takes = {name for name, command in commands() if any("--cluster" in p.opts for p in command.params)}
    takes = {name for name in takes if not name.startswith("certs ")}  # there it names one whose servers are not asked
    assert takes == {name for name, _ in commands() if any(f"{call} ".startswith(f"{name} ") for call in ELSEWHERE)}


@pytest.mark.feature("O1")
@pytest.mark.parametrize("call", ELSEWHERE)
def test_what_is_meant_for_another_cluster_changes_nothing_here(
    shared: Cluster, halog: Callable[..., Any], call: str
) -> None:
    """Also where there is nothing to confirm."""
    before = state(shared)
    ran = halog(*call.split(), "--cluster", "prod")
    assert (ran.code, ran.out) == (2 if "let-go" in call else 5, ""), ran
    assert ran.err.count("\n") == 1, ran
    assert state(shared) == before


@pytest.mark.feature("O1")
@pytest.mark.parametrize(
    "call",
    [
        "plan show",
        "plan status",
        "plan apply",
        "plan cancel",
        "plan rollback",
        "rebalance cancel --policy p",
        "rebalance",
        "rebalance --policy p",
        "restore undo",
        "drain A --undo",
        "upgrade pause",
        "upgrade start --all",
        "upgrade start --one A",
        "upgrade rollback",
        "upgrade finish",
        "partition require p-0 0",
        "partition designate p-0 none",
    ],
)
def test_nothing_to_do_is_no_failure(shared: Cluster, halog: Callable[..., Any], call: str) -> None:
    """It is said, a program reads a document, and what there is stays as it was."""
    before = state(shared)
    ran = halog(*call.split())
    assert ran.code == 0, ran
    assert ran.out or ran.err
    json = halog(*call.split(), "--format", "json")
    assert json.code == 0
    assert json.json is None or json.json
    assert state(shared) == before


LOOKS = [
    "status",
    "node list --all",
    "partition list",
    "partition show p-0",
    "partition lag",
    "zone list",
    "zone show home",
    "site list",
    "site lag",
    "events --all",
    "history p-0",
    "history p-0 --why",
    "mapper list",
    "mapper explain Aircraft N1",
    "mapper explain --distribution --policy p",
    "plan list",
    "rebalance status",
    "txn list",
    "config history",
    "conflicts show",
    "log holds p-0",
    "get Aircraft N1",
    "list Aircraft",
    "version",
    "safe-to-stop A",
    "upgrade plan",
    "upgrade status",
    "upgrade can-rollback",
]


def keys(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        yield from document
    for value in document.values() if isinstance(document, dict) else document if isinstance(document, list) else ():
        yield from keys(value)


@pytest.mark.feature("O1")
@pytest.mark.parametrize("call", LOOKS)
def test_json_is_one_document_whose_keys_are_words(shared: Cluster, halog: Callable[..., Any], call: str) -> None:
    ran = halog(*call.split(), "--format", "json")
    assert ran.out.count("\n") == 1, ran
    assert not [key for key in keys(ran.json) if not re.fullmatch(r"[A-Za-z0-9_.\-]+", key)]


@pytest.mark.feature("O1", "O2")
def test_events_are_filtered(shared: Cluster, halog: Callable[..., Any]) -> None:
    def found(*words: object) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = halog("events", *words, "--format", "json").json
        return events

    everything, shown = found("--all"), found()
    assert {e["code"] for e in everything} - {e["code"] for e in shown} == {"HALOG-1035"}, "changes of state are many"
    assert shown == [e for e in everything if e["code"] != "HALOG-1035"]
    assert found("--code", "HALOG-1035", "-n", 1) == [e for e in everything if e["code"] == "HALOG-1035"][-1:]
    assert found("--code", "1003") == [e for e in everything if e["code"] == "HALOG-1003"]
    assert found("--severity", "warning") == [e for e in shown if e["severity"] in ("warning", "error")]
    assert found("--node", "B") == [e for e in shown if "B" in (e["by"], e["node"])]
    assert found("-n", 3) == shown[-3:]
    assert found("-n", 0) == []
    later = halog("events", "--code", "HALOG-9999", "--format", "json")
    assert (later.code, later.json, "knows no event HALOG-9999" in later.err) == (0, [], True)
    wrong = halog("events", "--code", "HALOG-99")
    assert (wrong.code, "there is no event HALOG-99" in wrong.err) == (2, True)


@pytest.mark.feature("O1")
@pytest.mark.parametrize(
    "call",
    [
        "get Aircraft N1 N2",
        "get Flight [1",
        "get Flight UA x",
        "delete Aircraft --key-bytes xx",
        "get Aircraft",
        "mapper explain Aircraft N1 N2",
        "status --timeout nan",
        "status --timeout inf",
        "status --timeout 1e12",
    ],
)
def test_what_cannot_be_meant_is_a_mistake_of_usage(shared: Cluster, halog: Callable[..., Any], call: str) -> None:
    before = state(shared)
    ran = halog(*call.split(), *(("--cluster", "ops") if call.startswith("delete") else ()))
    assert (ran.code, ran.out) == (2, ""), ran
    assert "bug" not in ran.err
    assert state(shared) == before


@pytest.mark.feature("O1", "O2")
def test_reasons_stay_within_120_columns(shared: Cluster, halog: Callable[..., Any]) -> None:
    said = halog("history", "p-0", "--why").out
    assert max(map(len, said.splitlines())) <= 120
    assert "    because: " in said


NAMES = [(call, kind) for call, kind in CASES if kind not in {"key", "version", "txn", "merge", "hold"}]


@pytest.mark.feature("O1")
@pytest.mark.parametrize("odd", ["", " ", "p\n-0", "../..", "a/b", ".", "\udcff"], ids=ascii)
def test_what_can_be_no_name_is_refused_as_it_is_given(shared: Cluster, halog: Callable[..., Any], odd: str) -> None:
    """An empty one is a variable of a script that is not set: it must not mean all there is."""
    before = state(shared)
    for call, kind in NAMES:
        if "{node}=" in call or call.startswith("mapper explain {type}"):  # part of a word, and one of many
            continue
        ran = halog(*(word.format(**{**KNOWN, kind: odd}) for word in call.split()))
        assert (ran.code, ran.out) == (2, ""), (call, ran)
        assert "Error: Invalid value for" in ran.err, (call, ran)
        assert ran.err.endswith((" is no name\n", " is no UTF-8\n")), (call, ran)
    assert state(shared) == before


@pytest.mark.feature("O1")
def test_every_text_of_the_command_line_has_a_type() -> None:
    """Click's own takes what is no UTF-8, and an empty name."""
    for name, command in commands():
        loose = [p.name for p in command.params if isinstance(p.type, click.types.StringParamType)]
        assert not loose, name
