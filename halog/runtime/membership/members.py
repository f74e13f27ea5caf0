"""This module knows who is up, as this node sees it: registrations in the coordinator, connections, and the silence on
them (N4, R4).

A member is up while it is registered and heard: its frames arrive within the non-response timeout and our connection to
it stands. A broken connection is tried once more at once; a refused attempt means the process is gone. The first sign
wins and a wrong one costs a moment, because the log arbitrates. A registration that vanishes counts after a grace only,
so that a restarting ZooKeeper does not start elections, and only while our own session can see it come back; then it
counts although the member still talks: one that cannot reach ZooKeeper can change no node list.

A node that is *offline*, for want of a quorum in one of its zones (Q1), says so instead of keeping alive: others still
reach it, and do not take it for up; nor does it take itself for up. This module never decides who is active.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from halog.core.ids import Member
from halog.core.membership.node_states import NodeSight
from halog.core.table.zones import NodeContacts
from halog.errors import FrameError, HalogError, UnreachableError, UnsupportedRequestError
from halog.metadata.nodes import NodeInfo
from halog.ports import Channel, Peer
from halog.runtime.membership.challenges import Challenger, NoChallenger
from halog.runtime.membership.defaults import follows_nobody, judges_nobody, sees, tells_nobody
from halog.runtime.membership.duplicates import same_installation
from halog.runtime.membership.node_link import NodeLink, refusal_of
from halog.runtime.membership.node_sights import seen_by_nobody, sights_of
from halog.runtime.membership.witness import is_secret
from halog.runtime.rpc import frames
from halog.runtime.rpc.errors import from_frame
from halog.runtime.rpc.own_state import OwnState
from halog.runtime.rpc.stranger_text import shown
from halog.runtime.rpc.versions import TEXT, common, mismatch_of
from halog.runtime.support.clock import monotonic_ms

logger = logging.getLogger("halog.members")

REFUSED_MS = 2_000
"""Pause between attempts to connect to a node that refuses this one."""

BROKEN_AGAIN_S = (0.001, 0.004, 0.015)
"""Pauses before an address that broke a connection while it was made is dialled again: a process that is being killed
takes connections for some ms, and then refuses them. One that lives may break them, too, so that is no evidence."""

BREAKS = "its address breaks connections"
UNREACHED = "it cannot be reached"


def _succeeds(info: NodeInfo, before: NodeInfo) -> bool:
    """Has this later run opened the data directory of that one? (What is read may be older than what was read.)"""
    return info.installation == before.installation and info.incarnation > before.incarnation


class Membership:
    """A `Membership` keeps one outgoing connection to every other hosting node, and knows who is up."""

    def __init__(
        self,
        me: Member,
        hello: frames.Hello,
        channel: Channel,
        keep_alive_ms: int,
        non_response_ms: int,
        changed: Callable[[frozenset[Member], str], None],
        run: Callable[[Callable[[], None]], None],
        registration_grace_ms: int = 2_000,
        *,
        own: OwnState | None = None,
        coordinated: Callable[[], bool] = sees,
        judge: Callable[[NodeContacts], str] = judges_nobody,
        tails: Callable[[], dict[str, int]] = dict,
        noticed: Callable[[str, bool, str], None] = tells_nobody,
        line: Callable[[str, bool, str], None] = tells_nobody,
        succeeded: Callable[[Member], None] = follows_nobody,
        seen: Callable[[Mapping[str, NodeSight]], None] = seen_by_nobody,
        challenger: Challenger | None = None,
        clock: Callable[[], int] = monotonic_ms,
    ) -> None:
        """`changed(members, why)` runs on any thread; `run` does something that may block on another one.

        `own` is told why this node is offline, which `judge` says, given whom it sees; "": it is not (Q1).
        `coordinated` says whether the own coordinator session sees registrations now. `tails` are the last lsns of the
        partitions that this node is active for. `noticed` is told of each node that is up again, or no more, by itself:
        (node, up, why). `line` is told of each line to a node that is cut though that node lives, and once it is whole
        again: (node, whole, why). `succeeded` is told of each run whose data directory another run has opened. `seen`
        is told what is seen of all nodes, and never waits. `clock` counts ms."""
        self.clock = clock
        self.me = me
        self.channel = channel
        self.changed = changed
        self.run = run
        self.hello = frames.encode(hello)
        self.keep_alive_ms = keep_alive_ms
        self.non_response_ms = non_response_ms
        self.registration_grace_ms = registration_grace_ms
        self.coordinated = coordinated
        self.lock = threading.Lock()
        self.links: dict[str, NodeLink] = {}
        self.registered: dict[str, NodeInfo] = {}
        self.tails = tails
        self.noticed = noticed
        self.line = line
        self.succeeded = succeeded
        self.seen = seen
        self.judge = judge
        self.own = own or OwnState()
        challenger = challenger or NoChallenger()
        self.met = challenger.met_soon
        self.challenge = challenger.ask
        self._answering: frozenset[Member] = frozenset()
        self._sent_ms = 0
        self._ticked_ms = clock()
        self._alive = frozenset({me})
        self._notify = threading.Lock()
        self._told = self._alive
        self.closed = False

    @property
    def offline(self) -> str:
        """Return why this node is offline, as `judge` said last; "": it is not."""
        return self.own.why_offline

    # --- sources of knowledge ---

    def registrations(self, infos: dict[str, NodeInfo]) -> None:
        """Take the registered nodes, which changed."""
        dial, replaced = [], []
        with self.lock:
            self.registered = infos
            for name, info in infos.items():
                if name == self.me.node or not info.hosts or not info.reached:
                    continue
                link = self.links.get(name)
                if link is None or link.info.incarnation != info.incarnation:
                    if link is not None and _succeeds(info, link.info):
                        replaced.append(link.info.member)
                    if link is not None and link.peer is not None:
                        link.peer.close()
                    self.links[name] = NodeLink(info, self.non_response_ms, self.clock(), self._obstacle(info))
                    dial.append(name)
                elif link.turns.addresses != info.reached:
                    link.moved(info)
        for member in replaced:  # its directory is locked by one process at a time
            self.succeeded(member)
        for name in dial:
            self.met(name)
            if self.links[name].speaks:
                self._dial_soon(name)
            else:
                self._refuse(self.links[name], self.links[name].refused)
        self._publish()

    def _obstacle(self, info: NodeInfo) -> HalogError | None:
        """Return why this node does not talk to another one, as far as that one's registration says; None: it does."""
        me = self.registered.get(self.me.node)
        return mismatch_of(info) or (None if me is None else same_installation(me, info))

    def heard(self, node: str, incarnation: int, offline: str | None = None) -> None:
        """A frame of this member arrived. `offline`: why it says that it is offline; "": it says that it is not."""
        link = self.links.get(node)
        if link is None or link.info.incarnation != incarnation:
            return
        link.heard_ms = self.clock()
        link.turns.heard(link.heard_ms)
        came = not link.up and self._stands(link) and not link.left and not self._expired(link)
        if came or (offline is not None and offline != link.offline):
            self._heard_news(link, link.up or came, link.offline if offline is None else offline)

    def _stands(self, link: NodeLink) -> bool:
        """Say whether there is a connection to it that lasts: at an address that has broken them one may be made that
        breaks at once, too."""
        lasts = not link.challenges.is_refused or self.clock() - link.dialled_ms >= self.keep_alive_ms
        return link.peer is not None and lasts

    def _heard_news(self, link: NodeLink, up: bool, offline: str) -> None:
        before = link.present
        if before and offline:
            link.lost, link.down_before = f"it is offline: {offline}", True
        link.up, link.offline, link.dead = up, offline, False
        was_cut, link.cut = link.cut, link.cut and not link.present
        if link.up:
            link.challenges.heard()
        if link.present and was_cut and link.cut_told:
            link.cut_told = False
            self.line(link.info.name, True, "it is heard again")
        elif link.present and not before and link.down_before:
            self.noticed(link.info.name, True, "it answers again")
        elif before and not link.present:
            self.noticed(link.info.name, False, link.lost)
        self._publish()

    def said_goodbye(self, node: str, incarnation: int) -> None:
        """The member leaves on purpose."""
        link = self.links.get(node)
        if link is not None and link.info.incarnation == incarnation:
            link.left = True
            self._down(link, "it left", dead=True)

    def witnessed(self, member: Member, secret: bytes) -> bool | None:
        """Somebody tells that the member's process is no more: is it its witness? None: this run is not known here
        yet, or not any more, and nothing is said of it."""
        link = self.links.get(member.node)
        if link is None or link.info.member != member:
            return None
        if not is_secret(secret, link.info.witness):
            return False
        self._down(link, "its host says that its process is no more", dead=True)
        return True

    def turn(self, closing: threading.Event, every_s: float) -> None:
        """Take one turn of a thread of its own: a copy's lock may be held for as long as its disk takes (R6), and this
        node must not fall silent for it."""
        if not closing.wait(every_s):
            self.tick()

    def tick(self) -> None:
        """Send keep-alives, and notice silence. Called every few tens of ms."""
        now = self.clock()
        passed = now - self._ticked_ms
        slept = passed > self.non_response_ms
        self._ticked_ms = now
        if slept:  # this process was stopped: nobody could be heard, so nobody is suspected for it
            for link in self.links.values():
                link.heard_ms = max(link.heard_ms, now)
                link.turns.heard(now)
        if now - self._sent_ms >= self.keep_alive_ms:
            self._sent_ms = now
            self.broadcast(self._sign_of_life())
        seeing = self.coordinated()
        for link in list(self.links.values()):
            missing = link.info.name not in self.registered
            link.unregistered_ms = link.unregistered_ms + (0 if slept else passed) if missing and seeing else 0
            self._check(link, now)

    def _sign_of_life(self) -> bytes:
        now = self.clock()
        return frames.encode(frames.Offline(now, self.offline) if self.offline else frames.KeepAlive(now, self.tails()))

    def _expired(self, link: NodeLink) -> bool:
        return link.unregistered_ms > self.registration_grace_ms and link.info.name not in self.registered

    def _check(self, link: NodeLink, now: int) -> None:
        silent = now - link.heard_ms
        unreached = now - link.unreached_ms if link.unreached_ms else 0
        if not (link.dead or link.left or link.offline) and link.info.name in self.registered:
            number = link.challenges.due(now, max(silent, self.non_response_ms if unreached else 0))
            if number is not None:
                self.challenge(link.info.member, number, not link.up and (link.down_before or link.cut_told))
        self._look_after(link, now)
        if link.up and silent > self.non_response_ms:
            self._down(link, f"silent for {silent} ms")
        elif link.up and unreached > self.non_response_ms:
            self._down(link, UNREACHED)
        elif link.up and self._expired(link):
            self._down(link, f"without a session for {link.unregistered_ms} ms", dead=True)
        elif (self._missing(link) or _aged(link)) and now >= link.retry_ms and self._worth_a_dial(link):
            self._dial_soon(link.info.name)
        if not link.left:
            self._take_turns(link, now)

    def _take_turns(self, link: NodeLink, now: int) -> None:
        """Go over to the next address of one that is silent, and show one whose addresses have all failed."""
        if link.peer is not None and link.via == link.turns.address:
            link.turns.connected(now)
        if not link.dialling:
            link.turns.silent(now)
        if link.turns.newly_failed():
            self._publish()

    def _look_after(self, link: NodeLink, now: int) -> None:
        """Look whether one that is not heard lives."""
        if link.cut and not self._lives(link, now):
            told, link.cut, link.cut_told = link.cut_told, False, False
            if told:
                why = link.lost or "it was never heard"
                self.noticed(link.info.name, False, f"{why}, and it answers no challenge")
            self._publish()
        elif not link.cut and not link.present and self._lives(link, now):
            link.cut, link.cut_ms = True, now
            if link.down_before:
                self._tell_cut(link, link.lost)
            self._publish()
        elif link.cut and not link.cut_told and now - link.cut_ms > self.non_response_ms:
            self._tell_cut(link, link.refused or "it was never heard")

    def _tell_cut(self, link: NodeLink, why: str) -> None:
        """Tell that it lives and is not heard. Of one that has just come this is told only once there was time to
        connect."""
        link.cut_told = True
        self.line(link.info.name, False, why)

    def _lives(self, link: NodeLink, now: int) -> bool:
        """Say whether it is not heard, and known to live by what it answered just now."""
        barred = link.dead or link.left or bool(link.offline) or link.up or self._expired(link)
        return not barred and link.challenges.lives(now, min(link.heard_ms, link.unreached_ms or link.heard_ms))

    def challenge_answered(self, node: str, incarnation: int, number: int) -> None:
        """This run has answered a challenge of ours; number 0: that it serves nothing."""
        link = self.links.get(node)
        if link is not None and link.info.incarnation == incarnation and number:
            link.challenges.answered(number)
        elif link is not None and link.info.incarnation == incarnation:
            link.challenges.over()

    def is_lost_at(self, node: str) -> None:
        """Tell of a line that is cut: that node does not hear this one, though both live. One of the two tells it."""
        link = self.links.get(node)
        if link is None or link.cut or not link.up:
            return
        if link.turns.several and self.clock() - link.dialled_ms > self.non_response_ms:
            link.turns.unheard()
        if self.me.node < node:
            self.line(node, False, f"{node} does not hear {self.me.node}")

    # --- connections ---

    def _missing(self, link: NodeLink) -> bool:
        """Is there no connection to the address whose turn it is? Until one stands, the one before is used."""
        stands = link.peer is not None and link.via == link.turns.address
        return not stands and link.speaks and not link.dialling and not link.left

    def _worth_a_dial(self, link: NodeLink) -> bool:
        """Is it registered, or has not each of its addresses been tried yet?"""
        return link.info.name in self.registered or not link.turns.all_failed_ms

    def _dial_soon(self, name: str) -> None:
        link = self.links[name]
        link.dialling = True
        self.run(lambda: self._dial(link))

    def _dial(self, link: NodeLink) -> None:
        broke = threading.Event()

        def closed(peer: Peer) -> None:
            broke.set()
            self._closed(link, peer)

        before, peer, why = self._connect(link, closed)
        if before is not None and peer is None:
            return  # it is judged by the connection that stands
        if peer is None and why == UNREACHED:  # no evidence that it is no more: its silence will tell
            link.unreached_ms = link.unreached_ms or self.clock()
        elif peer is None:
            self._address_refuses(link, why)
        elif self.closed:
            peer.close()
        elif broke.is_set():  # its end came before it was ours
            self._closed(link, peer)
        # It is up once it is heard, too.

    def _connect(self, link: NodeLink, closed: Callable[[Peer], None]) -> tuple[Peer | None, Peer | None, str]:
        """Connect to the address whose turn it is. Returns the connection before, which is kept until another one
        stands; the new one, or None; and why there is none."""
        peer, why, was, turns, pause_ms = None, "", "", link.turns, self.keep_alive_ms
        address, began_ms = turns.address, self.clock()
        try:
            peer, why = self._reached(link, address, lambda peer, data: self._answered(link, peer, data), closed)
            if peer is not None:
                link.unreached_ms = 0
            elif turns.failed(self.clock()):
                pause_ms = 0
        finally:  # whatever happened: it may be dialled again
            with self.lock:
                before, link.dialling = link.peer, False
                if peer is not None:
                    link.peer, was, link.via = peer, link.via, address
                pause_ms = REFUSED_MS if link.refused else pause_ms
                link.retry_ms = (began_ms if peer is None else self.clock()) + pause_ms
        if peer is not None and was not in ("", address):
            logger.info("node %s is connected to at %s now, after %s", link.info.name, address, was)
        if before is not None and peer is not None:
            before.close()
        return before, peer, why

    def _reached(
        self, link: NodeLink, address: str, answered: Callable[[Peer, bytes], None], closed: Callable[[Peer], None]
    ) -> tuple[Peer | None, str]:
        """Return a connection that took our first frames; or None, and why."""
        try:
            peer = self._dialled(address, answered, closed)
        except HalogError as e:
            refused = e.evidence.get("refused")
            if "greeting" in e.evidence:
                self._refuse(link, e.message)
            return None, "its address refuses connections" if refused else UNREACHED
        link.dialled_ms = self.clock()  # not before: a slow dial says nothing of how long a connection lasts
        try:
            peer.send(self.hello)
        except UnreachableError:
            if peer.refusal:  # the other side completes a handshake of TLS behind this one
                self._refuse(link, peer.refusal)
            return None, UNREACHED if peer.refusal else BREAKS
        with suppress(UnreachableError):  # it may have refused us, and closed: its end says what comes of it
            peer.send(self._sign_of_life())
        return peer, ""

    def _dialled(self, address: str, answered: Callable[[Peer, bytes], None], closed: Callable[[Peer], None]) -> Peer:
        for pause_s in BROKEN_AGAIN_S:
            try:
                return self.channel.dial(address, self.non_response_ms / 1000, answered, closed)
            except HalogError as e:
                if not e.evidence.get("broke"):
                    raise
                time.sleep(pause_s)
        return self.channel.dial(address, self.non_response_ms / 1000, answered, closed)

    def _answered(self, link: NodeLink, peer: Peer, data: bytes) -> None:
        """Take the answer to our greeting, or to a frame that its halog does not know. A connection carries nothing
        else this way."""
        reply = frames.decode_reply(data)
        error = from_frame(reply) if isinstance(reply, frames.ErrorReply) else None
        if isinstance(error, UnsupportedRequestError):
            logger.warning("%s", error)
        elif error is not None:
            why = shown(error.message, TEXT)
            link.refused_as = refusal_of(error)
            self._refuse(link, why)
            self._publish()
            raise FrameError(f"{peer.remote} refuses this node: {why}", told=True)
        elif isinstance(reply, frames.Welcome) and common(reply.protocol, reply.protocol) is not None:
            link.refused, link.refused_as = "", None
        else:
            raise FrameError(f"{peer.remote} sent {type(reply).__name__} on a connection that only carries ours")

    def _refuse(self, link: NodeLink, why: str) -> None:
        """Note why the two do not talk. It is looked again every few seconds, and told again when it is for another
        reason."""
        if why != link.refused_told:
            logger.warning("not connected to node %s: %s", link.info.name, why)
        link.refused = link.refused_told = why

    def _closed(self, link: NodeLink, peer: Peer) -> None:
        """Our connection broke: one reconnect, at once. A killed process refuses it within a fraction of a ms, or takes
        it into a backlog that dies with it: a connection that breaks as soon as it is made is no answer either."""
        with self.lock:
            if self.closed or link.peer is not peer:
                return
            link.peer = None
            if self.links.get(link.info.name) is not link or link.left or link.dialling:
                return
            if peer.refusal:  # it lives, and does not trust this process: no evidence that it is no more
                self._refuse(link, peer.refusal)
            now = self.clock()
            if link.via == link.turns.address:
                link.turns.failed(now)
            link.dialling = lasted = now - link.dialled_ms >= self.keep_alive_ms and not link.refused
            link.retry_ms = now + (REFUSED_MS if link.refused else self.keep_alive_ms)
        if lasted:
            self._dial(link)
        elif link.refused:
            self._down(link, link.refused)
        else:
            self._address_refuses(link, BREAKS)

    def broken(self, node: str) -> None:
        """A connection from this member broke: see whether it still answers."""
        link = self.links.get(node)
        if link is not None and self._missing(link):
            self._dial_soon(node)

    def offer(self, node: str, data: bytes) -> None:
        """Send a control frame nobody misses: not even queued where others wait."""
        self.send(node, data, spare=True)

    def send(self, node: str, data: bytes, *, spare: bool = False) -> None:
        """Send a control frame, or drop it: what matters is repeated or times out."""
        link = self.links.get(node)
        peer = None if link is None else link.peer
        if peer is None:
            return
        assert link is not None
        try:
            if spare:
                peer.offer(data)
            else:
                peer.send(data)
        except UnreachableError:
            self.run(lambda: self._closed(link, peer))

    def broadcast(self, data: bytes) -> None:
        for name in list(self.links):
            self.send(name, data)

    # --- what follows ---

    def _address_refuses(self, link: NodeLink, why: str) -> None:
        """Take it for down, as its address refuses or breaks connections: this is evidence that its process is no more,
        unless it answers a challenge from now on."""
        link.challenges.refused(self.clock())
        self._down(link, why)

    def _down(self, link: NodeLink, why: str, *, dead: bool = False) -> None:
        """Take it for down. `dead`: its process is no more, or will be replaced in any case."""
        link.dead = link.dead or dead
        if link.up:
            told = link.left or not link.present  # else it told so itself
            link.lost = why  # before it is down: whoever publishes first says why
            link.up, link.down_before = False, True
            link.cut = self._lives(link, self.clock())
            if link.cut:
                self._tell_cut(link, why)
            elif not told:
                self.noticed(link.info.name, False, why)
            self._publish()

    def _publish(self) -> None:
        """Tell who is gone one by one, each with its own cause, this node first: it is not to stand for who went with
        its quorum. Then who has come."""
        with self._notify:
            links, me, was = dict(self.links), self.me, self.offline
            self.own.why_offline = self.judge(_sight(links))
            present = {link.info.member for link in links.values() if link.present}
            alive = frozenset(present if self.offline else present | {me})
            was_answering = self._answering
            self._answering = frozenset(link.info.member for link in links.values() if link.cut and not link.present)
            for m in sorted(self._told - alive, key=lambda m: (m != me, m)):
                self._tell(self._told - {m}, self.offline if m == me else self._lost(links[m.node], m))
            if alive != self._told or self._answering - was_answering or was_answering - self._answering - alive:
                came = sorted(alive - self._told - {me})
                self._tell(alive, "; ".join(f"{m.node} answers" for m in came))
            self.seen(sights_of(links, self.registered))
        if bool(was) != bool(self.offline) and not self.closed:
            self.broadcast(self._sign_of_life())

    def look(self) -> None:
        """What `judge` goes by may have changed."""
        self._publish()

    def _tell(self, alive: frozenset[Member], why: str) -> None:
        self._told = self._alive = alive
        self.changed(alive, why)

    @staticmethod
    def _lost(link: NodeLink, member: Member) -> str:
        return f"{member.node}: {link.lost if link.info.member == member else 'it started again'}"

    @property
    def alive(self) -> frozenset[Member]:
        """Who is up, this node included unless it is offline."""
        return self._alive

    @property
    def answering(self) -> frozenset[Member]:
        """Who is not heard, and has answered a fresh challenge."""
        return self._answering

    def close(self) -> None:
        """Say goodbye and drop every connection."""
        self.broadcast(frames.encode(frames.Goodbye()))
        self.closed = True
        for link in list(self.links.values()):
            if link.peer is not None:
                link.peer.close()


def _aged(link: NodeLink) -> bool:
    """Say whether another connection is to take the place of the one that stands, which is used until then."""
    return link.peer is not None and link.peer.aged and not link.dialling and not link.left


def _sight(links: dict[str, NodeLink]) -> NodeContacts:
    """Whom the channel says is there: it, not a registration, tells a node that is cut off from everybody."""
    reached = frozenset(name for name, link in links.items() if link.up)
    return NodeContacts(frozenset(links), reached, frozenset(name for name in reached if links[name].present))
