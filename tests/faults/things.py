"""The application of the fault suite: the smallest objects whose histories prove something."""

from __future__ import annotations

from dataclasses import field

from halog.schema import managed


class BurstError(Exception):
    """An application's own exception."""


@managed(key=("group", "name"), partition_by="group")
class Register:
    group: str
    name: str
    value: int = 0


@managed(key=("group", "name"), partition_by="group")
class Counter:
    group: str
    name: str
    value: int = 0

    def add(self, n: int) -> int:
        """Runs on the active node."""
        self.value += n
        return self.value

    def burst(self, n: int) -> None:
        """Fails in the middle."""
        self.value += n
        raise BurstError(f"at {self.value}")


@managed(key=("group", "name"), partition_by="group")
class Listing:
    group: str
    name: str
    values: list[int] = field(default_factory=list)


@managed(key=("group", "name"), partition_by="group")
class Ticket:
    """Written by a transaction that otherwise only reads: what it read is then checked at its commit."""

    group: str
    name: str
    number: int = 0


@managed(key=("group", "name"), partition_by="group")
class Blob:
    group: str
    name: str
    data: bytes = b""
