"""What a mutant is, and how one is put into the core of this process."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NamedTuple

from halog.core.partition import Partition
from tests.sim.run import run_seed

SEEDS = range(2_000)
BROKEN: Final = ("halog", "restore", "spark_jobs", "mappers", "tests")
"""The packages of which modules are broken,"""
JUDGES: Final = ("tests.sim.checks", "tests.sim.lasting", "tests.sim.moves", "tests.sim.world")
"""but for these: they judge by the same functions, and who judges is not broken."""


class Mutant(NamedTuple):
    """A breakage: what it is called, which rule it breaks, how, and in which histories it must be noticed."""

    name: str
    rule: str
    break_it: Callable[[], None]
    seeds: range
    play: Callable[[int], str]
    """What must notice: what fails with a seed, or ""."""


MUTANTS: list[Mutant] = []


def simulated(seed: int) -> str:
    """By the simulation of one site."""
    return run_seed(seed).failure


def in_both(
    rule: str, models: range, play: Callable[[int], str], seeds: range
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register it twice: what plays the models must notice, and the simulation."""

    def register(fn: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(fn)
        def simulated_one() -> None:
            fn()

        simulated_one.__name__ = f"{fn.__name__}_simulated"
        mutant(rule, seeds, simulated)(simulated_one)
        return mutant(rule, models, play)(fn)

    return register


def mutant(
    rule: str, seeds: range = SEEDS, play: Callable[[int], str] = simulated
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a breakage under its function's name."""

    def register(fn: Callable[[], None]) -> Callable[[], None]:
        MUTANTS.append(Mutant(fn.__name__.replace("_", " "), rule, fn, seeds, play))
        return fn

    return register


def patch(owner: Any, name: str, new: Any) -> Any:
    """Replace an attribute; returns the old one. AttributeError where there is none: that would break nothing. A
    module's is replaced in every module that has imported it by name, too: else those would go on as before."""
    old = getattr(owner, name)
    setattr(owner, name, new)
    for module in list(sys.modules.values()) if isinstance(owner, ModuleType) else []:
        broken = module.__name__.partition(".")[0] in BROKEN and module.__name__ not in JUDGES
        if broken and vars(module).get(name) is old:
            setattr(module, name, new)
    return old


def handlers(event: type[Any], name: str) -> None:
    """The partition binds its handlers when it is made: bind the patched one."""

    def init(self: Partition, *args: Any) -> None:
        real(self, *args)
        self._handlers[event] = getattr(self, name)

    real = patch(Partition, "__init__", init)
