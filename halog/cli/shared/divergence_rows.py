"""This module shows, in documents and tables, partitions that two sites have both gone on with (M1)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halog.runtime.sites.split_watch import BranchCount, Split

COLUMNS: Sequence[str] = (
    "partition",
    "parted from",
    "parted behind lsn",
    "touched here",
    "touched there",
    "known s ago",
    "",
)


def document(partition: str, found: Split) -> dict[str, Any]:
    """Return one parted partition as a JSON document; what is not known yet is null."""
    return {
        "partition": partition,
        "site": found.site,
        "by": found.by,
        "since_ms": found.since_ms,
        "fork": None
        if found.fork is None
        else {
            "epoch": found.fork.epoch,
            "site": found.fork.site,
            "lsn": found.fork.lsn,
        },
        "here": _branch(found.here),
        "there": _branch(found.there),
        "why": found.why,
    }


def documents(found: Mapping[str, Split]) -> list[dict[str, Any]]:
    """Return the documents of several partitions, by name."""
    return [document(name, one) for name, one in sorted(found.items())]


def row(found: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the row of a table for one document."""
    here, there, fork = found["here"], found["there"], found["fork"]
    ages = [branch["age_s"] for branch in (here, there) if branch is not None]
    lsn = None if fork is None else fork["lsn"]
    return found["partition"], found["site"], lsn, _said(here), _said(there), max(ages, default=None), found["why"]


def summary(found: Split) -> str:
    """Return the same in one line of text."""
    _, site, lsn, here, there, _, why = row(document("", found))
    known = f", behind lsn {lsn}: {here} objects touched here, {there} there" if lsn is not None else ""
    return f"from site {site}{known}" + (f" ({why})" if why else "")


def _branch(branch: BranchCount | None) -> dict[str, Any] | None:
    if branch is None:
        return None
    age_s = round(max(0.0, time.time() - branch.at_ms / 1000), 1)
    return {"objects": branch.objects, "at_least": branch.at_least, "lsn": branch.lsn, "age_s": age_s}


def _said(branch: Mapping[str, Any] | None) -> str | None:
    if branch is None:
        return None
    return f"at least {branch['objects']}" if branch["at_least"] else str(branch["objects"])
