"""The rooms as pictures: `python -m tools.rooms` draws docs/rooms.md from the imports of the code.

An arrow says that a module of one room imports one of another. What follows from other arrows is left out: where A
knows B and B knows C, an arrow from A to C would say nothing new. A test says when the document is stale
(tests/unit/docs/test_rooms.py).
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import grimp

PATH: Final = Path(__file__).resolve().parents[1] / "docs/rooms.md"

HEAD: Final = """# Rooms

Drawn from the imports of the code by `python -m tools.rooms`, those that only type checkers read included.
An arrow points to what a room knows. Arrows that follow from others are left out.
[architecture.md](architecture.md#rooms) says what each room is for.
"""

HALLS: Final = {
    "halog": "The whole",
    "halog.core": "The core",
    "halog.runtime": "The runtime",
    "halog.cli": "The command line",
}
PACKAGES: Final = ("halog", "mappers", "restore", "spark_jobs")


def rooms_of(hall: str) -> dict[str, set[str]]:
    """Return the rooms and single modules directly in a hall, each with those of the same hall that it imports. The
    other packages of the repository count as rooms of halog."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    found: dict[str, set[str]] = {}
    for module in sorted(graph.modules):
        room = _room(module, hall)
        if room:
            imported = {_room(m, hall) for m in graph.find_modules_directly_imported_by(module)}
            found.setdefault(room, set()).update(imported - {"", room})
    return found


def _room(module: str, hall: str) -> str:
    """Return the room of a module; an empty text if it is not in this hall."""
    if module.startswith(f"{hall}."):
        return module.split(".")[hall.count(".") + 1]
    package = module.partition(".")[0]
    return package if hall == "halog" and package != "halog" else ""


def reduced(known: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the arrows without those that follow from others. CycleError (graphlib) if there is a circle."""
    below: dict[str, set[str]] = {}
    for room in graphlib.TopologicalSorter(known).static_order():
        direct = known.get(room, set())
        below[room] = direct.union(*(below[other] for other in direct))
    return {
        room: {other for other in direct if not any(other in below[by] for by in direct)}
        for room, direct in known.items()
    }


def document() -> str:
    """Return the whole file."""
    return "\n".join([HEAD, *(line for hall, title in HALLS.items() for line in _section(hall, title))])


def _section(hall: str, title: str) -> Iterator[str]:
    folder = PATH.parents[1].joinpath(*hall.split("."))
    yield from (f"## {title} (`{hall.replace('.', '/')}`)", "", "```mermaid", "flowchart TD")
    for room, known in sorted(reduced(rooms_of(hall)).items()):
        yield f"    {room}([{room}.py])" if (folder / f"{room}.py").exists() else f"    {room}[{room}]"
        yield from (f"    {room} --> {other}" for other in sorted(known))
    yield from ("```", "")


if __name__ == "__main__":
    PATH.write_text(document())
    print(f"{PATH.name} written")
