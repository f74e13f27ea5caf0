"""Publishing the definitions of declared classes (U2, U3): judged before anything is written, settled afterwards.

Two processes that publish definitions that cannot live with each other at the same moment are settled by the topic's
order: the first one stays, the other takes its own back and refuses to start. Both are registered before they look at
what others run, so one of them sees the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from halog.errors import RecordFormatError, SchemaChangedError
from halog.ports import Log
from halog.runtime.fitting import Runs, check_read_by, check_reads
from halog.runtime.schemas import Definitions
from halog.schema import Definition, Registry

LOOK_S: Final = 0.1


def publish(
    log: Log,
    topic: str,
    registry: Registry,
    running: Callable[[], Runs] = dict,
    *,
    hosts: bool = True,
    lasts_s: float = 0.0,
    unread: Callable[[Definition, Definition], None] = lambda new, old: None,
) -> Definitions:
    """Add the declared definitions the topic lacks. SchemaChangedError, before anything is written, if a declared class
    cannot read what a stored definition of its name wrote, or a definition that is `running` could not read what it
    writes. `lasts_s`: so long a process that is no more may seem to run. `unread` is told (new, older) of what is
    published although who runs the older one could not read it: nobody does."""
    definitions = Definitions(log, topic)
    declared = [info.parsed for info in registry.by_name.values()]
    older = _judged_in_time(definitions, declared, running, hosts, lasts_s)
    missing = [d for d in declared if not definitions.has(d.type_id)]
    for definition in missing:
        log.put(definitions.tp, definition.type_id, definition.text.encode())
    if missing:
        definitions.refresh()
        _settle(log, definitions, missing, running(), hosts)
    for pair in older:
        unread(*pair)
    return definitions


def _judged_in_time(
    definitions: Definitions, declared: Sequence[Definition], running: Callable[[], Runs], hosts: bool, lasts_s: float
) -> list[tuple[Definition, Definition]]:
    """Whom nobody asks costs nothing: others are only looked for where something is new, or wrong."""
    until = time.monotonic() + lasts_s
    look = False
    while True:
        definitions.refresh()
        look = look or not all(definitions.has(d.type_id) for d in declared)
        now = running() if look else {}
        try:
            return [pair for d in declared for pair in _judged(d, definitions, now, hosts)]
        except SchemaChangedError as error:
            if look and (not error.evidence["running"] or time.monotonic() >= until):
                raise
            time.sleep(LOOK_S if look else 0)
            look = True


def _judged(
    declared: Definition, definitions: Definitions, running: Runs, hosts: bool
) -> list[tuple[Definition, Definition]]:
    """What is stored already has been judged, by whoever published it; it must read what came since."""
    others = [d for d in definitions.of_name(declared.name) if d.type_id != declared.type_id]
    for stored in others:
        check_reads(declared, stored, running)
    if definitions.has(declared.type_id):
        return []
    return [(declared, stored) for stored in others if check_read_by(declared, stored, running, hosts=hosts)]


def _settle(log: Log, definitions: Definitions, ours: Sequence[Definition], running: Runs, hosts: bool) -> None:
    """Somebody may have published at the same moment: a definition before ours that cannot live with ours wins."""
    for definition in ours:
        before = definitions.before(definition.type_id)
        if before is None:
            raise RecordFormatError(
                f"topic {definitions.tp.topic} does not hold the definition of {definition.name} that was just "
                "written; is the topic damaged, or compacted away by another cluster?",
                type=definition.name,
            )
        try:
            for stored in before:
                check_reads(definition, stored, running)
                check_read_by(definition, stored, running, hosts=hosts)
        except SchemaChangedError:
            log.put(definitions.tp, definition.type_id, None)
            raise
