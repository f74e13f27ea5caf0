"""This module has the deadlines and limits of the core, in ms of the driver's monotonic clock. The reason for each
default stands beside it."""

from __future__ import annotations

import enum

import msgspec


class Sync(enum.IntEnum):
    """`Sync` says what an acknowledgement promises about a record (R6)."""

    NO_SYNC = 0
    """The record was received: it is in a process's memory."""
    WRITE_NO_SYNC = 1
    """The record was handed to the operating system: it survives the process."""
    SYNC = 2
    """The record was flushed to the disk: it survives the machine."""


class Sites(msgspec.Struct, frozen=True):
    """`Sites` names the other sites whose logs must have a commit before it is acknowledged (M5)."""

    names: tuple[str, ...] = ()
    strict: bool = True
    """Are commits refused while one of the sites is away? Otherwise they are acknowledged without it."""
    away_ms: int = 5_000
    """A site is away when it confirms nothing for so long although there is something to confirm."""


class SiteVotes(msgspec.Struct, frozen=True):
    """`SiteVotes` holds the votes of all sites of a partition, which decide which site goes on (Q1, M5); see
    `halog.core.sites.site_quorum`."""

    site: str = ""
    """This site."""
    of: tuple[tuple[str, int], ...] = ()
    """The votes of each site, this one included. Empty: nobody asks for votes."""
    binding: bool = False
    """Is nothing acknowledged without more than half of the votes? Otherwise they only tell others who serves."""
    lease_ms: int = 5_000
    """A vote counts so long from when it was asked for. A site that takes over waits twice as long."""


class Settings(msgspec.Struct, frozen=True):
    """`Settings` are the same for all copies of a partition; each field says what it sets."""

    local_sync: Sync = Sync.SYNC
    """What a commit waits for at the log. NO_SYNC: for nothing, if it waits for a replica. The other two differ in the
    topic only."""
    remote_sync: Sync = Sync.NO_SYNC
    """What a replica's acknowledgement says. By default only that the record was received: the log has it too."""

    commit_deadline_ms: int = 5_000
    """An append unanswered this long ends the epoch (W4). This is longer than a broker restart and shorter than a
    caller waits."""
    discarded_ms: int = 20_000
    """After so long the leftovers of an ended epoch are reported as discarded (Q4). A caller tries again until its
    deadline, and an append of its last attempt may take the commit deadline more."""
    start_deadline_ms: int = 3_000
    """An epoch that is not open in this time is given up; the next one has twice as long
    (`halog.core.election.log_doubt`)."""
    election_ms: int = 40
    """How long a candidate waits for the others' positions; a healthy node answers in under 2 ms."""
    first_election_ms: int = 500
    """The same while this node has not yet seen an active node. The cluster's nodes have then just started and are
    busy, and nobody who was served before is waiting. If a worse placed node becomes active, it stays active for
    `min_stay_ms`."""
    stand_back_ms: int = 200
    """How long a candidate that lost waits for the winner's compare-and-set before it asks again."""
    start_grace_ms: int = 2_500
    """A node that did not see the active node die waits this long for better placed nodes to start. A cluster's nodes
    start within a second or two of each other, and the first must not become active for everything."""
    drain_ms: int = 2_000
    """A hand-over that is not drained by then is called off."""
    handed_ms: int = 600
    """How long others wait for a successor to claim after `HandedOver`, before an ordinary election."""
    retry_ms: int = 100
    """How long a node that gave up its own epoch pauses before it is a candidate again."""
    ack_every_ms: int = 100
    """Acknowledgements are repeated this often, so that a lost one delays a commit no longer than that."""
    async_ack_ms: int = 20
    """An async replica acknowledges no more often than this. Nobody waits for it, and each acknowledgement costs the
    active node about 0.1 ms of CPU. A replica that is promoted, or handed the partition, adds this once to the
    pause."""
    silent_ms: int = 1_500
    """A replica that is alive but acknowledges nothing for so long, although the log has more, leaves the node list.
    Its copy stopped, is being rebuilt, or cannot reach the log. The time is fifteen repetitions; a loaded machine does
    not stall so long."""
    min_stay_ms: int = 30_000
    """A preferred node takes its role back when it has been in the node list for so long, and the role has stayed where
    it is for so long; 0: never. So a flapping node moves the role twice a minute at most, and a node that restarted has
    read its objects by then."""
    ready_lag: int = 1_000
    """A replica at most this many records behind is worth waiting for: it joins within milliseconds."""
    lease_ms: int = 0
    """How long an active node may read without asking anybody (R5); 0: never. It is off by default, because others wait
    as long before they serve in place of an active node that is merely cut off."""
    lease_drift_percent: int = 1
    """How far two clocks may drift apart while a lease lasts. A quartz is off by 0.01 %, and slewed by 0.05 %."""
    doubt_ms: int = 2_000
    """A transaction over several partitions that is undecided for so long is aborted, unless it turns out to be decided
    (D5). This is far longer than a decision takes and longer than a failover; its objects may be locked in vain for as
    long."""
    sites: Sites = Sites()
    """The sites whose logs commits wait for."""
    votes: SiteVotes = SiteVotes()
    """The votes by which a site goes on."""
    max_outcomes: int = 10_000
    """How many decisions of such transactions are remembered per partition (D5). At the highest rate these are more
    than a second's, for callers that ask for half a minute at most."""
    max_record_bytes: int = 5_000_000
    """The limit of one record (R8). What one object may have follows from it (`halog.core.commit.size_limits`)."""
    before_images: bool = False
    """Does the record of a change also hold the bytes that the change replaces?"""
    max_in_flight: int = 4_096
    """Commits per partition that wait for the log or a replica. Beyond it callers are told `Busy`, and wait
    (`halog.runtime.client.commits`)."""
    max_in_flight_bytes: int = 32_000_000
    """Bytes of a partition's records that the log has not acknowledged: six of the largest records. Beyond it callers
    are told `Busy`, too. This bounds memory and a producer's queue however large the records are."""

    @property
    def lease_wait_ms(self) -> int:
        """Return how long after one's own compare-and-set anybody else's lease may still be valid."""
        return self.lease_ms + self.lease_margin_ms

    @property
    def lease_margin_ms(self) -> int:
        """Return the clocks' drift during a lease, plus the rounding of times to whole ms."""
        return self.lease_ms * self.lease_drift_percent // 100 + 2

    @property
    def pushes(self) -> bool:
        """Say whether replicas get their records pushed. Otherwise they read them from the log, and commits wait for
        that."""
        return self.remote_sync is Sync.NO_SYNC or self.local_sync is Sync.NO_SYNC

    @property
    def stores_pushed(self) -> bool:
        """Say whether a replica stores a pushed record before it acknowledges it. It must where nobody waits for the
        log."""
        return self.local_sync is Sync.NO_SYNC and self.remote_sync is not Sync.NO_SYNC
