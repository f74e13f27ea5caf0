"""A core under test: one partition driven by hand, with what its world would answer at the fingertips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import NO_HASH, NO_TX, EpochId, Member, digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.log.outcomes import Outcomes
from halog.core.log.records import Change, Header
from halog.core.partition import Partition
from halog.core.roles import Role
from halog.core.settings import Settings
from halog.core.state.copy_state import CopyState
from halog.core.table.table import SYNC, PartitionTable, Replica

LOG_ID = bytes(range(16))
SITE = "here"
A, B, C = Member("A", 1), Member("B", 2), Member("C", 3)
SETTINGS = Settings()
E = TypeVar("E")


def epoch(number: int, nonce: int = 0) -> EpochId:
    return EpochId(number, SITE, nonce)


def table(*, sync: int = 1, **changes: Any) -> PartitionTable:
    base: dict[str, Any] = {
        "name": "p",
        "log_id": LOG_ID.hex(),
        "topic": "t",
        "index": 0,
        "policy": "q",
        "configured": ("A", "B", "C"),
        "sync_replicas": sync,
    }
    return PartitionTable(**{**base, **changes})


def create(key: bytes = b"k", value: bytes = b"v") -> Change:
    return Change(records.CREATE, bytes(24), key, value, -1)


def update(key: bytes, replaced: int, value: bytes = b"w") -> Change:
    return Change(records.UPDATE, bytes(24), key, value, replaced)


def delete(key: bytes, replaced: int) -> Change:
    return Change(records.DELETE, bytes(24), key, None, replaced)


def tx(number: int) -> bytes:
    return number.to_bytes(16, "big")


class Script:
    """The bytes another writer would append, one record after the other."""

    def __init__(self, lsn: int = 0, prev: bytes = NO_HASH) -> None:
        self.lsn = lsn
        self.prev = prev

    def started(self, e: EpochId) -> bytes:
        return records.encode(records.EpochStarted(Header(LOG_ID, e), epoch(0), 0))

    def _next(self, e: EpochId, tx_: bytes = NO_TX) -> Header:
        return Header(LOG_ID, e, self.lsn + 1, self.prev, tx_)

    def _add(self, record: records.Record) -> bytes:
        data = records.encode(record)
        self.lsn = record.header.lsn
        self.prev = digest(data)
        return data

    def opened(self, e: EpochId) -> bytes:
        return self._add(records.EpochOpened(self._next(e), ()))

    def commit(self, e: EpochId, number: int, *changes: Change) -> bytes:
        return self._add(records.Commit(self._next(e, tx(number)), changes or (create(),)))

    def vote(self, e: EpochId, number: int, *changes: Change) -> bytes:
        header = self._next(e, tx(number))
        return self._add(records.Prepare(header, "p", ("p", "q"), 0, b"d" * 16, changes or (create(),)))

    def outcome(self, e: EpochId, number: int, *, commit: bool = True) -> bytes:
        return self._add(records.Outcome(self._next(e, tx(number)), commit))

    def level(self, e: EpochId, level: int) -> bytes:
        return self._add(records.LevelStated(self._next(e), level))

    def handed_over(self, e: EpochId, to: str) -> bytes:
        return self._add(records.HandedOver(self._next(e), to))


class Core:
    """`Partition` with a clock, and the effects of the last step."""

    def __init__(self, me: Member = A, *, settings: Settings = SETTINGS, **t: Any) -> None:
        self.now = 10_000
        chain = ChainState(LOG_ID, SITE)
        self.p = Partition(CopyState(me, 0, table(**t), chain, 0, Outcomes(), settings, self.now))
        self.effects: list[fx.Effect] = []
        self.offset = 0
        """Where the next record will land."""
        self.token = 0
        self.answers = True
        """Does the log answer at once when it is asked whether it does?"""

    @property
    def role(self) -> Role:
        return self.p.state.role

    def is_now(self, role: Role) -> bool:
        """As `role is …`, for a second look that mypy does not take for the first."""
        return self.p.state.role is role

    def step(self, event: ev.Event, *, after_ms: int = 0) -> list[fx.Effect]:
        self.now += after_ms
        self.effects = self.p.step(event, self.now)
        for asked in self.of(fx.AskLog) if self.answers else []:
            self.effects += self.p.step(ev.LogAnswered(asked.round), self.now)
        return self.effects

    def of(self, kind: type[E]) -> list[E]:
        return [e for e in self.effects if isinstance(e, kind)]

    def one(self, kind: type[E]) -> E:
        (found,) = self.of(kind)
        return found

    def replies(self) -> list[res.Result]:
        return [r.result for r in self.of(fx.Reply)]

    # --- shortcuts to a role ---

    def loaded(self) -> Self:
        self.step(ev.LogEnd())
        return self

    def alive(self, *members: Member) -> None:
        self.step(ev.AliveChanged(frozenset({self.p.state.me, *members})))

    def electing(self, *others: Member) -> Self:
        """Everybody is up, nobody is active: stands."""
        self.loaded()
        self.alive(*(others or (B, C)))
        if self.role is Role.FOLLOWING:
            self.step(ev.Ticked(), after_ms=SETTINGS.start_grace_ms)
        assert self.role is Role.ELECTING
        return self

    def claiming(self) -> Self:
        self.electing()
        if self.p.state.table.quorum:  # B's voice; it holds as much, and may not be active just now
            self.step(ev.PositionTold("B", self.p.campaign.round, self.p.state.chain.state.position, False))
        self.step(ev.Ticked(), after_ms=self.p.campaign.patience)
        assert self.role is Role.CLAIMING
        return self

    def starting(self) -> Self:
        self.claiming()
        self.step(ev.CasDone(self.one(fx.SetTable).round, ev.Cas.OK, 1))
        assert self.role is Role.STARTING
        return self

    def land(self, data: bytes | None = None) -> list[fx.Effect]:
        """The record just appended (or `data`) is read back."""
        data = self.one(fx.Append).data if data is None else data
        self.offset += 1
        return self.step(ev.EntriesRead([(self.offset - 1, data)]))

    def opening(self) -> Self:
        self.starting()
        self.land()
        assert self.role is Role.OPENING
        return self

    def active(self) -> Self:
        self.opening()
        self.land()
        assert self.role is Role.ACTIVE
        return self

    def submit(
        self,
        number: int,
        *changes: Change,
        reads: Sequence[tuple[bytes, int]] = (),
        found: dict[bytes, int] | None = None,
    ) -> list[fx.Effect]:
        self.token += 1
        return self.step(ev.Submitted(self.token, tx(number), reads, changes or (create(),), found or {}))

    def acknowledge(self, tag: int | None = None) -> list[fx.Effect]:
        """The log acknowledges the newest append (or `tag`) where it belongs."""
        self.offset += 1
        return self.step(ev.Appended(self.p.state.tag if tag is None else tag, self.offset - 1))

    def cas_ok(self) -> list[fx.Effect]:
        """The compare-and-set just asked for goes through."""
        return self.step(ev.CasDone(self.one(fx.SetTable).round, ev.Cas.OK, self.p.state.version + 1))

    def acked_by(self, member: Member, lsn: int) -> list[fx.Effect]:
        return self.step(ev.ReplicaAck(member, self.p.state.chain.state.epoch, lsn))

    def with_sync_replica(self) -> Self:
        """Active with B, which commits wait for."""
        self.active()
        self.acked_by(B, 1)
        self.step(ev.CasDone(self.one(fx.SetTable).round, ev.Cas.OK, 2))
        assert self.p.state.table.replicas == (Replica("B", 2, SYNC),)
        return self

    def draining(self) -> Self:
        self.with_sync_replica()
        self.submit(900, create(b"pending"))
        self.step(ev.HandOverAsked(77, "B"))
        assert self.role is Role.DRAINING
        return self

    def handing(self) -> Self:
        self.with_sync_replica()
        self.step(ev.HandOverAsked(77, "B"))
        assert self.role is Role.HANDING
        return self

    def verifying(self) -> Self:
        """Acknowledged one further than expected: somebody wrote in between."""
        self.active()
        self.submit(1)
        self.step(ev.Appended(self.p.state.tag, self.offset + 1))
        assert self.role is Role.VERIFYING
        return self


def replica() -> tuple[Core, Script]:
    """B follows A, which leads epoch 1 and waits for B; lsn 1 opened it."""
    core, script = Core(B), Script()
    core.loaded()
    core.alive(A, C)
    core.step(ev.TableSeen(1, table(epoch=epoch(1), active=A, replicas=(Replica("B", 2, SYNC),))))
    core.land(script.started(epoch(1)))
    core.land(script.opened(epoch(1)))
    core.step(ev.Taken())
    return core, script
