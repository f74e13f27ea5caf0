"""This module makes `python -m halog` the same command as the installed `halog`."""

from __future__ import annotations

import sys

from halog.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
