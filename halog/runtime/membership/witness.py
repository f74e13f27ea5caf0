"""A witness is a small process beside a node, which tells the other nodes when the node's process is no more (R5).

A refused connection may be a firewall's; the kernel's word, through a pidfd, is not. It is a process of its own, since
the dead tell nothing, and no parent, so that signals, process ids and supervisors are about the node. What it says is
believed from whoever knows a secret that the node's registration holds the hash of; node and witness know it, nobody
else.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from halog.runtime.rpc import frames

logger = logging.getLogger("halog.witness")

PROGRAM = Path(__file__).with_name("witness_process.py")
"""Needs nothing but the standard library: some MB, and up before the node is."""


def is_secret(secret: bytes, witness: str) -> bool:
    """Does a registration stand for this secret?"""
    return bool(witness) and hmac.compare_digest(hashlib.sha256(secret).hexdigest(), witness)


class TlsAddresses(NamedTuple):
    """Names addresses that take TLS, and the files by which the witness speaks it: authorities, certificate, key."""

    to: list[str]
    files: tuple[Path, Path, Path]


class Witness:
    """A `Witness` is there for this very process. Without pidfds (Linux before 5.3) there is none: others wait for
    leases to end."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self.registered = hashlib.sha256(self._secret).hexdigest()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to watch."""
        try:
            pidfd = os.pidfd_open(os.getpid())
        except (AttributeError, OSError) as e:
            logger.warning("nobody will witness the end of this process: %s", e)
            self.registered = ""
            return
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(PROGRAM), str(pidfd)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(pidfd,),
                bufsize=0,
                start_new_session=True,  # what is typed at the node's terminal is not for it
            )
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)
        except OSError as e:
            logger.warning("nobody will witness the end of this process: %s", e)
            self.registered = ""
        finally:
            os.close(pidfd)

    def others(self, hello: frames.Hello, plain: Iterable[str], tls: TlsAddresses | None = None) -> None:
        """Say whom to tell, from now on: addresses without TLS, and those with it."""
        if self._process is None or self._process.stdin is None:
            return
        said = [frames.encode(frame) for frame in (hello, frames.DeathNotice(self._secret))]
        data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in said)
        told: dict[str, object] = {"say": b64encode(data).decode(), "to": sorted(plain)}
        if tls is not None:
            told["tls"] = {"to": sorted(tls.to), "files": [str(file) for file in tls.files]}
        line = json.dumps(told)
        self._write(self._process, line.encode() + b"\n")

    def _write(self, process: subprocess.Popen[bytes], line: bytes) -> None:
        """Write it whole or not at all, and without waiting. One that is gone, or stopped with a full pipe, leaves
        nobody worse off than no witness would; half a line would be taken for the beginning of the next."""
        assert process.stdin is not None
        with suppress(OSError):
            if os.write(process.stdin.fileno(), line) < len(line):
                process.kill()
