"""What a replica stored of what it was pushed (R6, decision 38): in the store, over memory and RocksDB."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from halog.core import effects as fx
from halog.core.ids import EpochId, digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.errors import StoreError
from halog.ports import Store
from halog.runtime.store import pushed_records
from halog.runtime.store.object_table import ObjectTable
from halog.runtime.store.pushed_records import PushedRecords
from halog.runtime.store.unlogged_tail import found, leave
from tests.contract.rigs_store import MemoryStoreRig, RocksRig, StoreRig

pytestmark = pytest.mark.feature("R6", "P1")

LOG_ID = bytes(range(16))


def run_of(lsns: Iterable[int], epoch: int = 3) -> tuple[bytes, ...]:
    """Commits, one behind the other."""
    made: list[bytes] = []
    for lsn in lsns:
        prev = digest(made[-1]) if made else b"%016d" % lsn
        header = records.Header(LOG_ID, EpochId(epoch, "home", 0), lsn, prev, lsn.to_bytes(16, "big"))
        made.append(records.encode(records.Commit(header, ())))
    return tuple(made)


def pushed(datas: Sequence[bytes], *, anew: bool = False) -> fx.StorePushed:
    header = records.decode(datas[-1]).header
    return fx.StorePushed(header.epoch, header.lsn, tuple(datas), anew, flush=False)


def stands_at(lsn: int, *, led: int = 3) -> ChainState:
    return ChainState(LOG_ID, "home", EpochId(led, "home", 0), True, led=led, lsn=lsn)


class Disk:
    """A copy's store, opened again as after any end of its process."""

    def __init__(self, rig: StoreRig) -> None:
        self._rig = rig
        self._open()

    def _open(self) -> None:
        self.store: Store = self._rig.open()
        self.objects = ObjectTable(self.store, LOG_ID, threading.RLock())

    def reopened(self) -> ObjectTable:
        self.store.close()
        self._open()
        return self.objects

    def keys(self) -> list[bytes]:
        return [key[8:] for key, _ in self.store.scan(LOG_ID[:8])]


