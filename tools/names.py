"""`python -m tools.names` lists class names that stand more than once in halog: one word has one meaning."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TWINS = frozenset({("Node", "aio.py"), ("Transaction", "aio.py")})
"""Classes that bear the name of another one on purpose: `halog.aio` names its classes like those of the synchronous
API, so that an application that moves to an event loop keeps its words."""


def repeated(folder: Path) -> dict[str, list[str]]:
    """Return the names of classes of modules below a folder that stand there more than once, each with its places
    (`file:line`). The `TWINS` are left out."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and (node.name, str(path.relative_to(folder))) not in TWINS:
                found[node.name].append(f"{path.relative_to(folder)}:{node.lineno}")
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def main() -> int:
    """Return 1 and print what was found, 0 if every name is there once."""
    found = repeated(ROOT / "halog")
    for name, places in found.items():
        print(f"{name}: {', '.join(places)}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
