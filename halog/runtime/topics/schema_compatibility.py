"""This module says which definitions of a type can live side by side, and what is told of two that cannot (U2, U3). All
but `runs` is pure.

A process that starts reads whatever is stored, and the processes that run read whatever it writes. So a class is judged
both ways before its definition is published. It must be able to read what every stored definition wrote. And what it
writes must be readable by every definition that a living process runs or, where the process hosts nothing, that any
process may have run. A hosting node may bring what only the older classes cannot read, once nobody runs them: that is
how an application goes on to a newer one. Each process says what it runs by its registration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from halog.errors import SchemaChangedError
from halog.metadata import nodes
from halog.ports import Coordinator
from halog.schema import Definition
from halog.schema.evolution import evolved_reader

Runs = Mapping[str, frozenset[str] | None]
"""By process: the type ids it runs, as hex; None: it does not say, as those of an older halog."""

NOTHING = "Nothing was published"
"""Part of the errors: a class is judged before its definition is written."""
TEXT = 1_500
"""Characters of a definition in an error; the evidence has all."""


def runs(coordinator: Coordinator, me: str) -> Runs:
    """Return what the registered processes run, without this one."""
    names = [name for name in coordinator.children("nodes") if name != me]
    found = nodes.read_nodes(coordinator, names)
    return {name: None if info.types is None else frozenset(info.types) for name, info in found.items()}


def runners(stored: Definition, running: Runs) -> list[str]:
    """Return the processes that run this definition, or may."""
    type_id = stored.type_id.hex()
    return sorted(name for name, types in running.items() if types is None or type_id in types)


def check_reads(declared: Definition, stored: Definition, running: Runs) -> None:
    """Raise SchemaChangedError if the declared class cannot read what a stored definition wrote."""
    try:
        evolved_reader(stored, declared)
    except SchemaChangedError as error:
        field, why = _of(error, declared)
        who = runners(stored, running)
        is_run = f"which {_named(who)} run" if who else "which no process runs now"
        id_ = stored.type_id.hex()
        todo = (
            f"deploy the class that {_named(who)} run, or one that reads both"
            if who
            else f"deploy a class that reads both; or, if no stored object uses {id_}, take it back with `halog type "
            f"retire {stored.name} {id_}`"
        )
        raise _error(
            f"{field}: {why}. The class declared in this process cannot read what definition {id_} of {stored.name} "
            f"writes, {is_run}: one of the two is older. {NOTHING}; {todo}",
            declared,
            stored,
            error,
        ) from None


def unread_by(declared: Definition, stored: Definition) -> SchemaChangedError | None:
    """Return why a process with the stored definition could not read what the declared class writes; None: it can."""
    try:
        evolved_reader(declared, stored)
    except SchemaChangedError as error:
        return error
    return None


def check_read_by(declared: Definition, stored: Definition, running: Runs, *, hosts: bool) -> bool:
    """Raise SchemaChangedError if a stored definition that counts cannot read what the declared class would write.
    Returns True if this one cannot, and does not count."""
    error = unread_by(declared, stored)
    if error is None:
        return False
    who = runners(stored, running)
    if not who and hosts:
        return True
    field, why = _of(error, declared)
    id_ = stored.type_id.hex()
    if who:
        whom = f"{_named(who)}, which run definition {id_} of {stored.name},"
        todo = (
            "Declare the class so that they can (a field that is added has a constant default, one that they need "
            "stays, an enum gets no symbol, a type does not widen), or stop them and start the hosting nodes with this "
            "class first"
        )
    else:
        whom = f"Processes that run definition {id_} of {stored.name}"
        todo = (
            "None of them is up, but they could not start again, and this process hosts nothing: start a hosting node "
            "with this class first, or deploy theirs here"
        )
    reason = _seen_from_here(why)
    raise _error(
        f"{field}: {reason}. {whom} could not read what the class declared in this process writes. {NOTHING}. {todo}",
        declared,
        stored,
        error,
        who,
    )


def retold(error: SchemaChangedError, published: str) -> SchemaChangedError:
    """Return the same error, where `published` says what was published nevertheless."""
    return SchemaChangedError(str(error).replace(NOTHING, published, 1), **error.evidence)


def _seen_from_here(why: str) -> str:
    """Return what a process with the older class would say, as the one with the newer class says it."""
    if why.startswith("added "):
        return "theirs has it, without a constant default, and the class declared here does not"
    changed = re.fullmatch("(.*)changed from (.*) to (.*)", why)
    if changed is not None:
        return f"{changed[1]}the class declared here has {changed[2]}, theirs {changed[3]}"
    return why


def _of(error: SchemaChangedError, declared: Definition) -> tuple[str, str]:
    field = str(error.evidence.get("field", ""))
    return f"{declared.name}.{field}" if field else declared.name, str(error.evidence["why"])


def _error(
    text: str, declared: Definition, stored: Definition, of: SchemaChangedError, running: Sequence[str] = ()
) -> SchemaChangedError:
    return SchemaChangedError(
        f"{text}. Definition in the cluster: {stored.text[:TEXT]}; declared in this process: {declared.text[:TEXT]}",
        type=declared.name,
        field=of.evidence.get("field", ""),
        stored=stored.text,
        declared=declared.text,
        why=of.evidence["why"],
        running=[*running],
    )


def _named(who: Sequence[str]) -> str:
    shown = ", ".join(who[:5])
    return f"{shown} and {len(who) - 5} more" if len(who) > 5 else shown
