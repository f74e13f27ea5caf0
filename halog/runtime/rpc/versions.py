"""This module lets two processes agree on the protocol that they speak, and say of each other what they run (U1).

Each tells the lowest and the highest protocol that it speaks; the highest that both speak counts. Where there is none,
both sides say so by name, and nothing else is said on that connection. What a node registers tells it, too, so that
nobody has to connect first.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from halog.core.ids import Member
from halog.errors import UnauthorizedError, UnreachableError, UnsupportedRequestError, VersionMismatchError
from halog.metadata.nodes import NodeInfo
from halog.release import RELEASE
from halog.runtime.rpc.errors import from_frame
from halog.runtime.rpc.frames import LOWEST, PROTOCOL, ErrorReply, Hello, Welcome, decode_reply
from halog.runtime.rpc.stranger_text import shown

Role = Literal["node", "client", "tool"]

SPOKEN: Final = LOWEST, PROTOCOL
"""The lowest and the highest protocol that this halog speaks, as a node registers them."""
NAME: Final = 110
"""Characters of a name that a stranger says."""
TEXT: Final = 1_000
"""The same of an error."""
ANSWERED: Final = 3
"""From this protocol on a greeting is answered."""
OLDEST: Final = "0.1"
"""A process that does not say which halog it runs has this one."""


def greeting(cluster: str, member: Member, role: Role) -> Hello:
    """Return the first frame of every connection that this process makes."""
    return Hello(cluster, *member, PROTOCOL, LOWEST, RELEASE, role)


def common(lowest: int, highest: int) -> int | None:
    """Return the highest protocol that this halog and one with these speak; None: there is none."""
    found = min(highest, PROTOCOL)
    return found if found >= max(lowest, LOWEST) else None


def greeted(hello: Hello) -> int | None:
    """Return the protocol that counts on a connection that began with this; None: there is none."""
    return common(hello.lowest or hello.protocol, hello.protocol)


class Side(NamedTuple):
    """A `Side` is one of two processes that talk, and what it speaks."""

    name: str
    release: str
    lowest: int
    protocol: int

    def __str__(self) -> str:
        spoken = f"{self.protocol}" if self.lowest == self.protocol else f"{self.lowest} to {self.protocol}"
        return f"{shown(self.name, NAME)} runs halog {shown(self.release) or OLDEST}, which speaks protocol {spoken}"


def mismatch(other: Side, me: Side) -> VersionMismatchError:
    """Return the error of two processes that have no protocol in common; `other` is the one that `me` talks to."""
    older = other if other.protocol < me.lowest else me
    return VersionMismatchError(
        f"{other}; {me}; nothing was done: {older.name} needs a later halog",
        node=shown(other.name.removeprefix("node "), NAME),
        release=shown(other.release) or OLDEST,
        lowest=other.lowest,
        protocol=other.protocol,
    )


_ME: Final = Side("this process", RELEASE, *SPOKEN)


def mismatch_from(node: str, hello: Hello) -> VersionMismatchError:
    """Return the error that `node` tells a process that greeted it."""
    other = Side(f"node {node}", RELEASE, *SPOKEN)
    return mismatch(other, Side(hello.node, hello.release, hello.lowest or hello.protocol, hello.protocol))


def unknown(node: str, tag: str) -> UnsupportedRequestError:
    """Return what a node says to a request that its halog does not know."""
    return UnsupportedRequestError(
        f"node {node} runs halog {RELEASE} and does not know the request {tag}; nothing was done; "
        "it needs a later halog",
        node=node,
        release=RELEASE,
        request=tag,
    )


def expects_answer(hello: Hello) -> bool:
    """Say whether the process waits for an answer to its greeting. Halog 0.1 does not: the first answer that comes it
    takes for that of its request."""
    return hello.protocol >= ANSWERED


def mismatch_of(info: NodeInfo) -> VersionMismatchError | None:
    """Return the error for a registered node that this process has no protocol in common with; None: it has one."""
    if common(*info.protocols) is not None:
        return None
    return mismatch(Side(f"node {info.name}", info.version, *info.protocols), _ME)


def check_spoken(info: NodeInfo) -> None:
    """Raise VersionMismatchError for a registered node that this process has no protocol in common with."""
    error = mismatch_of(info)
    if error is not None:
        error.evidence["sent"] = False
        raise error


def judge_answer(address: str, data: bytes) -> Welcome:
    """Return what a node said to the greeting of a connection. VersionMismatchError: no protocol is common to both.
    UnreachableError: it refuses this process for another reason; `halog.runtime.rpc.errors.not_allowed` says whether
    for its certificate, or for want of a role. FrameError: it is no node."""
    reply = decode_reply(data)
    if isinstance(reply, Welcome):
        if common(reply.protocol, reply.protocol) is None:
            raise mismatch(Side(f"node {reply.node}", reply.release, reply.protocol, reply.protocol), _ME)
        return reply
    error = from_frame(reply) if isinstance(reply, ErrorReply) else None
    if isinstance(error, VersionMismatchError):
        raise VersionMismatchError(shown(error.message, TEXT), address=address)
    words = shown(error.message, TEXT) if error else ""
    said = f"refuses this process: {words}" if error else f"answered with {type(reply).__name__}"
    failed = UnreachableError(f"{address} {said}", address=address, refused=False, greeting=True)
    if isinstance(error, UnauthorizedError):
        failed.evidence["unauthorized"] = words
    raise failed
