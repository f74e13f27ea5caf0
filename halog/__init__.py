"""halog keeps managed objects that outlive their process.

This module holds the public names only. Each is imported when it is first used (PEP 562): `import halog.errors`, or
`import mappers` on a Spark executor, pulls in nothing else.

    managed, field, Ref, Decimals       declare classes whose objects halog keeps
    node, Node                          open a node; its verbs
    transaction, current, Transaction   run work that happens whole or not at all
    Token, Durability                   how current a read is; what a commit waits for
    PartitionChange, partition_notifier hear when a partition changes its state
    NodeChange                          what `node.on_node_change` tells of another node
    on_conflict                         decide what two sites contradict each other in
    aio                                 the same API for an event loop
    errors                              every error that halog raises
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for True; to import `typing` takes longer than all else here
if TYPE_CHECKING:
    from dataclasses import field as field
    from typing import Any

    from halog import aio as aio, errors as errors
    from halog.core.durability import Durability as Durability
    from halog.runtime.events.node_notifiers import NodeChange as NodeChange
    from halog.runtime.events.partition_states import (
        PartitionChange as PartitionChange,
        partition_notifier as partition_notifier,
    )
    from halog.runtime.merge.compensation import on_conflict as on_conflict
    from halog.runtime.node.open import node as node
    from halog.schema import Decimals as Decimals, Ref as Ref, managed as managed
    from halog.transactions import (
        Node as Node,
        Transaction as Transaction,
        current as current,
        transaction as transaction,
    )
    from halog.transactions.token import Token as Token

    __version__: str

# public name -> "module" (the name is the module) or "module:attribute"
_PUBLIC: dict[str, str] = {
    "__version__": "halog.release:RELEASE",
    "Decimals": "halog.schema:Decimals",
    "Durability": "halog.core.durability:Durability",
    "Node": "halog.transactions:Node",
    "NodeChange": "halog.runtime.events.node_notifiers:NodeChange",
    "PartitionChange": "halog.runtime.events.partition_states:PartitionChange",
    "Ref": "halog.schema:Ref",
    "Token": "halog.transactions.token:Token",
    "Transaction": "halog.transactions:Transaction",
    "aio": "halog.aio",
    "current": "halog.transactions:current",
    "errors": "halog.errors",
    "field": "dataclasses:field",
    "managed": "halog.schema:managed",
    "on_conflict": "halog.runtime.merge.compensation:on_conflict",
    "partition_notifier": "halog.runtime.events.partition_states:partition_notifier",
    "node": "halog.runtime.node.open:node",
    "transaction": "halog.transactions:transaction",
}

__all__ = [
    "managed",
    "field",
    "Ref",
    "Decimals",
    "node",
    "Node",
    "transaction",
    "current",
    "Transaction",
    "Token",
    "Durability",
    "PartitionChange",
    "partition_notifier",
    "NodeChange",
    "on_conflict",
    "aio",
    "errors",
    "__version__",
]


def __getattr__(name: str) -> Any:
    target = _PUBLIC.get(name)
    if target is None:
        raise AttributeError(f"module 'halog' has no attribute {name!r}")
    module, _, attribute = target.partition(":")
    value = import_module(module)
    found = getattr(value, attribute) if attribute else value
    globals()[name] = found  # the next look-up is an ordinary one
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
