"""Several sites side by side in one directory, each in a part of its own: the data centres of a cluster on one machine.

Knows no more of a site than that it is one. All are up, or none: whatever stands against one of them is found before
any is begun, and what fails later takes the others with it.
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
    """Where a site of this name has its data."""
    return root / name


def check_root(root: Path) -> None:
    """SiteError: the directory is itself a site."""
    if (root / datadir.MARKER).exists():
        raise SiteError(
            f"data directory {root} is that of one site: choose another --data-dir for several, or leave --sites out"
        )


@contextmanager
def _named(name: str) -> Iterator[None]:
    """An error says which site it is about."""
    try:
        yield
    except HalogError as e:
        raise type(e)(f"site {name}: {e}", **e.evidence) from None


def start_all(sites: Mapping[str, EmbeddedSite]) -> dict[str, SiteInfo]:
    """Start them at the same time; returns when all servers of all of them answer."""
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
            if site.ended() is None:  # ours, not one that somebody else has just started
                site.stop()
        raise


def _begun(name: str, site: EmbeddedSite) -> SiteInfo:
    with _named(name):
        return site.begun()


def stop_all(directories: Mapping[str, Path]) -> dict[str, bool]:
    """Stop those that run; whether each did. One that does not stop keeps none of the others up; its error is last."""
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
