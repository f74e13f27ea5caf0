"""get, export and import, against a cluster on the memory adapters."""

from __future__ import annotations

import datetime as dt
import json
import math
import stat
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def fleet(cluster: Any) -> list[Any]:
    """One object of everything that JSON has no word for."""
    plain = cluster.Aircraft("N1", 1400, price=Decimal("7.5"), load=-0.0)
    rich = cluster.Seaplane(
        "N2",
        miles=2**62,
        kind=cluster.Kind.PROP,
        price=Decimal("1234567890.10"),
        photo=bytes(range(256)),
        since=dt.datetime(2013, 1, 1, 5, 15, 0, 123456, tzinfo=dt.UTC),
        load=math.inf,
        notes={"ü\n": ["a", ""], "": []},
        floats=3,
    )
    cluster.create(plain, rich)
    some = next(iter(cluster.nodes.values()))
    with some.transaction():
        ref = some.ref(some.get(cluster.Aircraft, "N2"))
    flights = [cluster.Flight("UA", n, ref if n % 2 else None) for n in range(5)]
    cluster.create(*flights)
    return [plain, rich, *flights]


def extent(some: Any, cls: Any) -> list[Any]:
    with some.transaction():
        return list(some.extent(cls))


def everything(cluster: Any) -> dict[Any, dict[str, Any]]:
    """(type, key) → fields of every object, as the application sees them."""
    some = next(iter(cluster.nodes.values()))
    found = {}
    for cls in (cluster.Aircraft, cluster.Flight):
        for obj in extent(some, cls):
            info = obj.__class__.__halog__
            found[(info.name, info.key_of(obj))] = {n: getattr(obj, n) for n in info.fields}
    return found


@pytest.mark.feature("O1", "D1")
def test_get_shows_an_object_decoded_without_its_class(cluster: Any, halog: Run) -> None:
    """Fields, version, reference and place of an object, by the stored definition."""
    fleet(cluster)
    shown = halog("get", "Aircraft", "N1", "--format", "json").json
    assert (shown["type"], shown["key"]) == ("Aircraft", ["N1"])
    assert shown["fields"]["miles"] == 1400
    assert shown["fields"]["kind"] == "JET"
    assert shown["fields"]["price"] == "7.5"
    assert len(shown["ref"]) == 48
    text = halog("get", "Aircraft", "N1").out
    assert "miles" in text
    assert "1400" in text


@pytest.mark.feature("O1")
def test_get_of_a_base_finds_the_subclass(cluster: Any, halog: Run) -> None:
    """One family, one key space; but a subclass does not find its base's objects."""
    fleet(cluster)
    assert halog("get", "Aircraft", "N2", "--format", "json").json["type"] == "Seaplane"
    assert halog("get", "Seaplane", "N2", "--format", "json").json["fields"]["floats"] == 3
    assert halog("get", "Seaplane", "N1").code == 2


@pytest.mark.feature("O1")
@pytest.mark.parametrize("words", [("UA", "3"), ('["UA", 3]',)])
def test_a_compound_key_is_given_word_by_word_or_as_json(cluster: Any, halog: Run, words: tuple[str, ...]) -> None:
    """Both forms name the same object."""
    fleet(cluster)
    assert halog("get", "Flight", *words, "--format", "json").json["key"] == ["UA", 3]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("Aircraft", "N9"), 2, "no Aircraft has the key N9"),
        (("Aircaft", "N1"), 2, "did you mean Aircraft"),
        (("Flight", "UA"), 2, "(carrier, flight)"),
        (("Flight", "UA", "three"), 2, "expected an int"),
        (("Flight", '["UA", "3", 4]'), 2, "got 3 values"),
        (("Flight", '["UA", true]'), 2, "Flight.flight"),
        (("Aircraft",), 2, "KEY"),
    ],
)
def test_get_says_what_is_wrong(cluster: Any, halog: Run, words: tuple[str, ...], code: int, said: str) -> None:
    """Every mistake is named on stderr; stdout stays empty."""
    fleet(cluster)
    ran = halog("get", *words)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


