"""Asks the test to restart a node, as `halog upgrade start --hook` runs it: a node must be a child of the test, with
which it ends. It ends when the test has done it, or the command that runs it is no more."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

LOOK_S = 0.01


def main(directory: Path) -> None:
    wish = directory / f"{os.environ['HALOG_NODE']}.wish"
    draft = wish.with_suffix(".draft")
    draft.write_text(os.environ["HALOG_TO"])
    draft.rename(wish)
    command = os.getppid()
    while wish.exists() and os.getppid() == command:
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
