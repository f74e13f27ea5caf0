"""A node takes part in its cluster's membership: it knows whom it sees up, and whom it asks whether they live."""

from __future__ import annotations

import threading
from collections.abc import Callable

from halog.config import Config
from halog.core.ids import Member
from halog.core.table.zones import NodeContacts
from halog.ports import Coordinator
from halog.runtime.events.reporter import EventReporter
from halog.runtime.host.host import Host
from halog.runtime.membership.challenges import Challenging
from halog.runtime.membership.members import Membership
from halog.runtime.membership.node_quorum import NodeQuorum
from halog.runtime.node.knowledge import Knowledge
from halog.runtime.node.registration import Registration
from halog.runtime.rpc import frames
from halog.runtime.support.adapters import Adapters


class NodeMembership:
    """A `NodeMembership` holds the parts that know who is up, and tells one of what another has found. A client has no
    `host`, and is told of nobody."""

    def __init__(
        self,
        config: Config,
        adapters: Adapters,
        hello: frames.Hello,
        known: Knowledge,
        host: Host | None,
        zoning: NodeQuorum,
        registration: Registration,
        telling: EventReporter,
        lost_at: Callable[[str], None],
    ) -> None:
        """`lost_at` is told of a node that does not hear this one, again and again."""
        self._host = host
        self._lives = known.lives
        self._own = known.own
        self._lost_at = lost_at
        self._zoning = zoning
        me, timing = registration.info.member, config.timing
        offline = known.router.offline
        self._challenging = (
            None
            if host is None
            else Challenging(me, adapters.coordinator, self._challenge_answered, self._is_lost_at, offline)
        )
        self.members = Membership(
            me,
            hello,
            adapters.channel,
            timing.keep_alive_ms,
            timing.non_response_timeout_ms,
            self._alive_changed,
            _run_in_thread if host is None else host.run,
            2 * timing.session_timeout_ms,
            own=known.own,
            coordinated=registration.is_connected,
            judge=self._judge,
            tails=dict if host is None else host.tails,
            noticed=telling.noticed,
            line=telling.line,
            succeeded=_ignored if host is None else host.leasing.died,
            seen=known.nodes.seen,
            challenger=self._challenging,
        )

    def begin(self, coordinator: Coordinator) -> None:
        """Learn from before this node is heard of whether it has a quorum."""
        self._zoning.watch(coordinator, self.members.look)
        self.members.look()

    def close(self) -> None:
        """Say goodbye, and ask and answer nothing more."""
        self.members.close()
        self._zoning.close()
        if self._challenging is not None:
            self._challenging.close()

    def _judge(self, sight: NodeContacts) -> str:
        """Return why this node is offline; "": it is not. A client is not, so that what it has under way is settled."""
        outdated = "" if self._host is None else self._own.why_outdated
        return outdated or self._zoning.judge(sight)

    def _alive_changed(self, members: frozenset[Member], why: str) -> None:
        if self._host is not None:
            self._host.alive_changed(members, why)
            self._lives.members_seen(members | self.members.answering, self.members.offline)

    def _challenge_answered(self, node: str, incarnation: int, number: int) -> None:
        self.members.challenge_answered(node, incarnation, number)

    def _is_lost_at(self, node: str) -> None:
        self._lost_at(node)
        self.members.is_lost_at(node)


def _run_in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="halog-work", daemon=True).start()


def _ignored(member: Member) -> None:
    """A client follows no run."""
