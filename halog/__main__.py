"""This module is where the command begins: the installed `halog`, and `python -m halog`."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the process's command line and return the exit code. Ctrl-C ends it quietly with 130, also while Python still
    imports what it needs. O1."""
    try:
        from halog.signals import leave_when_interrupted

        leave_when_interrupted()
        from halog.cli.main import main as run
    except KeyboardInterrupt:
        os._exit(130)  # 128 + SIGINT; there is nothing to close yet
    return run()


if __name__ == "__main__":
    sys.exit(main())
