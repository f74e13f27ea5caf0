"""A demo that is told to end ends, whoever met the interruption, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from halog.demo import processes
from halog.demo.staging import Staging
from halog.errors import SiteError

pytestmark = pytest.mark.feature("O1")


@pytest.fixture(autouse=True)
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(processes, "_told_to_end", False)
    processes.listen()
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


class Stage(Staging):
    """One whose opening is as it is told."""

    def __init__(self, directory: Path, opens: Callable[[], None]) -> None:
        super().__init__(directory / "run", self)
        self.keep = False
        self.opens = opens
        self.closed = False
        self.told = list[str]()

    def tell(self, text: str) -> None:
        self.told.append(text)

    def _open(self) -> None:
        self.opens()

    def _has_begun(self) -> bool:
        return True

    def _look(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def lost(number: signal.Signals = signal.SIGINT) -> None:
    """As in the middle of freeing an object."""
    with suppress(KeyboardInterrupt):
        os.kill(os.getpid(), number)


def becomes_another() -> None:
    lost()
    raise AttributeError("of a library that was interrupted half-way")


@pytest.mark.parametrize("opens", [lost, lambda: lost(signal.SIGTERM), becomes_another])
def test_while_it_is_opened(tmp_path: Path, opens: Callable[[], None]) -> None:
    stage = Stage(tmp_path, opens)
    with pytest.raises(KeyboardInterrupt), stage:
        raise AssertionError("it goes on")
    assert (stage.closed, stage.keep, stage.told) == (True, False, [])


@pytest.mark.parametrize("meets", [lost, becomes_another])
def test_while_it_runs(tmp_path: Path, meets: Callable[[], None]) -> None:
    stage = Stage(tmp_path, lambda: None)
    with pytest.raises(KeyboardInterrupt), stage:
        meets()
        stage.wait("ever", lambda: False)
    assert (stage.closed, stage.keep) == (True, False)


def test_what_nobody_interrupted_is_evidence(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda: None)
    with pytest.raises(SiteError), stage:
        raise SiteError("broken")
    assert (stage.closed, stage.keep) == (True, True)
