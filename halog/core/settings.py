"""Deadlines and limits of the core, in ms of the driver's monotonic clock. Each default has its reason beside it."""

from __future__ import annotations

import enum

import msgspec


class Sync(enum.IntEnum):
    """What an acknowledgement says of a record (R6)."""

    NO_SYNC = 0
    """It was received: it is in a process's memory."""
    WRITE_NO_SYNC = 1
    """It was handed to the operating system: it survives the process."""
    SYNC = 2
    """It was flushed to the disk: it survives the machine."""


class Sites(msgspec.Struct, frozen=True):
    """Other sites whose logs must have a commit before it is acknowledged (M5)."""

    names: tuple[str, ...] = ()
    strict: bool = True
    """Are commits refused while one of them is away, rather than acknowledged without it?"""
    away_ms: int = 5_000
    """A site that confirms nothing for so long, though there is something, is away."""


class SiteVotes(msgspec.Struct, frozen=True):
    """The votes of all sites of a partition, by which one of them goes on (Q1, M5); see
    `halog.core.sites.site_quorum`."""

    site: str = ""
    """This one."""
    of: tuple[tuple[str, int], ...] = ()
    """Of each site, this one too. None: nobody asks for any."""
    binding: bool = False
    """Is nothing acknowledged without more than half of them? Else others learn by it who serves."""
    lease_ms: int = 5_000
    """So long one counts from when it was asked for. Who takes over waits twice as long."""


class Settings(msgspec.Struct, frozen=True):
    """The same for all copies of a partition; see each field."""

    local_sync: Sync = Sync.SYNC
    """What a commit waits for at the log. NO_SYNC: for nothing, if it waits for a replica; the other two differ in the
    topic only."""
    remote_sync: Sync = Sync.NO_SYNC
    """What a replica's acknowledgement says. Not more than received by default: the log has the record too."""

    commit_deadline_ms: int = 5_000
    """An append unanswered this long ends the epoch (W4): longer than a broker restart, shorter than a caller waits."""
    discarded_ms: int = 20_000
    """What an ended epoch left behind is told to be discarded after so long (Q4): a caller tries again until its
    deadline, and an append of its last attempt may take the commit deadline more."""
    start_deadline_ms: int = 3_000
    """An epoch that is not open in this time is given up; the next one has twice as long
    (`halog.core.election.log_doubt`)."""
    election_ms: int = 40
    """How long a candidate waits for the others' positions; a healthy node answers in under 2 ms."""
    first_election_ms: int = 500
    """The same while this node has seen nobody active: a cluster's nodes have just started, and are busy; nobody waits
    who was served before, and whoever is active instead of a better placed node stays so for `min_stay_ms`."""
    stand_back_ms: int = 200
    """How long a loser waits for the winner's compare-and-set before it asks again."""
    start_grace_ms: int = 2_500
    """A node that did not see the active die waits this long for better placed nodes to start: a cluster's nodes
    start within a second or two of each other, and the first must not become active for everything."""
    drain_ms: int = 2_000
    """A hand-over not drained by then is called off."""
    handed_ms: int = 600
    """How long others wait for a successor to claim after `HandedOver`, before an ordinary election."""
    retry_ms: int = 100
    """Pause before a node that gave up its own epoch stands again."""
    ack_every_ms: int = 100
    """Acknowledgements are repeated this often, so that a lost one delays a commit no longer than that."""
    async_ack_ms: int = 20
    """An async replica acknowledges no more often: nobody waits for it, and each costs the active about 0.1 ms of CPU.
    A replica that is promoted, or handed the partition, adds this once to the pause."""
    silent_ms: int = 1_500
    """A replica that lives, but for so long acknowledges nothing of what the log has, leaves the node list: its copy
    stopped, is being rebuilt, or cannot reach the log. Fifteen repetitions: a loaded machine's stall is none."""
    min_stay_ms: int = 30_000
    """A preferred node takes its role back when it has been in the node list for so long, and the role has stayed
    where it is for so long; 0: never. A node that flaps moves the role twice a minute at most, and one that restarted
    has read its objects by then."""
    ready_lag: int = 1_000
    """A replica at most this many records behind is worth waiting for: it joins within milliseconds."""
    lease_ms: int = 0
    """How long an active node may read without asking anybody (R5); 0: never. Not by default: it is as long that others
    wait before they serve in the place of one that is merely cut off."""
    lease_drift_percent: int = 1
    """How far two clocks may part while a lease lasts. A quartz is off by 0.01 %, and slewed by 0.05 %."""
    doubt_ms: int = 2_000
    """A transaction over several partitions undecided for so long is aborted, unless it turns out to be decided (D5):
    far longer than a decision takes, longer than a failover, and as long as its objects may be locked in vain."""
    sites: Sites = Sites()
    """Whose logs commits wait for."""
    votes: SiteVotes = SiteVotes()
    """By whose votes a site goes on."""
    max_outcomes: int = 10_000
    """Decisions of such transactions remembered per partition (D5): a second and more of the fastest, for callers that
    ask for half a minute at most."""
    max_record_bytes: int = 5_000_000
    """R8. Of one record: what an object alone may have follows from it (`halog.core.commit.size_limits`)."""
    before_images: bool = False
    """Does the record of a change have the bytes that it replaces, too?"""
    max_in_flight: int = 4_096
    """Commits per partition that wait for the log or a replica; beyond it callers are told `Busy`, and wait
    (`halog.runtime.client.commits`)."""
    max_in_flight_bytes: int = 32_000_000
    """Bytes of a partition's records that the log has not acknowledged, six of the largest; beyond it likewise.
    Memory, and a producer's queue, are bounded by this however large the records are."""

    @property
    def lease_wait_ms(self) -> int:
        """So long after one's own compare-and-set nobody else's lease is valid."""
        return self.lease_ms + self.lease_margin_ms

    @property
    def lease_margin_ms(self) -> int:
        """The drift, and the ms in which times are counted."""
        return self.lease_ms * self.lease_drift_percent // 100 + 2

    @property
    def pushes(self) -> bool:
        """Are replicas pushed what they acknowledge? Else they have it from the log, and somebody waits for that."""
        return self.remote_sync is Sync.NO_SYNC or self.local_sync is Sync.NO_SYNC

    @property
    def stows(self) -> bool:
        """Does a replica store what it is pushed before it acknowledges it, since nobody waits for the log?"""
        return self.local_sync is Sync.NO_SYNC and self.remote_sync is not Sync.NO_SYNC
