"""The memory backend keeps the promises of `halog.backend.Backend`."""

from __future__ import annotations

import pytest

from halog.backend import Work, Write
from halog.core.durability import Durability
from halog.core.log.records import CREATE, UPDATE, decode
from halog.errors import ConflictError, DuplicateKeyError, RecordTooLargeError, RefusedError
from halog.testing.memory import MemoryBackend, MemoryCluster

REF, KEY, P = b"r" * 24, b"key", "memory-0"


def create(value: bytes = b"v") -> Work:
    return Work((), (Write(CREATE, REF, KEY, value, -1),))


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend(MemoryCluster(1))


@pytest.mark.feature("X5")
def test_the_same_transaction_id_never_happens_twice(backend: MemoryBackend) -> None:
    tx = backend.new_transaction_id()
    assert backend.commit(P, tx, create()) == backend.commit(P, tx, create()) == 1
    assert len(backend.cluster.partitions[P].log) == 1


@pytest.mark.feature("X5")
def test_versions_are_checked_as_the_core_checks_them(backend: MemoryBackend) -> None:
    lsn = backend.commit(P, backend.new_transaction_id(), create())
    before = backend.cluster.state_hash()
    with pytest.raises(DuplicateKeyError):
        backend.commit(P, backend.new_transaction_id(), create())
    stale = Work((), (Write(UPDATE, REF, KEY, b"w", lsn + 1),))
    with pytest.raises(ConflictError):
        backend.commit(P, backend.new_transaction_id(), stale)
    with pytest.raises(ConflictError):
        backend.validate(P, [(KEY, lsn + 1)])
    backend.validate(P, [(KEY, lsn), (b"absent", -1)])
    assert backend.cluster.state_hash() == before


@pytest.mark.feature("X5", "R8")
def test_the_largest_record_is_the_cores(backend: MemoryBackend) -> None:
    backend.commit(P, backend.new_transaction_id(), create(b"x" * 4_900_000))
    with pytest.raises(RecordTooLargeError):
        backend.commit(P, backend.new_transaction_id(), Work((), (Write(CREATE, REF, b"k2", b"x" * 5_100_000, -1),)))


@pytest.mark.feature("X5")
def test_the_log_holds_the_cores_records(backend: MemoryBackend) -> None:
    tx = backend.new_transaction_id()
    backend.commit(P, tx, create())
    record = decode(backend.cluster.partitions[P].log[0])
    assert (record.header.lsn, record.header.tx) == (1, tx)


@pytest.mark.feature("R6")
def test_the_reference_refuses_what_it_cannot_give_as_a_node_does() -> None:
    """It has no replicas; what waits for less is answered all the same."""
    backend = MemoryBackend()
    asked = Work((), (Write(CREATE, REF, KEY, b"v", -1),), Durability(remote="SYNC"))
    with pytest.raises(RefusedError, match="sync_replicas = 0"):
        backend.commit(P, backend.new_transaction_id(), asked)
    assert backend.find(P, KEY) is None
    less = Work((), asked.writes, Durability(local="NO_SYNC"))
    assert backend.commit(P, backend.new_transaction_id(), less) == 1
