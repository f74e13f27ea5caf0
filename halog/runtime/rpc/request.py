"""Brings one request to the active node of a partition until that answers: waits, retries, follows (R5).

It is repeated only where repeating is harmless, and every request is: commits carry their transaction id, and what may
take long has a number, under which it runs once (`halog.runtime.replica.repeated_requests`). What only asks has no
outcome: where nobody answers it, nothing happened. What rests on versions that were read at one site (`Work.site`) is
asked for at that site only: behind a switch that parted the histories, the same version may be something else at the
other one.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from halog.errors import (
    AvailabilityError,
    ClosedError,
    DeadlineError,
    FrameError,
    HalogError,
    NotActiveError,
    OutcomeUnknownError,
    PartitionUnavailableError,
    SwitchedError,
    UnreachableError,
    VersionMismatchError,
    ZoneQuorumError,
    is_unsent,
)
from halog.runtime.rpc import frames
from halog.runtime.rpc.cluster_view import ClusterView
from halog.runtime.rpc.errors import not_allowed
from halog.runtime.rpc.frame_limit import too_large
from halog.runtime.rpc.remote_sites import RemoteSite, mirrored
from halog.runtime.rpc.result_errors import closed_meanwhile, no_quorum, perhaps_done

if TYPE_CHECKING:
    from halog.runtime.rpc.router import Router

HERE: Final = ""
"""This very site, where a partition may be served by another one."""

_ACTS: Final = (frames.Submit, frames.PrepareRequest, frames.Decide, frames.HandOverRequest)
"""What may have happened where no answer came. Of all else it does not matter: it changes nothing of what anybody is
told (a method's changes are its caller's until he commits them; objects that move are the same elsewhere)."""

_COUNTED: Final = (frames.Submit, frames.PrepareRequest)
"""What is for an epoch. (Asking by `isinstance` costs ten times as much as by type, where it is none of these.)"""

_RUN: Final = os.urandom(8)
_COUNT: Final = itertools.count()
"""Together the number of a request: no other one of the same member has it."""

_ASK: Final = "`node.outcome(tx)` says what became of it"

_SILENCE: Final = (UnreachableError, DeadlineError, ClosedError)

_STAYS: Final = frozenset(
    (
        frames.HandOverRequest,
        frames.Votes,
        frames.Move,
        frames.MappingQuestion,
        frames.Loads,
        frames.StatusRequest,
        frames.StateHashes,
        frames.ReloadCertificates,
    )
)
"""Of operators, and of nodes among themselves: of one site."""


class OpenCommit:
    """One commit, or one vote, has an `OpenCommit` over all its requests: it says what may be, or become, of those that
    nobody has settled."""

    __slots__ = ("_late", "epoch", "presented")

    def __init__(self, *, presented: bool = False) -> None:
        self.epoch = 0
        """The highest that one was sent for, or that it was presented in here, without a refusal that settles it.
        Whoever asks what became of it asks under that one: of what is asked under a lower one it is said that it did
        not happen, and then it may."""
        self.presented = presented
        """Was one sent, or presented in here, that somebody may act on, or has? Else it did not happen, and will not,
        also where whoever asked is interrupted."""
        self._late: dict[str, int] = {}
        """By site: the highest that one was sent for there and left unanswered."""

    def seen(self, epoch: int) -> None:
        self.epoch = max(self.epoch, epoch)

    def unanswered(self, site: str, epoch: int) -> None:
        self._late[site] = max(self._late.get(site, 0), epoch)

    def may_arrive(self, site: str, epoch: int) -> bool:
        """May one still be done, behind an answer of this site in this epoch? It is done in its own epoch or not at
        all; epochs of two sites are not compared."""
        return any(at != site or out >= epoch for at, out in self._late.items())


class Request:
    """Asks the active node of a partition until it answers. `site`: the only one at which it may be asked for; None:
    wherever the partition is served."""

    def __init__(
        self,
        router: Router,
        partition: str,
        frame: frames.Request,
        deadline_s: float,
        local: Callable[[], bool],
        site: str | None,
        open_: OpenCommit,
    ) -> None:
        self._router = router
        self._partition = partition
        self._frame = frame
        self._local = local
        self._deadline_s = deadline_s
        self._until = time.monotonic() + deadline_s
        self._site = bound_to(frame) if site is None else site
        self._at = HERE
        self._hint: str | None = None
        self._unknown: HalogError | None = None
        """Why an attempt may have been acted on."""
        self._silent: HalogError | None = None
        """Why the last one has no answer."""
        self._open = open_
        self._epoch = 0
        """The one that an active node said to be in."""
        self._refused: float | None = None
        self._failing: tuple[float, int] | None = None
        """At another site: since when no node answers, and by which table."""
        self._why = ""
        """What came of the last attempt there."""
        self._turned_away: tuple[float, int] | None = None
        """Since when whoever listens where the active node should be refuses our greeting, and by which table."""
        if type(frame) in frames.NUMBERED:
            frame.number = _RUN + next(_COUNT).to_bytes(8, "big")  # type: ignore[union-attr]

    def answer(self) -> frames.Reply:
        """See `Router.ask`."""
        try:
            return self._answer()
        except OutcomeUnknownError as error:
            if isinstance(self._frame, _COUNTED):
                error.evidence["epoch"] = self._open.epoch
            raise
        except FrameError as error:
            if "limit" in error.evidence:
                raise too_large(self._frame, error) from None
            raise

    def _answer(self) -> frames.Reply:
        while True:
            self._check_online()
            if self._local():
                raise LocalError("this node is active itself")
            where = self._place()
            seen = where.stamp(self._partition)
            reply = self._attempt(where)
            if reply is not None:
                return reply
            if time.monotonic() >= self._until:
                raise self._too_late(where)
            if self._hint is None:
                where.pause(self._partition, seen, self._until)

    # --- where ---

    def _check_online(self) -> None:
        if why := self._router.offline():
            error = no_quorum(self._router.me, why)
            raise error if self._unknown is None else perhaps_done(self._partition, error)

    def _place(self) -> ClusterView:
        """Return what knows about the site that serves it."""
        site = self._router.site_of(self._partition)
        if site != self._at:
            self._at = site
            self._hint = None
            self._failing = None
            self._refused = None
            self._epoch = 0
        if self._site is not None and site != self._site:
            raise self._switched(site)
        try:
            return self._router.place(site, self._partition, self._until)
        except PartitionUnavailableError:
            if self._router.has_moved(self._partition, site):
                return self._place()
            if self._unknown is None:
                raise
            return self._router  # where nobody is active: an attempt is out, and may be answered for yet

    def _switched(self, site: str) -> HalogError:
        if not isinstance(self._frame, frames.Submit | frames.PrepareRequest | frames.Invoke):
            return mirrored(self._partition, site) if site else self._is_here()
        error = switched(self._partition, self._site or self._router.site, site or self._router.site)
        return error if self._unknown is None else perhaps_done(self._partition, error)

    def _is_here(self) -> HalogError:
        """It was for another site, and that one does not serve it any more."""
        there, here = self._site, self._router.site
        return PartitionUnavailableError(
            f"partition {self._partition} is served by site {here} now, and this was for site {there}; ask again",
            partition=self._partition,
            site=here,
        )

    # --- one attempt ---

    def _attempt(self, where: ClusterView) -> frames.Reply | None:
        """Make one attempt. Returns None if there may be another one."""
        target = self._hint or where.active(self._partition)
        try:
            reply = self._asked(where, target)
        except NotActiveError as e:
            self._hint = target if self._is_later(e) else self._fresh_hint(e, target, where)
            if target is None:
                self._check_known(where)
        except OutcomeUnknownError as e:
            if e.evidence.get("expired"):  # nobody will ever know more
                raise
            self._hint = None
            self._silent = e
            self._perhaps(e)
        except ZoneQuorumError as e:
            self._refused = self._quorum_lost(e)
            self._hint = None
        except VersionMismatchError as e:
            raise e if self._unknown is None else perhaps_done(self._partition, e) from e
        except _SILENCE as e:
            self._hint = None
            self._unanswered(where, target, e)
        else:
            return reply
        return None

    def _asked(self, where: ClusterView, target: str | None) -> frames.Reply:
        frame = self._frame
        if type(frame) is frames.HandOverRequest:
            frame.again = self._unknown is not None
        if (
            type(frame) is frames.Submit or type(frame) is frames.PrepareRequest
        ):  # who was replaced must not judge again
            frame.epoch = max(where.epoch(self._partition), self._epoch)
        before, self._open.presented = self._open.presented, True
        data = b""
        try:
            data = frames.encode(frame)
            reply = self._router.once(where, target, data, self._until)
        except BaseException as error:
            self._open.presented = before or _arrived(error, data)
            if not isinstance(error, HalogError):
                raise
            if self._unknown is not None:
                error.evidence["asked_before"] = True
            if isinstance(self._frame, frames.Submit) and self._open.may_arrive(self._at, self._frame.epoch):
                error.evidence["may_arrive"] = True
            if target is not None and not isinstance(error, _SILENCE) and error.evidence.get("sent", True):
                self._heard(where)
            self._sent(error, data)
            raise
        self._heard(where)
        return reply

    def _sent(self, error: HalogError, data: bytes) -> None:
        """It met this. What was not sent, or was refused by who is not active, is not open."""
        if isinstance(self._frame, _COUNTED) and _arrived(error, data):
            self._open.seen(self._frame.epoch)

    def _is_later(self, e: NotActiveError) -> bool:
        """Was it refused only for the epoch it was for?"""
        number = e.evidence.get("epoch")
        if not isinstance(self._frame, _COUNTED) or not isinstance(number, int) or number <= self._frame.epoch:
            return False
        self._epoch = number
        return True

    def _fresh_hint(self, e: NotActiveError, asked: str | None, where: ClusterView) -> str | None:
        """Whom the node that was asked takes for active, where it knows of a later epoch than is known here. Who has
        just been elected may not have been told yet, and would name the one that it replaces, dead or frozen."""
        hint, elected = e.evidence.get("active"), e.evidence.get("elected")
        if not isinstance(hint, str) or not isinstance(elected, int) or elected <= where.epoch(self._partition):
            return None
        return hint if hint != asked and hint in where.nodes else None

    def _heard(self, where: ClusterView) -> None:
        self._failing = self._silent = self._turned_away = None
        if isinstance(where, RemoteSite):
            where.answers()

    def _check_known(self, where: ClusterView) -> None:
        """Nobody is active there: raises where nobody would tell if there were one."""
        if isinstance(where, RemoteSite) and where.why and self._unknown is None:
            raise mirrored(self._partition, where.name, where.why)

    def _unanswered(self, where: ClusterView, target: str | None, error: HalogError) -> None:
        """Raises if there will be no other attempt."""
        if isinstance(error, ClosedError):
            raise error if self._unknown is None else closed_meanwhile(self._partition) from error
        sent = error.evidence.get("sent", True)
        if sent or isinstance(error, DeadlineError) or "greeting" in error.evidence:
            self._silent = error
        if sent:
            self._perhaps(error)
        if isinstance(where, RemoteSite):
            self._check_line(where, target, error)
        elif "greeting" in error.evidence:
            self._check_greeting(where, target, error)

    def _check_greeting(self, where: ClusterView, target: str | None, error: HalogError) -> None:
        """Raises where the active node is not at its address, or does not let this process in. Of one that is dead,
        and whose address is another process's by now, the others take over within an attempt's time; nothing else
        changes it."""
        now, stamp = time.monotonic(), where.stamp(self._partition)
        if self._turned_away is None or self._turned_away[1] != stamp:
            self._turned_away = now, stamp
        if now - self._turned_away[0] < self._router.attempt_s:
            return
        told: HalogError | None = not_allowed(error, str(target))
        if told is None:
            told = UnreachableError(
                f"partition {self._partition}: its active node {target} cannot be asked: {error.message}; nothing was "
                "done; see `halog node list`",
                **{**error.evidence, "node": target},
            )
        told.evidence["partition"] = self._partition
        raise told if self._unknown is None else perhaps_done(self._partition, told)

    def _perhaps(self, why: HalogError) -> None:
        """It may have been acted on, and another site may never hear of it."""
        if not isinstance(self._frame, _ACTS):
            return
        self._unknown = why
        self._site = self._at
        if isinstance(self._frame, _COUNTED):
            self._open.unanswered(self._at, self._frame.epoch)

    def _check_line(self, far: RemoteSite, target: str | None, error: HalogError) -> None:
        """Raises where the other site is not there. A takeover over there takes less time than two attempts; whoever
        asked has been waiting for that, who comes next need not."""
        now, stamp = time.monotonic(), far.stamp(self._partition)
        if self._failing is None or self._failing[1] != stamp:
            self._failing = now, stamp
        lasts = now - self._failing[0] >= 2 * self._router.attempt_s
        self._why = f"its active node {target} cannot be reached from here: {error}"
        if self._unknown is None and (lasts or far.why or far.was_silent):
            raise mirrored(self._partition, far.name, far.is_silent(self._why)) from error

    def _quorum_lost(self, error: ZoneQuorumError) -> float:
        """The active node is offline, and said so at the time that is returned. Others may be about to take over, in
        less than an attempt's time; if nobody has in twice that, nobody will."""
        now = time.monotonic()
        if self._refused is not None and now - self._refused >= 2 * self._router.attempt_s:
            raise error if self._unknown is None else perhaps_done(self._partition, error)
        return now if self._refused is None else self._refused

    # --- the end ---

    def _too_late(self, where: ClusterView) -> HalogError:
        limit = f"within {self._deadline_s:g} s"
        far = isinstance(where, RemoteSite)
        missing = "" if far else self._router.missing(self._partition)
        if missing:
            limit += f": {missing}"
        if self._unknown is not None:
            again = "see `halog partition show`" if isinstance(self._frame, frames.HandOverRequest) else _ASK
            return OutcomeUnknownError(
                f"partition {self._partition} gave no answer {limit}; {again}", partition=self._partition
            )
        if isinstance(where, RemoteSite) and self._failing is not None:
            return mirrored(self._partition, where.name, where.is_silent(self._why))
        at = f" at site {where.name}{where.told_of(self._partition)}" if isinstance(where, RemoteSite) else ""
        if self._silent is not None:
            return self._no_answer(where, at)
        return PartitionUnavailableError(
            f"no node became active for partition {self._partition}{at} {limit}; see `halog partition show`",
            partition=self._partition,
            active=where.active(self._partition),
        )

    def _no_answer(self, where: ClusterView, at: str) -> DeadlineError:
        """Somebody is active, as far as is known, and says nothing: he is dead or cut off, or not done yet."""
        active, frame = where.active(self._partition), self._frame
        what = "gave no answer"
        if isinstance(frame, frames.Invoke):
            what = f"was not done with method {frame.invocation.method}"
        return DeadlineError(
            f"partition {self._partition}{at} {what} within {self._deadline_s:g} s: its active node {active} is silent "
            f"({self._silent}); nothing was changed; see `halog partition show`",
            partition=self._partition,
            active=active,
        )


