"""What only a real disk can show: kill -9 between writes, damage, directories that are not ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from halog.adapters.rocks_store import RocksStore, destroy
from halog.errors import RefusedError, StoreError

_WRITER = """
import sys, itertools
from halog.adapters.rocks_store import RocksStore
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
from halog.adapters.rocks_store import RocksStore
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
    """Flipped bytes in a table: StoreError with the directory, not wrong data; `destroy` makes room for a new one."""
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
    destroy(tmp_path / "s")
    s = RocksStore(tmp_path / "s")
    assert list(s.scan(b"")) == []
    s.close()


def test_a_foreign_directory_is_refused_and_untouched(tmp_path: Path) -> None:
    """A directory with somebody's files is neither used nor destroyed."""
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RefusedError, match=str(tmp_path)):
        RocksStore(tmp_path)
    with pytest.raises(RefusedError):
        destroy(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_held_store_is_not_destroyed(tmp_path: Path) -> None:
    """While another node lives in it, `destroy` refuses, and its data stay."""
    s = RocksStore(tmp_path / "s")
    s.write([(b"a", b"1")])
    with pytest.raises(StoreError, match="held"):
        destroy(tmp_path / "s")
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
