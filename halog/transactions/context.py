"""This module knows the current transaction: one per thread and per asyncio task, in a ContextVar.

A task inherits its creator's context, but not its transaction: only the task that began a transaction sees it. A task
does inherit a compensation trigger's ban on changes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from halog.errors import ForkedError, NoTransactionError, RefusedError

if TYPE_CHECKING:
    from halog.transactions.writing import Transaction

CURRENT: ContextVar[Transaction | None] = ContextVar("halog_transaction", default=None)

TRIGGERED: ContextVar[bool] = ContextVar("halog_triggered", default=False)
"""Does a compensation trigger run?"""


@contextmanager
def changes_nothing() -> Iterator[None]:
    """Mark this context as that of a compensation trigger, which may only read what its node has."""
    token = TRIGGERED.set(True)
    try:
        yield
    finally:
        TRIGGERED.reset(token)


def check_may_change() -> None:
    """Raise RefusedError in a compensation trigger."""
    if TRIGGERED.get():
        raise RefusedError(
            'a compensation trigger changes nothing itself: it returns a verdict; only read="local" is allowed'
        )


def forked_error() -> ForkedError:
    """Make the error for a child process that uses its parent's node or transaction; nothing was done."""
    return ForkedError(
        "this process was forked from the one that opened the node, and may not use its connections; nothing was done: "
        "open a node after fork()"
    )


def task_now() -> Any:
    """Return the running asyncio task, or None. It looks at asyncio only if some module has imported it."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return None
    return asyncio.current_task()


def open_here() -> Transaction | None:
    """Return the open transaction of this thread or task, if any."""
    tx = CURRENT.get()
    if tx is None or tx.state:
        return None
    if tx.task is not None or "asyncio" in sys.modules:
        task = task_now()
        if task is not None and task is not tx.task:
            return None
    return tx


def current() -> Transaction:
    """Return the transaction open in this thread or task (D1); NoTransactionError if there is none."""
    tx = open_here()
    if tx is None:
        raise NoTransactionError("no transaction is open here; write `with node.transaction():`")
    return tx
