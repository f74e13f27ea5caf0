"""Runs import-linter on pyproject's contracts, without the modules that do not exist yet.

import-linter refuses a contract that names a missing module; the contracts name the whole house from the first day.
Prints what it left out, so that nothing is left out silently.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

MODULES = ("layers", "source_modules", "forbidden_modules")  # the keys that hold modules
ROOT = Path(__file__).resolve().parents[1]


def exists(module: str) -> bool:
    """Whether the dotted name is a module or package of this tree."""
    path = ROOT.joinpath(*module.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def present(modules: list[str], ours: list[str], missing: set[str]) -> list[str]:
    """Those that exist or are not ours; a layer may be several joined by ':'."""
    kept = []
    for entry in modules:
        parts = [m.strip() for m in entry.split(":")]
        there = [m for m in parts if m.split(".")[0] not in ours or exists(m)]
        missing.update(set(parts) - set(there))
        if there:
            kept.append(" : ".join(there))
    return kept


def reduced(config: dict[str, Any], missing: set[str]) -> dict[str, Any]:
    """The configuration with what exists."""
    ours = list(config["root_packages"])
    result = {**config, "root_packages": present(ours, ours, missing), "contracts": []}
    for contract in config["contracts"]:
        lists = {k: present(v, ours, missing) for k, v in contract.items() if k in MODULES}
        if all(lists.values()):
            result["contracts"].append({**contract, **lists})
    return result


def to_ini(config: dict[str, Any]) -> str:
    """import-linter's own format; the standard library writes no TOML."""

    def lines(values: dict[str, Any]) -> list[str]:
        return [
            f"{k} =\n    " + "\n    ".join(v) if isinstance(v, list) else f"{k} = {v}"
            for k, v in values.items()
            if k != "contracts"
        ]

    text = ["[importlinter]", *lines(config)]
    for number, contract in enumerate(config["contracts"]):
        text += [f"[importlinter:contract:{number}]", *lines(contract)]
    return "\n".join(text) + "\n"


def main() -> int:
    """The linter's exit code."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    missing: set[str] = set()
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as f:
        f.write(to_ini(reduced(config, missing)))
        f.flush()
        linter = Path(sys.executable).parent / "lint-imports"
        code = subprocess.run([str(linter), "--config", f.name, "--no-cache"], cwd=ROOT, check=False).returncode
    if missing:
        print("not there yet, so not checked: " + " ".join(sorted(missing)))
    return code


if __name__ == "__main__":
    sys.exit(main())
