"""A merge of `merging_world`, begun and done."""

from __future__ import annotations

from dataclasses import dataclass, field

from halog.core.ids import EpochId
from restore.branch import Branch, BranchReader, Side
from restore.divergence import Fork
from restore.undoing import Undoing
from tests.unit.core.sites.copy_model import Held
from tests.unit.core.sites.site_model import Session, Writer


@dataclass
class Begun:
    """A merge, or its undoing, as far as one active node got."""

    writer: Writer
    floor: int
    name: bytes
    theirs: Side | None = None
    fork: Fork | None = None
    read: Branch | None = None
    own: BranchReader | None = None
    """What the source had done when it was begun."""
    two_way: bool = False
    undoing: Undoing | None = None
    epoch: EpochId | None = None
    before: dict[bytes, Held] = field(default_factory=dict)
    """What the source has."""
    session: Session | None = None
    """The parts, and what makes them count, are under way."""


@dataclass
class Done:
    """A merge that counts."""

    at: str
    name: bytes
    lsn: int
