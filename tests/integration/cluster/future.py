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
    # A control frame that nobody else knows, on each new connection between nodes.
    Edit(
        "halog/runtime/rpc/frames.py",
        'class DeathNotice(_Frame, tag="Died"):\n',
        'class Weather(_Frame):\n    load: float\n\n\nclass DeathNotice(_Frame, tag="Died"):\n',
    ),
    Edit(
        "halog/runtime/rpc/frames.py",
        "PositionReply | Goodbye | DeathNotice\n",
        "PositionReply | Goodbye | DeathNotice | Weather\n",
    ),
    Edit(
        "halog/runtime/membership/members.py",
        "            peer.send(self._sign_of_life())\n",
        "            peer.send(self._sign_of_life())\n            peer.send(frames.encode(frames.Weather(0.5)))\n",
    ),
    Edit(
        "halog/runtime/node/request_server.py",
        "        if isinstance(frame, frames.Goodbye):\n",
        "        if isinstance(frame, frames.Weather):\n            return\n"
        "        if isinstance(frame, frames.Goodbye):\n",
    ),
)
"""It speaks this version's protocol, too."""

KIND = 13
RECORD = (
    Edit(
        "halog/core/log/record_types.py",
        "class SiteSwitched(msgspec.Struct, frozen=True):\n",
        "class Remark(msgspec.Struct, frozen=True):\n    header: Header\n    text: str\n\n\n"
        "class SiteSwitched(msgspec.Struct, frozen=True):\n",
    ),
    Edit("halog/core/log/record_types.py", "    | LevelStated\n", "    | LevelStated\n    | Remark\n"),
    Edit(
        "halog/core/log/records.py",
        "    LevelStated as LevelStated,\n",
        "    LevelStated as LevelStated,\n    Remark,\n",
    ),
    Edit(
        "halog/core/log/records.py",
        '    LevelStated: (12, [{"name": "level", "type": "long"}]),\n',
        '    LevelStated: (12, [{"name": "level", "type": "long"}]),\n'
        f'    Remark: ({KIND}, [{{"name": "text", "type": "string"}}]),\n',
    ),
    Edit("halog/core/state/held.py", "    records.LevelStated,\n", "    records.LevelStated,\n    records.Remark,\n"),
    Edit(
        "halog/core/commit/participant.py",
        "        self.writer.level = level\n",
        "        self.writer.level = level\n"
        '        remark = records.Remark(self.writer.header(), "later")\n'
        "        self.writer.append_vote(remark, records.encode(remark), now, NOBODY, out)\n",
    ),
)
"""A record that nobody else knows: each epoch above level 1 has one behind its level."""

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
