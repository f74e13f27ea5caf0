"""This module gets sets of jars from Maven Central, once, with the Ivy that pyspark ships; it checks them and caches
them.

The servers' set is this package's; `spark_jobs` has one of its own. `ivy.xml` says what is asked for, `jars.sha256`
exactly what may come back. A fetch happens in a temporary directory that is renamed when every checksum is right, so
the cache holds a complete set or none; a lock keeps two processes from fetching at once. Each start compares sizes and
times with those noted at the full check, and hashes only files that differ.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from halog.embedded import cache as caching
from halog.embedded.ivy import IvyRequest, run_ivy
from halog.embedded.java import Java
from halog.embedded.model import ServerName
from halog.embedded.progress import Progress
from halog.errors import SiteError

STAMP = "checked.json"


class JarSet(NamedTuple):
    """Names jars that go together. `package` has `ivy.xml` and `jars.sha256`; `what` is their name in messages."""

    package: str
    what: str


SERVERS = JarSet("halog.embedded", "the servers' jars")


@cache
def manifest(of: JarSet = SERVERS) -> dict[str, str]:
    """Return file name → SHA-256 of every jar."""
    text = resources.files(of.package).joinpath("jars.sha256").read_text()
    return {name: digest for digest, name in (line.split() for line in text.splitlines() if line.strip())}


def directory(of: JarSet = SERVERS) -> Path:
    """Return the directory of this version's set; another set has another directory."""
    text = "".join(f"{d} {n}\n" for n, d in sorted(manifest(of).items()))
    return caching.root() / f"jars-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


# ZooKeeper needs these of the set; a short class path starts faster.
_ZOOKEEPER = ("zookeeper", "log4j", "slf4j", "netty", "snappy", "metrics-core", "audience", "commons-io")


def classpath(jars: Path, server: ServerName) -> str:
    """Return the class path of the named jars only: a file that somebody added is never loaded."""
    names = sorted(manifest())
    if server == "zookeeper":
        names = [n for n in names if n.startswith(_ZOOKEEPER)]
    return ":".join(str(jars / n) for n in names)


def ensure(
    java: Java,
    progress: Progress,
    of: JarSet = SERVERS,
    *,
    ivy_jar: Path | None = None,
    run: Callable[[str, Path, IvyRequest, Path, Path, Progress], None] = run_ivy,
) -> tuple[Path, bool]:
    """Return the checked directory, and whether it was there already. `ivy_jar`: by default pyspark's. `run`: of
    Ivy."""
    target = directory(of)
    if is_checked(target, of):
        return target, True
    ivy = ivy_jar or find_ivy()
    with caching.locked(progress):
        if is_checked(target, of):  # another process was first
            return target, True
        if target.exists() and not mismatches(target, of):
            _stamp(target, of)  # right, but touched or copied since
            return target, True
        _fetch(java, ivy, target, progress, of, run)
    return target, False


def is_checked(target: Path, of: JarSet = SERVERS) -> bool:
    """Has every jar the size and time it had when it was hashed? This is the cheap check."""
    try:
        stamp = json.loads((target / STAMP).read_text())
        return all(stamp.get(name) == _size_and_time(target / name) for name in manifest(of))
    except (OSError, ValueError, AttributeError):
        return False


def mismatches(target: Path, of: JarSet = SERVERS) -> list[str]:
    """Return the names of jars that are missing or have a wrong hash. This is the full check."""
    return [name for name, digest in manifest(of).items() if _sha256(target / name) != digest]


def find_ivy() -> Path:
    """Return the Ivy jar inside the installed pyspark, without importing that."""
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or []) if spec else []:
        found = sorted(Path(place, "jars").glob("ivy-*.jar"))
        if found:
            return found[-1]
    raise SiteError("pyspark is needed, whose Ivy fetches the jars: pip install 'halog[embedded]'")


def _fetch(
    java: Java,
    ivy: Path,
    target: Path,
    progress: Progress,
    of: JarSet,
    run: Callable[[str, Path, IvyRequest, Path, Path, Progress], None],
) -> None:
    with caching.scratch() as scratch:
        fetched = scratch / "jars"
        asked = resources.files(of.package).joinpath("ivy.xml").read_text()
        run(java.path, ivy, IvyRequest(of.what, asked, len(manifest(of))), scratch, fetched, progress)
        wrong = mismatches(fetched, of)
        if wrong:
            raise SiteError(
                f"{len(wrong)} of the fetched jars are not the ones halog was tested with ({wrong[0]} …): nothing of "
                "them is used; check the network's proxy or mirror and try again",
                jars=wrong,
            )
        for extra in set(os.listdir(fetched)) - set(manifest(of)):
            (fetched / extra).unlink()
        _stamp(fetched, of)
        shutil.rmtree(target, ignore_errors=True)
        fetched.rename(target)


def _stamp(target: Path, of: JarSet) -> None:
    stamp = {name: _size_and_time(target / name) for name in manifest(of)}
    (target / STAMP).write_text(json.dumps(stamp))


def _size_and_time(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    except OSError:
        return ""
