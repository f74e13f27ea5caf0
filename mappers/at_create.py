"""This module has mappers asked at create: a function is given a new object, and names its partition (P6).

    def by_size(made: NewObject, partitions: tuple[str, ...], states: States) -> str:
        return "bulk" if made.fields["size"] > 1_000_000 else min(partitions, key=lambda p: states[p].cpu or 0.0)

A key directory keeps the answer (`halog.core.keys.directory`), so the function need not give the same answer again. It
may look at the object, at how many objects partitions have, at the load of nodes, at a clock. It is asked once for each
create, in the process that creates, and when a partition is emptied. An answer that is no partition is an error, and
nothing happens. Nothing here asks anybody: what is known of partitions is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mappers.custom import MisplacedError


class NewObject(NamedTuple):
    """A `NewObject` is an object that is to be placed, to be read only. Values are those of its stored form, as tools
    have them: an Enum is its name, a nested record a dict."""

    type_name: str
    """The name of its own class."""
    key: tuple[Any, ...]
    fields: Mapping[str, Any]
    """Copies of its fields, by name, those of the key among them."""


class PartitionState(NamedTuple):
    """A `PartitionState` is what the asking process knows of a partition; None: nothing yet."""

    name: str
    nodes: tuple[str, ...] = ()
    """Its node list in order of priority, as configured: the nodes that are to have copies."""
    node: str | None = None
    """The active node."""
    objects: int | None = None
    """How many objects it has, as the active node counted `age_s` ago."""
    placed: int = 0
    """How many objects this process has had placed there since; some of these creates may have failed."""
    cpu: float | None = None
    """The load of the active node's host: processes that run or wait to run, mean of a minute, for each of its
    cores."""
    memory: float | None = None
    """The share of memory in use on the active node's host, 0 to 1."""
    age_s: float | None = None
    """How old these figures are."""


States = Mapping[str, PartitionState]
"""What is known, by partition. Nobody is asked before something is looked up in it."""
AtCreate = Callable[[NewObject, tuple[str, ...], States], str]


class AtCreateMapper:
    """An `AtCreateMapper` is such a function with the partitions there are. `name`: as errors show it."""

    __slots__ = ("_function", "_name", "partitions")

    def __init__(self, name: str, function: AtCreate, partitions: Sequence[str]) -> None:
        self._name = name
        self._function = function
        self.partitions = tuple(partitions)

    def choose(self, made: NewObject, states: States) -> str:
        """Return the partition that the function names. MisplacedError."""
        try:
            said: object = self._function(made, self.partitions, states)
        except KeyboardInterrupt:  # whoever waits for the answer pressed it
            raise
        except BaseException as error:
            raise self._misplaced(made, f"raised {type(error).__name__}: {error}") from error
        if not isinstance(said, str) or said not in self.partitions:
            raise self._misplaced(made, f"said {said!r}, which is no partition: {', '.join(self.partitions)}")
        return said

    def _misplaced(self, made: NewObject, what: str) -> MisplacedError:
        shown = ", ".join(map(repr, made.key))[:200]
        return MisplacedError(f"mapper {self._name} for {made.type_name} ({shown}) {what}"[:1_000])

    def __repr__(self) -> str:
        return f"AtCreateMapper({self._name}, partitions={len(self.partitions)})"
