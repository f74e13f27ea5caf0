"""The state machines as tables and diagrams: `python -m tools.diagrams` makes docs/states.md of the code's tables.

A test says when the document is stale (tests/unit/docs/test_states.py).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from halog.core import roles
from halog.core.membership import node_states
from halog.core.table import states as life, zones

PATH: Final = Path(__file__).resolve().parents[1] / "docs/states.md"

HEAD: Final = """# State machines

Made from the code's own tables by `python -m tools.diagrams`; what is not in a table cannot happen.
"""

MACHINES: Final[tuple[tuple[str, str, Mapping[Any, Mapping[str, Any]]], ...]] = (
    (
        "A partition",
        "As each node knows it (P8, `halog/core/table/states.py`). Migrating, Replicating and Updating are transient.",
        life.TRANSITIONS,
    ),
    (
        "A node's quorum in a zone",
        "As the node itself sees it (Q1, `halog/core/table/zones.py`). Switched off, none leads to disabled.",
        zones.TRANSITIONS,
    ),
    (
        "Another node",
        "As each process knows it (N3, `halog/core/membership/node_states.py`). InUpNotifier and InDownNotifier last "
        "until\nthe application's notifiers have returned.",
        node_states.TRANSITIONS,
    ),
    ("A copy", "Its role on one node (`halog/core/roles.py`, which says what each one does).", roles.TRANSITIONS),
)


def document() -> str:
    """The whole file."""
    return "\n".join([HEAD, *(line for machine in MACHINES for line in _section(*machine))])


def _section(title: str, text: str, table: Mapping[Any, Mapping[str, Any]]) -> Iterator[str]:
    yield from (f"## {title}", "", text, "", "```mermaid", "stateDiagram-v2")
    for before, ways in table.items():
        for after in dict.fromkeys(ways.values()):  # one arrow, with every happening that takes it
            said = " / ".join(happening for happening, to in ways.items() if to is after)
            yield f"    {_node(before)} --> {_node(after)}: {said}"
    yield from ("```", "", "| from | happening | to |", "|---|---|---|")
    for before, ways in table.items():
        yield from (f"| {_text(before)} | {happening} | {_text(after)} |" for happening, after in ways.items())
    yield ""


def _text(state: enum.Enum | None) -> str:
    return "—" if state is None else str(state.value)


def _node(state: enum.Enum | None) -> str:
    return "[*]" if state is None else str(state.value)


if __name__ == "__main__":
    PATH.write_text(document())
    print(f"{PATH.name} written")
