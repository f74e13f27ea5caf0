"""This module finds out whether two processes say that they are the same node (N1).

A node is known by its name, which gives its location code, and by its installation timestamp: when its data directory
was used first. A directory that is copied has the timestamp of the other one. Under the same name the copy waits until
it is certain that the other process has ended; under another name it is refused. Whoever came first goes on untouched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from halog.core.ids import location_code
from halog.errors import DuplicateLocationError, DuplicateTimestampError, FrameError, UnreachableError
from halog.metadata.nodes import NodeInfo
from halog.ports import Channel
from halog.runtime.membership.addresses import leading_to
from halog.runtime.rpc import frames
from halog.runtime.rpc.errors import from_frame
from halog.runtime.rpc.greeting import answer_to

ANSWER_S: Final = 1.0
"""How long a process that may be the same node is waited for to answer."""


def lives(channel: Channel, hello: frames.Hello, run: NodeInfo) -> bool | None:
    """Say whether this run of a node still lives, by asking at each of its addresses. None: nobody can tell now."""
    told = {_lives_at(address, channel, hello, run) for address in leading_to(run)}
    return True if True in told else None if None in told or not told else False


def _lives_at(address: str, channel: Channel, hello: frames.Hello, run: NodeInfo) -> bool | None:
    channel.expect(address, run.name, tls=run.tls)
    try:
        answer = answer_to(channel, hello, address, ANSWER_S)
        return None if answer is None else _is_of(frames.decode_reply(answer), run)
    except UnreachableError as e:
        return False if e.evidence.get("refused") else None
    except FrameError:
        return None


def _is_of(reply: frames.Reply, run: NodeInfo) -> bool | None:
    """Say whether this run has answered a greeting so; another process may have taken its address."""
    if isinstance(reply, frames.Welcome):
        return (reply.node, reply.incarnation) == run.member
    error = from_frame(reply) if isinstance(reply, frames.ErrorReply) else None
    if isinstance(error, DuplicateLocationError):
        return (error.evidence.get("node"), error.evidence.get("incarnation")) == run.member
    return False


def same_name(me: NodeInfo, remote: str, hello: frames.Hello) -> DuplicateLocationError:
    """Return what this node tells another process, at `remote`, which says that it is the same node."""
    return DuplicateLocationError(
        f"node {me.name} runs already: pid {me.pid} at {me.address}, run {me.incarnation}; the process at {remote} "
        f"says that it is this node, too, run {hello.incarnation}",
        node=me.name,
        incarnation=me.incarnation,
        pid=me.pid,
        address=me.address,
    )


def same_installation(me: NodeInfo, other: NodeInfo) -> DuplicateTimestampError | None:
    """Return the error of two nodes with one installation timestamp; None: each has its own."""
    if other.name == me.name or not (me.hosts and other.hosts) or other.installation != me.installation:
        return None
    return DuplicateTimestampError(
        f"node {me.name} (pid {me.pid} at {me.address}) has the installation timestamp of node {other.name} (pid "
        f"{other.pid} at {other.address}): the data directory of one is a copy of the other's; the two do not talk to "
        "each other. Give the copy an identity of its own with `halog node new-identity --name NAME`, or an empty "
        "data directory: its objects come from the log",
        node=other.name,
        pid=other.pid,
        address=other.address,
        installation=me.installation,
    )


def check_alone(me: NodeInfo, others: Iterable[NodeInfo]) -> None:
    """Raise DuplicateTimestampError or DuplicateLocationError for a node that has just registered, where an earlier
    one is the same in a way in which no two may be."""
    for other in others:
        if other.name == me.name or (other.incarnation, other.name) > (me.incarnation, me.name):
            continue
        if (error := same_installation(me, other)) is not None:
            raise error
        if location_code(other.name) == location_code(me.name):
            raise DuplicateLocationError(
                f"the names {me.name} and {other.name} have the same location code; give node {me.name} another name",
                node=other.name,
            )
