"""`python -m tests.golden VERSION` writes what this halog writes into tests/golden/VERSION, before that is released."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.golden.samples import all_samples

HERE = Path(__file__).parent


def write(version: str) -> None:
    """Write the files of a version, whatever they held."""
    folder = HERE / version
    folder.mkdir(exist_ok=True)
    for name, found in all_samples().items():
        (folder / f"{name}.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write(sys.argv[1])
