"""`halog conflicts settle`: what a merge left to an operator, decided by him, once; and what is open (M2, M3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from halog.adapters.memory import Attempt, Faults
from halog.backend import Work
from halog.cli.merge import settlement as settling
from halog.cli.shared.connection import ClusterConnection
from halog.errors import UnreachableError
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
from restore.compensation import Conflict, Defer, KeepSource, Verdict
from tests.unit.cli.conftest import Ran
from tests.unit.cli.merge.test_conflicts import note, parted
from tests.unit.cli.merge.test_restore import run
from tests.unit.cli.sites.test_sites import files
from tests.unit.requests import asks
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_compensation import are_alike, everywhere, home
from tests.unit.sites.two import east, fly, level, west

pytestmark = pytest.mark.feature("M2", "M3")
__all__ = ["east", "files", "parted", "west"]
Halog = Callable[..., Ran]

LEFT = {1: "east", 2: "changed", 4: "west only", 5: "east only", 6: "twice", 11: ""}
"""What stands when everything that both touched was left to an operator: 3 is deleted at east, 10 was never there."""


@pytest.fixture
def merged(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Path]:
    """One history again; 1, 2, 3, 6, 10 and 11 wait for an operator."""

    def trigger(conflict: Conflict) -> Verdict:
        return Defer("ask the tower")

    monkeypatch.setitem(registry.triggers, registry.info(Flight).name, trigger)
    ran = run(halog, parted, "restore", "--source", "east")
    assert ran.code == 0, ran.err
    assert are_alike(west, east) == LEFT
    return parted


def settle(halog: Halog, files: dict[str, Path], number: int, *words: str, at: str = "east") -> Ran:
    return run(halog, files, "conflicts", "settle", "Flight", str(number), *words, at=at)


def waiting(halog: Halog, files: dict[str, Path], at: str = "east") -> set[int]:
    ran = run(halog, files, "conflicts", "show", "--open", at=at)
    assert ran.code == 0, ran.err
    shown = [o for d in ran.json for o in d["objects"]]
    assert all((o["open"], o["closed"], o["deferred"]) == (True, "", "ask the tower") for o in shown)
    return {o["key"][0] for o in shown}


def closed(halog: Halog, files: dict[str, Path], at: str = "east") -> dict[int, str]:
    """Of those that were left to an operator, why they wait no more; "": they do."""
    ran = run(halog, files, "conflicts", "show", at=at)
    shown = [o for d in ran.json for o in d["objects"] if o["deferred"]]
    assert all(o["open"] == (o["closed"] == "") for o in shown)
    return {o["key"][0]: o["closed"] for o in shown}


CHOICES: dict[str, dict[int, str]] = {
    "source": {1: "east", 2: "changed", 6: "twice", 11: ""},
    "initiating": {1: "west", 3: "changed", 6: "twice", 10: "", 11: ""},
    "base": {1: "", 2: "", 3: "", 6: ""},
    "nothing": {},
}


@pytest.mark.parametrize("choice", CHOICES)
def test_each_choice_is_what_stands_at_both_sites_and_waits_no_more(
    west: Cluster, east: Cluster, merged: dict[str, Path], halog: Halog, choice: str
) -> None:
    """Changed, deleted, created again, another instance, or nothing as before."""
    instances = {n: ref for n, (_, ref, _) in everywhere(east)[0].items()}
    for number in (1, 2, 3, 6, 10, 11):
        ran = settle(halog, merged, number, "--as", choice)
        assert ran.code == 0, ran.err
        assert ran.json["settled"]
        assert ran.json["lsn"] > 0
        stands = CHOICES[choice].get(number)
        assert (ran.json["stands"] or {"fields": None})["fields"] == (
            None if stands is None else {"number": number, "note": stands}
        )
    assert are_alike(west, east) == {4: "west only", 5: "east only"} | CHOICES[choice]
    now = {n: ref for n, (_, ref, _) in everywhere(east)[0].items()}
    assert [n for n in now if n in instances and now[n] != instances[n]] == ([11] if choice == "initiating" else [])
    for at in ("east", "west"):
        assert waiting(halog, merged, at) == set()
        assert closed(halog, merged, at) == dict.fromkeys((1, 2, 3, 6, 10, 11), "settled")
    for number in (1, 2, 3, 6, 10, 11):  # settled is settled
        ran = settle(halog, merged, number, "--as", choice)
        assert (ran.code, ran.json["why"], ran.json["lsn"]) == (0, "settled already", None)


def test_some_fields_may_be_others(west: Cluster, east: Cluster, merged: dict[str, Path], halog: Halog) -> None:
    for number, words in {
        1: ("--fields", '{"note": "both"}'),
        2: ("--as", "base", "--fields", '{"note": "as it was"}'),
        3: ("--fields", '{"number": 3, "note": "again"}'),
        10: ("--as", "initiating", "--fields", '{"note": "taken"}'),
    }.items():
        ran = settle(halog, merged, number, *words)
        assert ran.code == 0, ran.err
    assert are_alike(west, east) == LEFT | {1: "both", 2: "as it was", 3: "again", 10: "taken"}
    for number, fields, code, said in [
        (6, '{"number": 7}', 2, "cannot change the key"),
        (6, '{"desk": "A"}', 2, "unknown field 'desk'"),
        (6, '{"note": 5}', 2, "Flight.note"),
        (6, '{"note"', 2, "no JSON"),
        (6, "[6]", 2, "give a JSON object"),
    ]:
        ran = settle(halog, merged, number, "--fields", fields)
        assert (ran.code, said in ran.err) == (code, True), ran.err
    assert waiting(halog, merged) == {6, 11}


def test_what_stands_nowhere_needs_all_its_fields(merged: dict[str, Path], halog: Halog) -> None:
    ran = settle(halog, merged, 3, "--fields", '{"note": "again"}')
    assert (ran.code, "missing or unknown field 'number'" in ran.err) == (2, True), ran.err


def test_who_was_quicker_is_not_overruled_but_by_force(
    west: Cluster, east: Cluster, merged: dict[str, Path], halog: Halog
) -> None:
    """The application's own change settles a conflict, too: also what it creates, deletes, or changes and puts back."""
    note(east, 1, "the application")
    note(east, 2, None)
    fly(east, 3, 10)
    note(east, 6, "other"), note(east, 6, "twice")
    for number in (1, 2, 3, 6, 10):
        ran = settle(halog, merged, number, "--as", "nothing" if number in (3, 10) else "base")
        assert (ran.code, "changed since, at lsn" in ran.err, "--force" in ran.err) == (5, True, True), ran.err
    before = {1: "the application", 3: "", 4: "west only", 5: "east only", 6: "twice", 10: "", 11: ""}
    assert are_alike(west, east) == before
    assert waiting(halog, merged) == {11}
    assert closed(halog, merged, "west") == dict.fromkeys((1, 2, 3, 6, 10), "changed since") | {11: ""}
    assert settle(halog, merged, 1, "--as", "initiating", "--force").code == 0
    assert settle(halog, merged, 2, "--as", "source", "--force").code == 0
    assert are_alike(west, east) == before | {1: "west", 2: "changed"}


