"""This module has the frames by which nodes are asked for their certificates (O4).

Whoever needs them takes them from `halog.runtime.rpc.frames`; new fields come behind all others, and have a default.
"""

from __future__ import annotations

import msgspec


class ReloadCertificates(msgspec.Struct, array_like=True, tag="Reload"):
    """`ReloadCertificates` has a node look at the files of its certificates now. It is answered with
    CertificatesReply."""


class CertificatesReply(msgspec.Struct, array_like=True, tag="CertificatesAre"):
    """This is the reply to ReloadCertificates: what became of them, and why."""

    outcome: str
    """`taken`: others connect by the new ones from now on; `unchanged`; `refused`: the node goes on with those that it
    has; `off`: it has none, and takes plain text alone."""
    why: str
    files: str
    since_ms: int
    """When those in use were taken, in ms since 1970, by the node's clock."""
