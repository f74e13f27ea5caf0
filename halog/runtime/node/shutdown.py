"""A node that closes on purpose gives away what it is active for, and waits until others have it (Q5)."""

from __future__ import annotations

import time

from halog.runtime.client.caller import Waiter
from halog.runtime.host.host import Host
from halog.runtime.replica.driver import Copy

LOOK_S = 0.01
"""Between looks at the partition tables: a successor takes over within tens of ms."""


def hand_over_all(host: Host, deadline_s: float) -> None:
    """Give every partition this node is active for to its first available replica, if it has one."""
    until = time.monotonic() + deadline_s
    waiting = []
    for copy in list(host.copies.values()):
        target = next((r.node for r in copy.core.state.table.replicas if r.member in host.members.alive), None)
        if copy.serving and target is not None:
            waiter = Waiter()
            copy.hand_over(target, waiter, f"{host.me.node} leaves")
            waiting.append(waiter)
    for waiter in waiting:
        waiter.wait(until - time.monotonic())
    while waiting and time.monotonic() < until and any(_ours(host, c) for c in list(host.copies.values())):
        time.sleep(LOOK_S)
    while time.monotonic() < until and any(c.serving and c.delivered < c.appended for c in list(host.copies.values())):
        time.sleep(LOOK_S)  # nobody to take over: commits that did not wait for the log are to be in it (R6)


def _ours(host: Host, copy: Copy) -> bool:
    known = host.router.tables[copy.name][1]
    return known.active == host.me and bool(known.replicas)
