"""This module says which requests to a node stand in the audit, and as what (O4, Q5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from halog.audit import DONE, FAILED, REFUSED
from halog.errors import HalogError, NotActiveError, NothingToDoError
from halog.ports import Peer
from halog.runtime.events.audit_trail import AuditTrail
from halog.runtime.node.access import Access, name_of
from halog.runtime.rpc import frames
from halog.runtime.rpc.errors import from_frame

Arguments = dict[str, object]


def _hand_over(r: object) -> Arguments:
    assert isinstance(r, frames.HandOverRequest)
    return {"partition": r.partition, "to": r.to}


def _move(r: object) -> Arguments:
    assert isinstance(r, frames.Move)
    return {"partition": r.partition, "keys": len(r.keys), "mapping": r.mapping}


AUDITED: Final[Mapping[type, Callable[[object], Arguments]]] = {
    frames.HandOverRequest: _hand_over,
    frames.Move: _move,
    frames.ReloadCertificates: lambda r: {},
}
"""The requests that change what operators change, and what is told of their arguments: no contents of objects."""
_REFUSING: Final = (2, 5, 7, 8)
"""The exit codes of errors by which nothing was done."""


class RequestAudit:
    """A `RequestAudit` notes what is asked of one node. `known`: the nodes of the configuration in force."""

    def __init__(self, trail: AuditTrail, access: Access, known: Callable[[], Collection[str]]) -> None:
        self._trail = trail
        self._access = access
        self._known = known

    def wants(self, frame: object, process: str) -> bool:
        """Say whether a request stands in the audit if it is carried out. Hosting nodes ask each other for moves, by
        the thousand: what an operator asked for is there already."""
        return type(frame) in AUDITED and not (type(frame) is frames.Move and process in self._known())

    def answered(self, peer: Peer, process: str, frame: object, reply: frames.Reply) -> None:
        """Note what came of a request. One that went to a node that is not active goes on to another one."""
        outcome, reason = DONE, ""
        if isinstance(reply, frames.ErrorReply):
            error: HalogError = from_frame(reply)
            if isinstance(error, NotActiveError):
                return
            if not isinstance(error, NothingToDoError):
                outcome = REFUSED if error.exit_code in _REFUSING else FAILED
            reason = error.message
        told = AUDITED[type(frame)](frame)
        self._note(peer, process, name_of(frame), outcome, told, reason, gathered=type(frame) is frames.Move)

    def refused(self, peer: Peer, process: str, frame: object, why: str) -> None:
        """Note that whoever is at the other end was refused a request, or at its greeting."""
        of = AUDITED.get(type(frame))
        self._note(peer, process, name_of(frame), REFUSED, {} if of is None else of(frame), why)

    def refused_host(self, host: str, why: str) -> None:
        """Note that a connection was refused before its first frame. Nobody knows who it was."""
        self._trail.note(host, "connect", REFUSED, proven=False, address=host, reason=why)

    def _note(
        self,
        peer: Peer,
        process: str,
        command: str,
        outcome: str,
        arguments: Arguments,
        reason: str,
        *,
        gathered: bool = False,
    ) -> None:
        shown = peer.principal
        self._trail.note(
            process if shown is None else str(shown),
            command,
            outcome,
            proven=shown is not None,
            role="" if shown is None else self._access.role_of(shown),
            process=process,
            address=peer.remote,
            arguments=arguments,
            reason=reason,
            gathered=gathered,
        )
