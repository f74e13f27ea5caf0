"""This module has the form of an audit entry: who asked for what, when, from where, and what came of it (O4, Q5).

An entry is JSON in the topic `<cluster>.audit`, beside the event history: that says what happened to the cluster, this
says who asked for it, also where nothing came of it. An entry holds no contents of objects and no secrets. This module
is pure: the time is an input. docs/protocol.md holds the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from halog.errors import RecordFormatError

DONE: Final = "done"
REFUSED: Final = "refused"
FAILED: Final = "failed"
LOST: Final = "lost"
"""Of an entry that stands for entries which could not be written."""

REQUEST: Final = "request"
COMMAND: Final = "command"

TEXT_CHARS: Final = 500
"""A longer text in an entry is cut: an entry must fit any topic, and a stranger may have said it."""
ITEMS: Final = 100
"""An argument with more items is cut, too."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An `AuditEntry` is one command, or one request to a node. `time_ms` is since 1970, UTC, by the clock of whoever
    writes it; `id` is unique, so that an entry written twice counts once."""

    id: str
    time_ms: int
    cluster: str
    by: str
    """Who writes it: the node that was asked, or the process of the command."""
    kind: str
    """`request`: a node was asked; `command`: a command says it of itself."""
    principal: str
    """`user olga` or `node A` of a certificate; without one the process by its name, or the operating system's
    user@host."""
    proven: bool
    """Has the node that writes this seen the certificate?"""
    role: str
    process: str
    """How whoever asked calls its process."""
    address: str
    """From where it was asked: host:port of a request, the operating system's user@host of a command."""
    command: str
    """The words of the command, or the request by its name in the protocol."""
    outcome: str
    """`done`, `refused`, `failed`; or `lost`, of an entry that stands for others."""
    arguments: dict[str, Any] = {}
    dry_run: bool = False
    exit_code: int | None = None
    reason: str = ""
    count: int = 1
    """How many it stands for."""

    def to_bytes(self) -> bytes:
        """Return the entry as a value of the audit's topic. Texts are cut, and without lone surrogates."""
        return msgspec.json.encode(_tame(msgspec.structs.asdict(self)))

    @staticmethod
    def from_bytes(data: bytes) -> AuditEntry:
        """Decode a value; fields of newer versions are passed over. RecordFormatError: it is no entry."""
        try:
            return _DECODER.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as e:
            raise RecordFormatError(f"an entry of the audit cannot be read: {e}", head=data[:16].hex()) from e


_DECODER = msgspec.json.Decoder(AuditEntry)


def _tame(value: Any) -> Any:
    if isinstance(value, str):
        return value[:TEXT_CHARS].encode("utf-8", "replace").decode()
    if isinstance(value, (list, tuple)):
        return [_tame(item) for item in value[:ITEMS]]
    if isinstance(value, Mapping):
        return {_tame(str(key)): _tame(item) for key, item in list(value.items())[:ITEMS]}
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    return _tame(value.hex() if isinstance(value, bytes) else str(value))
