"""What is installed says whose it is, under which terms, and where to look."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from halog.release import RELEASE

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return zipfile.ZipFile(next(out.glob("*.whl")))


def one(wheel: zipfile.ZipFile, ending: str) -> str:
    return wheel.read(next(name for name in wheel.namelist() if name.endswith(ending))).decode()


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    return Parser().parsestr(one(wheel, ".dist-info/METADATA"))


@pytest.mark.feature("O1")
def test_the_terms_come_with_it(wheel: zipfile.ZipFile, metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert one(wheel, "licenses/LICENSE") == (ROOT / "LICENSE").read_text()
    assert "Apache License" in (ROOT / "LICENSE").read_text()


@pytest.mark.feature("O1", "U1")
def test_it_is_of_the_release_that_its_processes_say_they_are(metadata: Message) -> None:
    assert metadata["Version"] == RELEASE


@pytest.mark.feature("O1")
def test_it_says_where_to_look(metadata: Message) -> None:
    urls = {value.partition(",")[0] for value in metadata.get_all("Project-URL", [])}
    assert urls == {"Homepage", "Documentation", "Changelog", "Issues"}
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])


@pytest.mark.feature("O1")
def test_it_is_typed_and_a_command(wheel: zipfile.ZipFile) -> None:
    assert {"halog/py.typed", "halog/__main__.py"} <= set(wheel.namelist())
    assert "halog = halog.__main__:main" in one(wheel, "entry_points.txt")