@pytest.mark.feature("O1")
def test_export_and_import_lose_nothing(cluster: Any, halog: Run, tmp_path: Path) -> None:
    """Deleted and imported again, every field of every object is as it was written, and references among them hold."""
    fleet(cluster)
    before = everything(cluster)
    file = tmp_path / "all.jsonl"
    exported = halog("export", "-o", file, "--format", "json")
    assert exported.code == 0, exported
    assert exported.json["types"] == {"Aircraft": 1, "Seaplane": 1, "Flight": 5}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    delete_all(cluster)
    imported = halog("import", file, "--format", "json")
    assert imported.code == 0, imported
    assert (imported.json["created"], imported.err) == (7, "")
    after = everything(cluster)
    assert resolved(cluster, after) == "N2"
    for values in (*before.values(), *after.values()):
        values.pop("aircraft", None)
    assert after == before
    assert {key: repr(values) for key, values in after.items()} == {key: repr(v) for key, v in before.items()}


def delete_all(cluster: Any) -> None:
    some = next(iter(cluster.nodes.values()))
    for cls in (cluster.Aircraft, cluster.Flight):
        for obj in extent(some, cls):
            info = obj.__class__.__halog__
            with some.transaction():
                some.delete(some.get(obj.__class__, *info.key_of(obj)))


def resolved(cluster: Any, after: dict[Any, dict[str, Any]]) -> str:
    """Where flight 3's reference leads now."""
    some = next(iter(cluster.nodes.values()))
    with some.transaction():
        tail: str = some.resolve(after[("Flight", ("UA", 3))]["aircraft"]).tail
    return tail


@pytest.mark.feature("O1")
def test_export_of_a_type_takes_its_subclasses_only(cluster: Any, halog: Run, tmp_path: Path) -> None:
    """A base brings its subclasses, a subclass comes alone, nothing else is written."""
    fleet(cluster)
    file = tmp_path / "some.jsonl"
    assert halog("export", "Aircraft", "-o", file, "--format", "json").json["types"] == {"Aircraft": 1, "Seaplane": 1}
    assert halog("export", "Seaplane", "-o", file, "--format", "json").json["types"] == {"Seaplane": 1}
    one, last = (json.loads(line) for line in file.read_text().splitlines())
    assert (one["key"], last["types"]) == (["N2"], {"Seaplane": 1})


def test_a_failed_export_leaves_the_old_file(cluster: Any, halog: Run, tmp_path: Path) -> None:
    """The file takes its name only when it is complete, and no half of it stays behind."""
    file = tmp_path / "all.jsonl"
    file.write_text("old")
    assert halog("export", "Nothing", "-o", file).code == 2
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir() if "all" in p.name] == ["all.jsonl"]


@pytest.mark.feature("O1")
def test_import_refuses_existing_keys_by_name_and_changes_nothing(cluster: Any, halog: Run, tmp_path: Path) -> None:
    """One existing key among new ones: it is named with its line, and none of the others was created."""
    fleet(cluster)
    file = tmp_path / "all.jsonl"
    halog("export", "-o", file)
    delete_all(cluster)
    cluster.create(cluster.Aircraft("N1"))
    ran = halog("import", file)
    assert (ran.code, ran.out) == (1, "")
    assert 'Aircraft ["N1"] exists' in ran.err
    assert ", line " in ran.err
    assert len(everything(cluster)) == 1
    ran = halog("import", file, "--skip-existing", "--format", "json")
    assert (ran.json["created"], ran.json["existing"]) == (6, 1)
    assert everything(cluster)[("Aircraft", ("N1",))]["miles"] == 0


@pytest.mark.feature("O1")
def test_a_dry_run_checks_and_creates_nothing(cluster: Any, halog: Run, tmp_path: Path) -> None:
    """It says what would be created, and finds duplicates like the real run."""
    fleet(cluster)
    file = tmp_path / "all.jsonl"
    halog("export", "-o", file)
    assert halog("import", file, "--dry-run").code == 1
    delete_all(cluster)
    ran = halog("import", file, "--dry-run", "--format", "json")
    assert (ran.code, ran.json["would_create"], ran.json["created"]) == (0, 7, 0)
    assert everything(cluster) == {}


