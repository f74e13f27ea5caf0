"""What `halog up` says last is a command that stops what it has started."""

from __future__ import annotations

from pathlib import Path

import pytest

from halog.cli.cluster.embedded import _show
from halog.embedded.datadir import default_data_dir
from halog.embedded.model import SiteInfo


@pytest.mark.feature("O3")
@pytest.mark.parametrize("directory", ["default", "another one"])
def test_the_command_that_stops_it_names_its_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, directory: str
) -> None:
    path = default_data_dir() if directory == "default" else tmp_path / "a site"
    _show(SiteInfo("127.0.0.1:7", "127.0.0.1:8", str(path)), "table")
    said = "".join(capsys.readouterr())
    wanted = "`halog down`" if directory == "default" else f"`halog down --data-dir '{path}'`"
    assert said.endswith(f"stop it with {wanted}\n")
