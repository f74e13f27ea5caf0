"""This module says what a copy asks of its node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from halog.core import effects as fx
from halog.core.ids import Member
from halog.core.settings import Settings, Sites, SiteVotes, Sync
from halog.core.table.tell import Tell
from halog.ports import LogSession, Store, TopicPartition

if TYPE_CHECKING:
    from halog.runtime.replica.delivery_reports import DeliveryReports
    from halog.runtime.replica.disk_effects import Disk
    from halog.runtime.replica.driver import Copy

NO_TIMES: Final[Mapping[str, int]] = MappingProxyType({})


class CopyPolicy(NamedTuple):
    """Holds what a policy asks of its copies."""

    before_images: bool = True
    """Keep the bytes a change replaced."""
    remote_sync: Sync = Sync.NO_SYNC
    """What a replica's acknowledgement says (R6)."""
    local_sync: Sync = Sync.SYNC
    """What a commit waits for at the log (R6)."""
    lease_ms: int = 0
    """How long the active node may read without asking anybody (R5)."""
    times: Mapping[str, int] = NO_TIMES
    """Deadlines of the core that are the policy's own (P4), by their names in `Settings`."""
    copy_threads: int = 4
    """So many of its copies a node makes at the same time (P4)."""
    sites: Sites = Sites()
    """The other sites whose logs commits wait for (M5)."""
    votes: SiteVotes = SiteVotes()
    """By whose votes a site goes on (Q1)."""


class HostPort(Protocol):
    """A `HostPort` is the node as a copy sees it: it has what the copy asks for."""

    me: Member
    settings: Settings
    states: dict[str, object]
    """See `Backend.states`."""
    policies: Mapping[str, CopyPolicy]

    @property
    def store(self) -> Store: ...

    def run(self, work: Callable[[], None]) -> None: ...

    @property
    def disk(self) -> Disk: ...

    def current_session(self) -> LogSession: ...

    def end_session(self, session: LogSession, why: str) -> None: ...

    def follow(self, tp: TopicPartition, offset: int) -> None: ...

    def unfollow(self, tp: TopicPartition) -> None: ...

    def set_table(self, copy: Copy, effect: fx.SetTable) -> None: ...

    def renew_lease(self, copy: Copy, effect: fx.Renew) -> None: ...

    def ask_vote(self, copy: Copy, effect: fx.AskVote) -> None: ...

    def level_stands(self, level: int) -> None: ...

    def ask_log(self, copy: Copy, effect: fx.AskLog) -> None: ...

    def refresh_table(self, copy: Copy) -> None: ...

    def ask_positions(self, partition: str, round_: int, nodes: Sequence[str]) -> None: ...

    def tell_position(self, partition: str, effect: fx.TellPosition) -> None: ...

    def send_ack(self, partition: str, effect: fx.SendAck) -> None: ...

    def ask_flush(self, partition: str, effect: fx.AskFlush) -> None: ...

    def spread(self, copy: Copy, effect: fx.Spread) -> None: ...

    def ask_decision(self, copy: Copy, effect: fx.AskDecision) -> None: ...

    def push(self, partition: str, effect: fx.Push) -> None: ...

    def merge_due(self, copy: Copy, effect: fx.MergeDue) -> None: ...

    def role_changed(self, copy: Copy, role: str, why: str) -> None: ...

    def told(self, copy: Copy, effect: Tell) -> None: ...

    deliveries: DeliveryReports

    def expect_delivery(self, *, soon: bool) -> None: ...

    def reported(self, copy: Copy) -> None: ...

    def lost(self, copy: Copy, why: str) -> None: ...
