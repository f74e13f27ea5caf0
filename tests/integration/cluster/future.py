"""A later halog: the source of this one, changed as a later version may be. Processes are started from it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from halog.release import RELEASE as HALOG
from tests.integration.cluster.processes import ROOT

PACKAGES = ("halog", "mappers", "restore", "spark_jobs")
RELEASE = "9.9.0"


class Edit(NamedTuple):
    """A place of the source, which is there once, and what a later version has in it."""

    file: str
    now: str
    later: str


NAMED = Edit("halog/release.py", f'"{HALOG}"', f'"{RELEASE}"')
LATER = (
    NAMED,
    Edit("halog/release.py", "LEVEL: Final = 1", "LEVEL: Final = 2"),
    Edit("halog/runtime/rpc/frames.py", "PROTOCOL: Final = 3", "PROTOCOL: Final = 4"),
    # Fields in frames that go both ways, and in what they contain.
    Edit(
        "halog/runtime/rpc/frames.py",
        "    tails: dict[str, int]\n",
        '    tails: dict[str, int]\n    load: dict[str, float] = {}\n    why: str = "later"\n',
    ),
    Edit(
        "halog/runtime/rpc/frames.py",
        "    work: Work\n    epoch: int = 0\n\n\n",
        '    work: Work\n    epoch: int = 0\n    note: str = "later"\n\n\n',
    ),
    Edit(
        "halog/runtime/rpc/frames.py",
        "    lsn: int\n\n\nclass Confirmation",
        '    lsn: int\n    said: str = "later"\n\n\nclass Confirmation',
    ),
    Edit(
        "halog/backend.py",
        '    later: dict[str, bytes] = {}\n    """What',
        '    later: dict[str, bytes] = {}\n    traced: str = "later"\n    """What',
    ),
    # Keys of znodes: a registration, which nobody else writes, and a table, which all do.
    Edit(
        "halog/metadata/nodes.py",
        "    protocols: tuple[int, int] = (2, 2)\n",
        '    protocols: tuple[int, int] = (2, 2)\n    rack: str = "later"\n',
    ),
    Edit(
        "halog/core/table/table.py",
        "    def to_bytes(self) -> bytes:\n",
        '    rack: str = "later"\n\n    def to_bytes(self) -> bytes:\n',
    ),
)
"""It speaks this version's protocol, too."""

STRANGE = (
    NAMED,
    Edit("halog/runtime/rpc/frames.py", "PROTOCOL: Final = 3", "PROTOCOL: Final = 9"),
    Edit("halog/runtime/rpc/frames.py", "LOWEST: Final = 3", "LOWEST: Final = 8"),
)
"""It does not."""


def written(directory: Path, edits: tuple[Edit, ...]) -> Path:
    """Write the source of a later halog below `directory`; processes get it as PYTHONPATH."""
    source = directory / "halog-source"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, now, later in edits:
        path = source / file
        text = path.read_text()
        assert text.count(now) == 1, f"{file} has {now!r} {text.count(now)} times: change what is looked for"
        path.write_text(text.replace(now, later))
    return source
