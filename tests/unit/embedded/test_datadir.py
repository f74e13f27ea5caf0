"""The data directory: ours, private, locked, or refused with a sentence."""

from __future__ import annotations

import json
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from halog.embedded import datadir
from halog.embedded.model import Ports
from halog.errors import SiteError


def test_a_new_directory_is_private_and_marked(tmp_path: Path) -> None:
    root = tmp_path / "a" / "site"
    marker = datadir.prepare(root)
    assert marker.cluster_id
    assert marker.ports is None
    for path in (root, root / "kafka/data", root / "zookeeper/data", root / "logs", root / "tmp"):
        assert path.stat().st_mode & 0o777 == 0o700
    assert (root / datadir.MARKER).stat().st_mode & 0o777 == 0o600


def test_a_directory_keeps_its_identity_and_ports(tmp_path: Path) -> None:
    first = datadir.prepare(tmp_path / "s")
    datadir.save_ports(tmp_path / "s", first, Ports(1, 2, 3))
    again = datadir.prepare(tmp_path / "s")
    assert (again.cluster_id, again.ports) == (first.cluster_id, Ports(1, 2, 3))


def test_two_directories_have_two_identities(tmp_path: Path) -> None:
    assert datadir.prepare(tmp_path / "a").cluster_id != datadir.prepare(tmp_path / "b").cluster_id


def test_an_empty_disk_root_is_not_foreign(tmp_path: Path) -> None:
    """A freshly made file system holds lost+found."""
    (tmp_path / "lost+found").mkdir()
    datadir.prepare(tmp_path)


def test_a_directory_with_other_files_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(SiteError, match="holds files that are not halog's"):
        datadir.prepare(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(SiteError, match="is a file"):
        datadir.prepare(tmp_path / "f")


def test_a_place_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(SiteError, match=r"cannot be used \(Not a directory\)"):
        datadir.prepare(tmp_path / "f" / "site")
    with pytest.raises(SiteError, match="without room"):
        datadir.prepare(Path("/proc/halog-test"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_place_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SiteError, match=r"cannot be used|not writable"):
        datadir.prepare(tmp_path / "site")


def test_a_full_disk_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 40, 1 << 40, 3 << 20))
    with pytest.raises(SiteError, match="only 3 MB are free"):
        datadir.prepare(tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"layout": 1}', '{"cluster_id": "x", "kafka": "1", "layout": "y"}'])
def test_a_damaged_marker_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / datadir.MARKER).write_text(text)
    with pytest.raises(SiteError, match="damaged"):
        datadir.prepare(tmp_path)


def test_a_newer_layout_is_an_error(tmp_path: Path) -> None:
    values = {"cluster_id": "x", "ports": None, "kafka": "9", "layout": datadir.LAYOUT_VERSION + 1}
    (tmp_path / datadir.MARKER).write_text(json.dumps(values))
    with pytest.raises(SiteError, match="newer halog"):
        datadir.prepare(tmp_path)


def test_one_site_per_directory(tmp_path: Path) -> None:
    datadir.prepare(tmp_path)
    assert not datadir.is_locked(tmp_path)
    fd = datadir.lock(tmp_path)
    try:
        assert datadir.is_locked(tmp_path)
        with pytest.raises(SiteError, match="already running"):
            datadir.lock(tmp_path)
    finally:
        os.close(fd)
    assert not datadir.is_locked(tmp_path)


def test_a_directory_nobody_made_is_not_locked(tmp_path: Path) -> None:
    assert not datadir.is_locked(tmp_path / "nowhere")


def test_the_socket_has_a_short_name_in_a_long_directory(tmp_path: Path) -> None:
    """Socket addresses end at 107 bytes."""
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    assert datadir.at_socket(deep, len) < 60