def line(**changed: Any) -> str:
    document = {"type": "Flight", "key": ["UA", 1], "fields": {"carrier": "UA", "flight": 1, "aircraft": None}}
    return json.dumps({**document, **changed})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "not an exported object"),
        ("[" * 100_000, "not an exported object"),
        (line(type="Boat"), "no type named Boat"),
        (line(key=["UA", 2]), "is not what its fields say"),
        (line(fields={"carrier": "UA", "flight": 1}), "'aircraft'"),
        (line(fields={"carrier": "UA", "flight": 1, "aircraft": None, "extra": 1}), "'extra'"),
        (line(fields={"carrier": "UA", "flight": "1", "aircraft": None}, key=["UA", "1"]), "Flight.flight"),
        (line(fields={"carrier": "UA", "flight": 1, "aircraft": {"ref": "zz"}}), "Flight.aircraft"),
        (line(more=1), "more"),
        (line() + "\n" + line(), "on line 2 already"),
        (
            line(ref="00" * 24)
            + "\n"
            + line(key=["UA", 2], fields={"carrier": "UA", "flight": 2, "aircraft": None}, ref="00" * 24),
            "two objects, one identity",
        ),
    ],
)
@pytest.mark.feature("O1")
def test_a_bad_line_is_named_and_nothing_is_imported(
    cluster: Any, halog: Run, tmp_path: Path, text: str, said: str
) -> None:
    """The line's number and the reason; good lines before it were not created."""
    good = line(key=["AA", 1], fields={"carrier": "AA", "flight": 1, "aircraft": None})
    file = tmp_path / "bad.jsonl"
    file.write_text(good + "\n" + text + "\n")
    ran = halog("import", file)
    assert ran.code == (2 if "no type named" in said else 1)
    assert said in ran.err
    assert f"{file}, line " in ran.err
    assert ran.err.count("\n") == 1
    assert everything(cluster) == {}


def test_references_to_objects_outside_the_file_are_kept_and_counted(cluster: Any, halog: Run, tmp_path: Path) -> None:
    """An import of flights alone says that their aircraft are not in the file."""
    fleet(cluster)
    file = tmp_path / "flights.jsonl"
    halog("export", "Flight", "-o", file)
    delete_all(cluster)
    ran = halog("import", file)
    assert ran.code == 0
    assert "references to objects outside the file: 2" in ran.err
    assert halog("import", file, "--skip-existing").err == ""


def test_a_file_that_is_not_there_is_a_usage_error(cluster: Any, halog: Run, tmp_path: Path) -> None:
    """One line, exit 2."""
    ran = halog("import", tmp_path / "none.jsonl")
    assert ran.code == 2
    assert "cannot be read" in ran.err


def test_many_objects_are_imported_in_several_transactions(cluster: Any, halog: Run, tmp_path: Path) -> None:
    """More objects of one partition than fit into one transaction arrive, all of them."""
    file = tmp_path / "many.jsonl"
    with file.open("w") as out:
        for n in range(1100):
            out.write(line(key=["UA", n], fields={"carrier": "UA", "flight": n, "aircraft": None}) + "\n")
    assert halog("import", file, "--format", "json").json["created"] == 1100
    assert len(everything(cluster)) == 1100
    ran = halog("log", "tail", cluster.partition_of(cluster.Flight("UA", 0)), "-n", "3", "--format", "json")
    assert [len(record["changes"]) for record in ran.lines] == [500, 500, 100]


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines(keepends=True)


