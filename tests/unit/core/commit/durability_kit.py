"""Transactions that ask for less than their policy, or for more: how tests of the core ask."""

from __future__ import annotations

from typing import Any

import msgspec

from halog.core import effects as fx, events as ev
from halog.core.durability import Durability
from halog.core.ids import Member
from halog.core.settings import Settings, Sync
from tests.unit.core.kit import SETTINGS, Core, create, tx

EARLY = Durability(local="NO_SYNC")
WRITTEN = msgspec.structs.replace(SETTINGS, local_sync=Sync.WRITE_NO_SYNC)


def flushed(replicas: int = 1) -> Durability:
    return Durability(remote="SYNC", replicas=replicas)


def leader(settings: Settings = SETTINGS) -> Core:
    """A leads epoch 1 and waits for B."""
    return Core(settings=settings).with_sync_replica()


def ask(core: Core, number: int, asked: Durability | None, **kw: Any) -> list[fx.Effect]:
    core.token += 1
    changes = kw.pop("changes", (create(b"k%d" % number),))
    reads, found = kw.pop("reads", ()), kw.pop("found", {})
    return core.step(ev.Submitted(core.token, tx(number), reads, changes, found, durability=asked))


def held_by(core: Core, member: Member, lsn: int) -> list[fx.Effect]:
    return core.step(ev.ReplicaAck(member, core.p.state.chain.state.epoch, lsn, applied=False))


def flushed_by(core: Core, member: Member, lsn: int) -> list[fx.Effect]:
    return core.step(ev.ReplicaAck(member, core.p.state.chain.state.epoch, lsn, flushed=lsn))
