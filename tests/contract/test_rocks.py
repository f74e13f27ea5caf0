"""What only a real disk can show: kill -9 between writes, damage, directories that are not ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from halog.adapters.rocksdb import written_mark as rocks_written
from halog.adapters.rocksdb.store import RocksStore, set_aside
from halog.errors import ClosedError, RefusedError, StoreError
from halog.runtime.node.wiring import open_store
from halog.runtime.store import replaced_mark as replaced

_WRITER = """
import sys, itertools
from halog.adapters.rocksdb.store import RocksStore
s = RocksStore(sys.argv[1])
for n in itertools.count(1):
    v = b"%d" % n
    s.write([(b"position", v), (b"a", v), (b"b", v), (b"n%d" % n, v)])
    print(n, flush=True)
"""


@pytest.mark.feature("P1", "P10")
def test_a_killed_process_leaves_whole_writes(tmp_path: Path) -> None:
    """kill -9 in the middle: what was reported written is there, position and objects of one and the same write."""
    for _ in range(3):
        command = [sys.executable, "-c", _WRITER, str(tmp_path / "s")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) >= 500:
                    break
            os.kill(process.pid, signal.SIGKILL)
            reported = [500, *[int(x) for x in process.stdout.read().split("\n")[:-1]]][-1]
        s = RocksStore(tmp_path / "s")
        position = s.get(b"position")
        assert position is not None
        assert int(position) >= reported
        assert s.get(b"a") == s.get(b"b") == s.get(b"n" + position) == position
        s.close()


_FILLER = """
import os, signal, sys
from halog.adapters.rocksdb.store import RocksStore
s = RocksStore(sys.argv[1])
s.write([(b"p1", b"old"), (b"q", b"written before")])
s.drop(b"p")
def items():
    for n in range(50_000):
        if n == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        yield b"p%06d" % n, os.urandom(200)
s.fill(items())
s.write([(b"r", b"written after")])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.feature("P1", "P10")
@pytest.mark.parametrize(("killed_at", "left"), [(40_000, 0), (-1, 50_000)])
def test_a_fill_that_was_killed_has_left_nothing(tmp_path: Path, killed_at: int, left: int) -> None:
    """kill -9 in the middle of it: none of its items, nor its file. Behind it: all, and what was written then."""
    subprocess.run([sys.executable, "-c", _FILLER, str(tmp_path / "s"), str(killed_at)], check=False)
    s = RocksStore(tmp_path / "s")
    assert len(list(s.scan(b"p"))) == left
    assert (s.get(b"q"), s.get(b"r")) == (b"written before", b"written after" if left else None)
    assert list(tmp_path.rglob("fill/*")) == []
    s.close()


def test_damage_is_told_and_the_store_can_be_made_anew(tmp_path: Path) -> None:
    """Flipped bytes in a table: StoreError with the directory, not wrong data; `set_aside` makes room for a new one and
    deletes nothing, and nobody opens the damaged one again before that."""
    s = RocksStore(tmp_path / "s")
    s.write([(b"%06d" % n, os.urandom(100)) for n in range(20_000)])
    s._db.flush()
    s.close()
    for table in (tmp_path / "s" / "db").glob("*.sst"):
        raw = bytearray(table.read_bytes())
        for at in range(5_000, len(raw) - 5_000, 1_000):
            raw[at] ^= 0xFF
        table.write_bytes(raw)
    with pytest.raises(StoreError, match=str(tmp_path)) as caught:
        s = RocksStore(tmp_path / "s")
        try:
            list(s.scan(b""))
        finally:
            s.close()
    assert caught.value.evidence["rebuild"] is True
    with pytest.raises(StoreError, match="damaged"):
        RocksStore(tmp_path / "s")
    tables = sorted(p.name for p in (tmp_path / "s" / "db").glob("*.sst"))
    aside = set_aside(tmp_path / "s")
    assert aside is not None
    assert sorted(p.name for p in aside.glob("*.sst")) == tables
    s = RocksStore(tmp_path / "s")
    assert list(s.scan(b"")) == []
    s.close()


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    for at in range(0, len(raw), 3):
        raw[at] ^= 0x5A
    path.write_bytes(raw)


HARM: dict[str, Callable[[Path], None]] = {
    "corrupt": _flip,
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "missing": Path.unlink,
}
"""What is done to a file."""

INTACT = {("OPTIONS-*", harm) for harm in HARM} | {("IDENTITY", harm) for harm in HARM}
"""Files that hold none of the data: the store works without them."""


