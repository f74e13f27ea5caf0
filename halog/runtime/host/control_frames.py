"""Control frames of other members, told to the copies they are about."""

from __future__ import annotations

from collections.abc import Mapping

from halog.core import events as ev
from halog.core.ids import Member
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames


class Control:
    """A frame about a partition that is not hosted here is passed over. This module decides nothing."""

    def __init__(self, copies: Mapping[str, Copy]) -> None:
        self._copies = copies

    def take(self, member: Member, frame: frames.Control) -> None:
        """Take a control frame of a member that introduced itself."""
        match frame:
            case frames.Acks():
                self._acknowledged(member, frame)
            case frames.FlushRequest(partition=partition):
                self._post(partition, ev.FlushAsked(member, frame.epoch, frame.lsn))
            case frames.RecordPush(partition=partition):
                self._post(partition, ev.Pushed(member, frame.epoch, frame.records, frame.shown))
            case frames.AskPosition(partition=partition, round=round_):
                self._post(partition, ev.PositionAsked(member.node, round_))
            case frames.PositionReply(partition=partition):
                self._post(partition, _told(member, frame))
            case frames.KeepAlive(tails=tails):
                self._heard_tails(tails)
            case _:
                pass

    def _post(self, partition: str, event: ev.Event) -> None:
        copy = self._copies.get(partition)
        if copy is not None:
            copy.post(event)

    def _acknowledged(self, member: Member, frame: frames.Acks) -> None:
        for partition, epoch, lsn, applied, flushed in frame.items:
            sealed = bool(frame.sealed) and (partition, epoch) in frame.sealed
            self._post(partition, ev.ReplicaAck(member, epoch, lsn, applied, flushed, sealed))

    def _heard_tails(self, tails: dict[str, int]) -> None:
        for partition, lsn in tails.items():
            copy = self._copies.get(partition)
            if copy is not None:
                copy.heard_tail(lsn)


def _told(member: Member, f: frames.PositionReply) -> ev.PositionTold:
    return ev.PositionTold(member.node, f.round, f.position, f.eligible, member.incarnation, f.tail, f.stood)
