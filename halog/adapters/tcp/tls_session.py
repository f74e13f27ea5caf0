"""This module has one TLS connection without a socket: bytes come in, bytes go out, and somebody else carries them.

A socket of Python's `ssl` takes no flags with what it sends, and must not be read and written by two threads at once.
The node channel needs both: its senders never wait, and its reader is another thread. So the protocol runs between two
buffers in memory, under one lock.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from typing import Final

from halog.certs.identity import SCHEME, HolderKind, identity_uris, parse_identity
from halog.ports import Principal

MOST_HANDSHAKE: Final = 256 << 10
"""Bytes of one side's handshake. A chain of ten certificates has some 20 KB."""
LARGEST_RECORD: Final = 16 << 10
"""Bytes that one record of TLS carries at most: room for more would be made and given back with each read."""
SPEAKERS: Final = (HolderKind.NODE, HolderKind.USER)
"""Who speaks on the node channel: servers' certificates are for Kafka and ZooKeeper."""


class HandshakeError(OSError):
    """A `HandshakeError` says why the two sides did not come to trust each other, or trust each other no more.
    `refused`: it is the other side that does not trust this one's certificate."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


class TlsSession:
    """A `TlsSession` is one side of a TLS connection. It is used for the handshake first (`shake`), by one thread, and
    then as the `Protection` of a stream, by any."""

    def __init__(self, context: ssl.SSLContext, *, server: bool) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)
        self._lock = threading.Lock()
        self._taken = 0
        self.principal: Principal | None = None
        self.ended = False

    def shake(self, data: bytes) -> bool:
        """Take bytes of the handshake, and say whether it is complete. What is to be sent for it comes from `take`,
        also where this raises HandshakeError: the other side is told why."""
        self._taken += len(data)
        if self._taken > MOST_HANDSHAKE:
            raise HandshakeError(f"its handshake has more than {MOST_HANDSHAKE >> 10} KiB")
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise _handshake_error(error) from None
        return True

    def take(self) -> bytes:
        """Return what is to be sent now."""
        return self._outgoing.read()

    def identify(self) -> Principal:
        """Note and return whom the other side's certificate names, which was verified. HandshakeError: it names
        nobody."""
        self.principal = named_by(self._tls.getpeercert() or {})
        return self.principal

    def seal(self, data: bytes) -> bytes:
        with self._lock:
            taken = self._tls.write(data) if data else 0
            while taken < len(data):
                taken += self._tls.write(memoryview(data)[taken:])
            return self._outgoing.read()

    def open(self, data: bytes) -> bytes:
        found = []
        with self._lock:
            self._incoming.write(data)
            try:
                while got := self._tls.read(LARGEST_RECORD):
                    found.append(got)
                    if not (self._incoming.pending or self._tls.pending()):
                        break  # to ask once more would cost an exception
                else:
                    self.ended = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLZeroReturnError:
                self.ended = True
            except ssl.SSLError as error:
                raise _handshake_error(error) from None
        return found[0] if len(found) == 1 else b"".join(found)


def named_by(certificate: object) -> Principal:
    """Return whom a certificate, as `ssl` describes it, names. HandshakeError: nobody, or several."""
    names = certificate.get("subjectAltName", ()) if isinstance(certificate, dict) else ()
    found = identity_uris(value for kind, value in names if kind == "URI")
    if len(found) != 1:
        how = "names nobody" if not found else f"names {len(found)} at once"
        needed = f"one URI {SCHEME}<cluster>/node/<name>, or …/user/<name>, is needed"
        raise HandshakeError(f"its certificate {how}: {needed}")
    holder = parse_identity(found[0])
    if holder is None or holder.kind not in SPEAKERS:
        raise HandshakeError(f"its certificate has the URI {found[0][:110]!r}, which names no node and no user")
    return Principal(holder.cluster, holder.kind.value, holder.name)


_REFUSALS: Final[Mapping[str, str]] = {
    "unknown ca": "its ca has no authority that issued this process's certificate",
    "certificate expired": "this process's certificate has expired",
    "certificate required": "this process shows no certificate",
    "bad certificate": "this process's certificate is not valid, or not yet",
    "certificate unknown": "",
    "certificate revoked": "",
    "unsupported certificate": "this process's certificate is for other uses",
    "access denied": "",
}
"""By alert of TLS: what the other side has against this one's certificate, where the alert itself does not say it."""


def _handshake_error(error: ssl.SSLError) -> HandshakeError:
    return HandshakeError(explained(error), refused=_alert_of(error) in _REFUSALS)


def _alert_of(error: ssl.SSLError) -> str:
    """Return the alert that the other side sent; "": it sent none."""
    return (error.reason or str(error)).partition("_ALERT_")[2].replace("_", " ").lower()


def explained(error: ssl.SSLError) -> str:
    """Return in words what went wrong."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    reason = error.reason or str(error)
    if alert := _alert_of(error):
        meant = _REFUSALS.get(alert, "")
        return f"it refuses this process's TLS: {alert}{f' ({meant})' if meant else ''}"
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "BAD_RECORD_TYPE"):
        return "it does not speak TLS"
    if reason == "UNSUPPORTED_PROTOCOL":
        return "it does not speak TLS 1.3"
    return reason.replace("_", " ").lower()
