"""This module manages the data directory of a site: whose it is, whether it can be used, what lies where in it. It
never starts anything.

    .halog-site         marker: version, cluster id, ports (written first, so that each file of ours lies beside it)
    .halog-site.lock    flock held by the supervisor for as long as it lives
    site.json           the running site (SiteInfo); absent when it is down
    control.sock        how the supervisor is spoken to
    kafka/ zookeeper/ logs/ tmp/
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from halog.embedded.model import KAFKA_VERSION, Ports
from halog.errors import SiteError

MARKER = ".halog-site"
LOCK = ".halog-site.lock"
STATE = "site.json"
SOCKET = "control.sock"
LOGS = "logs"
LAYOUT_VERSION = 1
MIN_FREE_MB = 256  # two servers' logs, indexes and snapshots of a small site; below it a broker soon stops itself
_T = TypeVar("_T")
_NOT_FOREIGN = {MARKER, MARKER + ".new", LOCK, "lost+found"}


@dataclass(frozen=True)
class SiteMarker:
    """A `SiteMarker` shows that a directory is halog's."""

    cluster_id: str
    ports: Ports | None = None
    kafka: str = KAFKA_VERSION
    layout: int = LAYOUT_VERSION


def default_data_dir() -> Path:
    """Return $HALOG_SITE, else halog's directory under XDG_DATA_HOME: the same from every working directory."""
    if os.environ.get("HALOG_SITE"):
        return Path(os.environ["HALOG_SITE"])
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(base, "halog", "site")


def check(path: Path, min_free_mb: int = MIN_FREE_MB) -> None:
    """Raise SiteError if the directory cannot become or be a site; create nothing."""
    try:
        if path.exists():
            _check_existing(path)
        disk = shutil.disk_usage(nearest(path))
    except OSError as e:
        raise _cannot(path, e) from None
    if disk.total == 0:
        raise SiteError(
            f"data directory {path} would be on a file system without room (/proc?): choose another --data-dir"
        )
    free = disk.free >> 20
    if free < min_free_mb:
        raise SiteError(
            f"data directory {path}: only {free} MB are free, {min_free_mb} are needed: free some space or choose "
            "another --data-dir",
            free_mb=free,
        )


def prepare(path: Path) -> SiteMarker:
    """Make the directory (0700) and its marker, or read the marker that is there."""
    check(path)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        if not (path / MARKER).exists():
            fresh = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            save_marker(path, SiteMarker(cluster_id=fresh))
        for part in ("kafka/data", "zookeeper/data", LOGS, "tmp"):
            (path / part).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as e:
        raise _cannot(path, e) from None
    return read_marker(path)


def read_marker(path: Path) -> SiteMarker:
    """Read the marker of a directory that is halog's. SiteError: it is damaged, or of a newer halog."""
    try:
        values = json.loads((path / MARKER).read_text())
        ports = Ports(**values["ports"]) if values.get("ports") else None
        marker = SiteMarker(str(values["cluster_id"]), ports, str(values["kafka"]), int(values["layout"]))
    except OSError as e:
        raise _cannot(path, e) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SiteError(f"data directory {path}: its {MARKER} is damaged: choose another --data-dir") from None
    if marker.layout > LAYOUT_VERSION:
        raise SiteError(f"data directory {path} was made by a newer halog: upgrade, or choose another --data-dir")
    return marker


def save_marker(path: Path, marker: SiteMarker) -> None:
    """Write the marker atomically, so that a crash leaves the old one or the new one."""
    write_private(path / MARKER, asdict(marker))


def save_ports(path: Path, marker: SiteMarker, ports: Ports) -> SiteMarker:
    """Remember the ports for the next start."""
    updated = replace(marker, ports=ports)
    save_marker(path, updated)
    return updated


def lock(path: Path) -> int:
    """Take the directory for this process' life. SiteError: a site runs there already."""
    try:
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as e:
        raise _cannot(path, e) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise SiteError(
            f"a site is already running in {path}: use it, or stop it with `halog down --data-dir {path}`"
        ) from None
    return fd


def is_deleted(lock_fd: int) -> bool:
    """Was the directory that `lock` took deleted? Then nobody can find its holder. A moved directory is not deleted."""
    return os.fstat(lock_fd).st_nlink == 0


def is_locked(path: Path) -> bool:
    """Say whether a supervisor holds this directory now."""
    try:
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def write_private(path: Path, values: dict[str, Any]) -> None:
    """Write JSON that only its owner can read; the file is complete or absent."""
    new = path.with_name(path.name + ".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as f:
        json.dump(values, f, indent=1)
        f.flush()
        os.fsync(f.fileno())
    new.rename(path)


def at_socket(path: Path, use: Callable[[str], _T]) -> _T:
    """Call `use` with a short name of the control socket: socket addresses end at 107 bytes, directories do not."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return use(f"/proc/self/fd/{fd}/{SOCKET}")
    finally:
        os.close(fd)


def _check_existing(path: Path) -> None:
    if not path.is_dir():
        raise SiteError(f"data directory {path} is a file: choose another --data-dir")
    if path.stat().st_uid != os.geteuid():
        raise SiteError(f"data directory {path} belongs to another user: choose another --data-dir")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise SiteError(f"data directory {path} is not writable: change its mode or choose another --data-dir")
    names = set(os.listdir(path))
    if MARKER in names:
        read_marker(path)
    elif names - _NOT_FOREIGN:
        raise SiteError(
            f"data directory {path} holds files that are not halog's: choose an empty or a new --data-dir",
            found=sorted(names)[:5],
        )


def nearest(path: Path) -> Path:
    """Return the path itself, or the closest ancestor that exists: the disk that would hold it."""
    return path if path.exists() else nearest(path.parent)


def _cannot(path: Path, error: OSError) -> SiteError:
    return SiteError(f"data directory {path} cannot be used ({error.strerror}): choose another --data-dir")