def test_who_is_quicker_than_the_command_is_not_overruled(
    west: Cluster, east: Cluster, merged: dict[str, Path], halog: Halog, commands_faults: Faults
) -> None:
    """He commits before the objects are looked at, or behind that: one is refused, the others of its commit are not."""

    def slow(attempt: Attempt[bytes]) -> bytes:
        note(east, 1, "quicker")
        return attempt.land()

    def slower(attempt: Attempt[bytes]) -> bytes:
        note(east, 11, "quickest")
        return attempt.land()

    commands_faults.add("request", slow, asks(frames.Submit), times=1)
    ran = run(halog, merged, "conflicts", "settle", "--all", "--as", "base", at="east")
    assert ran.code == 5
    refused = {d["key"][0]: d["why"] for d in ran.json if not d["settled"]}
    assert [*refused] == [1]
    assert "changed just now" in refused[1]
    assert are_alike(west, east) == {1: "quicker", 2: "", 3: "", 4: "west only", 5: "east only", 6: ""}
    assert waiting(halog, merged, "west") == set()
    commands_faults.add("request", slower, asks(frames.Fetch), times=1)
    fly(east, 11)
    ran = settle(halog, merged, 11, "--as", "base", "--force")
    assert ran.code == 0, ran.err
    assert 11 not in are_alike(west, east)


def test_one_that_is_changed_before_it_is_looked_at_is_refused(
    west: Cluster, east: Cluster, merged: dict[str, Path], halog: Halog, commands_faults: Faults
) -> None:
    def slower(attempt: Attempt[bytes]) -> bytes:
        note(east, 11, "quicker")
        return attempt.land()

    commands_faults.add("request", slower, asks(frames.Fetch), times=1)
    ran = settle(halog, merged, 11, "--as", "initiating")
    assert (ran.code, "changed just now" in ran.err) == (5, True), ran.err
    assert are_alike(west, east) == LEFT | {11: "quicker"}


