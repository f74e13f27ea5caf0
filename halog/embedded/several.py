"""This module runs several sites side by side in one directory, each in a part of its own: the data centres of a
cluster on one machine.

Either all are up, or none: obstacles of each site are found before any is started, and a later failure stops all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from halog.embedded import datadir
from halog.embedded.control import SiteControl
from halog.embedded.model import SiteInfo
from halog.embedded.site import EmbeddedSite
from halog.errors import HalogError, SiteError


def part_of(root: Path, name: str) -> Path:
    """Return the directory of a site of this name."""
    return root / name


def check_root(root: Path) -> None:
    """Raise SiteError if the directory is itself a site."""
    if (root / datadir.MARKER).exists():
        raise SiteError(
            f"data directory {root} is that of one site: choose another --data-dir for several, or leave --sites out"
        )


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Make an error say which site it is about."""
    try:
        yield
    except HalogError as e:
        raise type(e)(f"site {name}: {e}", **e.evidence) from None


def start_all(sites: Mapping[str, EmbeddedSite]) -> dict[str, SiteInfo]:
    """Start them at the same time; return when all servers of all of them answer."""
    for name, site in sites.items():
        with _named(name):
            site.check()
    try:
        for name, site in sites.items():
            with _named(name):
                site.begin()
        return {name: _begun(name, site) for name, site in sites.items()}
    except BaseException:  # Ctrl-C, too
        for site in sites.values():
            site.abandon()
        for site in sites.values():
            if site.ended() is None:  # ours, not one that another process has just started
                site.stop()
        raise


def _begun(name: str, site: EmbeddedSite) -> SiteInfo:
    with _named(name):
        return site.begun()


def stop_all(directories: Mapping[str, Path]) -> dict[str, bool]:
    """Stop those that run; say of each whether it ran. If one does not stop, the others are stopped all the same; then
    its error is raised."""
    ran, failed = {}, list[HalogError]()
    for name, path in directories.items():
        ran[name] = datadir.is_locked(path)
        try:
            with _named(name):
                if ran[name]:
                    SiteControl(path).down()
        except HalogError as e:
            failed.append(e)
    if failed:
        raise failed[0]
    return ran
