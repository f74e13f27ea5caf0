"""This package holds transactions: what an application does with managed objects, over a node's narrow `Backend`.

The initiator holds a transaction whole (versions read, changes, results of calls made). Nothing stays on the active
node between two requests, so a new active node can go on with it (R5). Nothing here knows Kafka, ZooKeeper or sockets.

    node         what an application holds: verbs, the decorated form, bulk load
    reading      one transaction's identity map and the verbs that look
    writing      the verbs that change, and a transaction's life; commit: its end
    entry        one object inside a transaction; the binding that its methods ask where to run
    work_set     objects ⇄ changes: what is sent at commit and with a call
    calls        a method call here or on the active node; execute: the active node's side
    space        what all transactions of a node share: backend, registry, decoded values
"""

from __future__ import annotations

from halog.transactions.context import current
from halog.transactions.execute import Executor
from halog.transactions.load import Loaded
from halog.transactions.node import Node
from halog.transactions.retry import transaction
from halog.transactions.writing import Transaction

__all__ = ["Executor", "Loaded", "Node", "Transaction", "current", "transaction"]
