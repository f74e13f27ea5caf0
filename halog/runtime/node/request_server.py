"""Requests of other nodes are answered here. One frame comes in, one reply goes out. A commit is answered by whichever
thread learns its result, everything else by the connection's own thread."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from halog.backend import Execute, Work
from halog.config.check import wrong_name
from halog.core import results as res
from halog.core.ids import Member
from halog.core.log.records import CREATE, LAST_OP
from halog.errors import (
    FrameError,
    HalogError,
    NotActiveError,
    NothingToDoError,
    RefusedError,
    UnauthorizedError,
    VersionMismatchError,
)
from halog.metadata.nodes import NodeInfo
from halog.ports import Peer
from halog.runtime.client import vote_calls as ballots
from halog.runtime.membership.duplicates import same_name
from halog.runtime.node.access import Access
from halog.runtime.node.node_load import LoadCounter
from halog.runtime.node.request_audit import RequestAudit
from halog.runtime.replica import hash_server as hashes, moment_server as looks
from halog.runtime.replica.driver import Copy
from halog.runtime.replica.repeated_requests import RepeatedRequest, RepeatedRequests, encoded, send
from halog.runtime.rpc import frames, versions
from halog.runtime.rpc.errors import to_frame
from halog.runtime.rpc.frames import WAIT_S
from halog.runtime.rpc.pages import abridged, count, page, room_in
from halog.runtime.rpc.result_errors import no_quorum, settled, to_error
from halog.runtime.rpc.stranger_text import SHOWN

if TYPE_CHECKING:
    from halog.runtime.events.audit_trail import AuditTrail
    from halog.runtime.events.reporter import EventReporter
    from halog.runtime.host.host import Host
    from halog.runtime.membership.members import Membership
    from halog.runtime.node.security_watch import SecurityWatch
    from halog.runtime.remap.mover import Mover

logger = logging.getLogger("halog.service")


Asking = Peer | RepeatedRequest
"""Where an answer goes."""

Handler = Callable[[Any, object], frames.Reply | None]
"""Of a kind of request: its answer; None: somebody gives it later, to where it is told."""


class Service:
    """A `Service` is the listening side of a node."""

    def __init__(
        self,
        hello: frames.Hello,
        members: Membership,
        host: Host | None,
        execute: Execute,
        status: Callable[[], dict[str, object]],
        known: Callable[[], Collection[str]],
        access: Access,
        telling: EventReporter,
        max_frame: int,
        counting: LoadCounter,
        mover: Mover | None,
        info: Callable[[], NodeInfo],
        audit: AuditTrail,
        security: SecurityWatch,
    ) -> None:
        """Listen for a node. `info` returns what it has registered, `known` the nodes of the configuration in force.
        `access` says who may ask for what, `max_frame` how many bytes a frame may have. `mover` is there in a hosting
        node. `audit`: where requests of operators are noted, and refused ones.
        `security`: what looks after this node's certificates."""
        self._known = known
        self._access = access
        self._audit = RequestAudit(audit, access, known)
        self._info = info
        self._security = security
        self.telling = telling
        self.hello = hello
        self.members = members
        self.host = host
        self.execute = execute
        self.status = status
        self.mover = mover
        self.counting = counting
        self._hashing = threading.Lock()
        """Held while the objects of a copy are counted."""
        self._room = room_in(max_frame)
        self._most_read = max_frame // 4
        """Bytes of what a method has read, beside a record of half a frame that it may leave, and its result."""
        self._repeats = RepeatedRequests()
        self._peers: dict[int, Member] = {}
        self._strangers: dict[int, HalogError] = {}
        """What is answered to whoever expects no answer to its greeting, and was refused."""
        self._lock = threading.Lock()
        self._handlers = self._handlers_by_request()

    def _handlers_by_request(self) -> Mapping[type, Handler]:
        return {
            frames.Fetch: self._fetch,
            frames.LeasedFetch: self._leased,
            frames.Scan: self._scan,
            frames.Count: self._count,
            frames.MomentFetch: self._look,
            frames.MomentScan: self._look_through,
            frames.MomentEnd: self._let_go,
            frames.Submit: self._submit,
            frames.PrepareRequest: self._prepare,
            frames.Decide: self._decide,
            frames.Votes: self._votes,
            frames.Validate: self._validate,
            frames.Reach: self._reach,
            frames.Barrier: self._barrier,
            frames.Invoke: self._invoke,
            frames.AskOutcome: self._ask_outcome,
            frames.HandOverRequest: self._hand_over,
            frames.StatusRequest: lambda peer, r: frames.StatusReply(self.status()),
            frames.Move: self._move,
            frames.MappingQuestion: self._can_map,
            frames.Loads: self._loads,
            frames.StateHashes: self._state_hashes,
            frames.ReloadCertificates: lambda peer, r: self._security.reload(),
        }

    # --- connections ---

    def on_frame(self, peer: Peer, data: bytes) -> None:
        """A frame arrived. FrameError closes the connection."""
        if self._repeats.last:
            self._repeats.heard(peer)
        member = self._peers.get(id(peer))
        if member is None and id(peer) in self._strangers:
            _send(peer, to_frame(self._strangers[id(peer)]))
            return
        frame = frames.decode_incoming(data)
        handler = self._handlers.get(type(frame))
        if isinstance(frame, frames.Hello) and member is not None:
            raise FrameError(f"{peer.remote} introduced itself twice")
        if isinstance(frame, frames.Hello):
            self._introduced(peer, frame)
        elif member is None:
            raise FrameError(f"{peer.remote} did not introduce itself")
        elif not self._allowed(peer, member, frame):
            pass
        elif isinstance(frame, frames.UnknownFrame):
            _send(peer, to_frame(versions.unknown(self.hello.node, frame.tag)))
        elif handler is None:
            try:
                self._control(member, frame)  # type: ignore[arg-type]
            except FrameError as error:
                self._audit.refused(peer, member.node, frame, error.message)
                raise
        else:
            self._answer(peer, member, handler, frame)

    def on_refused(self, host: str, why: str) -> None:
        """Note that a connection was refused before its first frame."""
        self.telling.intruder(host, why)
        self._audit.refused_host(host, why)

    def _allowed(self, peer: Peer, member: Member, frame: object) -> bool:
        """Say whether whoever is at the other end may ask for this. If not, it is told so, and the history, too."""
        try:
            self._access.check(peer.principal, frame)
        except UnauthorizedError as error:
            self.telling.unauthorized(str(peer.principal), error.message)
            self._audit.refused(peer, member.node, frame, error.message)
            _send(peer, to_frame(error))
            return False
        return True

    def _introduced(self, peer: Peer, hello: frames.Hello) -> None:
        """Take a greeting. Whoever is refused is told why, and its connection ends."""
        try:
            spoken = self._judge(peer, hello)
        except HalogError as e:
            if isinstance(e, (FrameError, UnauthorizedError)):
                self._audit.refused(peer, hello.node, hello, e.message)
            if versions.expects_answer(hello):
                _send(peer, to_frame(e))
            elif isinstance(e, VersionMismatchError):
                self._strangers[id(peer)] = e
                return
            raise FrameError(f"{peer.remote} is refused: {e}", told=True) from None
        with self._lock:
            self._peers[id(peer)] = Member(hello.node, hello.incarnation)
        me = self.hello
        _send(peer, frames.Welcome(me.node, spoken, me.release, me.incarnation, self.members.offline))

    def _judge(self, peer: Peer, hello: frames.Hello) -> int:
        """Return the protocol that is spoken with a process. Raises the error that it is told."""
        for name in (hello.node, hello.cluster):
            if why := wrong_name(name):
                raise self._refused(ascii(hello.node[:SHOWN]), why)
        if hello.cluster != self.hello.cluster:
            raise self._refused(hello.node, f"it belongs to cluster {hello.cluster!r}, this is {self.hello.cluster!r}")
        if why := self._access.why_not(peer.principal, hello):
            self.telling.intruder(hello.node, why)
            raise UnauthorizedError(f"{hello.node} is refused: {why}")
        if hello.role == "node" and hello.node == self.hello.node and hello.incarnation != self.hello.incarnation:
            duplicate = same_name(self._info(), peer.remote, hello)
            self.telling.intruder(hello.node, duplicate.message)
            raise duplicate
        spoken = versions.greeted(hello)
        if spoken is None:
            error = versions.mismatch_from(self.hello.node, hello)
            self.telling.intruder(hello.node, error.message)
            raise error
        return spoken

    def _refused(self, node: str, why: str) -> FrameError:
        """Note an intruder (Q5), and return the error that ends its connection. It tries again and again; the history
        names it once a minute, and the connection's end says no more."""
        self.telling.intruder(node, why)
        return FrameError(f"{node} is refused: {why}", told=True)

    def _control(self, member: Member, frame: frames.Control) -> None:
        """Take a control frame. Only hosting nodes send them; anybody else may ask."""
        if member.node not in self._known():
            raise self._refused(member.node, "it acts as a hosting node, and is none of [nodes]")
        if isinstance(frame, frames.DeathNotice):
            self._died(member, frame.secret)
            return
        if isinstance(frame, frames.Goodbye):
            self.members.said_goodbye(*member)
            return
        if isinstance(frame, frames.Offline):
            self.members.heard(*member, frame.why)
            return
        self.members.heard(*member, "" if isinstance(frame, frames.KeepAlive) else None)
        if self.host is not None and not self.members.offline:
            self.host.control(member, frame)

    def _died(self, member: Member, secret: bytes) -> None:
        witnessed = self.members.witnessed(member, secret)
        if witnessed is False:
            raise self._refused(member.node, "its death is told by one who does not know its secret")
        if witnessed and self.host is not None:
            self.host.leasing.died(member)

    def on_closed(self, peer: Peer) -> None:
        """A connection to us broke."""
        with self._lock:
            member = self._peers.pop(id(peer), None)
            self._strangers.pop(id(peer), None)
        self._repeats.closed(peer)
        if member is not None:
            self.members.broken(member.node)

    def _answer(self, peer: Peer, member: Member, handler: Handler, frame: object) -> None:
        """What may take longer than it is waited for runs once, however often it is asked for."""
        number: bytes = frame.number if type(frame) in frames.NUMBERED else b""  # type: ignore[attr-defined]
        audited = self._audit.wants(frame, member.node)
        if audited and not number:
            number = os.urandom(16)  # it has no other attempts, and what comes of it is waited for all the same
        to = self._repeats.begin(member, number, peer) if number else peer
        if to is None:
            return
        if audited and isinstance(to, RepeatedRequest):
            to.follow(partial(self._audit.answered, peer, member.node, frame))
        try:
            reply = handler(to, frame)
        except HalogError as e:
            reply = to_frame(e)
        except BaseException as e:  # also what ends a task or a process: a request without an answer is asked again
            logger.exception("a request failed")
            reply = to_frame(e)
        if reply is not None:
            _send(to, reply)

    # --- requests ---

    def _active(self, partition: str, least: int = 0, mapping: int = 0) -> Copy:
        """The copy, if it is active here, and has lsn `least`: one that does not get there may have been replaced
        without knowing it, and then somebody else has it. So may one whose log does not say in time that it serves this
        mapping, or a newer one."""
        self._online()
        copy = None if self.host is None else self.host.copies.get(partition)
        if copy is None or not copy.serving:
            raise self._not_active(partition)
        if not copy.wait_for(least, WAIT_S, logged=True):
            raise NotActiveError(f"{self.hello.node} does not have lsn {least} of {partition}", partition=partition)
        if not copy.maps_by(mapping, WAIT_S):
            raise NotActiveError(f"{self.hello.node} does not serve mapping {mapping} yet", partition=partition)
        return copy

    def _not_active(self, partition: str) -> NotActiveError:
        said = f"{self.hello.node} is not active for {partition}"
        if self.host is None:
            return NotActiveError(said, partition=partition)
        router = self.host.router
        elected = router.epoch(partition)  # first: whoever is named is not older
        return NotActiveError(said, partition=partition, active=router.active(partition), elected=elected)

    def _online(self) -> None:
        if self.members.offline:
            raise no_quorum(self.hello.node, self.members.offline)

    def _fetch(self, peer: Asking, r: object) -> frames.Reply:
        assert isinstance(r, frames.Fetch)
        copy = self._active(r.partition, r.least, r.mapping)
        copy.wait_for(r.settled, WAIT_S)
        copy.wait_free(r.keys, WAIT_S)
        if len(r.keys) == 1 and not r.brief:  # most, by far
            reply = frames.Objects([copy.objects.find(r.keys[0])], end=True)
        else:
            found = copy.objects.brief(r.keys) if r.brief else map(copy.objects.find, r.keys)
            reply = page(found, self._room)
        self._active(r.partition).check_mapping(r.mapping)
        return reply

    def _leased(self, peer: Asking, r: object) -> frames.Reply:
        assert isinstance(r, frames.LeasedFetch)
        copy = self._active(r.partition, mapping=r.mapping)
        items = copy.find_leased(r.keys)
        copy.check_mapping(r.mapping)
        return frames.NoLease() if items is None else page(items, self._room)

    def _reach(self, peer: Asking, r: object) -> frames.Reply:
        assert isinstance(r, frames.Reach)
        if not self._active(r.partition).wait_for(r.lsn, WAIT_S):
            raise NotActiveError(f"{self.hello.node} does not have lsn {r.lsn} of {r.partition}", partition=r.partition)
        return frames.Confirmation()

    def _barrier(self, peer: Asking, r: object) -> None:
        assert isinstance(r, frames.Barrier)
        copy = self._active(r.partition)
        self._follow(copy, copy.barrier(lambda result: _send(peer, _outcome(result, r.partition))))

    def _scan(self, peer: Asking, r: object) -> frames.Reply:
        assert isinstance(r, frames.Scan)
        self._online()
        if r.local and self.host is not None and r.partition in self.host.copies:
            copy = self.host.copies[r.partition]
        else:
            copy = self._active(r.partition, r.least, r.mapping)
            copy.wait_free((r.prefix,), WAIT_S, prefixes=True)
            self._active(r.partition)  # still: else it may have waited for nothing
        reply = page(copy.objects.scan(r.prefix, r.after), self._room, r.limit)
        if not r.local:
            copy.check_mapping(r.mapping)
        return reply

    def _count(self, peer: Asking, r: object) -> frames.Reply:
        assert isinstance(r, frames.Count)
        copy = self._active(r.partition, mapping=r.mapping)
        lsn = copy.core.visible
        reply = count(copy.objects.scan(r.prefix, r.after), lsn)
        self._active(r.partition).check_mapping(r.mapping)
        return reply

    def _look(self, peer: Asking, r: object) -> frames.Reply:
        assert isinstance(r, frames.MomentFetch)
        copy = self._active(r.partition, mapping=r.mapping)
        return looks.look(copy, r, lambda: self._active(r.partition), WAIT_S, self._room)

    def _look_through(self, peer: Asking, r: object) -> frames.Reply:
        assert isinstance(r, frames.MomentScan)
        copy = self._active(r.partition, r.least, r.mapping)
        return looks.look_through(copy, r, lambda: self._active(r.partition), WAIT_S, self._room)

    def _let_go(self, peer: Asking, r: object) -> frames.Reply:
        assert isinstance(r, frames.MomentEnd)
        self._active(r.partition).named.let_go(r.moment)
        return frames.Confirmation()

    def _submit(self, peer: Asking, r: object) -> None:
        assert isinstance(r, frames.Submit)
        copy = self._active(r.partition)
        self._check_known(r.work)

        def answer(result: res.Result) -> None:
            _send(peer, _outcome(result, r.partition))

        self._follow(
            copy, copy.submit(r.tx, r.work, answer, r.epoch, exact=True)
        )  # it may have been under way for long

    def _check_known(self, work: Work) -> None:
        """Raise UnsupportedRequestError for what this halog would write as something else, or show a method so."""
        for write in work.writes:
            if not CREATE <= write.op <= LAST_OP:
                raise versions.unknown(self.hello.node, f"to write with op {write.op}")

    def _prepare(self, peer: Asking, r: object) -> None:
        assert isinstance(r, frames.PrepareRequest)
        copy = self._active(r.partition)
        self._check_known(r.work)

        def answer(result: res.Result) -> None:
            _send(peer, _outcome(result, r.partition))

        self._follow(copy, ballots.prepare(copy, r, answer, exact=True))

    def _decide(self, peer: Asking, r: object) -> None:
        assert isinstance(r, frames.Decide)
        copy = self._active(r.partition)

        def answer(result: res.Result) -> None:
            how = ballots.stands(result, commit=r.commit)
            said = None if how is None else frames.OutcomeReply(how, ballots.lsn_of(result))
            _send(peer, said or to_frame(to_error(result, r.partition)))

        self._follow(copy, ballots.decide(copy, r, answer))

    def _votes(self, peer: Asking, r: object) -> frames.Reply:
        assert isinstance(r, frames.Votes)
        return ballots.votes(self._active(r.partition), r, self._room)

    def _follow(self, copy: Copy, tag: int) -> None:
        if self.host is not None:
            self.host.deliveries.follow(copy, tag, lambda: False, time.monotonic() + WAIT_S)

    def _validate(self, peer: Asking, r: object) -> frames.Reply:
        assert isinstance(r, frames.Validate)
        copy = self._active(r.partition, r.least, r.mapping)
        copy.validate(r.reads)
        copy.check_mapping(r.mapping)
        return frames.Confirmation()

    def _move(self, peer: Asking, r: object) -> frames.Reply:
        assert isinstance(r, frames.Move)
        copy = self._active(r.partition, mapping=r.mapping)
        assert self.mover is not None
        if r.mapping:
            copy.check_mapping(r.mapping)
        return self.mover.move(r.partition, r.keys, dict(zip(r.keys, r.versions)))

    def _can_map(self, peer: Asking, r: object) -> frames.Reply:
        assert isinstance(r, frames.MappingQuestion)
        if self.mover is None:
            raise RefusedError(f"{self.hello.node} hosts nothing")
        self.mover.check_code(r.policy, r.layout)
        return frames.Confirmation()

    def _loads(self, peer: Asking, r: object) -> frames.Reply:
        self._online()
        return self.counting.told()

    def _state_hashes(self, peer: Asking, r: object) -> frames.Reply:
        """Return what this node's copy has; a node that is offline says it, too."""
        assert isinstance(r, frames.StateHashes)
        copy = None if self.host is None else self.host.copies.get(r.partition)
        if copy is None:
            raise RefusedError(f"{self.hello.node} has no copy of {r.partition}", partition=r.partition)
        return hashes.told(copy, self._hashing, scan=r.scan)

    def _invoke(self, peer: Asking, r: object) -> frames.Reply:
        assert isinstance(r, frames.Invoke)
        self._active(r.partition, r.invocation.least)
        self._check_known(r.invocation.work)
        return frames.InvocationReply(abridged(self.execute(r.partition, r.invocation), self._most_read))

    def _ask_outcome(self, peer: Asking, r: object) -> None:
        assert isinstance(r, frames.AskOutcome)
        self._active(r.partition).ask_outcome(r.tx, r.attempt, lambda result: _send(peer, settled(result)))

    def _hand_over(self, peer: Asking, r: object) -> None:
        assert isinstance(r, frames.HandOverRequest)
        copy = self._active(r.partition)
        if r.to == self.hello.node and r.again:  # it was asked for before, and is done
            _send(peer, frames.CommitReply(copy.core.state.chain.state.lsn))
            return
        if r.to == self.hello.node:
            raise NothingToDoError(f"{r.to} is active for {r.partition} already")
        who = peer.member if isinstance(peer, RepeatedRequest) else self._peers[id(peer)]
        copy.hand_over(r.to, lambda result: _send(peer, _outcome(result, r.partition)), f"asked for by {who.node}")


def _outcome(result: res.Result, partition: str) -> frames.Reply:
    return frames.CommitReply(result.lsn) if isinstance(result, res.Success) else to_frame(to_error(result, partition))


def _send(to: Asking, reply: frames.Reply) -> None:
    if isinstance(to, RepeatedRequest):
        to.answer(reply)
        return
    try:
        to.send(frames.encode(reply))
    except Exception:  # once more: what is wrong with it is told
        send(to, encoded(reply))
