"""What released versions of halog have written is read by this one, and what this one writes is known (U1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from halog.core.log import records
from halog.release import RELEASE
from halog.runtime.rpc import frames
from tests.golden.samples import INCOMING, KINDS, ZNODES, all_samples

FOLDER: Final = Path(__file__).parents[1] / "golden"
VERSIONS: Final = sorted(path.name for path in FOLDER.iterdir() if path.name[0].isdigit())
BY_NAME: Final = {kind.__name__: kind for kind in KINDS}


def golden(version: str, what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / version / f"{what}.json").read_text())
    return found


def begins(now: Any, then: Any) -> bool:
    """Does a value have all that an older one had, where it had it?"""
    if isinstance(then, dict):
        return isinstance(now, dict) and all(name in now and begins(now[name], item) for name, item in then.items())
    if isinstance(then, list):
        return isinstance(now, list) and len(now) >= len(then) and all(map(begins, now, then))
    return bool(now == then)


@pytest.mark.feature("U1")
@pytest.mark.parametrize("version", VERSIONS)
def test_frames_of_each_version_are_read_whole(version: str) -> None:
    for name, data in golden(version, "frames").items():
        then = bytes.fromhex(data)
        frame = (frames.decode_incoming if BY_NAME[name] in INCOMING else frames.decode_reply)(then)
        assert type(frame) is BY_NAME[name]
        assert not isinstance(frame, frames.UnknownFrame)
        assert begins(msgspec.msgpack.decode(frames.encode(frame)), msgspec.msgpack.decode(then)), name


@pytest.mark.feature("U1")
@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_each_version_are_read_and_written_as_they_were(version: str) -> None:
    for name, data in golden(version, "records").items():
        record = records.decode(bytes.fromhex(data))
        assert (type(record).__name__, records.encode(record).hex()) == (name, data)


@pytest.mark.feature("U1")
@pytest.mark.parametrize("version", VERSIONS)
def test_znodes_of_each_version_are_read_whole(version: str) -> None:
    for name, then in golden(version, "znodes").items():
        if isinstance(then, str):
            assert ZNODES[name].again(then.encode()) == then.encode(), name
        else:
            assert begins(json.loads(ZNODES[name].again(json.dumps(then).encode())), then), name


@pytest.mark.feature("U1")
def test_what_is_written_now_is_what_is_kept_for_later_versions() -> None:
    """Whoever changes what is written decides what older versions make of it, and says so (docs/protocol.md); then
    `python -m tests.golden VERSION`."""
    version = RELEASE.partition(".dev")[0]
    assert version in VERSIONS
    assert {name: golden(version, name) for name in all_samples()} == all_samples()
