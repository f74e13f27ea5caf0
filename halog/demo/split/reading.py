"""This module reads what is there: as an application reads it, as each node's own store has it, and as the report of a
merge tells it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from halog.backend import CommittedObject
from halog.demo.journal import Sums
from halog.demo.model import Aircraft, Airport
from halog.demo.result import CopyCheck
from halog.demo.split.journal import AIRCRAFT, AIRPORT
from halog.demo.split.model import Departure, departure_key, departure_state
from halog.demo.split.verify import ReportedConflict, SiteObjects
from halog.demo.verify_copies import Ask, Belongs, compare, read_store
from halog.transactions import Node

Store = dict[tuple[str, bytes], tuple[bytes, bytes]]
"""(partition, index key) → (reference, value)."""


def seen(node: Node) -> SiteObjects:
    """Read by the application's own verbs, from the active nodes."""
    with node.transaction():
        departures = [(departure_key(f), departure_state(f)) for f in map(_fields, node.extent(Departure))]
    with node.transaction():
        sums: list[tuple[str, str, Sums]] = [
            *((AIRCRAFT, a.tail, (a.landings, a.miles, a.minutes)) for a in node.extent(Aircraft)),
            *((AIRPORT, a.code, (a.arrivals, a.miles, a.minutes)) for a in node.extent(Airport)),
        ]
    return SiteObjects(departures, sums)


def _fields(d: Departure) -> dict[str, Any]:
    return {name: getattr(d, name) for name in ("time_hour", "carrier", "flight", "tail", "gate", "status", "by")}


def store(ask: Ask, led: Mapping[str, str]) -> Store:
    """Return all objects of a site, as the node that leads each partition holds them."""
    return {(p, f.key): (f.ref, f.value) for p, node in led.items() for f in read_store(ask, node, p)}


def copies(asks: Mapping[str, Ask], partitions: Iterable[str], belongs: Belongs) -> CopyCheck:
    """Compare every node's copy of every partition with every other's: reference, version, key and value; and each
    object with where it `belongs`, so that none is there twice. `asks`: by node, how to ask it."""

    def read(node: str, partition: str) -> Iterator[CommittedObject]:
        return read_store(asks[node], node, partition)

    return compare({partition: list(asks) for partition in partitions}, read, belongs)


def exported(path: Path) -> list[dict[str, Any]]:
    """Return a report, as `halog conflicts export` wrote it: every object that either site touched."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def named(objects: Iterable[Mapping[str, Any]]) -> set[tuple[str, str, str]]:
    """Return what the report says of each object: type, key and kind."""
    return {(o["type"], json.dumps(o["key"]), o["is"]) for o in objects}


def reported(conflicts: Iterable[Mapping[str, Any]]) -> dict[str, ReportedConflict]:
    """Return the departures among the conflicts."""
    return {
        _key(o): ReportedConflict(o["is"], _state(o["source"]), _state(o["initiating"]))
        for o in conflicts
        if o["type"] == Departure.__name__
    }


def _key(o: Mapping[str, Any]) -> str:
    return departure_key(dict(zip(("time_hour", "carrier", "flight", "tail"), o["key"], strict=True)))


def _state(told: Mapping[str, Any] | None) -> str:
    return "" if told is None else departure_state(told["fields"])
