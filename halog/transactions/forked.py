"""This module makes a forked child process leave its parent's nodes alone.

Threads are not copied, and connections are the parent's: writing to one in the child, or closing it, does that to the
parent. So in the child no node is open any more, and the parent's transaction is over. The child may open a node of its
own. The parts of the parent's node are never destroyed in the child: their libraries would wait for threads that are
not there, or crash. They do not end at exit either: when Python is done with the child, the process ends at once.

Python reports its own forks alone (`os.fork`, multiprocessing). In a child that a library forks by itself, without
Python, everything stays as it was.
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
"""A function of glibc."""

SPACES: Final[weakref.WeakSet[Space]] = weakref.WeakSet()
"""Spaces of this process. Asking for the process's id with every transaction would cost as much as beginning one."""


def _left_to_the_parent() -> None:
    """Leave nodes and transactions to the parent; this runs first of all in the child."""
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
