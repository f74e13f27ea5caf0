"""Events and effects of what other sites say: `halog.core.sites.sync_sites`, `halog.core.sites.site_quorum`; told from
`halog.core.events` like all others."""

from __future__ import annotations

import msgspec

from halog.core.ids import EpochId


class SiteAck(msgspec.Struct, frozen=True):
    """The log of another site has accepted everything up to `lsn` of `epoch` (M5)."""

    site: str
    epoch: EpochId
    lsn: int


class VoteAnswered(msgspec.Struct, frozen=True):
    """The question `round` for the votes of `site` was answered: they belong to `owner`; "": it cannot be known."""

    round: int
    site: str
    owner: str


class AskVote(msgspec.Struct, frozen=True):
    """Ask the coordinator of a site for its votes, for this partition; report VoteAnswered(round)."""

    round: int
    site: str
