"""This module shows a copy to its readers: from which position on, under which lease, and what is held.

An object that a transaction in doubt would change may have another value already, in the log of that transaction's
first partition (T5). A reader waits for the decision where the copy is active, and only there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence

from halog.backend import CommittedObject, Lag
from halog.core import events as ev, results as res
from halog.core.log.provisional import EARLY, as_logged
from halog.core.partition import Partition
from halog.core.roles import Role
from halog.runtime.replica.lateness import LEVEL, Lateness
from halog.runtime.replica.named_moments import NamedMoments, ReadMoment
from halog.runtime.rpc.result_errors import to_error
from halog.runtime.store.object_table import ObjectTable
from halog.runtime.support.clock import monotonic_ms

_ACTIVE, _VERIFYING = Role.ACTIVE, Role.VERIFYING  # looked at with every read: a global costs a third of an enum's


class CopyReader:
    """Serves the readers of a copy."""

    core: Partition
    post: Callable[[ev.Event], None]

    def __init__(self, name: str, objects: ObjectTable, lock: threading.RLock) -> None:
        self.name = name
        self.objects = objects
        self.lock = lock
        self.progress = threading.Condition(lock)
        """Notified when something new is visible."""
        self._lateness = Lateness()
        self.named = NamedMoments()

    @property
    def serving(self) -> bool:
        """Say whether this copy is active now, as far as this node knows."""
        role = self.core.state.role
        return role is _ACTIVE or role is _VERIFYING

    def validate(self, reads: Collection[tuple[bytes, int]]) -> None:
        """Raise ConflictError unless every version still holds, and LockedError if one may be about to change."""
        with self.lock:
            changed = self.objects.first_changed(reads)
            if changed is not None and changed[1] >= EARLY:
                number = self.core.state.chain.state.epoch.number
                changed = self.objects.first_changed([(key, as_logged(read, number)) for key, read in reads])
            held = None if changed is not None else self.held(key for key, _ in reads)
        if changed is not None:
            raise to_error(res.VersionConflict(*changed), self.name)
        if held is not None:
            raise to_error(held, self.name)

    # --- the mapping (T8) ---

    def maps_by(self, version: int, timeout_s: float) -> bool:
        """Say whether mapping `version`, or a newer one, is served here. If not, the log is to say so first: wait for
        that."""
        if self.core.state.ledger.mapping >= version:
            return True
        self.post(ev.MappingAsked(0, version))
        with self.lock:
            return self.progress.wait_for(lambda: self.core.state.ledger.mapping >= version, timeout_s)

    def check_mapping(self, version: int) -> None:
        """Raise RemappedError if objects may have moved since `version` of the mapping. To be called after what was
        read by it was taken."""
        if (now := self.core.state.ledger.mapping) > version:
            raise to_error(res.StaleMapping(now), self.name)

    # --- leases ---

    @property
    def leased(self) -> bool:
        """Say whether this node may read its copy without asking anybody. To be called after the value was taken
        (R5)."""
        leading = self.core.leading
        return leading is not None and self.serving and monotonic_ms() < leading.lease.ends

    def find_leased(self, keys: Sequence[bytes]) -> list[CommittedObject | None] | None:
        """Return the objects under these index keys, if nobody need be asked: taken in one epoch, whose lease still
        lasts."""
        leading = self.core.leading
        found = [self.objects.find(k) for k in keys]
        held = self.held(keys)
        return found if self.leased and leading is self.core.leading and held is None else None

    # --- moments ---

    def take_up(self) -> ReadMoment:
        """Return the moment of now, for one transaction to read at: all that the core has accepted, decisions too."""
        with self.lock:
            undecided, objects = self.core.state.ledger.undecided, self.objects
            moment = objects.moments.now or objects.moment()
            if not undecided:
                return ReadMoment(moment, {})
            doubted = {c.key: u.prepare.header.lsn for u in undecided.values() for c in u.prepare.changes}
            return ReadMoment(moment, doubted)

    # --- positions ---

    def has(self, lsn: int) -> bool:
        """Say whether everything up to `lsn` is visible here and in the log. (What is shown before the log has it may
        be lost, and its lsn given again.)"""
        return self.core.state.chain.state.lsn >= lsn

    def wait_for(self, lsn: int, timeout_s: float, *, logged: bool = False) -> bool:
        """Wait until `lsn` is visible here; `logged`: until this copy `has` it."""
        if lsn <= 0:
            return True
        with self.lock:  # what the core has accepted is shown before the lock is released
            return self.progress.wait_for(lambda: self.has(lsn) if logged else self.core.visible >= lsn, timeout_s)

    def wait_decided(self, keys: tuple[bytes, ...], lsn: int, timeout_s: float) -> bool:
        """Wait until no transaction in doubt that was prepared up to `lsn` would change an object whose key starts with
        one of `keys`: a session may have seen how it ended."""
        ledger = self.core.state.ledger
        if not ledger.undecided:
            return True

        def decided() -> bool:
            before = [u.prepare for u in ledger.undecided.values() if u.prepare.header.lsn <= lsn]
            return not any(c.key.startswith(keys) for p in before for c in p.changes)

        with self.lock:
            return self.progress.wait_for(decided, timeout_s)

    def heard_tail(self, lsn: int) -> None:
        """Note the last lsn of the active, which told it."""
        self._lateness.heard(lsn, self.core.state.chain.state.lsn)

    def lag(self) -> Lag:
        """Return how far behind the active this copy is, as far as it knows, with the ms since it was last known to be
        level."""
        return LEVEL if self.serving else self._lateness.lag(self.core.state.chain.state.lsn)

    # --- locks ---

    def held(self, keys: Iterable[bytes]) -> res.LockConflict | None:
        """Return the first of these keys whose object a transaction in doubt would change."""
        locks = self.core.state.ledger.locks
        return locks.against(((key, 0) for key in keys), ()) if locks else None

    def wait_free(self, keys: Collection[bytes], timeout_s: float, *, prefixes: bool = False) -> None:
        """Wait until all transactions are decided that are in doubt now and would change an object under these keys, or
        `prefixes` of keys; or until this copy is active no more. Raises LockedError if that takes too long. A
        transaction that comes later need not be seen by a reader that asked before. So a scan ends even where something
        is always in doubt."""
        if not self.core.state.ledger.locks:
            return
        with self.lock:
            locks, under = self.core.state.ledger.locks, tuple(keys)
            asked = [key for key in locks if key.startswith(under)] if prefixes else under
            before = [(key, tx) for key in asked for tx in locks.writers(key)]

            def held() -> res.LockConflict | None:
                if not self.serving:
                    return None
                now = self.core.state.ledger.locks
                return next((res.LockConflict(key, tx) for key, tx in before if tx in now.writers(key)), None)

            self.progress.wait_for(lambda: held() is None, timeout_s)
            locked = held()
        if locked is not None:
            raise to_error(locked, self.name)
