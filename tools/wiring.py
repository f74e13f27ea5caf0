"""`python -m tools.wiring` lists what halog/runtime/node assigns into other objects: constructors are to wire parts.

Two things are looked for. An attribute of another object is assigned. A callback begins as a lambda and is replaced
later.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PUTS_TOGETHER = "halog/runtime/node"
"""The room that puts things together."""
PARTS = "halog/runtime"
"""Where the parts are that it puts together."""


def _targets(tree: ast.Module) -> Iterator[tuple[ast.Attribute, ast.expr | None]]:
    """Yields each attribute that is assigned, with the value if it is assigned alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                alone = isinstance(target, ast.Attribute)
                for found in ast.walk(target):
                    if isinstance(found, ast.Attribute) and isinstance(found.ctx, ast.Store):
                        yield found, node.value if alone else None
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and isinstance(node.target, ast.Attribute):
            yield node.target, node.value


def _is_own(target: ast.Attribute) -> bool:
    """Says whether this is an attribute of the very object whose method assigns it."""
    return isinstance(target.value, ast.Name) and target.value.id in {"self", "cls"}


def foreign_assignments(folder: Path) -> list[str]:
    """Return where an attribute of another object is assigned: `file:line: target`."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        for target, _ in _targets(ast.parse(path.read_text())):
            if not _is_own(target):
                found.append(f"{path.relative_to(folder)}:{target.lineno}: {ast.unparse(target)}")
    return found


def replaced_lambdas(folder: Path) -> list[str]:
    """Return the attributes that begin as a lambda in one place and are assigned in another: `file:line: name`."""
    begun: dict[str, str] = {}
    times: dict[str, int] = {}
    for path in sorted(folder.rglob("*.py")):
        for target, value in _targets(ast.parse(path.read_text())):
            times[target.attr] = times.get(target.attr, 0) + 1
            if isinstance(value, ast.Lambda):
                begun[target.attr] = f"{path.relative_to(folder)}:{target.lineno}: {target.attr}"
    return [place for name, place in begun.items() if times[name] > 1]


def main() -> int:
    """Return 1 and print what was found, 0 if there is nothing."""
    found = foreign_assignments(ROOT / PUTS_TOGETHER) + replaced_lambdas(ROOT / PARTS)
    for place in found:
        print(place)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
