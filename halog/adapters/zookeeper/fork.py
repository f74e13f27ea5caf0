"""This module leaves kazoo's clients to the parent when a process forks: nothing of them is to be ended in the child.

kazoo asks to be stopped when the interpreter ends; in a child that would wait for a lock which a thread of the parent
held when it forked.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any

_CLIENTS: weakref.WeakSet[Any] = weakref.WeakSet()


def left_to_the_parent(client: Any) -> None:
    """Let nothing of this client end with a child."""
    _CLIENTS.add(client)


def _in_child() -> None:
    for client in list(_CLIENTS):
        atexit.unregister(client.handler.stop)


os.register_at_fork(after_in_child=_in_child)
