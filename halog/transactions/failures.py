"""This module carries a method's exception to its caller, as plain values.

The exception arrives as its own class if that is one of halog's, a builtin, or a class of an application module that
the configuration names and this process has imported. In all other cases it arrives as RemoteCallError with the same
evidence. A name that came over the wire never causes an import or unpickling, and only plain values travel.
"""

from __future__ import annotations

import builtins
import sys
import traceback
from collections.abc import Callable, Collection
from typing import Any, Final

from halog import errors

MAX_TEXT: Final = 20_000
"""Characters of a traceback kept: that of a deep recursion would fill frames and logs."""
MOST_EVIDENCE: Final = 50 * MAX_TEXT
"""The most characters of a list or dict of an exception that cross whole. Of a longer one only the beginning crosses;
longer arguments do not cross: no frame would take them."""
_PLAIN: Final = (bool, int, float, str, bytes, type(None))
_NOT_FOR_CALLERS: Final = (KeyboardInterrupt, GeneratorExit)


def to_wire(error: BaseException) -> dict[str, object]:
    """Return {class, message, args, evidence, traceback}. `args` is None unless they are plain values, or tuples, lists
    and dicts of them. This never raises, whatever the exception is like: without an answer the call would be made
    again."""
    return {
        **_described(error),
        "traceback": _text(lambda e: "".join(traceback.format_exception(e))[-MAX_TEXT:], error),
    }


def _described(error: BaseException) -> dict[str, object]:
    cls = type(error)
    is_halog = isinstance(error, errors.HalogError)
    evidence = error.evidence if isinstance(error, errors.HalogError) else vars(error)
    message, had = _said(str, error)
    return {
        "class": _printable(f"{cls.__module__}:{cls.__qualname__}"),
        "message": message,
        "args": _within_frame(_args(error)) if had and not is_halog else None,
        "evidence": {_text(str, k): _cut(_plain(v)) for k, v in evidence.items() if k != "__notes__"},
    }


def _within_frame(args: list[object] | None) -> list[object] | None:
    return None if args is not None and len(repr(args)) > MOST_EVIDENCE else args


def _cut(value: Any) -> Any:
    return value if _is_plain(value) or len(repr(value)) <= MOST_EVIDENCE else repr(value)[:200]


def as_elsewhere(error: BaseException, modules: Collection[str]) -> BaseException:
    """Return what the caller of a method that ran here gets: `error`, or what it would have become on its way from
    another node."""
    if not isinstance(error, Exception):  # it may be meant for the process, not the method
        return error
    if _known(_described(error), modules) is not None:
        return error
    return _unknown(to_wire(error))


def _text(of: Callable[[Any], str], value: object) -> str:
    """Return a text that the application's own code may make, and may fail to."""
    return _said(of, value)[0]


def _said(of: Callable[[Any], str], value: object) -> tuple[str, bool]:
    """Return the text, and whether it could be made. If not, it is not asked for again: that might end the caller's
    process."""
    try:
        return _printable(of(value)[:MAX_TEXT]), True
    except BaseException as error:
        return f"({type(value).__name__}: its text cannot be had: {type(error).__name__})", False


def _args(error: BaseException) -> list[object] | None:
    """Return the arguments that make the exception again, or None."""
    args: tuple[Any, ...] = error.args
    if isinstance(error, OSError) and len(args) == 2 and error.filename is not None:  # not in its `args`
        args = (*args, error.filename)
        if error.filename2 is not None:
            args = (*args, None, error.filename2)
    try:
        return [_sent(a) for a in args]
    except ValueError:
        return None


def _printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def from_wire(error: dict[str, object], modules: Collection[str]) -> BaseException:
    """Return the exception to raise at the caller."""
    found = _known(error, modules) or _unknown(error)
    found.add_note(f"on the active node:\n{error.get('traceback', '')}")
    return found


def _unknown(error: dict[str, object]) -> errors.HalogError:
    return _halog(errors.RemoteCallError, f"{error.get('class')}: {error.get('message')}", error)


def _halog(cls: type[errors.HalogError], message: str, evidence: dict[str, Any]) -> errors.HalogError:
    """Make one of halog's errors; its evidence may have names that the error's constructor does not know."""
    error = cls(message)
    error.evidence = dict(evidence)
    return error


def _known(error: dict[str, object], modules: Collection[str]) -> BaseException | None:
    module, _, name = str(error.get("class", "")).partition(":")
    message, evidence = str(error.get("message", "")), error.get("evidence")
    state = evidence if isinstance(evidence, dict) else {}
    if module == errors.__name__:
        cls = getattr(errors, name, None)
        return _halog(cls, message, state) if isinstance(cls, type) and issubclass(cls, errors.HalogError) else None
    if module == "builtins":
        return _build(getattr(builtins, name, None), error, message, state)
    if _named(module, modules) and module in sys.modules:
        return _build(_lookup(module, name), error, message, state)
    return None


def _named(module: str, modules: Collection[str]) -> bool:
    return any(module == m or module.startswith(m + ".") for m in modules)


def _lookup(module: str, name: str) -> Any:
    """Return a class by qualified name, without running any module's or class's own `__getattr__`."""
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found


def _build(cls: Any, error: dict[str, object], message: str, state: dict[str, Any]) -> BaseException | None:
    """Return an exception equal to the one raised, or None: the class must give the same message from the same
    arguments."""
    args = error.get("args")
    if not (isinstance(cls, type) and issubclass(cls, BaseException)) or issubclass(cls, _NOT_FOR_CALLERS):
        return None
    if not isinstance(args, list | tuple):
        return None
    try:
        built = cls(*(_received(a) for a in args))
        if str(built) != message:
            return None
        vars(built).update(state)
    except Exception:
        return None
    return built


def _is_plain(value: Any) -> bool:
    """Can a frame carry the value as it is?"""
    if type(value) is int:
        return -(2**63) <= value < 2**64
    if type(value) is str:
        return len(value) <= MAX_TEXT and _printable(value) == value
    return type(value) in _PLAIN and (type(value) is not bytes or len(value) <= MAX_TEXT)


def _sent(value: Any, depth: int = 0) -> object:
    """Return an argument as a frame carries it: {its type: its items} where it has items. ValueError: it cannot be
    carried."""
    if _is_plain(value):
        return value
    if depth < 4 and type(value) in (tuple, list):
        return {type(value).__name__: [_sent(v, depth + 1) for v in value]}
    if depth < 4 and type(value) is dict:
        return {"dict": [[_sent(k, depth + 1), _sent(v, depth + 1)] for k, v in value.items()]}
    raise ValueError("not plain")


def _received(value: Any) -> Any:
    """Return the argument that `_sent` made this value of."""
    if not isinstance(value, dict):
        return value
    ((name, items),) = value.items()
    if name == "dict":
        return {_received(k): _received(v) for k, v in items}
    made = [_received(v) for v in items]
    return tuple(made) if name == "tuple" else made


def _plain(value: Any, depth: int = 0) -> Any:
    if _is_plain(value):
        return value
    if depth < 4 and isinstance(value, list | tuple):
        return [_plain(v, depth + 1) for v in value]
    if depth < 4 and isinstance(value, dict):
        return {_text(str, k): _plain(v, depth + 1) for k, v in value.items()}
    return _text(repr, value)[:200]
