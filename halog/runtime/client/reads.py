"""Reads objects for a node's application: from its own copy if that is active, else from the active node (R5).

A read that must be current names the least lsn it needs. A node that merely believes it is active cannot have that lsn.
This module decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from halog.backend import CommittedObject, Execute, Invocation, InvocationResult, View
from halog.core import results as res
from halog.errors import (
    ConflictError,
    DeadlineError,
    HalogError,
    NotActiveError,
    OutcomeUnknownError,
    OverloadedError,
    QuorumError,
    RefusedError,
)
from halog.runtime.client.caller import Asker, Waiter
from halog.runtime.client.commits import OVERLOADED_S, RETRY_S
from halog.runtime.client.moment_release import MomentRelease, RemoteScan
from halog.runtime.client.partition_views import RemoteView, late, own_view
from halog.runtime.replica.delivery_reports import DeliveryReports
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames
from halog.runtime.rpc.frames import WAIT_S
from halog.runtime.rpc.pages import ITEM_BYTES, PAGE_BYTES, PAGE_OBJECTS, first_of, pieces
from halog.runtime.rpc.result_errors import to_error


class Reads:
    """A `Reads` is shared by all threads of a node. Its methods are those of `Backend`."""

    def __init__(
        self,
        asker: Asker,
        execute: Execute,
        waits: Callable[[str], bool],
        lease_ms: Callable[[str], int],
        room: int = PAGE_BYTES,
        deliveries: DeliveryReports | None = None,
    ) -> None:
        """Take `room`: how many bytes of keys one request may carry."""
        self._asker = asker
        self._execute = execute
        self._waits = waits
        self._lease_ms = lease_ms
        self._room = room
        self._deliveries = deliveries
        self.letting_go = MomentRelease(asker)

    def _serving(self, partition: str, least: int) -> Copy | None:
        """Return this node's copy if it is active, once it has `least`. (If another node took over without this one
        knowing it, the copy gets that lsn as a replica, and then shows no less.)"""
        copy = self._asker.serving(partition)
        if (
            copy is not None
            and least
            and not copy.has(least)
            and not copy.wait_for(least, limit_s := self._asker.call_of(partition), logged=True)
        ):
            raise DeadlineError(
                f"this node's copy of {partition} did not reach lsn {least} within {limit_s:g} s",
                partition=partition,
                lsn=least,
            )
        return copy

    # --- objects ---

    def fetch(
        self,
        partition: str,
        keys: Sequence[bytes],
        *,
        settled: int = 0,
        least: int = 0,
        mapping: int = 0,
        brief: bool = False,
    ) -> Sequence[CommittedObject | None]:
        """See Backend."""
        if len(keys) == 1:
            request = frames.Fetch(partition, list(keys), settled, least, mapping, brief)
            return self._asker.patiently(partition, partial(self._fetch, request))
        found: list[CommittedObject | None] = []
        while len(found) < len(keys):
            asked = first_of(keys, len(found), self._room)
            request = frames.Fetch(partition, asked, settled, least, mapping, brief)
            found += self._asker.patiently(partition, partial(self._fetch, request))
        return found

    def _fetch(self, r: frames.Fetch) -> Sequence[CommittedObject | None]:
        """Return the first of these objects, at least one."""
        while True:
            copy = self._serving(r.partition, r.least)
            if copy is not None:
                copy.wait_for(r.settled, WAIT_S)  # it never comes if its epoch has ended; commits check what was read
                copy.wait_free(r.keys, self._asker.read_of(r.partition))
                if copy.maps_by(r.mapping, WAIT_S) and copy.serving:
                    found = list(copy.objects.brief(r.keys) if r.brief else map(copy.objects.find, r.keys))
                    copy.check_mapping(r.mapping)
                    return found
                continue
            reply = self._asker.ask(r.partition, r)
            if reply is not None:
                return items_of(reply, r.partition)

    def fetch_leased(
        self, partition: str, keys: Sequence[bytes], *, mapping: int = 0
    ) -> Sequence[CommittedObject | None] | None:
        """See Backend."""
        if not self._lease_ms(partition):
            raise RefusedError(
                f'the policy of {partition} has no leases: read with read="barrier", or set its lease_ttl_ms',
                partition=partition,
            )
        found: list[CommittedObject | None] = []
        while len(found) < len(keys):
            copy = self._asker.serving(partition)
            if copy is not None:
                here = copy.find_leased(keys) if copy.maps_by(mapping, WAIT_S) else None
                copy.check_mapping(mapping)
                return None if self._asker.closed else here  # a node that closes gives no more answers
            asked = first_of(keys, len(found), self._room)
            reply = self._asker.ask(partition, frames.LeasedFetch(partition, asked, mapping))
            if isinstance(reply, frames.NoLease):
                return None
            found += [] if reply is None else items_of(reply, partition)
        return found

    def view(
        self, partition: str, under: tuple[bytes, ...], *, after: int = 0, mapping: int = 0, ahead: bool = False
    ) -> View:
        """See Backend."""
        if partition in self._asker.copies and (not ahead or self._asker.serving(partition) is not None):
            own = own_view(self._asker, partition, under, after, mapping)
            if own is not None:
                return own
        if after:
            self.reach(partition, after)
        return RemoteView(self._asker, partition, after, mapping)

    def scan(self, partition: str, prefix: bytes, *, least: int = 0, mapping: int = 0) -> Iterator[CommittedObject]:
        """See Backend."""
        passing = RemoteScan(self.letting_go, partition)
        try:
            yield from self._scanned(passing, partition, prefix, least, mapping)
        finally:
            passing.end()

    def _scanned(
        self, passing: RemoteScan, partition: str, prefix: bytes, least: int, mapping: int
    ) -> Iterator[CommittedObject]:
        after = b""
        while True:
            copy = self._serving(partition, least)
            if copy is not None:
                copy.wait_free((prefix,), self._asker.read_of(partition), prefixes=True)
                if not copy.maps_by(mapping, WAIT_S) or not copy.serving:
                    continue
                there = copy.objects.scan(prefix, after)
                copy.check_mapping(mapping)
                yield from there
                return
            moment = passing.moment
            page = frames.MomentScan(partition, prefix, after, PAGE_OBJECTS, moment, 0, mapping, least, True)
            try:
                reply = self._asker.patiently(partition, partial(self._asker.ask, partition, page))
            except ConflictError:
                if not moment:
                    raise
                passing.moment = b""  # the moment is not known any more: the rest is of a later one
                continue
            if reply is None:
                continue
            assert isinstance(reply, frames.MomentReply)
            passing.take_up(reply.moment)
            for found in reply.items:
                if found is not None:
                    after = found.key
                    yield found
            if reply.end:
                return

    # --- positions ---

    def reach(self, partition: str, lsn: int) -> None:
        """See Backend."""
        while True:
            copy = self._asker.serving(partition)
            if copy is not None and not copy.wait_for(lsn, self._asker.call_of(partition)):
                raise late(copy, lsn, self._asker.call_of(partition))
            if copy is not None or self._asker.ask(partition, frames.Reach(partition, lsn)) is not None:
                return

    def barrier(self, partition: str) -> int:
        """See Backend."""
        limit_s = self._asker.call_of(partition)
        until = time.monotonic() + limit_s
        while True:
            try:
                return self._barrier(partition, until)
            except (OverloadedError, QuorumError, NotActiveError) as e:
                waits = not isinstance(e, QuorumError) or self._waits(partition)
                if not waits or time.monotonic() >= until:
                    raise
                time.sleep(OVERLOADED_S)
            except (OutcomeUnknownError, DeadlineError) as e:
                raise DeadlineError(
                    f"no node showed within {limit_s:g} s that it is active for {partition}; see `halog "
                    "partition show`",
                    partition=partition,
                ) from e

    def _barrier(self, partition: str, until: float) -> int:
        """Make one attempt, here or elsewhere."""
        copy = self._asker.serving(partition)
        if copy is None:
            reply = self._asker.ask(partition, frames.Barrier(partition), until)
            if reply is None:
                raise NotActiveError("this very node became active", partition=partition)
            assert isinstance(reply, frames.CommitReply)
            return reply.lsn
        waiter = Waiter()
        tag = copy.barrier(waiter)
        if self._deliveries is not None:
            self._deliveries.follow(copy, tag, waiter.settled, until)
        result = waiter.wait(until - time.monotonic()) or res.Unknown("no answer in time")
        if isinstance(result, res.Success):
            return result.lsn
        raise to_error(result, partition)

    # --- checks and calls ---

    def validate(
        self, partition: str, reads: Collection[tuple[bytes, int]], *, least: int = 0, mapping: int = 0
    ) -> None:
        """See Backend."""
        # Versions only grow: what holds when the last piece is checked held for the first one, too.
        for piece in pieces(reads, _read_size, self._room):
            request = frames.Validate(partition, piece, least, mapping)
            self._asker.patiently(partition, partial(self._validate, request))

    def _validate(self, r: frames.Validate) -> None:
        while True:
            copy = self._serving(r.partition, r.least)
            if copy is not None and not copy.maps_by(r.mapping, WAIT_S):
                continue
            if copy is not None:
                copy.validate(r.reads)
                copy.check_mapping(r.mapping)
                return
            if self._asker.ask(r.partition, r) is not None:
                return

    def invoke(self, partition: str, invocation: Invocation) -> InvocationResult:
        """See Backend."""
        self._asker.check_level()
        until = time.monotonic() + self._asker.call_of(partition)
        while True:
            reply = self._asker.ask(partition, frames.Invoke(partition, invocation), until)
            if reply is not None:
                assert isinstance(reply, frames.InvocationReply)
                return reply.invoked
            try:
                self._serving(partition, invocation.least)
                return self._execute(partition, invocation, own=True)
            except NotActiveError:  # try again: the node that is active now runs it
                if time.monotonic() >= until:
                    raise
                time.sleep(RETRY_S)


def items_of(reply: frames.Reply, partition: str) -> list[CommittedObject | None]:
    """Return the objects of an answer, at least one. HalogError if it has none."""
    if type(reply) is not frames.Objects or not reply.items:
        raise HalogError(f"the active node of {partition} answered a request for objects with none of them")
    return reply.items


def _read_size(read: tuple[bytes, int]) -> int:
    return len(read[0]) + ITEM_BYTES
