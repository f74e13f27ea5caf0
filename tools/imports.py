"""Checks which module imports which: pyproject.toml's contracts, and that no modules import each other in a circle.

import-linter judges the contracts; it fails where one names a module that does not exist. A circle is looked for among
all modules of the repository, tests too. Imports that only type checkers read do not count for circles.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("halog", "mappers", "restore", "spark_jobs", "tools", "benchmarks", "examples", "tests")
LAZY = frozenset({"halog"})
"""Packages that name what they would import when it is asked for: importing them imports none of it."""


def circles(imports: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others. Tarjan's algorithm, without
    recursion. `imports`: by module, what it imports."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []
    for start in imports:
        visits: list[tuple[str, Iterator[str]]] = [] if start in number else [(start, iter(imports[start]))]
        while visits:
            module, rest = visits[-1]
            if module not in number:
                number[module] = lowest[module] = len(number)
                path.append(module)
            following = next((m for m in rest if m not in number or m in path), None)
            if following is None:
                visits.pop()
                if lowest[module] == number[module]:
                    group = path[path.index(module) :]
                    del path[path.index(module) :]
                    found += [sorted(group)] if len(group) > 1 else []
                if visits:
                    lowest[visits[-1][0]] = min(lowest[visits[-1][0]], lowest[module])
            elif following in number:
                lowest[module] = min(lowest[module], number[following])
            else:
                visits.append((following, iter(imports.get(following, ()))))
    return found


def all_imports() -> dict[str, list[str]]:
    """Return what each module of the repository imports when it runs."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    lazy = {m for m in graph.modules if m in LAZY}
    return {m: [] if m in lazy else sorted(graph.find_modules_directly_imported_by(m)) for m in sorted(graph.modules)}


def main() -> int:
    """Return 0 if every contract is kept and there is no circle."""
    linter = Path(sys.executable).parent / "lint-imports"
    code = subprocess.run([str(linter), "--no-cache"], cwd=ROOT, check=False).returncode
    sys.path.insert(0, str(ROOT))
    found = circles(all_imports())
    for group in found:
        print("these modules import each other: " + ", ".join(group), file=sys.stderr)
    return code or bool(found)


if __name__ == "__main__":
    sys.exit(main())
