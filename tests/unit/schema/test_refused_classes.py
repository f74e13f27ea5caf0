"""Classes that cannot be managed: what would break later is refused where it is declared, by name."""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, TypeVar

import pytest

from halog.errors import DeclarationError
from halog.schema import Registry, managed

HERE = Registry()
T = TypeVar("T")


def bad_classes() -> list[tuple[str, Any, str]]:
    class Slots:
        __slots__ = ("k",)
        k: int

    @dataclasses.dataclass
    class Already:
        k: int

    class Setter:
        k: int

        def __setattr__(self, name: str, value: object) -> None: ...

    class Coroutine:
        k: int

        async def f(self) -> None: ...

    class Shared:
        k: int
        xs: list[int] = []  # noqa: RUF012

    class Order:
        k: int = 1
        x: str

    class WrongDefault:
        k: int
        x: int = None  # type: ignore[assignment]

    class Init:
        k: int
        x: dataclasses.InitVar[int]

    class Reserved:
        k: int
        _halog: int

    class NoInit:
        k: int
        x: int = dataclasses.field(init=False)

    class Both(Generic[T]):
        k: int
        x: T

    return [
        ("Slots", Slots, "__slots__"),
        ("Already", Already, "leave @dataclass away"),
        ("Setter", Setter, "__setattr__"),
        ("Coroutine", Coroutine, "coroutine or generator"),
        ("Shared", Shared, "default_factory"),
        ("Order", Order, "non-default argument"),
        ("WrongDefault", WrongDefault, r"WrongDefault\.x: None: the default is no int"),
        ("Init", Init, "InitVar"),
        ("Reserved", Reserved, "halog's own"),
        ("NoInit", NoInit, "needs a default"),
        ("Both", Both, "allowed are"),
    ]


@pytest.mark.parametrize(("name", "cls", "why"), bad_classes())
def test_refused_classes(name: str, cls: type[Any], why: str) -> None:
    """What would break later is refused now, with the class's name."""
    with pytest.raises(DeclarationError, match=why) as caught:
        managed(key="k", registry=Registry())(cls)
    assert name in str(caught.value)