def _arrived(error: BaseException, data: bytes) -> bool:
    """May somebody act on a request that met this, or has anybody? It was sent, and not to one who is not active."""
    if isinstance(error, HalogError):
        return not isinstance(error, NotActiveError | ZoneQuorumError) and bool(error.evidence.get("sent", True))
    return not is_unsent(error, data)


def bound_to(frame: frames.Request) -> str | None:
    """Return the only site at which a request makes sense; None: wherever its partition is served."""
    if type(frame) is frames.Submit or type(frame) is frames.PrepareRequest:
        return frame.work.site
    if type(frame) is frames.Invoke:
        return frame.invocation.work.site
    return HERE if type(frame) in _STAYS else None


def check_here(partition: str, site: str | None, router: Router) -> None:
    """Raise SwitchedError where what rests on another site's history is about to be done on this very node."""
    if site:
        raise switched(partition, site, router.site)


def switched(partition: str, was: str, now: str) -> SwitchedError:
    """Nothing was done: another site serves it than when the transaction began."""
    return SwitchedError(
        f"partition {partition} was served by site {was} when the transaction began, and is by site {now}; nothing was "
        "done; run the transaction again",
        partition=partition,
        settled_lsn=0,
    )


class LocalError(AvailabilityError):
    """This is not an error: the caller's own node is active; do it here."""