@pytest.mark.feature("O1", "N5")
def test_an_export_of_large_objects_has_all_of_them_and_says_so(cluster: Any, halog: Run, tmp_path: Path) -> None:
    """Pages end by bytes, long before the number of objects that was asked for."""
    some = next(iter(cluster.nodes.values()))
    some.load(cluster.Aircraft(f"N{i}", photo=bytes(20_000)) for i in range(450))
    file = tmp_path / "all.jsonl"
    exported = halog("export", "-o", file, "--format", "json")
    assert (exported.code, exported.json["objects"], exported.json["of"]) == (0, 450, 450)
    *objects, last = map(json.loads, lines_of(file))
    assert sorted(d["key"][0] for d in objects) == sorted(f"N{i}" for i in range(450))
    assert [d["number"] for d in objects] == list(range(1, 451))
    assert (last["export"], last["objects"], last["types"]) == ("complete", 450, {"Aircraft": 450})
    shown = halog("export", "-o", file)
    assert [line.split() for line in shown.out.splitlines()][-1] == ["all", "450", "450"]
    skipped = halog("import", file, "--skip-existing", "--format", "json")
    assert (skipped.code, skipped.json["created"], skipped.json["existing"]) == (0, 0, 450)
    delete_all(cluster)
    imported = halog("import", file, "--format", "json")
    assert (imported.json["created"], imported.json["objects"], imported.json["verified"]) == (450, 450, True)
    assert len(everything(cluster)) == 450


