"""`python -m halog` is the same as the installed command `halog`."""

from __future__ import annotations

import sys

from halog.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
