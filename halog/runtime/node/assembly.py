"""This module makes the hosting half of a node from a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from halog.core import effects as fx
from halog.core.ids import Member
from halog.core.settings import Settings, Sites, SiteVotes, Sync
from halog.ports import TopicPartition
from halog.runtime.client.vote_calls import Ballots, decided_here
from halog.runtime.events.audit_trail import AuditTrail
from halog.runtime.events.history import History
from halog.runtime.events.reporter import EventReporter
from halog.runtime.host.host import Host, OutcomeDelivery
from halog.runtime.host.services import CopyRequests, NodeContext, TableFeed
from halog.runtime.host.snapshotter import Policy, Snapshots
from halog.runtime.membership.decision_relay import DecisionRelay
from halog.runtime.merge.compensation import Compensations
from halog.runtime.merge.epoch_reopening import Due, hand_over
from halog.runtime.merge.restore_driver import RestoreDriver
from halog.runtime.node.paces import Paces
from halog.runtime.replica.driver import Copy
from halog.runtime.replica.host_port import CopyPolicy
from halog.runtime.rpc.remote_sites import RemotePaces, RemoteSites
from halog.runtime.rpc.router import Router
from halog.runtime.sites.acknowledgements import AcknowledgementReceiver, AcknowledgementSender, SyncWaitWatch
from halog.runtime.sites.divergence_count import DivergenceCount
from halog.runtime.sites.mirror_assignment import MirrorAssignment, MirrorDuties
from halog.runtime.sites.site_paces import PACES, SitePaces
from halog.runtime.sites.split_watch import SplitWatch
from halog.runtime.sites.switchover_recovery import SwitchoverRecovery
from halog.runtime.sites.takeover import TakeoverRule, Takeovers
from halog.runtime.sites.voting import SiteContacts, SiteVoting, rule_of
from halog.runtime.store.flusher import FlushedStore
from halog.runtime.topics import topic_names
from halog.runtime.topics.schemas import bring

if TYPE_CHECKING:
    from halog.config import Config, PolicyConfig, TimingConfig
    from halog.runtime.support.adapters import Adapters, SiteAccess


def make_telling(c: Config, a: Adapters, me: Member) -> EventReporter:
    """Return what tells the event history; it writes once it has begun."""
    journal = partial(a.log.journal, TopicPartition(topic_names.events_topic(c.cluster.name), 0))
    return EventReporter(History(c.cluster.name, me.node, me.incarnation, journal))


def make_audit(c: Config, a: Adapters, history: History) -> AuditTrail:
    """Return what writes the audit of the node whose history this is."""
    return AuditTrail(history, partial(a.log.journal, TopicPartition(topic_names.audit_topic(c.cluster.name), 0)))


def make_host(
    c: Config,
    a: Adapters,
    context: NodeContext,
    tables: TableFeed,
    telling: EventReporter,
    settling: OutcomeDelivery,
    others: OtherSites | None,
    roles_seen: Callable[[str, str], None],
    paces: Paces,
) -> Host | None:
    """Return the hosting half, not started yet; None for a client, which has no store. `others`: what the node has for
    other sites, if there are any."""
    if a.store is None:
        return None
    store = FlushedStore(a.store, c.timing.store_flush_ms / 1000, c.limits.store_flush_changes)
    policies = {name: copy_policy(c, name) for name in c.policies}
    snapshots = Snapshots(
        a.log,
        a.coordinator,
        lambda policy: topic_names.state_topic(c, policy),
        c.cluster.name,
        Policy(c.snapshot.every_records, c.snapshot.every_ms, c.snapshot.keep_records),
        None if others is None else others.assignments,
        paces.snapshots,
    )
    requests = CopyRequests() if others is None else others
    settings = core_settings(c)
    return Host(context, settings, policies, a.log, store, tables, snapshots, telling, settling, requests, roles_seen)


def make_relay(
    me: Member, a: Adapters, router: Router, ballots: Ballots, answering: Callable[[], frozenset[Member]]
) -> DecisionRelay:
    """Return what settles transactions with the nodes in `answering`: they live, and are not heard."""

    def to(partition: str) -> Member | None:
        known = router.tables.get(partition)
        active = None if known is None else known[1].active
        return active if active in answering() else None

    return DecisionRelay(me, a.coordinator, to, partial(decided_here, ballots))


def homes_of(c: Config) -> set[str]:
    """Return the policies that have a home."""
    return {name for name, policy in c.policies.items() if policy.home}


def make_afar(c: Config, a: Adapters, paces: RemotePaces) -> RemoteSites:
    """Return what asks other sites; a client has it, too."""
    definitions = TopicPartition(topic_names.schemas_topic(c), 0)

    def prepare(remote: SiteAccess) -> None:  # objects of classes that only this site has may be sent there
        bring(a.log, remote.log, definitions)

    return RemoteSites(c, a.channel, a.reach, prepare, paces)


class SiteElections:
    """Holds what a node needs where sites take over by votes: whom it asks, and by which rules."""

    def __init__(self, c: Config, a: Adapters, context: NodeContext, voted: Mapping[str, PolicyConfig]) -> None:
        """Take `voted`, the policies for which sites vote."""
        self.desks = SiteContacts(context, a.reach, tuple(c.other_sites))
        self.rules = {n: rule_of(p.takeover, p.takeover_after_ms, c.site_votes) for n, p in voted.items()}
        self.after = {n: taken_over(c, p) for n, p in voted.items()}
        after_ms = {n: p.takeover_after_ms for n, p in voted.items()}
        self.ask = SiteVoting(context, self.desks, after_ms, self.rules).ask


class OtherSites(CopyRequests):
    """`OtherSites` has what a hosting node does where there are other sites: what its copies ask of features, and the
    features themselves, once there is a host."""

    def __init__(self, c: Config, a: Adapters, context: NodeContext, compensate: Compensations, paces: Paces) -> None:
        self._config = c
        self._adapters = a
        self._compensate = compensate
        self._paces = paces
        self.assignments = MirrorDuties(a.coordinator, context.me.node)
        self._merges: Due = {}
        voted = {name: policy for name, policy in c.policies.items() if policy.takeover != "operator"}
        self._elections = SiteElections(c, a, context, voted) if voted else None

    def ask_vote(self, copy: Copy, effect: fx.AskVote) -> None:
        """Ask for the vote of a site."""
        if self._elections is not None:
            self._elections.ask(copy, effect)

    def merge_due(self, copy: Copy, effect: fx.MergeDue) -> None:
        """Tell whoever merges that the epoch was started which opens with it."""
        hand_over(self._merges, copy, effect)

    def tend(self, host: Host) -> None:
        """Begin with what nodes do by themselves where there are other sites."""
        c, a, assignments = self._config, self._adapters, self.assignments
        schemas, others = TopicPartition(topic_names.schemas_topic(c), 0), tuple(c.other_sites)
        paces, reach = self._paces.sites, a.reach
        mirroring = MirrorAssignment(host, assignments, reach, schemas, others, paces)
        host.keep_on("mirroring", mirroring.turn, mirroring.close)
        restoring = RestoreDriver(host, reach, self._compensate, schemas, self._merges, self._paces.merges)
        host.keep_on("restoring", restoring.turn, restoring.close)
        if homes := homes_of(c):
            host.keep_on("watching", SplitWatch(host, reach, others, homes, paces).turn)
            host.keep_on("unfinished", SwitchoverRecovery(host, assignments, reach, homes, paces).turn)
            host.keep_on("partings", DivergenceCount(host, reach, others, paces).turn)
        if any(policy.sync_sites for policy in c.policies.values()):
            tend_sync_sites(c, a, host, assignments, paces)
        if (by_vote := self._elections) is not None:
            desks, rules = by_vote.desks, by_vote.rules
            takeovers = Takeovers(host, assignments, desks, reach, c.site_votes, by_vote.after, rules)
            host.keep_on("takeovers", takeovers.turn, desks.close)

    def close(self) -> None:
        """Close the contacts of the sites. Copies ask for votes as soon as they open: a start that fails then, before
        `tend`, leaves no connection behind. Once more does no harm."""
        if self._elections is not None:
            self._elections.desks.close()


def tend_sync_sites(c: Config, a: Adapters, host: Host, assignments: MirrorDuties, paces: SitePaces = PACES) -> None:
    """Begin to tell other sites what arrives from there, and to hear what arrives there, where commits wait for it."""
    arrived = TopicPartition(topic_names.arrived_topic(c), 0)
    mine = {n: p.sync_site_away == "drop" for n, p in c.policies.items() if c.site.name in p.sync_sites}
    for site in c.other_sites if mine else ():
        confirming = AcknowledgementSender(host, assignments, site, a.reach, arrived, mine.keys(), paces)
        host.to_stir.append(confirming.stir)
        host.keep_on(f"arrived-{site}", confirming.turn, confirming.close)
        looking = SyncWaitWatch(host, assignments, site, a.reach, mine)
        host.keep_on(f"awaited-{site}", looking.turn, looking.close)
    hearing = AcknowledgementReceiver(host, a.log, arrived)
    host.keep_on("hearing", hearing.turn, hearing.close)


def copy_policy(c: Config, name: str) -> CopyPolicy:
    """Return what a policy asks of its copies."""
    policy = c.policies[name]
    times = core_times(c.timing_of(name))
    # a transaction over several policies is tried again for as long as `[timing]` says
    times["discarded_ms"] = max(times["discarded_ms"], c.timing.call_deadline_ms + times["commit_deadline_ms"])
    others = tuple(n for n in policy.sync_sites if n != c.site.name)
    sites = Sites(others, policy.sync_site_away == "refuse", policy.sync_site_away_ms)
    return CopyPolicy(
        policy.before_images,
        Sync[policy.remote_sync],
        Sync[policy.local_sync],
        policy.lease_ttl_ms,
        times,
        policy.copy_threads,
        sites,
        site_votes(c, policy),
    )


def taken_over(c: Config, policy: PolicyConfig) -> TakeoverRule:
    """Return how this site takes over a policy's partitions."""
    has_all = not policy.sync_sites or c.site.name in policy.sync_sites
    may = not policy.votes_bind or (has_all and c.site.votes > 0)
    return TakeoverRule(policy.takeover_after_ms, policy.votes_bind, may)


