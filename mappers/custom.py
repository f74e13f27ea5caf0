"""A custom mapper is a function of the application's that says which partition a key belongs to (P6).

    @mappers.versioned(2)
    def by_region(type_name: str, key: tuple[Any, ...]) -> str:
        return "eu" if key[0].startswith("EU") else "us"

It is given the name of the type's topmost base, so that a look-up of a base finds its subclasses' objects, and the
`partition_by` values (an Enum as its name). It answers with a partition's name. It must be pure: the same answer in
every process and for ever. That cannot be proved. But an answer that differs between two calls in a row, or is no
partition, is an error, and nothing happens. Whoever changes the answers gives the function another version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

Function = Callable[[str, tuple[Any, ...]], str]
AnyFunction = Callable[..., str]
"""Any mapper function, also one that is asked at create."""
F = TypeVar("F", bound=Callable[..., Any])

FIRST_VERSION: Final = 1
"""The version of a function that names none: nobody has changed it yet."""


class MisplacedError(ValueError):
    """A custom mapper failed, or gave an impossible answer. The error names mapper, type, key and answer; nothing was
    placed."""


def versioned(version: int, *, earlier: AnyFunction | None = None) -> Callable[[F], F]:
    """Give a mapper function its version, another one for every change of its answers. `earlier`: the function of the
    version before, so that one code knows both while a cluster goes from one to the other."""

    def mark(function: F) -> F:
        function.version, function.earlier = version, earlier  # type: ignore[attr-defined]
        return function

    return mark


def version_of(function: Callable[..., Any]) -> int:
    """Return the version that a mapper function names, else 1. ValueError for anything but a number from 1."""
    version = getattr(function, "version", FIRST_VERSION)
    if type(version) is not int or version < 1:
        raise ValueError(f"its version must be a whole number from 1, is {version!r}")
    return version


def earlier_of(function: AnyFunction) -> dict[int, AnyFunction]:
    """Return every version that a function's code has, the newest first. ValueError as in `version_of`."""
    found: dict[int, AnyFunction] = {}
    at: AnyFunction | None = function
    while at is not None and version_of(at) not in found:
        found[version_of(at)] = at
        at = getattr(at, "earlier", None)
    return found


class CustomMapper:
    """A `CustomMapper` is a mapper function for one type. `name`: as errors show it; `names`: the policy's partitions
    by index; `values_of`: reads the `partition_by` values from a routing key."""

    __slots__ = ("_function", "_index", "_name", "_type_name", "_values_of", "partitions")

    by_key: Final = True

    def __init__(
        self,
        name: str,
        function: Function,
        type_name: str,
        names: Sequence[str],
        values_of: Callable[[bytes], tuple[Any, ...]],
    ) -> None:
        self.partitions = len(names)
        self._name = name
        self._function = function
        self._type_name = type_name
        self._values_of = values_of
        self._index = {partition: i for i, partition in enumerate(names)}

    def partition(self, routing_key: bytes) -> int:
        """Return the index of the partition that the function names. MisplacedError."""
        values = self._values_of(routing_key)
        first, again = self._ask(values), self._ask(values)
        index = self._index.get(first) if isinstance(first, str) else None
        if index is None:
            raise self._misplaced(values, f"said {first!r}, which is no partition: {', '.join(self._index)}")
        if again != first:
            raise self._misplaced(values, f"said {first!r} and then {again!r}: it must look at type and key only")
        return index

    def _ask(self, values: tuple[Any, ...]) -> object:
        try:
            return self._function(self._type_name, values)
        except KeyboardInterrupt:  # whoever waits for the answer pressed it
            raise
        except BaseException as error:
            raise self._misplaced(values, f"raised {type(error).__name__}: {error}") from error

    def _misplaced(self, values: tuple[Any, ...], what: str) -> MisplacedError:
        shown = ", ".join(map(repr, values))[:200]
        return MisplacedError(f"mapper {self._name} for {self._type_name} ({shown}) {what}"[:1_000])

    def __repr__(self) -> str:
        return f"CustomMapper({self._name}, partitions={self.partitions})"
