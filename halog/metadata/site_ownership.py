"""Which site serves a partition, as the tables of two sites say it: what may become of such a table (M5, F6).

Law: of what is given and given back in two coordinators no order is known. So who takes counts that in the table of the
one that gave (`PartitionTable.claims`), right before; who gives back does so only where nobody else has counted since
it was given, and counts it, too; so does who gives up what he serves; and nobody takes where somebody has counted at
either site since he asked: he may not be level any more.

Each is asked again where no answer came (`halog.metadata.partition_tables.change_table`). If it landed it finds itself
done, and changes nothing of what came behind it: a count is known by its token (`PartitionTable.claimed_by`).
"""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

from halog.core.table.table import PartitionTable
from halog.errors import RefusedError

ANYHOW: Final = -1
"""Taken however often somebody has counted: by one who may fork."""


def token() -> str:
    """By which one command knows its own claim to one partition."""
    return secrets.token_hex(8)


# --- at the site that gives ---


def given(now: PartitionTable, seen: PartitionTable, to: str) -> PartitionTable:
    """To who asked for it, and claims it later; unless somebody else has said since it was `seen` who is to serve."""
    if now.owner not in (seen.owner, to):
        raise _said_otherwise(now)
    return msgspec.structs.replace(now, owner=to)


def demoted(now: PartitionTable, to: str) -> PartitionTable:
    """By its own site, which served it when it was looked at."""
    if now.owner not in ("", to):
        raise _said_otherwise(now)
    return given_up(now, to)


def given_up(now: PartitionTable, to: str) -> PartitionTable:
    """By its own site, whoever is to serve it."""
    return now if now.owner == to else _counted(now, to)


def check_given(now: PartitionTable, to: str, by: str) -> None:
    """RefusedError if the site `by` does not say (any more) that `to` is to serve."""
    if now.owner != to:
        raise RefusedError(
            f"partition {now.name}: somebody else has made site {now.owner or by} serve it meanwhile; it was not taken "
            "over",
            partition=now.name,
            site=now.owner or by,
        )


def claimed(now: PartitionTable, seen: PartitionTable, to: str, by: str, own: str) -> PartitionTable:
    """By who is about to take it for the site `to`: from here on nobody else gives it back. Another operator may have
    got the contrary before. `seen`: as it was when it was asked for; `own`: the token."""
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
    """It was not to be, and stands as it was `seen`; unless somebody else makes that site serve it meanwhile, or has
    said who is to serve. `own`: the token of a claim that nothing was done by, and nothing will be; "": of none."""
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
    """To serve it in place of `owner`, unless that one, too, was about to since there were so many `claims`. What is
    served already, by this command or another, stays as its active node has it by now."""
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
    """Commits go on without that site. In one step: nobody may read that it has everything once they do not wait."""
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
