"""This module runs a method call on a managed object: here, where this process is active for its partition, else on the
active node.

A call is all or nothing, wherever it runs: if the method raises, the transaction is as it was before the call and may
go on (versions read stay read). Calls made inside a method are part of it. Nothing about a call shows where its method
ran: arguments, result and changed objects are checked in both cases; the method works on copies of its arguments and of
the values in fields; an exception that cannot cross nodes becomes RemoteCallError here, too. Only a BaseException that
is no Exception passes as it is: here it may belong to the process, not to the method.

After the call the caller's objects are updated in place. Once the method has returned and its changes fit, the call is
done: an interruption then leaves all of its changes, never a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from halog.backend import Invocation, InvocationResult, Work
from halog.core.log.records import CREATE
from halog.errors import HalogError, RecordTooLargeError, RemappedError, RemoteCallError
from halog.schema.methods import BINDING, MethodInfo
from halog.schema.typeinfo import TypeInfo
from halog.transactions import failures, work_set as work
from halog.transactions.ended_objects import revive
from halog.transactions.entry import others

if TYPE_CHECKING:
    from halog.transactions.entry import ObjectEntry
    from halog.transactions.reading import Reading

TRIES: Final = 10
"""How often an interrupted step is tried again to do it whole."""


def call(tx: Reading, entry: ObjectEntry, obj: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a method where it belongs; raise what the method raises, or RemoteCallError (R5, D1)."""
    if tx.state or entry.obj is not obj:
        tx.check_live(entry, obj)
    info: TypeInfo = type(obj).__halog__
    method = info.methods[name]
    if tx.saved is not None or tx.serving or tx.local:
        return method.func(obj, *args, **kwargs)
    if tx.backend.is_active(entry.partition):
        return _here(tx, entry, obj, method, args, kwargs)
    return _there(tx, entry, info, method, args, kwargs)


