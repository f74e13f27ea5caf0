"""This module has what a `Membership` is given where nobody wants to be told, and nobody judges."""

from __future__ import annotations

from halog.core.ids import Member
from halog.core.table.zones import NodeContacts


def sees() -> bool:
    """Say that the own coordinator session sees registrations."""
    return True


def judges_nobody(sight: NodeContacts) -> str:
    """Say that this node is not offline, whomever it sees."""
    return ""


def tells_nobody(node: str, up: bool, why: str) -> None:
    """Tell nobody of other nodes."""


def follows_nobody(member: Member) -> None:
    """Tell nobody of runs that others have taken the place of."""
