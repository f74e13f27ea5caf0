"""The application these tests use: managed classes of every interesting kind, in a registry of their own."""

from __future__ import annotations

import dataclasses

import halog.transactions as ht
from halog.schema import Ref, Registry, managed

REGISTRY = Registry()


class Refused(Exception):
    """An application's own exception."""


class Awkward(Exception):
    """An exception that cannot be made again from its args."""

    def __init__(self, need: int, have: int) -> None:
        super().__init__(f"need {need}, have {have}")


@dataclasses.dataclass
class Place:
    city: str
    visits: int = 0


@managed(key="tail", registry=REGISTRY)
class Aircraft:
    tail: str
    landings: int = 0
    miles: int = 0

    def land(self, miles: int) -> int:
        if miles < 0:
            self.miles = -999
            raise ValueError("miles must not be negative")
        self.landings += 1
        self.miles += miles
        return self.miles

    def land_twice(self, miles: int) -> int:
        self.land(miles)
        return self.land(miles)

    def refuse(self, how: str) -> None:
        self.landings = 77
        if how == "own":
            raise Refused("no slot", 3)
        if how == "awkward":
            raise Awkward(5, 2)
        if how == "exit":
            raise SystemExit(3)
        raise KeyError(how)

    def lend(self, other: str, miles: int) -> Ref[Aircraft]:
        """Takes from another object of the same partition, made here if it is missing."""
        tx = ht.current()
        found = tx.find(Aircraft, other)
        if found is None:
            found = tx.create(Aircraft(tail=other))
        found.miles += miles
        self.miles -= miles
        return tx.ref(found)

    def fleet(self) -> list[str]:
        return [a.tail for a in ht.current().extent(Aircraft)]

    def scrap(self, other: str) -> None:
        tx = ht.current()
        tx.delete(tx.get(Aircraft, other))

    def scrap_and_land(self, other: str, miles: int) -> None:
        self.scrap(other)
        self.land(miles)

    def badly_typed(self) -> int:
        self.miles = 5
        return "five"  # type: ignore[return-value]

    def note(self, seen: list[str]) -> None:
        seen.append(self.tail)


@managed(key="tail", registry=REGISTRY)
class Glider(Aircraft):
    span: float = 15.0


@managed(key=("owner", "number"), partition_by="owner", registry=REGISTRY)
class Account:
    owner: str
    number: int
    balance: int = 0
    tags: list[str] = dataclasses.field(default_factory=list)
    limits: dict[str, int] = dataclasses.field(default_factory=dict)
    place: Place = dataclasses.field(default_factory=lambda: Place("Bern"))
    friend: Ref[Account] | None = None

    def tag(self, text: str) -> None:
        self.tags.append(text)

    def transfer(self, to: int, amount: int) -> int:
        other = ht.current().get(Account, self.owner, to)
        other.balance += amount
        self.balance -= amount
        if self.balance < 0:
            raise Refused("not enough")
        return self.balance

    def replace(self, number: int) -> None:
        tx = ht.current()
        tx.delete(tx.get(Account, self.owner, number))
        tx.create(Account(self.owner, number, balance=1))


@managed(key="id", registry=REGISTRY)
class Plain:
    id: int
    text: str = ""


class NeverDeclared:
    pass