def _here(
    tx: Reading, entry: ObjectEntry, obj: Any, method: MethodInfo, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    args, kwargs = method.taken(args, kwargs)
    tx.quick = None
    if tx.looked:  # an object without an entry could be changed unsaved
        tx.hold()
    saved, special = CallSnapshot(), tx.special
    left: list[CallEffect] | None = None
    try:
        saved.touch(entry)
        tx.saved = saved
        tx.pinned, tx.special = entry, True
        result = method.given(method.func(obj, *args, **kwargs))
        if not tx.state:
            work.check_fit(saved.touched)
            left = saved.left()
            saved.settle(left)
        return result
    except BaseException as error:
        if left is not None:  # interrupted, and the call is done
            _whole(partial(saved.settle, left))
            raise
        if not tx.state:
            _whole(saved.restore)
        told = failures.as_elsewhere(error, tx.space.application_modules)
        if told is error:
            raise
        raise told from error
    finally:
        tx.saved, tx.pinned, tx.special = None, None, special


def _there(
    tx: Reading, entry: ObjectEntry, info: TypeInfo, method: MethodInfo, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    data = method.encode_args(args, kwargs)
    now = work.work_in(tx, entry.partition)
    work.check_size(tx.space, now.writes)
    try:
        invoked = _invoked(tx, entry, now, Invocation(info.type_id, entry.key, method.name, data, now))
    except RecordTooLargeError as error:
        error.message = error.message.replace(f"method {method.name}", f"method {info.name}.{method.name}", 1)
        raise
    work.learn(tx, entry.partition, invoked.work.reads, invoked.found)
    if invoked.error is not None:
        raise failures.from_wire(invoked.error, tx.space.application_modules)
    if invoked.result is None:
        raise RemoteCallError(f"{info.name}.{method.name}: the active node sent neither a result nor an error")
    result = method.decode_result(invoked.result)
    before = work.by_key(now.writes)
    try:
        work.take_over(tx, entry.partition, before, invoked.work.writes)
    except HalogError:
        raise
    except BaseException:  # interrupted, and some of it is there
        _whole(partial(work.take_over, tx, entry.partition, before, invoked.work.writes))
        raise
    return result


def _invoked(tx: Reading, entry: ObjectEntry, now: Work, invocation: Invocation) -> InvocationResult:
    """Return the active node's answer, by the mapping that the call was routed by (T8). A transaction that has created
    objects keeps to the mapping it began under, and is run again as a whole where that is not served any more. Others
    go by the newest mapping."""
    created = any(w.op == CREATE for w in now.writes)
    since = 0.0
    while True:
        mapped = tx.mapped if created else tx.backend.mapped
        version = mapped.versions.get(entry.partition, 0)
        site = tx.mapped.sites.get(entry.partition)
        its = now if site is None and not version else Work(now.reads, now.writes, mapping=version, site=site)
        asked = msgspec.structs.replace(invocation, work=its, least=tx.least_of(entry.partition))
        try:
            return tx.backend.invoke(entry.partition, asked)
        except RemappedError as error:
            since = tx.space.relearn(error, since)
            if created:
                raise


def _whole(do: Callable[[], None]) -> None:
    """Finish a step that was begun and interrupted (by Ctrl-C, by a library for time limits), even if it is interrupted
    again. The step can be begun again at any point."""
    for _ in range(TRIES - 1):
        try:
            return do()
        except BaseException:
            continue
    return do()


class CallEffect(NamedTuple):
    """Holds what a call has left in an object."""

    entry: ObjectEntry
    fields: dict[str, Any]
    had: dict[str, Any]
    """The attributes that the caller's object had before the call."""


class CallSnapshot:
    """Holds the state before a call of every object the call can reach, saved when the call first touches it.

    A method reaches objects through the transaction's verbs only, so the cost is that of the objects it uses. The
    method gets what it would get on another node: fields alone, and in them copies of values that can be changed in
    place. What it leaves is put into the caller's values as if it came from another node (`ObjectEntry.assume`).
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[ObjectEntry, tuple[bytes | None, Any, bytes | None, bool, dict[str, Any]]] = {}

    def touch(self, entry: ObjectEntry) -> None:
        """Save an object that the call may change from now on. FieldTypeError if the caller left a value in it that
        does not fit."""
        if entry not in self._entries:
            obj = entry.obj
            values, lends = ({}, False) if obj is None else _had(entry, obj)
            self._entries[entry] = (entry.ref, obj, entry.pending, entry.made, values)
            if lends:
                _lend(obj)

    @property
    def touched(self) -> Iterable[ObjectEntry]:
        """Return the objects that the call may have changed."""
        return self._entries

    def restore(self) -> None:
        """Bring every touched object back."""
        for entry, (ref, obj, pending, made, values) in self._entries.items():
            if entry.obj is not obj:
                entry.detach()
            entry.ref, entry.obj, entry.pending, entry.made = ref, obj, pending, made
            if obj is not None:
                revive(obj)
                object.__setattr__(obj, "__dict__", values)

    def left(self) -> list[CallEffect]:
        """Return what the call leaves, where it has to be put into the caller's objects; check it, and change
        nothing."""
        left = [_left(e, values if e.obj is was else {}) for e, (_, was, _, _, values) in self._entries.items()]
        return [one for one in left if one is not None]

    def settle(self, left: Sequence[CallEffect]) -> None:
        """End the call: put what it left into the caller's objects."""
        for entry, (_, was, _, _, values) in self._entries.items():
            if was is not None and was is not entry.obj:  # deleted: its caller has it as it was
                was.__dict__.update({name: value for name, value in values.items() if name != BINDING})
        for one in left:
            one.entry.assume(dict(one.fields), one.had)


def _had(entry: ObjectEntry, obj: Any) -> tuple[dict[str, Any], bool]:
    """Return an object's attributes, and whether the call must get a reduced copy of them."""
    info: TypeInfo = type(obj).__halog__
    d, image = obj.__dict__, entry.image
    if image is not None and image.flat and len(d) == image.size and image.info is info:  # most: fields alone
        if not info.fit_still(d, image.values):
            work.compared((entry,))
        return dict(d), False
    if info.mutable or image is None or _types(d) != _types(image.values):
        work.compared((entry,))
    return dict(d), True


def _lend(obj: Any) -> None:
    """Give the call the fields alone, with copies of the values that can be changed in place."""
    info: TypeInfo = type(obj).__halog__
    d = obj.__dict__
    for name in others(info, d):
        del d[name]
    if info.mutable:
        for name, copy, _ in info.lent:
            if name in d:
                d[name] = copy(d[name])


def _types(values: dict[str, Any]) -> list[type[Any]]:
    """Return the types of an object's values, except for its binding, which is the last one."""
    return [*map(type, values.values())][:-1]


def _left(entry: ObjectEntry, had: dict[str, Any]) -> CallEffect | None:
    """Return what the call left in an object; None: there is nothing to put into the caller's."""
    obj = entry.obj
    if obj is None:
        return None
    info: TypeInfo = type(obj).__halog__
    most = len(info.fields) + 1
    if not info.mutable and len(had) <= most and len(obj.__dict__) <= most:
        return None
    left = dict(zip(info.fields, info.values_of(obj)))
    for name, copy, same in info.lent:
        now, was = left[name], had.get(name)
        left[name] = was if type(now) is type(was) and same(now, was) else copy(now)
    return CallEffect(entry, left, had)
