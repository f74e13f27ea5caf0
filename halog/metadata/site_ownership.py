"""This module says how a partition passes from one site to another: what may become of the tables in which two sites
say who serves it (M5, F6).

Law: no order is known of what is given and given back in two coordinators. So a site that takes a partition counts that
in the table of the site that gave it (`PartitionTable.claims`), right before. A site that gives it back does so only
where no other claim was counted since it was given, and counts that, too. So does a site that gives up what it serves.
And no site takes where a claim was counted at either site since it asked: it may not be level any more.

Each change is asked again where no answer came (`halog.metadata.partition_tables.change_table`). If it landed it finds
itself done, and changes nothing of what came after it: a count is known by its token (`PartitionTable.claimed_by`).
"""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

from halog.core.table.table import PartitionTable
from halog.errors import RefusedError

ANYHOW: Final = -1
"""Take it whatever the count of claims is: for an operator who may fork."""


def token() -> str:
    """Return a token by which one command knows its own claim to one partition."""
    return secrets.token_hex(8)


# --- at the site that gives ---


def given(now: PartitionTable, seen: PartitionTable, to: str) -> PartitionTable:
    """Return the table given to whoever asked for it, and claims it later. Refused if somebody else has said who is to
    serve since it was `seen`."""
    if now.owner not in (seen.owner, to):
        raise _said_otherwise(now)
    return msgspec.structs.replace(now, owner=to)


def demoted(now: PartitionTable, to: str) -> PartitionTable:
    """Return the table given up by its own site, which served it when it was looked at."""
    if now.owner not in ("", to):
        raise _said_otherwise(now)
    return given_up(now, to)


def given_up(now: PartitionTable, to: str) -> PartitionTable:
    """Return the table given up by its own site, whoever is to serve it."""
    return now if now.owner == to else _counted(now, to)


def check_given(now: PartitionTable, to: str, by: str) -> None:
    """Raise RefusedError if the site `by` does not say (any more) that `to` is to serve."""
    if now.owner != to:
        raise RefusedError(
            f"partition {now.name}: somebody else has made site {now.owner or by} serve it meanwhile; it was not taken "
            "over",
            partition=now.name,
            site=now.owner or by,
        )


def claimed(now: PartitionTable, seen: PartitionTable, to: str, by: str, own: str) -> PartitionTable:
    """Return the table claimed by whoever is about to take it for the site `to`: from here on nobody else gives it
    back. Another operator may have got the contrary before. `seen` is the table as it was when it was asked for; `own`
    is the token."""
    check_given(now, to, by)
    if _is_own(now, seen, own):
        return now
    if now.claims != seen.claims:
        raise RefusedError(
            f"partition {now.name}: somebody else was about to take it, or has given it back, meanwhile; it was not "
            "taken over: say once more which site is to serve it",
            partition=now.name,
            site=by,
            judged=True,  # by the token: also where this claim's own answer was lost
        )
    return _counted(now, to, own)


def given_back(now: PartitionTable, seen: PartitionTable, to: str, own: str) -> PartitionTable:
    """Return the table as it was `seen`, since it was not to be given; unless somebody else makes that site serve it
    meanwhile, or has said who is to serve. `own` is the token of a claim by which nothing was done, and nothing will
    be; "": of none."""
    waits = now.owner == to and (now.claims == seen.claims or _is_own(now, seen, own))
    return _counted(now, seen.owner) if waits and now.owner != seen.owner else now


def _is_own(now: PartitionTable, seen: PartitionTable, own: str) -> bool:
    return bool(own) and now.claimed_by == own and now.claims == seen.claims + 1


def _counted(now: PartitionTable, owner: str, by: str = "") -> PartitionTable:
    return msgspec.structs.replace(now, owner=owner, claims=now.claims + 1, claimed_by=by)


# --- at the site that takes ---


def taken(
    now: PartitionTable, owner: str, claims: int, let_go: tuple[str, ...], overruled: tuple[str, ...]
) -> PartitionTable:
    """Return the table taken, to be served in place of `owner`; refused if somebody else was about to take it since
    there were so many `claims`. What is served already, by this command or another, stays as its active node has it by
    now."""
    if not now.owner:
        return now
    if now.owner != owner or claims not in (now.claims, ANYHOW):
        raise RefusedError(
            f"partition {now.name}: somebody else has said at this moment which site is to serve it; it was not taken "
            "over: say it once more",
            partition=now.name,
            site=owner,
        )
    return msgspec.structs.replace(now, owner="", synced=(), let_go=let_go, overruled=overruled)


# --- at the site that serves ---


def without(now: PartitionTable, site: str) -> PartitionTable:
    """Return the table whose commits go on without that site. It is one step: nobody may read that the site has
    everything once commits do not wait."""
    synced = tuple(n for n in now.synced if n != site)
    let_go = now.let_go if site in now.let_go else (*now.let_go, site)
    overruled = now.overruled if site in now.overruled else (*now.overruled, site)
    return msgspec.structs.replace(now, synced=synced, let_go=let_go, overruled=overruled)


def _said_otherwise(now: PartitionTable) -> RefusedError:
    return RefusedError(
        f"partition {now.name}: somebody else has made {now.owner or 'the site that has it'} serve it at this moment; "
        "it was left so",
        partition=now.name,
    )
