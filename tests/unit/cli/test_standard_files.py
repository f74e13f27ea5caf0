"""`-` is standard output or standard input, in every command that takes a file."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.feature("O1")
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of its own: no file named `-` may appear there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def gives(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """What standard input has; it has that once, as a pipe has."""

    class Piped(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *args: Any) -> int:
            raise io.UnsupportedOperation("seek")

    def give(text: str) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Piped(text.encode()), encoding="utf-8"))

    return give


def test_an_export_goes_to_stdout_and_its_summary_to_stderr(cluster: Any, halog: Run, here: Path) -> None:
    cluster.create(cluster.Aircraft("Nü"), cluster.Flight("UA", 1))
    assert halog("export", "-o", "all.jsonl").code == 0
    ran = halog("export", "-o", "-")
    assert ran.code == 0, ran
    assert ran.out == (here / "all.jsonl").read_text()
    assert ran.err.splitlines()[0].split() == ["type", "objects", "of"]
    told = halog("export", "-o", "-", "--format", "json")
    assert json.loads(told.err)["objects"] == 2
    assert told.out == ran.out
    assert not (here / "-").exists()


@pytest.mark.parametrize(
    ("words", "of"),
    [(("conflicts", "export", "-o", "-"), "objects"), (("history", "p-0", "--discarded", "--export", "-"), "records")],
)
def test_whatever_is_written_to_a_file_may_go_to_stdout(
    cluster: Any, halog: Run, here: Path, words: tuple[str, ...], of: str
) -> None:
    ran = halog(*words, "--format", "json")
    assert (ran.code, ran.out) == (0, ""), ran
    assert json.loads(ran.err) == {"file": "-", of: 0}
    assert not (here / "-").exists()


def test_an_import_reads_stdin(cluster: Any, halog: Run, gives: Callable[[str], None]) -> None:
    """Which it needs twice: everything is checked before anything is done."""
    cluster.create(cluster.Aircraft("N1", 5), cluster.Flight("UA", 1))
    exported = halog("export", "-o", "-").out
    assert halog("delete", "Aircraft", "N1", "--cluster", "ops").code == 0
    gives(exported)
    ran = halog("import", "-", "--skip-existing", "--format", "json")
    assert ran.code == 0, ran
    assert (ran.json["created"], ran.json["verified"], ran.json["file"]) == (1, True, "-")
    assert halog("get", "Aircraft", "N1", "--format", "json").json["fields"]["miles"] == 5


def test_what_is_wrong_in_stdin_is_named_by_its_line(cluster: Any, halog: Run, gives: Callable[[str], None]) -> None:
    gives("\nx\n")
    assert halog("import", "-").err.startswith("halog: standard input, line 2: not an exported object: ")
    gives("")
    assert halog("import", "-").err.startswith("halog: standard input: the file is empty: ")


def test_an_import_passes_over_a_byte_order_mark(cluster: Any, halog: Run, gives: Callable[[str], None]) -> None:
    cluster.create(cluster.Aircraft("N1"))
    line = json.loads(halog("export", "Aircraft", "-o", "-").out.splitlines()[0])
    mine = {"type": "Aircraft", "key": ["N2"], "fields": {**line["fields"], "tail": "N2"}}
    gives("\ufeff" + json.dumps(mine) + "\r\n")
    assert halog("import", "-", "--format", "json").json["created"] == 1


def test_keys_may_come_from_stdin(cluster: Any, halog: Run, gives: Callable[[str], None]) -> None:
    words = "mapper", "explain", "Aircraft", "--distribution", "--keys", "-", "--format", "json"
    gives("\ufeffN1\r\nN2\r\nN3\r\n")
    assert sum(p["keys"] for p in halog(*words).json["partitions"]) == 3


def test_a_configuration_may_come_from_stdin(
    cluster: Any, halog: Run, gives: Callable[[str], None], here: Path
) -> None:
    text = cluster.path.read_text()
    gives(text)
    assert halog("config", "check", "-").out == "standard input: ok\n"
    gives(text + "\n[nowhere]\n")
    assert halog("config", "check", "-").out.startswith("standard input: nowhere: ")
    gives(text)
    done = halog("config", "activate", "-")
    assert done.code == 0, done
    assert halog("config", "history", "--format", "json").json[0]["file"] == "standard input"
    gives(text)
    assert halog("status", "--config", "-").code == 0
    gives(text)
    assert halog("config", "diff", "--config", "-").code == 0