@pytest.mark.feature("O1", "N5")
def test_an_import_holds_few_large_objects_at_a_time(
    cluster: Any, halog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is as large as it likes: what is checked together is bounded by bytes, too."""
    from halog.cli.objects import import_plan as incoming

    some, held = next(iter(cluster.nodes.values())), []
    some.load(cluster.Aircraft(f"N{i}", photo=bytes(600_000)) for i in range(30))
    file = tmp_path / "all.jsonl"
    assert halog("export", "-o", file).code == 0
    real = incoming._admit

    def admit(connection: Any, group: Any, *more: Any) -> None:
        held.append(sum(item.size for item in group))
        real(connection, group, *more)

    monkeypatch.setattr(incoming, "_admit", admit)
    assert halog("import", file, "--skip-existing", "--format", "json").json["existing"] == 30
    assert len(held) == 3
    assert max(held) < incoming.CHECK_BYTES + 600_100


@pytest.mark.feature("O1", "N5")
def test_an_import_holds_no_more_for_all_partitions_together_than_it_has_room_for(
    cluster: Any, halog: Run, tmp_path: Path
) -> None:
    """No partition has enough for a transaction of its own before the file ends. Each gets its objects in the order of
    the file."""
    from halog.cli.objects.import_plan import batches, check_file
    from halog.cli.shared.connection import ClusterConnection
    from halog.cli.shared.files import Source
    from halog.cli.shared.messages import progress
    from halog.config import load_config

    some, size, room = next(iter(cluster.nodes.values())), 20_000, 400_000
    some.load(cluster.Aircraft(f"N{i}", photo=bytes(size)) for i in range(100, 200))
    file = tmp_path / "all.jsonl"
    assert halog("export", "-o", file).code == 0
    by_key = sorted((json.loads(line) for line in lines_of(file)[:-1]), key=lambda d: str(d["key"]))
    file.write_text("".join(json.dumps({k: v for k, v in d.items() if k != "number"}) + "\n" for d in by_key))
    place_of = {}
    for number, document in enumerate(by_key, 1):
        one = cluster.Aircraft(*document["key"])
        place_of[one.__class__.__halog__.keys_of(one)[0]] = (number, cluster.partition_of(one))
    delete_all(cluster)
    config = load_config(cluster.path)
    connection = ClusterConnection(config, cluster.adapters(config, "halog-cli-test"), "halog-cli-test", 10.0)
    try:
        connection.open()
        with progress() as bar:
            plan = check_file(connection, Source(file), False, bar, strict=False)
        sent = list(batches(connection, plan, room))
    finally:
        connection.close()
    read, done = 0, list[tuple[int, str]]()
    for count, works in sent:
        ((partition, work),) = works.items()
        numbers = [place_of[w.key][0] for w in work.writes]
        assert (len(numbers), sorted(numbers)) == (count, numbers)
        read = max(read, *numbers, 0)
        assert (read - len(done)) * size <= room + size
        done += [(number, partition) for number in numbers]
    assert sorted(done) == sorted(place_of.values())
    assert len(sent) < 40


@pytest.mark.feature("O1", "N5")
def test_an_export_fails_that_has_fewer_objects_than_the_nodes_count(
    cluster: Any, halog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from halog.cli.shared.connection import ClusterConnection

    fleet(cluster)
    file = tmp_path / "all.jsonl"
    real = ClusterConnection.scan
    monkeypatch.setattr(
        ClusterConnection, "scan", lambda self, partition, prefix: list(real(self, partition, prefix))[1:]
    )
    ran = halog("export", "-o", file)
    assert (ran.code, ran.out, file.exists()) == (1, "", False)
    assert "that its active node counts" in ran.err


@pytest.mark.feature("O1", "N5")
@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (lambda lines: [], "is empty"),
        (lambda lines: ["\n", " \n"], "is empty"),
        (lambda lines: lines[:-1], "it is cut: the checksum line is missing"),
        (lambda lines: lines[:3], "it is cut: the checksum line is missing"),
        (lambda lines: [*lines[:3], lines[3][:40]], "the file ends within this line"),
        (lambda lines: [*lines[:3], lines[3][:40] + "\n"], "line 4: not an exported object"),
        (lambda lines: [*lines[:3], lines[-1]], "it has 3 of the 7 objects"),
        (lambda lines: lines[2:], "line 1 is object 3 of its export"),
        (lambda lines: lines[2:5], "line 1 is object 3 of its export"),
        (lambda lines: [*lines[:2], *lines[3:]], "line 3 is object 4 of its export"),
        (lambda lines: [*lines[:-1], lines[-1][:50]], "not an exported object"),
        (lambda lines: [lines[0].replace('"version":', '"version":9'), *lines[1:]], "it was changed since it was"),
        (lambda lines: [*lines[:6], lines[6].replace("}", "} ", 1), lines[7]], "it was changed since it was exported"),
        (lambda lines: [*lines, lines[0]], "stands behind the checksum line"),
        (lambda lines: [*lines, lines[-1]], "two checksum lines"),
        (lambda lines: [*lines[:-1], '{"export": "complete"}\n'], "its checksum line is not valid"),
    ],
)
def test_a_file_that_is_empty_or_cut_or_changed_is_refused(
    cluster: Any, halog: Run, tmp_path: Path, cut: Callable[[list[str]], list[str]], said: str
) -> None:
    """Wherever it lost what it lost, nothing is imported, with any option but the one that says so."""
    fleet(cluster)
    file = tmp_path / "all.jsonl"
    halog("export", "-o", file)
    delete_all(cluster)
    file.write_text("".join(cut(lines_of(file))))
    for options in ((), ("--dry-run",), ("--skip-existing",)):
        ran = halog("import", file, *options)
        assert (ran.code, ran.out) == (1, ""), ran
        assert said in ran.err
    assert everything(cluster) == {}


@pytest.mark.feature("O1")
def test_what_is_left_of_a_file_is_imported_if_that_is_wanted(cluster: Any, halog: Run, tmp_path: Path) -> None:
    fleet(cluster)
    file = tmp_path / "all.jsonl"
    halog("export", "-o", file)
    delete_all(cluster)
    lines = lines_of(file)
    file.write_text("".join(lines[1:5]))
    ran = halog("import", file, "--unverified", "--format", "json")
    assert (ran.code, ran.json["created"], ran.json["verified"]) == (0, 4, False), ran
    delete_all(cluster)
    file.write_bytes("".join(lines[:5]).encode()[:-30])
    ran = halog("import", file, "--unverified", "--format", "json")
    assert (ran.code, ran.json["created"]) == (0, 4), ran
    assert "ends within line 5, which was left out" in ran.err
    file.write_text("")
    assert "is empty" in halog("import", file, "--unverified").err


@pytest.mark.feature("O1")
def test_a_file_without_numbers_and_checksum_is_imported_and_told_to_be_unverified(
    cluster: Any, halog: Run, tmp_path: Path
) -> None:
    """As exports were once, and as people write them."""
    fleet(cluster)
    file = tmp_path / "all.jsonl"
    halog("export", "-o", file)
    delete_all(cluster)
    documents = [json.loads(text) for text in lines_of(file)[:-1]]
    file.write_text("".join(json.dumps({k: v for k, v in d.items() if k != "number"}) + "\n" for d in documents))
    ran = halog("import", file, "--format", "json")
    assert (ran.code, ran.json["created"], ran.json["verified"]) == (0, 7, False), ran
    assert "has no checksum line: whether it is complete is not known" in ran.err


@pytest.mark.feature("O1")
def test_an_export_of_nothing_is_a_whole_one(cluster: Any, halog: Run, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    assert halog("export", "-o", file, "--format", "json").json["objects"] == 0
    ran = halog("import", file, "--format", "json")
    assert (ran.code, ran.json["objects"], ran.json["verified"]) == (0, 0, True)


@pytest.mark.feature("O1", "U2")
def test_an_export_that_is_older_than_a_field_is_imported_with_its_default(
    cluster: Any, halog: Run, tmp_path: Path
) -> None:
    """Written by a definition that this cluster has never seen. What has no constant default is named; so it is where
    the definition is this cluster's own."""
    fields = {"tail": "N7", "miles": 9, "kind": "PROP"}
    old: dict[str, Any] = {"type": "Aircraft", "key": ["N7"], "fields": fields, "definition": "00" * 8}
    file = tmp_path / "old.jsonl"
    file.write_text(json.dumps(old) + "\n")
    assert halog("import", file, "--format", "json").json["created"] == 1
    found = everything(cluster)[("Aircraft", ("N7",))]
    assert (found["miles"], found["kind"], found["price"], found["notes"]) == (
        9,
        cluster.Kind.PROP,
        Decimal("0.00"),
        None,
    )
    for wrong in ({**old, "fields": {**fields, "gone": 1}}, {**old, "definition": ""}):
        file.write_text(json.dumps({**wrong, "key": ["N8"], "fields": {**wrong["fields"], "tail": "N8"}}) + "\n")
        refused = halog("import", file)
        assert (refused.code, "missing or unknown field" in refused.err) == (1, True), refused
    assert len(everything(cluster)) == 1


@pytest.mark.feature("O1")
def test_list_shows_the_objects_of_a_type_and_says_where_it_stops(cluster: Any, halog: Run) -> None:
    """With those of its subclasses; a type of another key space is not among them."""
    fleet(cluster)
    everything = halog("list", "Aircraft", "--all", "--format", "json")
    assert sorted(d["key"][0] for d in everything.json) == ["N1", "N2"]
    assert (everything.err, {d["type"] for d in everything.json}) == ("", {"Aircraft", "Seaplane"})
    for found in everything.json:
        assert halog("get", "Aircraft", found["key"][0], "--format", "json").json == found
    first = halog("list", "Aircraft", "-n", 1)
    assert len(first.out.splitlines()) == 2, "the head and one object"
    assert "there are more: these are the first 1" in first.err
    assert [d["key"] for d in halog("list", "Seaplane", "--format", "json").json] == [["N2"]]


@pytest.mark.feature("O1", "R8")
def test_an_object_that_is_too_large_is_named_by_its_line_before_anything_is_imported(
    cluster: Any, halog: Run, tmp_path: Path
) -> None:
    file = tmp_path / "all.jsonl"
    rows = [{"type": "Aircraft", "key": [f"N{i}"], "fields": {"tail": f"N{i}"}, "definition": "00"} for i in range(3)]
    rows[2]["fields"] = {"tail": "N2", "photo": "00" * 2_600_000}
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ran = halog("import", file)
    assert (ran.code, ran.out) == (1, "")
    assert f'{file}, line 3: Aircraft ["N2"] would have 2,600,' in ran.err
    assert "the limit is 2,49" in ran.err
    assert everything(cluster) == {}
    cluster.create(cluster.Aircraft("N2"))
    skipped = halog("import", file, "--skip-existing", "--format", "json")
    assert (skipped.code, skipped.json["created"], skipped.json["existing"]) == (0, 2, 1), "it is there, and stays"
