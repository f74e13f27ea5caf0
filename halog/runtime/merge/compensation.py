"""Asks compensation triggers, by which the application decides what both branches of a partition changed (M3).

A trigger is declared per type. It is asked on the node that merges, for each conflict and for each object that both
branches brought to the same state. It sees the three states, and says what the key becomes. It changes nothing itself.
So its answer takes effect exactly once, together with the whole merge, or not at all; a merge that is begun again asks
it again. A trigger that raises anything, or answers wrongly, only stops its own conflict: the source's state stays, and
an operator is told why. If a trigger hangs, it is left alone, and no trigger is asked in that merge any more: the
partition may serve nobody meanwhile. Objects that a trigger creates are placed and encoded here; whether they may be
there, the whole merge shows (`restore.creating`).
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from halog.config import Config
from halog.core.commit.size_limits import most_bytes
from halog.core.keys.directory import is_entry
from halog.errors import HalogError, RecordFormatError
from halog.runtime.merge.merge_paces import PACES, MergePaces
from halog.runtime.rpc.result_errors import object_too_large
from halog.runtime.support.deadline import in_time
from halog.runtime.topics.schemas import Definitions
from halog.schema.definition import ID_BYTES
from halog.schema.registry import DEFAULT, Registry
from halog.schema.typeinfo import TypeInfo
from halog.transactions.context import changes_nothing
from restore.compensation import (
    Conflict,
    Defer,
    Delete,
    Fields,
    KeepInitiating,
    KeepSource,
    Replace,
    Trigger,
    Verdict,
    by_default,
)
from restore.creating import CreatedObject, KeyDecision
from restore.merge import AGREED, Difference, State
from restore.plan import chosen
from restore.report import is_known

logger = logging.getLogger("halog.merge")

Declared = TypeVar("Declared", bound=Trigger)

MOST_WHY = 500
"""So many characters of a reason are kept: it becomes a part of the log, beside each conflict."""

_VERDICTS = (KeepSource, KeepInitiating, Replace, Delete, Defer)


def on_conflict(*types: type[Any], registry: Registry = DEFAULT) -> Callable[[Declared], Declared]:
    """Declare a trigger: `@halog.on_conflict(Flight)` has the function asked with a `Conflict` what the key becomes. It
    is asked on every node that merges two branches of a partition in which both changed an object of this type, or of
    one derived from it. Without a trigger the defaults of the manual hold. The last one declared for a type is
    asked."""

    def declare(trigger: Declared) -> Declared:
        for cls in types:
            registry.triggers[registry.info(cls).name] = trigger
        return trigger

    return declare


Compensate = Callable[[tuple[Difference, ...]], list[KeyDecision]]
"""Decides the keys of one merge, in as many pieces as it likes."""

Compensations = Callable[[], Compensate]
"""Returns the `Compensate` of a merge that begins."""

Unasked = Callable[[str], str]
"""Returns why the trigger of this name is not asked; "" if it is."""

Place = Callable[[str, bytes], str]
"""Returns the partition that a routing key of a type belongs to."""

Most = Callable[[str, int], int]
"""Returns how many bytes an object of a type may have, given the bytes of its key, as in a commit."""


def by_the_rules(differences: tuple[Difference, ...]) -> list[KeyDecision]:
    """Decide by the default rules, where no trigger is declared."""
    return [KeyDecision(choice, "") for choice in chosen(differences, _default, lambda _, __: b"")]


def undecided(why: str) -> Compensate:
    """Return what decides on a process that does not know the declared triggers: it leaves open what a trigger may be
    asked about."""

    def decide(differences: tuple[Difference, ...]) -> list[KeyDecision]:
        said = chosen(differences, lambda d: _default(d) if is_entry(d.key) else Defer(why), lambda _, __: b"")
        return [KeyDecision(choice, "", failed=bool(choice.deferred)) for choice in said]

    return decide


def _default(found: Difference) -> Verdict:
    if found.kind in AGREED:
        return KeepSource()
    return by_default(Conflict("", {}, found.kind, None, None, None, 0, 0))


class TriggerCalls:
    """A `TriggerCalls` notes what a node's triggers are being asked about: a merge that is begun again may find one
    that hangs."""

    def __init__(self) -> None:
        self._now = set[tuple[int, bytes]]()
        self._lock = threading.Lock()

    def begins(self, trigger: Trigger, key: bytes) -> bool:
        """Note that this trigger is asked about this key; False if it is being asked already."""
        with self._lock:
            if (id(trigger), key) in self._now:
                return False
            self._now.add((id(trigger), key))
            return True

    def ended(self, trigger: Trigger, key: bytes) -> None:
        """Note that the trigger has answered."""
        with self._lock:
            self._now.discard((id(trigger), key))


def most_of(config: Config, policy_of: Callable[[str], str | None]) -> Most:
    """Return what limits objects by the policies that their types are bound to."""

    def most(type_name: str, key_bytes: int) -> int:
        policy = config.policies.get(policy_of(type_name) or "")
        keeps = policy is None or policy.before_images
        return most_bytes(config.limits.max_record_bytes, key_bytes, before_images=keeps)

    return most


class Compensation:
    """A `Compensation` asks the triggers of one merge."""

    def __init__(
        self,
        definitions: Definitions,
        registry: Registry,
        most: Most,
        place: Place,
        asking: TriggerCalls | None = None,
        paces: MergePaces = PACES,
    ) -> None:
        self._paces = paces
        self._asking = asking or TriggerCalls()
        self._definitions = definitions
        self._registry = registry
        self._most = most
        self._place = place
        self._hung = False
        """Has a trigger hung?"""

    def decide(self, differences: tuple[Difference, ...]) -> list[KeyDecision]:
        """Decide what each key becomes. Triggers that are not asked within `slow_s` are deferred. The trigger that is
        running at `hangs_s` is deferred, too, and so are all later ones of this merge."""
        decided = [] if self._hung else self._asked(differences)
        at = len(decided)
        if at < len(differences) and not self._hung:
            self._hung = True
            decided.append(self._decided(differences[at], self._no_answer))
        return decided + [self._decided(found, _behind_one) for found in differences[len(decided) :]]

    def _asked(self, differences: tuple[Difference, ...]) -> list[KeyDecision]:
        """Return the decisions that were made in time, in order."""
        until = time.monotonic() + self._paces.slow_s

        def slow(name: str) -> str:
            late = time.monotonic() >= until
            return f"triggers took more than {self._paces.slow_s:g} s: {name} was not asked" if late else ""

        return in_time(self._paces.hangs_s, lambda found: self._decided(found, slow), differences)

    def _no_answer(self, name: str) -> str:
        return f"{name} did not answer within {self._paces.hangs_s:g} s"

    def _decided(self, found: Difference, unasked: Unasked) -> KeyDecision:
        said = _TriggerAnswer(self._definitions, self._registry, found, unasked, self._most, self._place, self._asking)
        (choice,) = chosen([found], said.verdict, lambda _, __: said.made)
        return KeyDecision(choice, said.name, said.also, said.failed)


def _behind_one(name: str) -> str:
    return f"a trigger has hung: {name} was not asked"


class _TriggerAnswer:
    """A `_TriggerAnswer` is what a trigger says of one difference."""

    def __init__(
        self,
        definitions: Definitions,
        registry: Registry,
        found: Difference,
        unasked: Unasked,
        most: Most,
        place: Place,
        asking: TriggerCalls,
    ) -> None:
        self._asking = asking
        self._definitions = definitions
        self._registry = registry
        self._found = found
        self._unasked = unasked
        self._most = most
        self._place = place
        self._states = (found.source, found.initiating, found.base)
        self.name = ""
        self.made = b""
        """The object that a verdict puts in the place of both."""
        self.also: tuple[CreatedObject, ...] = ()
        """Objects that the verdict creates."""
        self.failed = False
        """Has a trigger failed to answer?"""

    def verdict(self, found: Difference) -> Verdict:
        trigger = self._trigger()
        if trigger is None:
            return _default(found)
        self.name = _name_of(trigger)
        if why := self._unasked(self.name):
            self.failed = True
            return Defer(_told(why))
        if not self._asking.begins(trigger, found.key):
            self.failed = True
            return Defer(f"{self.name} is still at it since an earlier merge, and was not asked again")
        try:
            with changes_nothing():
                said = trigger(self._conflict())
            if not isinstance(said, _VERDICTS):
                raise TypeError(f"it said {said!r}, which is no verdict")
            if isinstance(said, Replace):
                self.made = self._replaced(said.fields)
            if isinstance(said, Defer):
                said = Defer(_told(said.why) or f"{self.name} did not say why")
            else:
                self.also = tuple(self._new(fields) for fields in said.also)
        except BaseException as error:  # even one that ends a task or process: nobody else in this thread waits for it
            where = _printable(traceback.format_exc())  # a log file may refuse other characters
            self.failed = True
            logger.error("the trigger %s failed on %s:\n%s", self.name, found.key.hex()[:80], where)
            return Defer(_told(f"{self.name} failed: {_text_of(error)}"))
        finally:
            self._asking.ended(trigger, found.key)
        return said

    def _trigger(self) -> Trigger | None:
        """Return the trigger of the nearest type that has one, if all states are of that type or of types derived from
        it."""
        triggers = self._registry.triggers
        if not triggers or is_entry(self._found.key):
            return None
        line, *others = [*self._lines()] or [()]
        return next((triggers[n] for n in line if n in triggers and all(n in other for other in others)), None)

    def _lines(self) -> Iterator[tuple[str, ...]]:
        """Yield, for each state whose type is known, that type and its bases, the nearest one first."""
        for state in self._states:
            if state is None or state.value is None:
                continue
            try:
                definition = self._definitions.of(state.value)
            except HalogError:
                continue
            info = self._registry.by_name.get(definition.name)
            yield (definition.name, *(definition if info is None else info).bases)

    def _types(self) -> list[TypeInfo]:
        """Return the types of the states, each once; the first is that of the object that stands now.
        UnknownTypeError."""
        infos = [info for state in self._states if (info := self._type(state)) is not None]
        return list(dict.fromkeys(infos))

    def _type(self, state: State) -> TypeInfo | None:
        if state is None or state.value is None:
            return None
        return self._registry.info(self._definitions.of(state.value).name)

    def _conflict(self) -> Conflict:
        found, (info, *_) = self._found, self._types()
        key = dict(zip(info.key_fields, info.decode_index_key(found.key), strict=True))
        base, source, initiating = (self._fields(s) for s in (found.base, found.source, found.initiating))
        ours, theirs = (by[-1].time_ms if by else 0 for by in (found.source_by, found.initiating_by))
        of_ours, of_theirs = ("" if t is None else t.name for t in map(self._type, (found.source, found.initiating)))
        return Conflict(
            info.name, key, found.kind, base, source, initiating, ours, theirs, of_ours, of_theirs, is_known(found.base)
        )

    def _fields(self, state: State) -> Mapping[str, Any] | None:
        """Return the fields by the state's own type: under one key there may be objects of several types of a
        family."""
        info = self._type(state)
        if info is None or state is None or state.value is None:
            return None
        read = info.reader(self._definitions.find(state.value[:ID_BYTES]))
        return info.fresh(read(state.value)) if info.mutable else read(state.value)

    def _replaced(self, fields: Fields) -> bytes:
        info = self._types()[0]
        made = self._encoded(info, fields)
        if info.index_key(_key(info, fields)) != self._found.key:
            raise RecordFormatError(f"{info.name}: a verdict cannot change the key")
        return made

    def _new(self, fields: Fields) -> CreatedObject:
        info = self._made_as(fields)
        value, key = self._encoded(info, fields), _key(info, fields)
        index_key = info.index_key(key)
        if index_key == self._found.key:
            raise RecordFormatError(f"{info.name}: an object that is created beside another needs another key")
        said = _told(f"{info.name} {list(key)}")
        return CreatedObject(index_key, value, self._place(info.name, info.routing_key(key)), said)

    def _made_as(self, fields: Fields) -> TypeInfo:
        """Return the one of the states' types that has exactly these fields."""
        types = self._types()
        fit = [t for t in types if set(t.fields) == set(fields)]
        if len(fit) > 1:
            names = " and ".join(t.name for t in fit)
            raise RecordFormatError(f"{names} have the same fields: it is unclear which type is to be created")
        return (fit or types)[0]

    def _encoded(self, info: TypeInfo, fields: Fields) -> bytes:
        if set(fields) != set(info.fields):
            odd = sorted(set(fields) ^ set(info.fields))
            raise RecordFormatError(f"{info.name}: missing or unknown field {odd[0]!r}")
        made = info.encode_values(tuple(fields[name] for name in info.fields))
        most = self._most(info.name, len(info.index_key(_key(info, fields))))
        if len(made) > most:
            raise RecordFormatError(object_too_large(info.name, len(made), most))
        return made


def _key(info: TypeInfo, fields: Fields) -> tuple[Any, ...]:
    return tuple(fields[name] for name in info.key_fields)


def _name_of(trigger: Any) -> str:
    """Return the name of a function, of the function inside a `functools.partial`, or of an object's class."""
    of = getattr(trigger, "func", trigger)
    of = of if hasattr(of, "__qualname__") else type(of)
    return f"{of.__module__}.{of.__qualname__}"


def _text_of(error: BaseException) -> str:
    """Return the text of an error; its type alone if it cannot say more."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:
        return type(error).__name__


def _told(why: object) -> str:
    """Return a reason that the log takes and an operator can read, whatever a trigger has said."""
    return _printable("" if why is None else str(why)[:MOST_WHY])


def _printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
