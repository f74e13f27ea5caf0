"""`written_whole`: a file that cannot be completed is named, whenever that is found out, and nothing of it is left."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from halog.cli.shared.files import written_whole
from halog.errors import ConfigError, HalogError

pytestmark = pytest.mark.feature("O1")


@contextmanager
def files_of_at_most(count: int) -> Iterator[None]:
    """Bytes; more are refused, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_disk_that_takes_no_more_is_told_with_the_files_name(tmp_path: Path, size: int) -> None:
    """Found out by closing, or by writing."""
    target = tmp_path / "all.jsonl"
    said = f"{target}: cannot be written: File too large; no file was written"
    with pytest.raises(HalogError) as told, files_of_at_most(5), written_whole(target) as out:
        out.write("x" * size)
    assert (told.value.message, told.value.exit_code) == (said, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """Nor behind a link, as /dev/stdout is one: root could replace what all processes use."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for target in (pipe, link):
        with pytest.raises(ConfigError, match=r"pipe: cannot be written: it is not a file"), written_whole(target):
            pass
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, pipe]


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    (tmp_path / "link").symlink_to("file")
    with written_whole(tmp_path / "link") as out:
        out.write("behind")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "behind"


def test_a_name_that_was_taken_meanwhile_is_told(tmp_path: Path) -> None:
    target = tmp_path / "all.jsonl"
    with (
        pytest.raises(HalogError, match=r"all\.jsonl: cannot be written: Is a directory"),
        written_whole(target) as out,
    ):
        out.write("x")
        target.mkdir()
    assert list(tmp_path.iterdir()) == [target]


def test_what_fails_elsewhere_meanwhile_is_not_the_files(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="stderr"), written_whole(tmp_path / "f"):
        raise OSError("stderr takes nothing")
    assert list(tmp_path.iterdir()) == []


def test_an_export_names_the_file(cluster: Any, halog: Callable[..., Any], tmp_path: Path) -> None:
    cluster.create(cluster.Aircraft("N1"))
    target = tmp_path / "all.jsonl"
    with files_of_at_most(20):
        ran = halog("export", "-o", target)
    assert (ran.code, ran.err.splitlines()[-1].startswith(f"halog: {target}: cannot be written: ")) == (1, True), ran
    assert not target.exists()
