"""`python -m tools.again NAME PYTEST-ARGUMENTS…`: a step of `make test`, whose single failing test is run again.

These steps run real processes, servers and clocks beside each other on machines that others use, too: among thousands
of tests one meets a pause of seconds that has nothing to do with what it proves. Failing again, alone, it has failed;
passing alone, it is *unsteady*: the step passes, its first failure stays above, and build/unsteady.json names it to
whoever looks after the tests. Two failures in a step are no accident: nothing is run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

MOST: Final = 1
"""Failures of a step that may be an accident: of some 2,000 tests, on the worst machine seen so far."""

FOUND: Final = Path("build/unsteady.json")
TESTS_FAILED: Final = 1
"""pytest's exit code for it; any other is no matter of a test."""


def main(arguments: list[str]) -> int:
    """The step's exit code."""
    name, asked = arguments[0], arguments[1:]
    cache = Path("build/steps") / name
    failed = _failed(cache)
    failed.unlink(missing_ok=True)  # of an earlier run
    pytest = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}"]
    code = subprocess.run([*pytest, *asked], check=False).returncode
    if code != TESTS_FAILED:
        return code
    tests = sorted(json.loads(failed.read_text())) if failed.exists() else []
    if not 0 < len(tests) <= MOST:
        return code
    print(f"{name}: run again, alone: {' '.join(tests)}", flush=True)
    if subprocess.run([*pytest, *asked, "--last-failed", "-n", "0"], check=False).returncode:
        return code
    _note(name, tests)
    print(f"{name}: UNSTEADY, it failed beside others and passed alone (above, and in {FOUND}): {' '.join(tests)}")
    return 0


def _failed(cache: Path) -> Path:
    return cache / "v" / "cache" / "lastfailed"


def _note(step: str, tests: list[str]) -> None:
    known = json.loads(FOUND.read_text()) if FOUND.exists() else []
    FOUND.parent.mkdir(exist_ok=True)
    FOUND.write_text(json.dumps(known + [{"step": step, "test": test} for test in tests], indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
