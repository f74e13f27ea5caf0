"""`--merge` takes the digits that tables show, and any that tell one merge apart from others (M2, M3)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from halog.cli.merge.merge_ids import is_whole, meant, whole
from halog.errors import ConfigError
from halog.testing.cluster import Cluster
from restore.undoings import undoing
from tests.unit.cli.merge.test_conflicts import Halog, parted
from tests.unit.cli.merge.test_settle import merged, run
from tests.unit.cli.sites.test_sites import files
from tests.unit.sites.two import east, west

pytestmark = pytest.mark.feature("M2", "M3", "X4")
__all__ = ["east", "files", "merged", "parted", "west"]

FIRST, LIKE, OTHER = b"\x61\x50" + b"a" * 14, b"\x61\x50" + b"b" * 14, b"\x99" * 16
MANY = [b"\x77" + bytes([n]) * 15 for n in range(12)]
CONNECTION: Any = None
TABLES: Any = [SimpleNamespace(name="p-0"), SimpleNamespace(name="p-1")]


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the logs of two partitions still have."""
    names = {"p-0": [FIRST, undoing(FIRST)], "p-1": [LIKE, OTHER, *MANY]}

    def reports(connection: object, table: Any) -> list[Any]:
        return [SimpleNamespace(name=name) for name in names[table.name]]

    monkeypatch.setattr("halog.cli.merge.log_reports.reports", reports)


@pytest.mark.parametrize("digits", [1, 2, 12, 31])
def test_the_first_digits_will_do(logs: None, digits: int) -> None:
    assert whole(CONNECTION, TABLES, OTHER.hex()[:digits]) == OTHER.hex()
    assert meant(CONNECTION, TABLES, OTHER.hex()[:digits]) == {"p-1": OTHER.hex()}


def test_an_undoing_has_digits_of_its_own(logs: None) -> None:
    undo = undoing(FIRST).hex()
    assert meant(CONNECTION, TABLES, undo[:12]) == {"p-0": undo}
    for digits in (31, 32, 33, 39):
        assert meant(CONNECTION, TABLES, undo[:digits]) == {"p-0": undo}


def test_those_that_several_begin_with_are_refused_with_all_of_them(logs: None) -> None:
    with pytest.raises(ConfigError) as refused:
        whole(CONNECTION, TABLES, "6150")
    assert refused.value.message == (
        f"the ids of 2 merges begin with 6150: {FIRST.hex()} (p-0), {LIKE.hex()} (p-1); say more digits of one"
    )


def test_of_very_many_some_are_listed(logs: None) -> None:
    with pytest.raises(ConfigError, match=rf"{MANY[9].hex()} \(p-1\), and 2 more; say more"):
        whole(CONNECTION, TABLES, "77")


def test_what_none_begins_with_stays_as_it_is(logs: None) -> None:
    """Whoever asked says what that means."""
    assert whole(CONNECTION, TABLES, "00ff") == "00ff"
    assert meant(CONNECTION, TABLES, "00ff") == {}
    assert whole(CONNECTION, TABLES, None) is None


@pytest.mark.parametrize("said", ["", "xyz", "61-50", "6150EB"])
def test_what_is_no_digits_is_refused(said: str) -> None:
    with pytest.raises(ConfigError, match="is no id of a merge"):
        whole(CONNECTION, TABLES, said)


def test_a_whole_one_is_looked_for_in_no_log() -> None:
    """It may have been trimmed there; whoever is asked for it says so."""
    for name in (FIRST, undoing(FIRST), undoing(undoing(FIRST))):
        assert is_whole(name.hex())
        assert not is_whole(name.hex()[:-1])
        assert meant(CONNECTION, TABLES, name.hex()) == {"p-0": name.hex(), "p-1": name.hex()}


def test_commands_take_what_the_table_shows(
    west: Cluster, east: Cluster, merged: dict[str, Path], halog: Halog
) -> None:
    table = halog("conflicts", "show", "--open", "--config", merged["east"]).out
    found = {d["partition"]: d for d in run(halog, merged, "conflicts", "show", "--open", at="east").json}
    partition, one = next(iter(found.items()))
    short = one["merge"][:12]
    assert short in table
    shown = run(halog, merged, "conflicts", "show", "--merge", short, at="west").json
    assert [d["merge"] for d in shown] == [one["merge"]]
    keys = {o["key"][0] for o in one["objects"]}
    words = ("conflicts", "settle", "--all", "--as", "source", "--merge", short, "--dry-run")
    settled = run(halog, merged, *words, at="east")
    assert (settled.code, {d["key"][0] for d in settled.json}) == (0, keys), settled.err
    out = merged["east"].parent / "merged.jsonl"
    assert run(halog, merged, "conflicts", "export", "--merge", short, "-o", str(out), at="east").code == 0
    assert one["merge"] in out.read_text()
    undone = run(halog, merged, "restore", "undo", "--merge", short, at="east")
    assert [(d["partition"], d["phase"] in ("done", "nothing")) for d in undone.json] == [(partition, True)], undone.err
    missing = run(halog, merged, "restore", "undo", "--merge", "00ff", at="east")
    assert missing.code == 2
    assert "the logs of test-0" in missing.err
    assert "there is no merge 00ff" in missing.err
