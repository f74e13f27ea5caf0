"""From a configuration to the hosting half of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core.ids import Member
from halog.core.settings import Settings, Sync
from halog.ports import TopicPartition
from halog.runtime import cluster
from halog.runtime.flushing import FlushedStore
from halog.runtime.host import Host
from halog.runtime.mirroring import Mirroring
from halog.runtime.router import Router
from halog.runtime.snapshots import Policy, Snapshots
from halog.runtime.surroundings import CopyPolicy
from halog.runtime.telling import Telling

if TYPE_CHECKING:
    from halog.config import Config
    from halog.runtime.outside import Adapters


def make_host(c: Config, a: Adapters, me: Member, router: Router, telling: Telling) -> Host | None:
    """The hosting half, not started yet; None for a client, which has no store."""
    if a.store is None:
        return None
    store = FlushedStore(a.store, c.timing.store_flush_ms / 1000, c.limits.store_flush_changes)
    policies = {
        name: CopyPolicy(policy.before_images, Sync[policy.remote_sync], Sync[policy.local_sync], policy.lease_ttl_ms)
        for name, policy in c.policies.items()
    }
    snapshots = Snapshots(
        a.log,
        a.coordinator,
        lambda policy: cluster.state_topic(c, policy),
        c.cluster.name,
        Policy(c.snapshot.every_records, c.snapshot.every_ms, c.snapshot.keep_records),
    )
    return Host(me, c.site.name, core_settings(c), policies, a.log, a.coordinator, store, router, snapshots, telling)


def make_mirroring(c: Config, a: Adapters, host: Host) -> Mirroring | None:
    """What brings other sites' partitions here; None where there are no other sites."""
    if not c.other_sites:
        return None
    return Mirroring(host, a.reach, TopicPartition(cluster.schemas_topic(c), 0))


def core_settings(c: Config) -> Settings:
    """What the core takes from a configuration."""
    return Settings(
        commit_deadline_ms=c.timing.append_deadline_ms,
        discarded_ms=c.timing.call_deadline_ms + c.timing.append_deadline_ms,
        min_stay_ms=c.timing.min_stay_ms,
        silent_ms=c.timing.non_response_timeout_ms * 5 // 2,  # a node's silence is judged first, then its copy's
        doubt_ms=c.timing.doubt_timeout_ms,
        max_outcomes=c.limits.max_outcomes,
        max_record_bytes=c.limits.max_record_bytes,
        max_in_flight=c.limits.max_in_flight,
        max_in_flight_bytes=c.limits.max_in_flight_bytes,
    )
