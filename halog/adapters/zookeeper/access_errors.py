"""This module says why ZooKeeper does not let this process in, or at a znode, in an operator's words."""

from __future__ import annotations

import ssl
from collections import namedtuple
from typing import Any

from kazoo.exceptions import UnimplementedError
from kazoo.protocol.serialization import int_struct, read_string

from halog.adapters.zookeeper.access import ZooKeeperAccess
from halog.adapters.zookeeper.reachability import LOOK_S, Diagnosis, silence, speaks_tls
from halog.errors import ConfigError, ZnodeAccessError


def no_rights(what: str, path: str, access: ZooKeeperAccess) -> ZnodeAccessError:
    """Return the error for a znode whose ACL does not name this process. `what`: the verb."""
    if access.password is not None:
        how = "check username and password in [security.zookeeper]"
    elif access.principals:
        how = "check cert and principals in [security.zookeeper]"
    else:
        how = "give auth in [security.zookeeper]"
    whose = "belongs to somebody else"
    if what in ("create", "delete"):
        whose = "belongs to somebody else, or does what it stands in (/halog is shared by all clusters of a ZooKeeper)"
    said = f"ZooKeeper does not let {access.me} {what} {path}, which {whose}: {how}; nothing was changed"
    return ZnodeAccessError(said, path=path)


def tls_refused(hosts: str, access: ZooKeeperAccess, error: ssl.SSLError | None) -> Diagnosis | None:
    """Say why no connection by TLS came about; None: TLS is not the reason. `error`: what it said last."""
    if access.tls is None:
        return None
    try:
        access.tls.context()
    except ConfigError as unusable:
        return Diagnosis(unusable.message, False)
    addresses = hosts.partition("/")[0].split(",")
    if isinstance(error, ssl.SSLCertVerificationError):
        wrong = "site.zookeeper, or check_hostname" if "mismatch" in error.verify_message else "ca"
        said = error.verify_message.rstrip(".")
        how = f"its certificate is not trusted ({said}): check {wrong} in [security.zookeeper]"
        return Diagnosis(how, False)
    if error is not None and "ALERT" in (error.reason or ""):
        shown = access.tls.cert or "none"
        how = f"it refuses this process's certificate ({error.reason}), which is {shown}: check cert in"
        return Diagnosis(f"{how} [security.zookeeper], and whom the servers trust", False)
    plain = [address for address in addresses if not speaks_tls(address, LOOK_S)]
    if plain and "is a ZooKeeper" in silence(hosts).text:
        how = "it takes plain text, and TLS is required: name its secureClientPort, or set tls in [security.zookeeper]"
        return Diagnosis(f"{plain[0]}: {how}", False)
    return None


class WhoAmI(namedtuple("WhoAmI", "")):
    """A `WhoAmI` asks ZooKeeper as whom it knows this session (3.7)."""

    type = 107

    def __bool__(self) -> bool:
        return True  # an empty tuple, and kazoo asks whether there is a request

    def serialize(self) -> bytes:
        """Return the request, which is empty."""
        return b""

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[tuple[str, str]]:
        """Return (scheme, user) of each."""
        (count,) = int_struct.unpack_from(data, offset)
        offset += int_struct.size
        found = list[tuple[str, str]]()
        for _ in range(count):
            scheme, offset = read_string(data, offset)
            user, offset = read_string(data, offset)
            found.append((scheme, user))
        return found


def check_identity(client: Any, access: ZooKeeperAccess, within_s: float) -> None:
    """Raise ConfigError if this process shows a certificate whose subject is not among those that may use what it
    makes: it could not use its own znodes."""
    wanted = {principal.id for principal in access.principals if principal.scheme == "x509"}
    if not wanted:
        return
    answer = client.handler.async_result()
    client._call(WhoAmI(), answer)
    try:
        known = [user for scheme, user in answer.get(timeout=within_s) if scheme == "x509"]
    except UnimplementedError:
        return
    if not wanted & set(known):
        who = " and ".join(known) or "nobody"
        raise ConfigError(
            f"security.zookeeper.principals: ZooKeeper knows this process by its certificate as {who}, which is not "
            f"among {', '.join(sorted(wanted))}: add it, at every process of the cluster"
        )
