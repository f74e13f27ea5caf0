"""This module keeps how far a job is: one file in its checkpoint directory, beside Spark's own offsets.

The file is replaced as a whole behind each micro-batch, when its work is done: a finder's mover has answered. If the
job ends before Spark noted a micro-batch, Spark gives it again. It is recognised by its number and done only once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from halog.errors import ConfigError

FILE: Final = "halog.progress"
STATE, LOG = "state", "log"
"""The stages."""


class JobNote(Protocol):
    """A `JobNote` is what a job notes: a `msgspec.Struct`."""

    @property
    def job(self) -> str:
        """Return what the job is to do, as text: a checkpoint belongs to one job."""


P = TypeVar("P", bound=JobNote)


class FinderProgress(msgspec.Struct, frozen=True):
    """A `FinderProgress` is what a finder that is restarted must know."""

    job: str
    """What the finder is to find."""
    attempt: int = 0
    """Counts the beginnings: each has directories of its own for Spark's offsets."""
    stage: str = STATE
    batch: int = -1
    """The last micro-batch of the stage that is done."""
    counts: dict[str, int] = {}
    topic: dict[int, dict[bytes, bytes]] = {}
    """In the stage `state`: rows of each partition's state topic that are no objects."""
    carried: dict[int, bytes] = {}
    """In the stage `log`: where each partition's history stands."""

    def directory(self, above: Path) -> Path:
        """Return the directory for the checkpoint of the stage's query."""
        return above / f"{self.stage}-{self.attempt}"

    def counted(self, more: Mapping[str, int]) -> dict[str, int]:
        """Return the counts with some more."""
        return {name: self.counts.get(name, 0) + more.get(name, 0) for name in {**self.counts, **more}}


_PROGRESS = msgspec.msgpack.Decoder(FinderProgress)


def load(directory: Path, job: str) -> FinderProgress | None:
    """Read the progress; None where nothing was begun. ConfigError for the checkpoint of another job, or anything else
    in its place."""
    return load_as(_PROGRESS, directory, job)


def load_as(decoder: msgspec.msgpack.Decoder[P], directory: Path, job: str) -> P | None:
    """Read the progress of any kind of job, as `load` does."""
    file = directory / FILE
    try:
        found = decoder.decode(file.read_bytes())
    except FileNotFoundError:
        if directory.is_dir() and any(directory.iterdir()):
            raise ConfigError(f"{directory} is no checkpoint of this job, and not empty; give another one") from None
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{file} cannot be read: {error}; give another directory") from error
    if found.job != job:
        raise ConfigError(
            f"{directory} is the checkpoint of another job ({found.job}, this one is {job}); give another directory"
        )
    return found


def save(directory: Path, progress: JobNote) -> None:
    """Save the progress in one step."""
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / f"{FILE}.{os.getpid()}"
    with unfinished.open("wb") as out:
        out.write(msgspec.msgpack.encode(progress))
        out.flush()
        os.fsync(out.fileno())
    unfinished.replace(directory / FILE)


def start_over(directory: Path, progress: FinderProgress) -> FinderProgress:
    """Begin anew, without anything that was done before."""
    again = FinderProgress(progress.job, progress.attempt + 1)
    save(directory, again)
    for stage in (STATE, LOG):  # no query reads them any more
        shutil.rmtree(directory / f"{stage}-{progress.attempt}", ignore_errors=True)
    return again
