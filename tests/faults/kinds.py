"""One class per combination of durability policies (R6): what a commit waits for at the log, and at a replica."""

from __future__ import annotations

from typing import Any, Final

from halog.schema import managed

POLICIES: Final = ("SYNC", "WRITE_NO_SYNC", "NO_SYNC")
COMBINATIONS: Final = [(local, remote) for local in POLICIES for remote in POLICIES]


def name_of(local: str, remote: str) -> str:
    """Of the class and of its policy."""
    return f"log_{local}_replica_{remote}".lower()


def _declared(name: str) -> Any:
    return managed(key="number")(type(name, (), {"__annotations__": {"number": int}, "__module__": __name__}))


KINDS: dict[tuple[str, str], Any] = {
    (local, remote): _declared(name_of(local, remote)) for local, remote in COMBINATIONS
}