def test_all_that_is_open_at_once_and_shown_before(
    west: Cluster, east: Cluster, merged: dict[str, Path], halog: Halog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "BATCH_OBJECTS", 2)
    assert settle(halog, merged, 1, "--as", "source").code == 0
    words = ("conflicts", "settle", "--all", "--as", "initiating")
    dry = run(halog, merged, *words, "--dry-run", at="east")
    assert (dry.code, {d["key"][0] for d in dry.json}) == (0, {2, 3, 6, 10, 11})
    assert {(d["settled"], d["lsn"]) for d in dry.json} == {(False, None)}
    assert are_alike(west, east) == LEFT
    table = halog(*words, "--dry-run", "--config", merged["east"])
    assert (table.out.count("would be settled"), "Flight [10]" in table.out) == (5, True)
    one = run(halog, merged, *words, "--partition", home(east, 2), at="east")
    assert (one.code, 2 in {d["key"][0] for d in one.json}) == (0, True), one.err
    assert {d["partition"] for d in one.json} == {home(east, 2)}
    rest = run(halog, merged, *words, at="east")
    assert rest.code == 0, rest.err
    assert {d["key"][0] for d in one.json} | {d["key"][0] for d in rest.json} == {2, 3, 6, 10, 11}
    assert are_alike(west, east) == {
        1: "east",
        3: "changed",
        4: "west only",
        5: "east only",
        6: "twice",
        10: "",
        11: "",
    }
    assert run(halog, merged, *words, at="east").json == []


