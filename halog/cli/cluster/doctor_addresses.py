"""`halog doctor` asks each node at each of its addresses (N2). It changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

from halog.cli.cluster.doctor_checks import Finding
from halog.errors import HalogError

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection

NAME: Final = "addresses"
ANSWER_S: Final = 5.0
AT_ONCE: Final = 16


class AskedAddress(NamedTuple):
    """Says what came of asking a node at one of its addresses: which node answered, or why none did."""

    node: str
    address: str
    answered: str = ""
    why: str = ""


def check(connection: ClusterConnection) -> list[Finding]:
    """Ask every registered node that hosts partitions at each of its addresses, as this machine reaches it."""
    return list(findings(ask(connection)))


def ask(connection: ClusterConnection) -> list[AskedAddress]:
    """Return what comes of asking each registered node at each of its addresses."""
    places = [(n.name, address) for n in connection.nodes.values() if n.hosts for address in n.reached]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda place: _ask_at(connection, *place), places))


def _ask_at(connection: ClusterConnection, node: str, address: str) -> AskedAddress:
    from halog.runtime.rpc import frames

    try:
        answer = connection.adapters.channel.request(address, frames.encode(frames.StatusRequest()), ANSWER_S)
        reply = frames.decode_reply(answer)
    except HalogError as e:
        return AskedAddress(node, address, why=e.message)
    if not isinstance(reply, frames.StatusReply):
        return AskedAddress(node, address, why="it answered no status")
    return AskedAddress(node, address, str(reply.status["node"]))


def findings(asked: Sequence[AskedAddress]) -> Iterator[Finding]:
    """Yield each address at which its node does not answer; if each does, one row."""
    wrong = [a for a in asked if a.answered != a.node]
    for one in wrong:
        if one.answered:
            found = f"at {one.address}, an address of node {one.node}, node {one.answered} answers"
            yield Finding(NAME, "fail", found, f"correct nodes.{one.node}, and start it again; or [discovery]")
            continue
        others = [a.address for a in asked if a.node == one.node == a.answered]
        found = f"node {one.node} does not answer at {one.address}: {one.why}"
        at = f"it does at {' and '.join(others)}: look at the network of the other address"
        yield Finding(NAME, "warn", found, at if others else "is it running, and is the way to it open?")
    if asked and not wrong:
        count = len({a.node for a in asked})
        nodes = f"{count} node{'s' if count > 1 else ''}"
        yield Finding(NAME, "ok", f"{nodes} answer{'' if count > 1 else 's'} at each of {len(asked)} addresses")