@pytest.mark.feature("P10", "R1")
@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("files", ["CURRENT", "MANIFEST-*", "*.sst", "*.log", "OPTIONS-*", "IDENTITY"])
def test_whatever_file_is_harmed_the_first_start_sets_the_store_aside(
    tmp_path: Path, files: str, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By a process that was killed; some of its data were in tables, some in the write-ahead log. Nothing that is lost
    goes unnoticed, nothing is deleted, and the second start is a start like any other."""
    script = f"""
import os, signal
from halog.adapters.rocksdb.store import RocksStore
s = RocksStore({str(tmp_path / "A")!r})
s.write([(b"a%05d" % n, os.urandom(100)) for n in range(3_000)])
s._db.flush()
s.write([(b"b%05d" % n, os.urandom(100)) for n in range(3_000)])
s.write([(b"c", b"last")])
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    harmed = [p for p in (tmp_path / "A" / "db").glob(files) if p.stat().st_size]
    assert harmed
    for path in harmed:
        HARM[harm](path)
    store = open_store(tmp_path / "A")
    lost = replaced.found(store)
    if (files, harm) in INTACT:
        assert lost is None
        assert len(list(store.scan(b"b"))) == 3_000
        store.close()
        return
    if lost is None:  # damage that only reading shows
        with pytest.raises(StoreError):
            list(store.scan(b""))
        store.close()
        store = open_store(tmp_path / "A")
        lost = replaced.found(store)
    assert lost is not None
    assert list(store.scan(b"a")) == list(store.scan(b"b")) == []
    assert Path(lost.aside).is_dir()
    assert f"set aside as {lost.aside}" in caplog.text
    store.write([(b"k", b"v")])
    store.close()
    again = open_store(tmp_path / "A")
    assert again.get(b"k") == b"v"
    again.close()


def test_a_scan_that_is_not_over_keeps_no_store_open(tmp_path: Path) -> None:
    """An error's frames may hold one, as the second start of a node found: it had the directory locked itself."""
    s = RocksStore(tmp_path / "s")
    s.write([(b"%06d" % n, b"x") for n in range(2_000)])
    scanned = s.scan(b"")
    next(scanned)
    s.close()
    again = RocksStore(tmp_path / "s")
    with pytest.raises(ClosedError):
        list(scanned)
    again.close()


def test_writes_that_only_a_lost_machine_had_are_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not flushed may be gone with the run of the machine; what was flushed may not."""
    script = f"""
import os, signal
from halog.adapters.rocksdb.store import RocksStore
s = RocksStore({str(tmp_path / "A")!r})
s.write([(b"a", b"1")], flush=True)
s.write([(b"b", b"2")])
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    (log,) = (p for p in (tmp_path / "A" / "db").glob("*.log") if p.stat().st_size)
    whole = log.read_bytes()
    log.write_bytes(whole[:-3])
    with pytest.raises(StoreError, match="lacks the last 1 writes"):
        RocksStore(tmp_path / "A")
    (tmp_path / "A" / "DAMAGED").unlink()
    monkeypatch.setattr(rocks_written, "machine_run", lambda: "another run of the machine")
    s = RocksStore(tmp_path / "A")
    assert (s.get(b"a"), s.get(b"b")) == (b"1", None)
    s.close()


def test_a_foreign_directory_is_refused_and_untouched(tmp_path: Path) -> None:
    """A directory with somebody's files is neither used nor moved."""
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RefusedError, match=str(tmp_path)):
        RocksStore(tmp_path)
    with pytest.raises(RefusedError):
        set_aside(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.feature("P10")
@pytest.mark.parametrize("below", ["B", "deep/er/B", "db", "fill/B"])
def test_a_directory_within_anothers_is_refused_before_anything_is_written(tmp_path: Path, below: str) -> None:
    RocksStore(tmp_path / "A").close()
    (tmp_path / "link").symlink_to(tmp_path / "A")
    before = sorted((tmp_path / "A").rglob("*"))
    for outer in ("A", "link"):
        with pytest.raises(RefusedError, match=rf"{below} lies in {tmp_path}/A, which is another node's"):
            RocksStore(tmp_path / outer / below)
    assert sorted((tmp_path / "A").rglob("*")) == before


def test_a_held_store_is_not_set_aside(tmp_path: Path) -> None:
    """While another node lives in it, `set_aside` refuses, and its data stay."""
    s = RocksStore(tmp_path / "s")
    s.write([(b"a", b"1")])
    with pytest.raises(StoreError, match="held"):
        set_aside(tmp_path / "s")
    assert s.get(b"a") == b"1"
    s.close()


def test_the_directory_is_private(tmp_path: Path) -> None:
    """Only its owner may look into a node's data."""
    RocksStore(tmp_path / "s").close()
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700


def test_a_file_in_the_way_is_a_store_error(tmp_path: Path) -> None:
    """A path that is no directory: one sentence with the path, no traceback of the system's."""
    (tmp_path / "s").write_text("")
    with pytest.raises(StoreError, match=str(tmp_path / "s")):
        RocksStore(tmp_path / "s")


_FULL_DISK = """
import resource, sys
from halog.adapters.rocksdb.store import RocksStore
s = RocksStore(sys.argv[1])
s.write([(b"a", b"1")])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
s.write([(b"b", bytes(200_000))])
"""


@pytest.mark.feature("P10")
def test_a_disk_that_takes_no_more_is_named_with_what_to_do(tmp_path: Path) -> None:
    """The store, where its disk is mounted, why, and what helps; what was written before is there."""
    ran = subprocess.run([sys.executable, "-c", _FULL_DISK, str(tmp_path / "s")], text=True, capture_output=True)
    (said,) = [line for line in ran.stderr.splitlines() if "StoreError" in line]
    at = next(p for p in (tmp_path, *tmp_path.parents) if os.path.ismount(p))
    assert said.endswith(
        f"StoreError: the disk of store {tmp_path / 's'}, mounted at {at}, takes no more (File too large): make room "
        "there, then start its node again"
    )
    s = RocksStore(tmp_path / "s")
    assert (s.get(b"a"), s.get(b"b")) == (b"1", None)
    s.close()
