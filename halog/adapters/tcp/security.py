"""This module decides who may connect to this process, and to whom it goes on speaking: certificates and their names.

A `ChannelSecurity` is made once for a process, of its files. Files that are renewed are taken while it runs: they are
tried first, against themselves, and bad ones change nothing.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from halog.adapters.tcp.tls_session import HandshakeError, TlsSession
from halog.certs.directory import OTHERS
from halog.errors import ConfigError
from halog.ports import Principal, Renewal


class CertificateFiles(NamedTuple):
    """Names the files of one process: the authorities that it trusts, its certificate, and the key to it."""

    ca: Path
    cert: Path
    key: Path


class _Contexts(NamedTuple):
    server: ssl.SSLContext
    client: ssl.SSLContext
    me: Principal


class ChannelSecurity:
    """A `ChannelSecurity` gives each connection its TLS, and judges who is at the other end. `required`: nobody is
    spoken to without TLS. `refusal` makes the frame that says why somebody is refused. ConfigError: the files cannot be
    used."""

    def __init__(
        self, cluster: str, files: CertificateFiles, *, required: bool, refusal: Callable[[str], bytes]
    ) -> None:
        self.required = required
        self.refusal = refusal
        self._cluster = cluster
        self._files = files
        self._seen = _state(files)
        self._now = _tried(cluster, files)

    @property
    def me(self) -> Principal:
        """Return whom this process's own certificate names."""
        return self._now.me

    def server(self) -> TlsSession:
        """Return the TLS of a connection that somebody makes to this process."""
        return TlsSession(self._now.server, server=True)

    def client(self) -> TlsSession:
        """Return the TLS of a connection that this process makes."""
        return TlsSession(self._now.client, server=False)

    def judge(self, session: TlsSession) -> Principal:
        """Return who is at the other end of a handshake that is complete. HandshakeError: nobody of this cluster."""
        found = session.identify()
        if found.cluster != self._cluster:
            raise HandshakeError(
                f"its certificate is for {found} of cluster {found.cluster!r}, and this is {self._cluster!r}"
            )
        return found

    def judge_node(self, session: TlsSession, node: str) -> Principal:
        """Return the same for a connection that this process made to a node; "": to whichever node listens there."""
        found = self.judge(session)
        if found.kind != "node" or (node and found.name != node):
            meant = f"node {node}" if node else "a node"
            raise HandshakeError(f"its certificate is for {found}, and {meant} was meant")
        return found

    def renew(self, *, again: bool = False) -> Renewal | None:
        """Take the files anew if they changed, or if they are to be tried `again`; None: they did not change.
        Connections that stand keep what they have."""
        seen = _state(self._files)
        if seen == self._seen and not again:
            return None
        self._seen = seen
        names = ", ".join(str(file) for file in self._files)
        try:
            found = _tried(self._cluster, self._files)
            if found.me != self._now.me:
                raise ConfigError(f"{self._files.cert}: is for {found.me}, and this process is {self._now.me}")
        except ConfigError as error:
            return Renewal(names, error.message)
        self._now = found
        return Renewal(names, "")


def _state(files: CertificateFiles) -> tuple[object, ...]:
    """Return what changes when one of the files does, as far as that can be seen without reading it."""
    seen: list[object] = []
    for file in files:
        try:
            at = os.stat(file)
            seen.append((at.st_mtime_ns, at.st_size, at.st_ino, at.st_mode, at.st_uid, at.st_gid))
        except OSError as error:
            seen.append(error.errno)
    return tuple(seen)


def _tried(cluster: str, files: CertificateFiles) -> _Contexts:
    """Return the contexts that these files make. ConfigError: they do not fit, or are not valid now."""
    server, client = (_context(files, protocol) for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    try:
        me = _met(server, client, verified=False)
        if me.kind == "node":
            _met(server, client, verified=True)
    except HandshakeError as error:
        raise ConfigError(f"security.cert: {files.cert}: {error}; the authorities are those of {files.ca}") from None
    if me.cluster != cluster:
        raise ConfigError(f"security.cert: {files.cert}: is for cluster {me.cluster!r}, and this is {cluster!r}")
    return _Contexts(server, client, me)


def _context(files: CertificateFiles, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # a name of halog's is checked instead, by both sides
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # nothing comes that nobody asked for: an idle connection that is readable has ended
    _check_readable(files)
    _check_guarded(files.key)
    try:
        context.load_verify_locations(files.ca)
    except ssl.SSLError as error:
        raise ConfigError(f"security.ca: {files.ca}: holds no certificates: {error.reason or error}") from None
    except OSError:
        raise _changed(files) from None
    try:
        context.load_cert_chain(files.cert, files.key, password=_no_password)
    except ssl.SSLError as error:
        why = "does not fit the certificate" if error.reason == "KEY_VALUES_MISMATCH" else "or the certificate is none"
        raise ConfigError(f"security.key: {files.key}: {why} ({files.cert}): {error.reason or error}") from None
    except OSError:
        raise _changed(files) from None
    except ValueError as error:
        raise ConfigError(f"security.key: {files.key}: {error}") from None
    return context


def _check_readable(files: CertificateFiles) -> None:
    for key, file in zip(("ca", "cert", "key"), files, strict=True):
        try:
            file.read_bytes()
        except OSError as error:
            raise ConfigError(f"security.{key}: {file}: cannot be read: {error.strerror}") from None


def _check_guarded(key: Path) -> None:
    """Raise ConfigError if others have access to the key. A group may read a key of root's if this process is in it:
    so containers are given secrets (mode 0640, a group of the pod's)."""
    try:
        at = key.stat()
    except OSError as error:
        raise ConfigError(f"security.key: {key}: cannot be read: {error.strerror}") from None
    mode = stat.S_IMODE(at.st_mode)
    given = at.st_uid == 0 and at.st_gid in (os.getegid(), *os.getgroups())
    if mode & (OTHERS & ~stat.S_IRGRP if given else OTHERS):
        said = f"others have access to this key (mode {mode:04o}, user {at.st_uid}, group {at.st_gid})"
        raise ConfigError(f"security.key: {key}: {said}; `chmod 600 {key}`")


def _changed(files: CertificateFiles) -> ConfigError:
    """Return the error of files of which one went while they were read. Raises it where that one is still gone, by its
    name."""
    _check_readable(files)
    return ConfigError(f"security.cert: {files.cert}: it, its key or {files.ca} changed while they were read")


def _no_password() -> str:
    """Nobody is there to be asked for a password."""
    raise ValueError("is encrypted; a node needs a key without a password, readable by its user alone")


_STEPS: Final = 10
"""A handshake takes four."""


def _met(server: ssl.SSLContext, client: ssl.SSLContext, *, verified: bool) -> Principal:
    """Return whom the certificate names, as the server sees it that the client shows it to. `verified`: the client
    looks at the server's, too; a user's certificate is for no server."""
    client.verify_mode = ssl.CERT_REQUIRED if verified else ssl.CERT_NONE
    there, here = TlsSession(server, server=True), TlsSession(client, server=False)
    client.verify_mode = ssl.CERT_REQUIRED
    done = [False, False]
    for _ in range(_STEPS):
        if not done[0]:
            done[0] = here.shake(there.take())
        if not done[1]:
            done[1] = there.shake(here.take())
        if all(done):
            return there.identify()
    raise HandshakeError("it completes no handshake with itself")