@pytest.fixture(params=["memory", "rocks"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    rig = MemoryStoreRig() if request.param == "memory" else RocksRig(tmp_path / "store")
    yield Disk(rig)
    rig.end()


def lsns(objects: ObjectTable, state: ChainState) -> list[int]:
    return [r.header.lsn for r in found(objects, state).run]


def key(lsn: int) -> bytes:
    return b"h" + lsn.to_bytes(8, "big")


# --- what was pushed ---


def test_what_was_pushed_is_found_when_the_copy_is_opened_again(disk: Disk) -> None:
    run = run_of(range(5, 9))
    disk.objects.pushed.store(pushed(run[:1], anew=True))
    disk.objects.pushed.store(pushed(run[1:]))
    objects = disk.reopened()
    assert objects.pushed.load() == list(run)
    assert lsns(objects, stands_at(4)) == [5, 6, 7, 8]


def test_what_was_pushed_anew_replaces_what_was_before(disk: Disk) -> None:
    """Also what an earlier process stored."""
    disk.objects.pushed.store(pushed(run_of(range(5, 10)), anew=True))
    objects = disk.reopened()
    objects.pushed.load()
    objects.pushed.store(pushed(run_of([6, 7], epoch=4), anew=True))
    assert disk.keys() == [key(6), key(7)]
    assert lsns(disk.reopened(), stands_at(5)) == [6, 7]


def test_the_position_and_what_it_passes_go_in_one_write(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    run, writes = run_of(range(5, 8)), list[dict[bytes, bytes | None]]()
    disk.objects.pushed.store(pushed(run, anew=True))
    real = disk.store.write

    def write(items: Iterable[tuple[bytes, bytes | None]], *, flush: bool = False) -> None:
        writes.append(dict(items))
        real(writes[-1].items(), flush=flush)

    monkeypatch.setattr(disk.store, "write", write)
    disk.objects.keep(stands_at(6), 17)
    disk.objects.save()
    assert [[k[8:] for k, data in items.items() if data is None] for items in writes] == [[key(5), key(6)]]
    assert LOG_ID[:8] + b"p" in writes[0]
    objects = disk.reopened()
    position = objects.load_position()
    assert position is not None
    assert lsns(objects, position.state) == [7]


def test_what_the_position_passed_is_not_dropped_twice(disk: Disk) -> None:
    disk.objects.pushed.store(pushed(run_of([5, 6]), anew=True))
    assert len(list(disk.objects.pushed.passed(9))) == 2
    assert list(disk.objects.pushed.passed(9)) == []


def test_a_later_epoch_has_opened_without_it(disk: Disk) -> None:
    disk.objects.pushed.store(pushed(run_of([5, 6]), anew=True))
    assert lsns(disk.objects, stands_at(4, led=4)) == []


def test_what_a_stopped_copy_left_goes_with_it_where_it_is_longer(disk: Disk) -> None:
    """As one that was active before it stopped has more in memory than was ever pushed to it."""
    run = run_of(range(5, 9))
    disk.objects.pushed.store(pushed(run[:2], anew=True))
    leave(disk.objects, "p", run)
    assert lsns(disk.reopened(), stands_at(4)) == [5, 6, 7, 8]


def test_a_copy_that_is_dropped_has_stored_nothing_and_stands_for_nobody(disk: Disk) -> None:
    disk.objects.pushed.store(pushed(run_of([5, 6]), anew=True))
    disk.objects.pushed.stand(fx.Stand((7,), flush=False))
    disk.objects.drop()
    assert disk.keys() == []
    assert list(disk.objects.pushed.passed(9)) == []
    assert found(disk.reopened(), stands_at(4)).stood == ()


def test_another_history_is_not_ours(disk: Disk) -> None:
    disk.objects.pushed.store(pushed(run_of([5, 6]), anew=True))
    disk.objects.pushed.stand(fx.Stand((7,), flush=False))
    other = PushedRecords(disk.store, b"another!")
    assert (other.load(), other.stood()) == ([], ())


# --- for whom it stands ---


@pytest.mark.parametrize("flushed", [False, True])
def test_it_stands_after_the_process_until_another_run_of_the_machine(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, flushed: bool
) -> None:
    """Unless all that it stands for was flushed."""
    disk.objects.pushed.stand(fx.Stand((7, 8), flush=False))
    assert found(disk.reopened(), stands_at(0)).stood == (7, 8)
    disk.objects.pushed.stand(fx.Stand((7, 8), flush=flushed))
    monkeypatch.setattr(pushed_records, "machine_run", lambda: "another")
    assert found(disk.reopened(), stands_at(0)).stood == ((7, 8) if flushed else ())


def test_where_runs_have_no_names_no_two_are_the_same(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushed_records, "machine_run", lambda: "")
    disk.objects.pushed.stand(fx.Stand((7,), flush=False))
    assert found(disk.reopened(), stands_at(0)).stood == ()
    disk.objects.pushed.stand(fx.Stand((7,), flush=True))
    assert found(disk.reopened(), stands_at(0)).stood == (7,)


def test_whom_it_stands_for_no_more_is_forgotten(disk: Disk) -> None:
    disk.objects.pushed.stand(fx.Stand((7, 8), flush=False))
    disk.objects.pushed.stand(fx.Stand((7,), flush=True))
    assert found(disk.reopened(), stands_at(0)).stood == (7,)


def test_a_store_of_a_version_without_it_stands_for_nobody(disk: Disk) -> None:
    disk.objects.keep(stands_at(6), 17)
    disk.objects.save(flush=True)
    tail = found(disk.reopened(), stands_at(6))
    assert (tail.run, tail.stood) == ([], ())


# --- what cannot be read ---


@pytest.mark.parametrize("data", [b"\xc1", msgspec.msgpack.encode(["of a later format"])])
def test_whom_it_stands_for_cannot_be_read(disk: Disk, data: bytes) -> None:
    disk.store.write([(LOG_ID[:8] + b"w", data)])
    with pytest.raises(StoreError, match=r"note of whom it stands for.*delete the data directory"):
        found(disk.objects, stands_at(4))


def test_what_was_pushed_cannot_be_read(disk: Disk) -> None:
    disk.store.write([(LOG_ID[:8] + key(5), b"of a later format")])
    with pytest.raises(StoreError, match=r"was pushed cannot be read.*delete the data directory"):
        found(disk.objects, stands_at(4))