def test_what_was_done_is_said_where_it_could_not_go_on(
    west: Cluster, east: Cluster, merged: dict[str, Path], halog: Halog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost by asking again."""
    commits, submit = list[str](), ClusterConnection.submit

    def lost(connection: ClusterConnection, partition: str, work: Work, ending: bytes) -> int:
        commits.append(partition)
        if len(commits) == 3:
            raise UnreachableError("the line is cut")
        return submit(connection, partition, work, ending)

    words = ("conflicts", "settle", "--all", "--as", "source")
    monkeypatch.setattr(settling, "BATCH_OBJECTS", 1)
    with monkeypatch.context() as patched:
        patched.setattr(ClusterConnection, "submit", lost)
        ran = run(halog, merged, *words, at="east")
    assert (ran.code, "after 2 conflicts: the line is cut; asked for again" in ran.err) == (3, True), ran.err
    assert len(waiting(halog, merged)) == 4
    assert run(halog, merged, *words, at="east").code == 0
    assert are_alike(west, east) == LEFT
    assert waiting(halog, merged, "west") == set()


def test_it_is_told_who_settled_what_and_why(merged: dict[str, Path], halog: Halog) -> None:
    ran = halog(
        "conflicts",
        "settle",
        "Flight",
        "1",
        "--as",
        "initiating",
        "--reason",
        "the tower says so",
        "--config",
        merged["east"],
    )
    assert (ran.code, "note=east" in ran.out, "note=west" in ran.out, "settled" in ran.out) == (0, True, True, True)
    told = [e for e in run(halog, merged, "events", at="east").json if e["code"] == "HALOG-1052"]
    assert [(e["more"]["objects"], e["more"]["stands"], e["more"]["reason"]) for e in told] == [
        (["Flight [1]"], "initiating", "the tower says so")
    ]
    assert told[0]["node"] in told[0]["cause"]
    table = halog("conflicts", "show", "--config", merged["west"]).out
    assert "source (was for an operator, settled)" in table
    assert "source (for an operator: ask the tower)" in table


def test_a_merge_that_was_undone_has_nothing_open_and_has_again(
    west: Cluster, east: Cluster, merged: dict[str, Path], halog: Halog
) -> None:
    """What was settled before stays. Where the merge had changed nothing there is nothing to undo: it is as it was."""
    assert settle(halog, merged, 1, "--as", "initiating").code == 0
    undone = run(halog, merged, "restore", "undo", at="east")
    assert undone.code == 0, undone.err
    assert are_alike(west, east)[1] == "west"
    merges = {d["partition"]: d["merge"] for d in undone.json if d["phase"] == "done"}
    back = {n for n in (2, 3, 6, 10, 11) if home(east, n) in merges}
    assert back
    assert waiting(halog, merged) == {2, 3, 6, 10, 11} - back == waiting(halog, merged, "west")
    for number in back:
        ran = settle(halog, merged, number, "--as", "initiating", "--force")
        assert (ran.code, "was undone" in ran.err) == (5, True), ran.err
    for partition, merge in merges.items():
        shown = run(halog, merged, "conflicts", "show", "--merge", merge, "--partition", partition, at="west").json
        left = {o["key"][0]: o["closed"] for d in shown for o in d["objects"] if o["deferred"]}
        assert {left[n] for n in back & left.keys()} == {"the merge was undone"}
        ran = run(
            halog, merged, "restore", "undo", "--merge", b"undo".hex() + merge, "--partition", partition, at="east"
        )
        assert ran.code == 0, ran.err
    level(west, east)
    assert waiting(halog, merged) == {2, 3, 6, 10, 11} == waiting(halog, merged, "west")


def test_what_is_not_there_to_be_settled_is_said(east: Cluster, merged: dict[str, Path], halog: Halog) -> None:
    other = next(name for name in east.tables() if name != home(east, 1))
    for number, words, code, said in [
        (4, ("--as", "base"), 5, "was not left to an operator"),
        (77, ("--as", "base"), 2, "no merge that touched Flight 77"),
        (1, ("--as", "base", "--merge", "00ff"), 2, "no merge 00ff that touched Flight 1"),
        (1, ("--as", "base", "--partition", other), 2, f"Flight 1 belongs to {home(east, 1)}, and not to {other}"),
        (1, (), 2, "say what should stand"),
        (1, ("--as", "nothing", "--fields", "{}"), 2, "of no use with --as nothing"),
        (1, ("--as", "base", "--all"), 2, "by TYPE and KEY, or --all"),
    ]:
        ran = settle(halog, merged, number, *words)
        assert (ran.code, said in ran.err) == (code, True), ran.err
    for words in [("--as", "base"), ("--all", "--as", "base", "--force"), ("--all", "--fields", "{}")]:
        assert run(halog, merged, "conflicts", "settle", *words, at="east").code == 2
    assert run(halog, merged, "conflicts", "show", "--open", "--all").code == 2
    assert waiting(halog, merged) == {1, 2, 3, 6, 10, 11}


def test_a_site_that_mirrors_settles_nothing(
    west: Cluster, east: Cluster, merged: dict[str, Path], halog: Halog
) -> None:
    ran = settle(halog, merged, 1, "--as", "initiating", at="west")
    assert (ran.code, f"{home(east, 1)} is served by site east: settle it there" in ran.err) == (5, True), ran.err
    words = ("conflicts", "settle", "--all", "--as", "initiating")
    assert run(halog, merged, *words, "--partition", "test-0", at="west").code == 5
    ran = run(halog, merged, *words, at="west")
    assert (ran.code, ran.json) == (0, [])
    assert are_alike(west, east) == LEFT


def test_a_conflict_is_open_in_the_last_merge_that_left_it(
    west: Cluster, east: Cluster, merged: dict[str, Path], halog: Halog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sites go on once more: one is left to an operator again, one is decided."""
    west.see(east)
    level(west, east)
    east.cut()
    assert halog("site", "promote", "--may-fork", "--cluster", "test", "--config", merged["west"]).code == 0
    west.settle()
    note(west, 1, "west again"), note(east, 1, "east again"), note(west, 2, "west again")
    east.mend()

    def trigger(conflict: Conflict) -> Verdict:
        return Defer("ask the tower") if conflict.key["number"] == 1 else KeepSource()

    monkeypatch.setitem(registry.triggers, registry.info(Flight).name, trigger)
    ran = run(halog, merged, "restore", "--source", "east")
    assert ran.code == 0, ran.err
    wait_until(lambda: are_alike(west, east)[1] == "east again", "one history")
    ran = run(halog, merged, "conflicts", "show", "--open", at="east")
    merges = {o["key"][0]: d["merge"] for d in ran.json for o in d["objects"]}
    assert {*merges} == {1, 3, 6, 10, 11}
    assert (
        merges[1] == run(halog, merged, "conflicts", "show", "--partition", home(east, 1), at="east").json[0]["merge"]
    )
    ran = settle(halog, merged, 2, "--as", "base")
    assert (ran.code, "merged again" in ran.err) == (5, True), ran.err
    assert settle(halog, merged, 1, "--as", "initiating").code == 0
    assert are_alike(west, east)[1] == "west again"
