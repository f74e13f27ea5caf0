"""The application of these tests."""

from __future__ import annotations

import os

import halog
from tests.integration.objects.outside import Unlisted


class SoldOut(Exception):
    """An application's own exception."""


@halog.managed(key="name", partition_by="name")
class Shelf:
    name: str
    stock: int = 0
    notes: list[str] = halog.field(default_factory=list)
    blob: bytes = b""

    def take(self, count: int) -> int:
        self.stock -= count
        if self.stock < 0:
            raise SoldOut(self.name, count)
        return self.stock

    def sell(self, number: int, count: int) -> halog.Ref[Order]:
        """An order beside the shelf, in the same transaction."""
        self.take(count)
        tx = halog.current()
        return tx.ref(tx.create(Order(self.name, number, count)))

    def where(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        self.stock = -1
        raise Unlisted("who am I")


@halog.managed(key=("shelf", "number"), partition_by="shelf")
class Order:
    shelf: str
    number: int
    count: int = 0