def site_votes(c: Config, policy: PolicyConfig) -> SiteVotes:
    """Return by whose votes a site goes on. A vote holds for half the time after which another site takes over: for as
    much again it may be alone before it refuses."""
    if policy.takeover == "operator":
        return SiteVotes()
    return SiteVotes(c.site.name, tuple(c.site_votes.items()), policy.votes_bind, policy.takeover_after_ms // 2)


def core_times(timing: TimingConfig) -> dict[str, int]:
    """Return the deadlines of the core that a policy may have of its own, by their names there."""
    return {
        "commit_deadline_ms": timing.append_deadline_ms,
        "discarded_ms": timing.call_deadline_ms + timing.append_deadline_ms,
        "min_stay_ms": timing.min_stay_ms,
        "doubt_ms": timing.doubt_timeout_ms,
    }


def core_settings(c: Config) -> Settings:
    """Return what the core takes from a configuration, for all policies."""
    settings = Settings(
        silent_ms=c.timing.non_response_timeout_ms * 5 // 2,  # a node's silence is judged first, then its copy's
        max_outcomes=c.limits.max_outcomes,
        max_record_bytes=c.limits.max_record_bytes,
        max_in_flight=c.limits.max_in_flight,
        max_in_flight_bytes=c.limits.max_in_flight_bytes,
    )
    return msgspec.structs.replace(settings, **core_times(c.timing))
