"""Where partitions are placed: a pure function of the configuration. Even for actives, and even again when a node dies.

Partition i is active on node i mod n; its replicas are the other nodes, rotated by i div n, so that the partitions of a
dead node fall to all the others alike.
"""

from __future__ import annotations

from collections.abc import Sequence


def place(index: int, nodes: Sequence[str], copies: int) -> tuple[str, ...]:
    """Nodes of partition `index` in priority order, `copies` of them (fewer if there are fewer nodes)."""
    n = len(nodes)
    if n == 0:
        return ()
    first, others = nodes[index % n], [nodes[(index + k) % n] for k in range(1, n)]
    turn = index // n % max(1, n - 1)
    return (first, *others[turn:], *others[:turn])[:copies]
