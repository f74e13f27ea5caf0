"""A view shows a transaction one moment of a partition, from its first read there to its end (R5).

It shows this node's own copy, or the active node's if this node has none that may be read. Whatever becomes of the
copy, a view shows its moment, or says that it cannot. This module decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from halog.backend import CommittedObject, Lag
from halog.core.replica.moments import LIMIT, MomentReader, OverError
from halog.errors import ConflictError, DeadlineError, HalogError
from halog.runtime.client.caller import Asker
from halog.runtime.replica.driver import Copy
from halog.runtime.replica.lateness import LEVEL
from halog.runtime.replica.named_moments import AGAIN, ReadMoment, over, undecided, unknown
from halog.runtime.rpc import frames
from halog.runtime.rpc.pages import PAGE_OBJECTS
from halog.runtime.rpc.result_errors import no_quorum

WAIT_S = 0.5
"""Longest wait for the log to say that a mapping is served; then it is looked up again which node is active."""


class OwnView(MomentReader[CommittedObject]):
    """An `OwnView` shows a moment of this node's own copy."""

    __slots__ = ("_after", "_asker", "_copy", "_doubted", "_looked", "lag", "mapping")

    def __init__(self, asker: Asker, copy: Copy, after: int, mapping: int) -> None:
        self.lag: Lag = copy.lag()
        self._asker = asker
        self._copy = copy
        self._after = after
        self.mapping = mapping
        self._doubted: ReadMoment | None = None
        self._looked = False
        if after:
            self._doubted = taken = copy.take_up()
            super().__init__(taken.moment)
        else:  # nearly always, and on the hot path: what the core has accepted may not be visible yet
            self._at = copy.objects.moments.now or copy.objects.moment()
            self._left = LIMIT
            self._was = None
        copy.check_mapping(mapping)

    def find(self, key: bytes) -> CommittedObject | None:
        """See View."""
        copy = self._copy
        if not self._looked:
            self._looked = True
        elif self._asker.readable(copy.name) is not copy:
            raise self._gone()
        if self._doubted is not None:
            self._check_decided(key)
        objects = copy.objects
        found = objects.cache.get(key)
        if found is None:
            found = objects.find(key)
        try:
            return self.of(key, found)
        except OverError:
            raise self._over() from None

    def scan(self, prefix: bytes) -> Iterator[CommittedObject]:
        """See View."""
        if self._asker.readable(self._copy.name) is not self._copy:
            raise self._gone()
        self._check_decided(prefix, prefix=True)
        try:
            return self._copy.objects.scan(prefix, past=self)
        except OverError:
            raise self._over() from None

    def _check_decided(self, under: bytes, *, prefix: bool = False) -> None:
        if self._doubted is not None and self._doubted.lacks(under, self._after, prefix=prefix):
            name, limit_s = self._copy.name, self._asker.call_of(self._copy.name)
            self._copy.wait_decided((under,), self._after, limit_s)  # so the next attempt finds it decided
            raise undecided(name)

    def _over(self) -> HalogError:
        gone = self._asker.readable(self._copy.name) is not self._copy
        return self._gone() if gone else over(self._copy.name)

    def _gone(self) -> HalogError:
        name = self._copy.name
        self._asker.check_open()
        self._asker.check_level()
        if why := self._asker.router.offline():
            return no_quorum(self._asker.name, why)
        return ConflictError(
            f"this node's copy of {name} was given up or made anew since the transaction began to read it{AGAIN}",
            partition=name,
            settled_lsn=0,
        )


class RemoteView:
    """Shows a moment of the active node's copy, wherever that is; the moment is that of the first answer."""

    __slots__ = ("_after", "_asker", "_moment", "_own", "_partition", "lag", "mapping")

    def __init__(self, asker: Asker, partition: str, after: int, mapping: int) -> None:
        self._asker = asker
        self._partition = partition
        self._after = after
        self.mapping = mapping
        self._moment = b""
        self._own: OwnView | None = None
        """Is used instead if this very node became active before the first answer."""
        self.lag = LEVEL

    def find(self, key: bytes) -> CommittedObject | None:
        """See View."""
        seen = self._asked(key, frames.MomentFetch(self._partition, [key], self._moment, self._after, self.mapping))
        return seen.items[0] if isinstance(seen, frames.MomentReply) else seen.find(key)

    def scan(self, prefix: bytes) -> Iterator[CommittedObject]:
        """See View."""
        page = self._page(prefix, b"")
        return self._pages(prefix, page) if isinstance(page, frames.MomentReply) else page.scan(prefix)

    def _page(self, prefix: bytes, behind: bytes) -> frames.MomentReply | OwnView:
        asked = frames.MomentScan(
            self._partition, prefix, behind, PAGE_OBJECTS, self._moment, self._after, self.mapping
        )
        return self._asked(prefix, asked)

    def _pages(self, prefix: bytes, page: frames.MomentReply) -> Iterator[CommittedObject]:
        while True:
            last = b""
            for found in page.items:
                assert found is not None
                last = found.key
                yield found
            if page.end:
                return
            next_one = self._page(prefix, last)
            assert isinstance(next_one, frames.MomentReply)
            page = next_one

    def _asked(self, under: bytes, asked: frames.MomentFetch | frames.MomentScan) -> frames.MomentReply | OwnView:
        asker, partition = self._asker, self._partition
        while self._own is None:
            reply = asker.patiently(partition, partial(asker.ask, partition, asked))
            if reply is not None:
                assert isinstance(reply, frames.MomentReply)
                self._moment = reply.moment
                return reply
            if self._moment:
                raise unknown(partition)
            self._own = self._here(under)
        return self._own

    def _here(self, under: bytes) -> OwnView | None:
        """Return a view of this node's copy if this very node is active by now."""
        copy = self._asker.serving(self._partition)
        if copy is None or not copy.maps_by(self.mapping, WAIT_S):
            return None
        return own_view(self._asker, self._partition, (under,), self._after, self.mapping)


def own_view(asker: Asker, partition: str, under: tuple[bytes, ...], after: int, mapping: int) -> OwnView | None:
    """Return a view of this node's own copy, or None if the copy may not be read, or not by this mapping. It waits
    until the copy has `after` and shows what became by then of the objects under these keys, or prefixes of keys.
    DeadlineError."""
    copy = asker.readable(partition)
    if copy is None or copy.core.state.ledger.mapping < mapping:
        return None
    if after:
        limit_s = asker.call_of(partition)
        if not copy.wait_for(after, limit_s):
            raise late(copy, after, limit_s)
        if not copy.wait_decided(under, after, limit_s):
            said = f"a transaction that changes these objects of {copy.name} was not decided within {limit_s:g} s"
            raise DeadlineError(said, partition=copy.name, lsn=after)
    return OwnView(asker, copy, after, mapping)


def late(copy: Copy, lsn: int, limit_s: float) -> DeadlineError:
    """Return the error that a copy did not reach `lsn` in time."""
    at = f"this node's copy of {copy.name} is at lsn {copy.core.visible}"
    return DeadlineError(f"{at}, and did not reach lsn {lsn} within {limit_s:g} s", partition=copy.name, lsn=lsn)
