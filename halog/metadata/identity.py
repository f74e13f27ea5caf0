"""This module says who asks for something, for whoever reads of it later."""

from __future__ import annotations

import getpass
import os
import socket


def who() -> str:
    """Return user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
