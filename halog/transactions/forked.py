"""What a child process has of its parent's nodes behind fork(): nothing that it may use.

Threads are not copied, and connections are the parent's: whoever writes to one or shuts it down does it to the parent.
So in the child no node is open any more, and the transaction that was is over; a node of its own it may open. What the
parent's node is made of is never destroyed there: its libraries would wait for their threads, which are not there, or
crash. Nor do they end themselves: when Python is done with the child, nothing else is.

Python tells of its own forks alone (`os.fork`, multiprocessing). A child that a library forks by itself, without
telling Python, finds all of it as it was.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import TYPE_CHECKING, Final

from halog.transactions import retry
from halog.transactions.context import CURRENT

if TYPE_CHECKING:
    from halog.transactions.space import Space

_LIBC = ctypes.CDLL(None)
_ON_EXIT = getattr(_LIBC, "on_exit", None)
"""Of glibc."""

SPACES: Final[weakref.WeakSet[Space]] = weakref.WeakSet()
"""Of this process. Asking for the process's id with every transaction costs as much as beginning one."""


def _left_to_the_parent() -> None:
    """In the child, before anything else of it runs."""
    if retry.OPEN_NODES and _ON_EXIT is not None:  # called with the exit code, before what was registered before it
        _ON_EXIT(_LIBC._exit, None)
    for node in retry.OPEN_NODES:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(node))
    retry.OPEN_NODES.clear()
    for space in SPACES:
        space.leave_behind()
    SPACES.clear()
    tx = CURRENT.get()
    if tx is not None:
        tx.leave_behind()


os.register_at_fork(after_in_child=_left_to_the_parent)
