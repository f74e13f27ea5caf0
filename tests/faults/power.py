"""A machine that loses power: what its processes had not flushed is gone from their files, and its next run has another
name."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from halog.adapters.rocksdb import written_mark
from halog.embedded.java import find_java


def preloadable(source: str, directory: Path) -> Path:
    """The library that this file of C beside us makes."""
    library = directory / Path(source).with_suffix(".so").name
    argv = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(Path(__file__).with_name(source)), "-ldl"]
    subprocess.run(argv, check=True)
    return library


@contextmanager
def java_under(library: Path, **variables: str) -> Iterator[None]:
    """Java processes started now have this library: they get no environment from us, so Java itself is started by
    another name."""
    real, home = find_java().path, library.with_name("java")
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    names = " ".join(f'{name}="{value}"' for name, value in {"LD_PRELOAD": library, **variables}.items())
    script.write_text(f'#!/bin/sh\n{names} exec "{real}" "$@"\n')
    script.chmod(0o755)
    with pytest.MonkeyPatch.context() as env:
        env.setenv("JAVA_HOME", str(home))
        yield


class Flushed:
    """What processes started under `noted` or `preloaded` have flushed, and the loss of the rest. Those of `preloaded`
    are on a machine whose run is named as this says (`halog.runtime.support.clock.machine_run`)."""

    def __init__(self, directory: Path) -> None:
        self._notes = directory / "flushed.txt"
        self._library = preloadable("flushed.c", directory)
        self._run = directory / "run.txt"
        self.started_again()

    def started_again(self) -> None:
        """The machine has lost its power, and runs anew."""
        self._run.write_text(f"{uuid.uuid4()}\n")

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Java processes started now."""
        with java_under(self._library, HALOG_FLUSHED=str(self._notes)):
            yield

    @contextmanager
    def preloaded(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Node processes started now."""
        with monkeypatch.context() as env:
            env.setenv("LD_PRELOAD", str(self._library))
            env.setenv("HALOG_FLUSHED", str(self._notes))
            env.setenv("HALOG_RUN", str(self._run))
            yield

    def sizes(self) -> dict[Path, int]:
        """How much of each file is on the disk."""
        lines = (line.partition(" ") for line in self._notes.read_text().splitlines())
        return {Path(path): int(size) for size, _, path in lines}

    def lose_power(self, logs: Path, prefix: str) -> dict[str, int]:
        """Cut the segments of the topics named `prefix…`; how many bytes of each partition's log that took."""
        return self.cut(sorted(logs.glob(f"{prefix}*/*.log")))

    @staticmethod
    def shadow(source: Path, target: Path, sizes: dict[Path, int]) -> None:
        """A copy of a directory that is written to, as a disk would have it that lost power when it had this much of
        the files that only ever grow. What notes how far the store was flushed is not of that moment."""
        shutil.copytree(source, target)
        (target / written_mark.NAME).unlink(missing_ok=True)
        for file in target.rglob("*.log"):
            flushed = sizes.get(source / file.relative_to(target), 0)
            if flushed < file.stat().st_size:
                os.truncate(file, flushed)

    def cut(self, files: Iterable[Path]) -> dict[str, int]:
        """Cut files that only ever grow; how many bytes that took in each directory."""
        sizes, lost = self.sizes(), dict[str, int]()
        for file in files:
            keep, size = sizes.get(file, 0), file.stat().st_size
            lost[file.parent.name] = lost.get(file.parent.name, 0) + max(0, size - keep)
            if keep < size:
                os.truncate(file, keep)
        return lost
