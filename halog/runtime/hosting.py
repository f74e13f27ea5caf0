"""From a configuration to the hosting half of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from halog.core.ids import Member
from halog.core.settings import Settings, Sync
from halog.ports import TopicPartition
from halog.runtime import cluster
from halog.runtime.flushing import FlushedStore
from halog.runtime.host import Host
from halog.runtime.mirroring import Mirroring
from halog.runtime.router import Router
from halog.runtime.snapshots import Policy, Snapshots
from halog.runtime.splits import Watching
from halog.runtime.surroundings import CopyPolicy
from halog.runtime.telling import Telling

if TYPE_CHECKING:
    from halog.config import Config, TimingConfig
    from halog.runtime.outside import Adapters


def make_host(c: Config, a: Adapters, me: Member, router: Router, telling: Telling) -> Host | None:
    """The hosting half, not started yet; None for a client, which has no store."""
    if a.store is None:
        return None
    store = FlushedStore(a.store, c.timing.store_flush_ms / 1000, c.limits.store_flush_changes)
    policies = {name: copy_policy(c, name) for name in c.policies}
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


def make_watching(c: Config, a: Adapters, host: Host) -> Watching | None:
    """What looks whether two sites serve the same; None where there are no other sites, or nothing has a home."""
    homes = {name for name, policy in c.policies.items() if policy.home}
    return Watching(host, a.reach, tuple(c.other_sites), homes) if c.other_sites and homes else None


def copy_policy(c: Config, name: str) -> CopyPolicy:
    """What a policy asks of its copies."""
    policy = c.policies[name]
    times = core_times(c.timing_of(name))
    # a transaction over several policies is tried again for as long as `[timing]` says
    times["discarded_ms"] = max(times["discarded_ms"], c.timing.call_deadline_ms + times["commit_deadline_ms"])
    return CopyPolicy(
        policy.before_images, Sync[policy.remote_sync], Sync[policy.local_sync], policy.lease_ttl_ms, times,
        policy.copy_threads,
    )  # fmt: skip


def core_times(timing: TimingConfig) -> dict[str, int]:
    """The deadlines of the core that a policy may have of its own, by their names there."""
    return {
        "commit_deadline_ms": timing.append_deadline_ms,
        "discarded_ms": timing.call_deadline_ms + timing.append_deadline_ms,
        "min_stay_ms": timing.min_stay_ms,
        "doubt_ms": timing.doubt_timeout_ms,
    }


def core_settings(c: Config) -> Settings:
    """What the core takes from a configuration, for all policies."""
    settings = Settings(
        silent_ms=c.timing.non_response_timeout_ms * 5 // 2,  # a node's silence is judged first, then its copy's
        max_outcomes=c.limits.max_outcomes,
        max_record_bytes=c.limits.max_record_bytes,
        max_in_flight=c.limits.max_in_flight,
        max_in_flight_bytes=c.limits.max_in_flight_bytes,
    )
    return msgspec.structs.replace(settings, **core_times(c.timing))
