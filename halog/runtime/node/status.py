"""Shows a copy, and a node, as operators see them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from halog.config.security import plain_node
from halog.core.roles import Role
from halog.runtime.replica.driver import Copy

if TYPE_CHECKING:
    from halog.runtime.node.node import Runtime


LOOK_S: Final = 0.02


def view(copy: Copy) -> dict[str, object]:
    """Return plain values of a copy."""
    core, lag = copy.core, copy.lag()
    s = core.state.chain.state
    beyond = 0 if copy.error is None else core.state.tail.tip
    return {
        "partition": copy.name,
        "role": core.state.role.value,
        "epoch": s.epoch.number,
        "lsn": s.lsn,
        "shown": core.visible,
        "hash": s.hash.hex(),
        "next_offset": core.state.next_offset,
        "began_at": copy.began_at,
        "lag_records": lag.records,
        "lag_ms": lag.ms,
        "discarded_objects": copy.consistency.discarded,
        "sites": {} if core.leading is None else core.leading.sites.view(),
        "votes": [] if core.leading is None else core.leading.sites.quorum.view(),
        "quorum_of_sites": core.leading is None or not core.leading.sites.quorum.is_lost,
        "beyond": beyond,
        "error": None if copy.error is None else str(copy.error) + _kept(beyond),
    }


def _kept(beyond: int) -> str:
    what = f". It holds commits up to lsn {beyond} that the log never had: opened again, it brings them along"
    return what if beyond else ""


def failed(node: Runtime) -> dict[str, str]:
    """Return by partition why its copy here takes part in nothing."""
    found = {}
    for copy in list(node.copies.values()):
        if copy.error is not None or copy.core.state.role is Role.FAILED:
            found[copy.name] = "its history is not the log's" if copy.error is None else str(copy.error)
    return dict(sorted(found.items()))


def settled(node: Runtime, limit_s: float) -> dict[str, str]:
    """Return the same as `failed`, once every copy that is read or made anew has come to an end of that, or time is
    over."""
    until = time.monotonic() + limit_s
    while node.host is not None and node.host.placing.unsettled() and time.monotonic() < until:
        time.sleep(LOOK_S)
    return failed(node)


def _plain_text(node: Runtime) -> dict[str, str] | None:
    """Return where this node takes plain text from other machines, and until when; None: it takes none."""
    found = plain_node(node.config, node.name)
    security = node.config.security
    if found is None:
        return None
    return {"node_tls": security.node_tls, "address": found.address, "until": security.plaintext_until}


def status(node: Runtime) -> dict[str, object]:
    """Return plain values: a node, whom it sees, and its copies."""
    return {
        "node": node.name,
        "incarnation": node.incarnation,
        "address": node.info.address,
        "addresses": list(node.info.reached),
        "pid": node.pid,
        "hosts": node.host is not None,
        "phase": node.phase.value,
        "session": node.session_state.value,
        "alive": sorted(m.node for m in node.members.alive),
        "offline": node.members.offline or None,
        "reaches": node.zoning.reaches,
        "zones": node.zoning.view(),
        "rebalance": None if node.remapping is None else node.remapping.view(),
        "config": node.configured.view(),
        "events_dropped": node.telling.history.dropped,
        "log": None if node.host is None else node.host.log_questions.view(),
        "states": node.lives.view(),
        "nodes": {n: {"state": c.state, "why": c.why, "since_ms": c.time_ms} for n, c in node.nodes.now().items()},
        "plain_text": _plain_text(node),
        "failed": failed(node),
        "copies": [view(c) for c in list(node.copies.values())],
    }
