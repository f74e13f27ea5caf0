"""Arguments and results of methods cross to another node typed by their annotations."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from halog.errors import DeclarationError, FieldTypeError, RecordFormatError
from halog.schema import MethodInfo, Ref, Registry, managed
from tests.unit.schema.shapes_strategy import Colour, Point

HERE = Registry()


@managed(key="k", registry=HERE)
class Thing:
    k: int

    def none(self) -> None: ...

    def mixed(self, a: int, b: str = "b", *, c: Point | None = None) -> list[Colour]:
        return []

    def gathering(self, a: int, /, *rest: float, **named: Ref[Thing]) -> dict[str, dt.date]:
        return {}

    def positional(self, a: int, b: str) -> Point:
        return Point(1.0)

    def bare(self, a, b: int) -> int:  # type: ignore[no-untyped-def]
        return 1

    def no_result(self, a: int):  # type: ignore[no-untyped-def]
        return 1

    def odd(self, a: object) -> object:
        return a

    def managed_result(self) -> Thing:
        return self

    def _private(self, a) -> None: ...  # type: ignore[no-untyped-def]


def method(name: str) -> MethodInfo:
    return HERE.info(Thing).methods[name]


REF: Ref[Thing] = Ref(1, 2, 3, "Thing", b"\x02")
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...], dict[str, Any]]] = [
    ("none", (), {}, (), {}),
    ("mixed", (1,), {}, (1, "b"), {"c": None}),
    ("mixed", (), {"b": "x", "a": 2, "c": Point(1.0)}, (2, "x"), {"c": Point(1.0)}),
    ("gathering", (1,), {}, (1,), {}),
    ("gathering", (1, 2.0, 3.0), {"x": REF}, (1, 2.0, 3.0), {"x": REF}),
    ("positional", (1, "a"), {}, (1, "a"), {}),
    ("positional", (1,), {"b": "a"}, (1, "a"), {}),
]


@pytest.mark.feature("D1", "R5")
@pytest.mark.parametrize(("name", "args", "kwargs", "got", "named"), CALLS)
def test_arguments_arrive(name: str, args: Any, kwargs: Any, got: Any, named: Any) -> None:
    """However they were passed, the call that arrives means the same, defaults filled in by the caller."""
    found = method(name)
    assert found.decode_args(found.encode_args(args, kwargs)) == (got, named)
    found.signature.bind(None, *got, **named)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("none", None),
        ("mixed", [Colour.RED, Colour.GREEN]),
        ("gathering", {"a": dt.date(2013, 1, 1)}),
        ("positional", Point(2.5, "x")),
    ],
)
def test_results_return(name: str, value: Any) -> None:
    """Results come back equal; None takes no bytes."""
    found = method(name)
    assert found.decode_result(found.encode_result(value)) == value


def test_private_methods_stay_local() -> None:
    """A leading underscore keeps a method out of the table."""
    assert "_private" not in HERE.info(Thing).methods


@pytest.mark.parametrize("args", [(), (1, "b", 3)])
def test_a_call_python_refuses_is_a_type_error(args: Any) -> None:
    """A missing or extra argument is the same error as in a local call."""
    with pytest.raises(TypeError):
        method("mixed").encode_args(args, {})


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("positional", ("x", "y"), r"Thing\.positional a: expected int, got str"),
        ("gathering", (1, 2.0, "x"), r"Thing\.gathering rest\[1\]: expected float, got str"),
    ],
)
def test_a_wrong_argument_is_named(name: str, args: Any, why: str) -> None:
    """FieldTypeError names method, parameter, the value's type and what was expected."""
    with pytest.raises(FieldTypeError, match=why):
        method(name).encode_args(args, {})


def test_a_wrong_result_is_named() -> None:
    """A method that returns something else than it says is found where it ran."""
    with pytest.raises(FieldTypeError, match=r"Thing\.none result: expected None, got int"):
        method("none").encode_result(1)
    with pytest.raises(FieldTypeError, match=r"Thing\.mixed result\[0\]: expected Colour, got int"):
        method("mixed").encode_result([1])


def test_missing_annotations_are_named_when_a_call_crosses() -> None:
    """Such a method may be called locally; only a remote call needs to know the types."""
    assert Thing(1).bare("anything", 2) == 1
    with pytest.raises(DeclarationError, match=r"Thing\.bare: parameter 'a' has no annotation"):
        method("bare").encode_args((1, 2), {})
    with pytest.raises(DeclarationError, match=r"Thing\.no_result: the result has no annotation"):
        method("no_result").encode_result(1)
    with pytest.raises(DeclarationError, match="allowed are"):
        method("odd").encode_args((1,), {})
    with pytest.raises(DeclarationError, match=r"Ref\[Thing\]"):
        method("managed_result").encode_result(Thing(1))


def test_nodes_with_different_code_notice() -> None:
    """Arguments of another signature are refused instead of being read as something else."""

    @managed(key="k", registry=Registry())
    class Other:
        k: int

        def positional(self, a: str, b: int) -> Point:
            return Point(1.0)

    theirs: MethodInfo = Other.__halog__.methods["positional"]  # type: ignore[attr-defined]
    with pytest.raises(RecordFormatError, match="run different code"):
        method("positional").decode_args(theirs.encode_args(("a", 1), {}))


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: d[:4] + b"\xff" * 20])
def test_damaged_arguments_and_results_are_refused(damage: Any) -> None:
    """A peer's bytes are checked like any others."""
    found = method("positional")
    with pytest.raises(RecordFormatError):
        found.decode_args(damage(found.encode_args((1, "abc"), {})))
    with pytest.raises(RecordFormatError):
        found.decode_result(damage(found.encode_result(Point(1.0, "abc"))))
