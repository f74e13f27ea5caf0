"""This module says what a command finds around it: by what it reaches a cluster, and which code of the application is
there. Whoever calls a command line in his own process may say something else."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Protocol

import click

from halog.config import Config
from halog.runtime.node.wiring import adapters_for
from halog.runtime.support.adapters import Adapters
from halog.schema.registry import DEFAULT, Registry

NODE_ANSWER_S = 1.0
"""A node that takes longer to describe itself is shown as silent; others suspect it after 0.6 s."""

MIRROR_STALE_S = 10.0
"""A mirror's standing older than this says nothing of now: mirrors write theirs every two seconds."""


class AdapterMaker(Protocol):
    """Makes the adapters of a tool of this name. Nobody waits longer than `answer_s` for ZooKeeper's answer."""

    def __call__(self, config: Config, name: str, *, answer_s: float) -> Adapters: ...


@dataclass(frozen=True)
class Surroundings:
    """Holds what is around a command. `halog.cli.main.main` takes them."""

    adapters: AdapterMaker = adapters_for
    registry: Registry = DEFAULT
    machine: str = field(default_factory=socket.gethostname)
    node_answer_s: float = NODE_ANSWER_S
    mirror_stale_s: float = MIRROR_STALE_S


def of_command() -> Surroundings:
    """Return what is around the command that runs."""
    context = click.get_current_context(silent=True)
    return (context and context.find_object(Surroundings)) or Surroundings()
