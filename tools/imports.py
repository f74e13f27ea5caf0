"""Checks which module imports which: pyproject.toml's contracts, and that no modules import each other in a circle.

import-linter judges the contracts; it fails where one names a module that does not exist. A circle is looked for among
all modules of the repository, tests too. Imports that only type checkers read do not count for circles.
"""

from __future__ import annotations

import graphlib
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("halog", "mappers", "restore", "spark_jobs", "tools", "benchmarks", "examples", "tests")
LAZY = "halog"
"""This package names what it imports when that is asked for: importing it imports none of it."""


def circle(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Return modules of which each imports the next one, the last one being the first; none if there is no circle.
    `imports`: by module, what it imports."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        found: list[str] = error.args[1]
        return found[::-1]
    return []


def all_imports() -> dict[str, list[str]]:
    """Return what each module of the repository imports when it runs."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    return {m: [] if m == LAZY else sorted(graph.find_modules_directly_imported_by(m)) for m in sorted(graph.modules)}


def main() -> int:
    """Return 0 if every contract is kept and there is no circle."""
    linter = Path(sys.executable).parent / "lint-imports"
    code = subprocess.run([str(linter), "--no-cache"], cwd=ROOT, check=False).returncode
    sys.path.insert(0, str(ROOT))
    found = circle(all_imports())
    if found:
        print("these modules import each other: " + " -> ".join(found), file=sys.stderr)
    return code or bool(found)


if __name__ == "__main__":
    sys.exit(main())
