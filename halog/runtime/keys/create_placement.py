"""This module says where a new object goes whose mapper is no function of its key (P6).

Either the partitions take turns, or a mapper that is asked at create decides. Whoever asks keeps the answer: in the key
directory, beside the object (`halog.core.keys.directory`). This module keeps only whose turn it is, and, until newer
figures come, what was placed where (`halog.runtime.keys.loads`).
"""

from __future__ import annotations

from collections.abc import Callable

from halog.config import Config
from halog.config.mapper import is_at_create
from halog.core.keys.mapping import Layout
from halog.errors import MapperError
from halog.runtime.keys.key_owners import Owner, at_create
from halog.runtime.keys.loads import PartitionLoads
from mappers import AtCreateMapper, MisplacedError, NewObject, RoundRobin, stable_hash

Made = Callable[[], NewObject]
"""Returns what the object is; called only where the mapper looks at it."""


class CreatePlacement:
    """Chooses the partitions of new objects, in one process. `start` names the process, so that not all begin their
    turns at the same partition."""

    def __init__(self, config: Config, loads: PartitionLoads, start: bytes = b"") -> None:
        self._config = config
        self._loads = loads
        self._start = stable_hash(start)
        self._turns: dict[str, RoundRobin] = {}
        """By policy."""
        self._mappers: dict[tuple[str, Layout], AtCreateMapper] = {}

    def next_of(self, owner: Owner, made: Made) -> str:
        """Return the partition of a new object: one that the newest layout of the policy has. Raises MapperError, and
        ConfigError where this process does not have the mapper's code."""
        if owner.layout is None or not is_at_create(owner.layout.mapper):
            return self._next_turn(owner)
        mapper, new = self._mapper(owner.policy, owner.layout), made()
        try:
            to = mapper.choose(new, self._loads.states(mapper.partitions))
        except MisplacedError as error:
            raise MapperError(f"{error}; nothing was done", type=new.type_name, policy=owner.policy) from error
        self._loads.placed(to)
        return to

    def _mapper(self, policy: str, layout: Layout) -> AtCreateMapper:
        found = self._mappers.get((policy, layout))
        if found is None:
            found = self._mappers[policy, layout] = at_create(self._config, policy, layout)
        return found

    def _next_turn(self, owner: Owner) -> str:
        turns = self._turns.get(owner.policy)
        if turns is None or turns.partitions != len(owner.names):
            turns = self._turns[owner.policy] = RoundRobin(len(owner.names), self._start % len(owner.names))
        return owner.names[turns.partition(b"")]
