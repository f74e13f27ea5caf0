"""This module is what executors do with pieces of two branches: they are put together key by key, and classified (M3,
S1).

The rule is `restore.merge`'s, and it is not written a second time. What it says of a key depends on which of its states
are there, and which are equal. So it is asked once for every such *pattern*, with a key that has it; all other keys of
the pattern are of the same kind. Patterns are found for whole batches, as arrays. Only where several definitions of its
type have written a key's states is the rule asked about that key by itself. Rows must come sorted by place, key, side
and first lsn, all of a key together. Nothing here knows Spark.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halog.errors import DivergedError
from halog.schema import Definition
from halog.schema.definition import ID_BYTES
from halog.schema.versions import bringing
from restore.merge import EQUAL, BranchCommit, Difference, Even, Instance, KeyTouches, Kind, State, differences, two_way
from spark_jobs.branching import INITIATING, SIDES, SOURCE

BOTH, KEEP_SOURCE, KEEP_INITIATING = "both", "source", "initiating"
"""Whose state stands by default; `BOTH`: the states are the same."""

STATE: Final = "struct<ref: binary, value: binary>"
CLASSIFIED: Final = (
    f"partition string, key binary, kind string, stands string, base {STATE}, source {STATE}, initiating {STATE}, "
    "source_lsn long, source_time timestamp, source_txs long, "
    "initiating_lsn long, initiating_time timestamp, initiating_txs long, source_ids binary, initiating_ids binary"
)
"""`…_ids` are the transactions that touched a key, in the form of `restore.results.BY`."""
_TIME: Final = pa.timestamp("us", tz="UTC")

Gone = tuple[int, int, bytes]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class States(NamedTuple):
    """`States` are what is under some keys: nothing where a reference is null; where only a value is null, it is not
    known."""

    refs: pa.Array
    values: pa.Array

    @property
    def there(self) -> Flags:
        """Say for each key whether anything is there."""
        return _flags(pc.is_valid(self.refs))

    @property
    def known(self) -> Flags:
        """Say for each key whether its value is known."""
        return _flags(pc.is_valid(self.values))

    def take(self, rows: pa.Array) -> States:
        """Return the states of these rows; nothing for a null."""
        return States(self.refs.take(rows), self.values.take(rows))

    def where(self, chosen: Flags, other: States) -> States:
        """Return these states where they are chosen, and the others elsewhere."""
        return States(pc.if_else(chosen, self.refs, other.refs), pc.if_else(chosen, self.values, other.values))

    def at(self, row: int) -> State:
        """Return one state in the form of `restore.merge`."""
        ref = self.refs[row].as_py()
        return None if ref is None else Instance(ref, self.values[row].as_py())

    def struct(self) -> pa.Array:
        """Return the states as a column."""
        return pa.StructArray.from_arrays([self.refs, self.values], ["ref", "value"], mask=pc.is_null(self.refs))


def same(one: States, other: States) -> Flags:
    """Say for each key whether the states are equal."""
    return _equal(one.refs, other.refs) & _equal(one.values, other.values)


def agree(one: States, other: States) -> Flags:
    """Say for each key whether the states may be the same, as far as they are known."""
    return _equal(one.refs, other.refs) & (_equal(one.values, other.values) | ~one.known | ~other.known)


def _equal(one: pa.Array, other: pa.Array) -> Flags:
    equal = pc.fill_null(pc.equal(one, other), False)
    return _flags(pc.or_(equal, pc.and_(pc.is_null(one), pc.is_null(other))))


def _flags(array: pa.Array) -> Flags:
    found: Flags = array.to_numpy(zero_copy_only=False)
    return found


# --- pieces put together ---


class Side(NamedTuple):
    """A `Side` is what one branch did to some keys, where it touched them; elsewhere all is null."""

    touched: Flags
    base: States
    now: States
    last: pa.Array
    time_ms: pa.Array
    txs: pa.Array
    ids: pa.Array


class Keys(NamedTuple):
    """`Keys` has each key once, and what each branch did to it."""

    places: pa.Array
    keys: pa.Array
    sides: tuple[Side, ...]


def continued(rows: pa.RecordBatch, *names: str) -> Flags:
    """Say for each row whether it is the same in these columns as the row before it."""
    found = np.ones(rows.num_rows, np.bool_)
    found[:1] = False
    for name in names:
        column = rows.column(name)
        found[1:] &= _flags(pc.equal(column[1:], column[:-1]))
    return found


def put_together(rows: pa.RecordBatch) -> Keys:
    """Put pieces of `spark_jobs.branching.FOLDED` together. DivergedError if one does not follow the one before it."""
    same_key = continued(rows, "place", "key")
    same_branch = same_key & continued(rows, "side")
    base, now = States(rows["base_ref"], rows["base_value"]), States(rows["ref"], rows["value"])
    _follow(rows, np.flatnonzero(same_branch), base, now)
    begins = np.flatnonzero(~same_branch)
    ends = np.append(begins[1:], rows.num_rows) - 1
    txs, ids = pa.array(np.add.reduceat(_numbers(rows["txs"]), begins)), _ids(rows["ids"], begins, ends)
    heads = np.flatnonzero(~same_key)
    at = np.full((len(SIDES), len(heads)), -1)
    at[_numbers(rows["side"])[begins], (np.cumsum(~same_key) - 1)[begins]] = np.arange(len(begins))
    return Keys(
        rows["place"].take(pa.array(heads)),
        rows["key"].take(pa.array(heads)),
        tuple(_side(rows, at[side], begins, ends, base, now, txs, ids) for side in SIDES),
    )


def _ids(pieces: pa.Array, begins: Numbers, ends: Numbers) -> pa.Array:
    """Join the ids of the pieces from each beginning to its end."""
    if len(begins) == len(pieces):
        return pieces
    told = pieces.to_pylist()
    return pa.array([b"".join(told[a : b + 1]) for a, b in zip(begins.tolist(), ends.tolist())], pa.binary())


def _side(
    rows: pa.RecordBatch,
    at: Numbers,
    begins: Numbers,
    ends: Numbers,
    base: States,
    now: States,
    txs: pa.Array,
    ids: pa.Array,
) -> Side:
    absent = at < 0
    first, last = pa.array(begins[at], mask=absent), pa.array(ends[at], mask=absent)
    branches = pa.array(at, mask=absent)
    return Side(
        ~absent,
        base.take(first),
        now.take(last),
        rows["last"].take(last),
        rows["time_ms"].take(last),
        txs.take(branches),
        ids.take(branches),
    )


def _follow(rows: pa.RecordBatch, later: Numbers, base: States, now: States) -> None:
    """Check that each of these begins with what the row before it left."""
    if not len(later):
        return
    broken = later[~agree(base.take(pa.array(later)), now.take(pa.array(later - 1)))]
    if len(broken):
        row = int(broken[0])
        lsn, key = rows["first"][row].as_py(), rows["key"][row].as_py()
        raise DivergedError(
            f"lsn {lsn} changes {key.hex()[:80]}, and what it changes is not there: a part of the branch is missing",
            lsn=lsn,
            key=key,
        )


def _numbers(array: pa.Array) -> Numbers:
    found: Numbers = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


# --- the rule, pattern by pattern ---


class RuleAnswer(NamedTuple):
    """A `RuleAnswer` is what the rule says of a pattern."""

    kind: Kind
    stands: str


class Rule:
    """A `Rule` is `restore.merge.differences`, or `two_way`; it is asked once for each pattern."""

    def __init__(self, even: Even | None = None, *, three_way: bool) -> None:
        self._three_way = three_way
        self._even = even
        self._said: dict[int, RuleAnswer] = {}

    def of(self, found: Keys, base: States, now: Sequence[States]) -> list[RuleAnswer]:
        """Return what the rule says of each key. DivergedError if the branches had different states at the fork."""
        patterns = _patterns(found, base, now)
        numbers, firsts, which = np.unique(patterns, return_index=True, return_inverse=True)
        by_pattern = [self._asked(int(n), found, int(row)) for n, row in zip(numbers, firsts)]
        said = [by_pattern[i] for i in which.tolist()]
        for row in () if self._even is None else np.flatnonzero(_of_versions(base, *now)).tolist():
            (difference,) = self.asked(found, row, self._even)
            said[row] = RuleAnswer(difference.kind, _stands(difference))
        return said

    def _asked(self, pattern: int, found: Keys, row: int) -> RuleAnswer:
        known = self._said.get(pattern)
        if known is None:
            (difference,) = self.asked(found, row)
            known = self._said[pattern] = RuleAnswer(difference.kind, _stands(difference))
        return known

    def asked(self, found: Keys, row: int, even: Even | None = None) -> Iterator[Difference]:
        """Ask the rule itself about one key."""
        key, branches = found.keys[row].as_py(), list[dict[bytes, KeyTouches]]()
        for side in found.sides:
            did = KeyTouches(side.base.at(row), side.now.at(row), (SOME,))
            branches.append({key: did} if side.touched[row] else {})
        return (differences if self._three_way else two_way)(branches[0], branches[1], even)


SOME: Final = BranchCommit(b"", 0, 0, ())


def _stands(found: Difference) -> str:
    if found.kind in EQUAL:
        return BOTH
    return KEEP_SOURCE if found.by_default == found.source else KEEP_INITIATING


def _patterns(found: Keys, base: States, now: Sequence[States]) -> Numbers:
    """Return all that the rule looks at, as bits."""
    (source, initiating), (s, i) = found.sides, now
    bits = (
        source.touched,
        initiating.touched,
        agree(source.base, initiating.base),
        base.there,
        base.known,
        s.there,
        i.there,
        same(s, base),
        same(i, base),
        same(s, i),
        _equal(s.refs, base.refs),
        _equal(i.refs, base.refs),
        _equal(s.refs, i.refs),
    )
    numbers: Numbers = np.zeros(len(base.refs), np.int64)
    for n, bit in enumerate(bits):
        numbers |= bit.astype(np.int64) << n
    return numbers


def _of_versions(*states: States) -> Flags:
    """Say for each key whether several definitions have written what is known of it."""
    ids = [pc.binary_slice(some.values, 0, ID_BYTES) for some in states]
    found: Flags = np.zeros(len(ids[0]), np.bool_)
    for one, other in itertools.combinations(ids, 2):
        found |= _flags(pc.fill_null(pc.not_equal(one, other), False))
    return found


def classify(rows: pa.RecordBatch, names: Sequence[str], rule: Rule) -> pa.RecordBatch:
    """Classify pieces of whole keys, as rows of `CLASSIFIED`. `names`: of the partitions, by place."""
    found = put_together(rows)
    source, initiating = found.sides
    base = States(
        pc.coalesce(source.base.refs, initiating.base.refs), pc.coalesce(source.base.values, initiating.base.values)
    )
    now = [
        States(
            pc.if_else(side.touched, side.now.refs, base.refs), pc.if_else(side.touched, side.now.values, base.values)
        )
        for side in found.sides
    ]
    said = rule.of(found, base, now)
    columns: list[Any] = [
        pa.array(names, pa.string()).take(found.places),
        found.keys,
        pa.array([one.kind.value for one in said], pa.string()),
        pa.array([one.stands for one in said], pa.string()),
        base.struct(),
        now[SOURCE].struct(),
        now[INITIATING].struct(),
    ]
    for side in found.sides:
        columns += [side.last, pc.multiply(side.time_ms, 1_000).cast(_TIME), pc.fill_null(side.txs, 0)]
    columns += [pc.fill_null(side.ids, b"") for side in found.sides]
    return pa.RecordBatch.from_arrays(columns, names=_NAMES)


_NAMES: Final = [
    "partition",
    "key",
    "kind",
    "stands",
    "base",
    "source",
    "initiating",
    "source_lsn",
    "source_time",
    "source_txs",
    "initiating_lsn",
    "initiating_time",
    "initiating_txs",
    "source_ids",
    "initiating_ids",
]


def settle(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return keys that only got other versions, as rows of `CLASSIFIED`. What stands there is the same on both
    branches, and the source's state is told, as in `restore.branches`."""
    heads = np.flatnonzero(~continued(rows, "place", "key"))
    ends = np.append(heads[1:], rows.num_rows) - 1
    of_source = np.where(_numbers(rows["side"]) == SOURCE, np.arange(rows.num_rows), -1)
    last = np.maximum.reduceat(of_source, heads)
    told = rows.take(pa.array(np.where(last < 0, ends, last)))
    n, state = told.num_rows, States(told["ref"], told["value"]).struct()
    never = [pa.nulls(n, pa.int64()), pa.nulls(n, _TIME), pa.array(np.zeros(n, np.int64))]
    nobody = pa.array([b""] * n, pa.binary())
    columns = [
        pa.array(names, pa.string()).take(told["place"]),
        told["key"],
        pa.array([Kind.SAME.value] * n, pa.string()),
        pa.array([BOTH] * n, pa.string()),
        state,
        state,
        state,
        *never,
        *never,
        nobody,
        nobody,
    ]
    return pa.RecordBatch.from_arrays(columns, names=_NAMES)


class Classify:
    """`Classify` takes sorted rows of `FOLDED`, and gives `CLASSIFIED`.

    `gone`: (place, side, transaction) of those that turned out to be on the other branch as well. `definitions`: of
    types that have several, in the order in which they were published, as texts.
    """

    def __init__(
        self, names: Sequence[str], gone: Collection[Gone] = (), definitions: Sequence[str] = (), *, three_way: bool
    ) -> None:
        self.names = names
        self.gone = frozenset(gone)
        self.three_way = three_way
        self.definitions = tuple(definitions)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rule = Rule(bringing(map(Definition.parse, self.definitions)), three_way=self.three_way)
        for rows in whole_keys(batches):
            touching = ~self._written_only(rows)
            heads = np.flatnonzero(~continued(rows, "place", "key"))
            by_key = np.logical_or.reduceat(touching, heads)
            settled = ~by_key[np.cumsum(~continued(rows, "place", "key")) - 1]
            if touching.any():
                yield classify(rows.filter(pa.array(touching)), self.names, rule)
            if settled.any():
                yield settle(rows.filter(pa.array(settled)), self.names)

    def _written_only(self, rows: pa.RecordBatch) -> Flags:
        """Say for each row whether nothing happened there that is of the branch alone."""
        found: Flags = _numbers(rows["txs"]) == 0
        for row in np.flatnonzero(_flags(pc.is_valid(rows["tx"]))) if self.gone else ():
            one = rows["place"][row].as_py(), rows["side"][row].as_py(), rows["tx"][row].as_py()
            found[row] |= one in self.gone
        return found


def whole_keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, but never a key in two batches."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        rows = batch if held is None else _joined(held, batch)
        begins = np.flatnonzero(~continued(rows, "place", "key"))
        cut = int(begins[-1]) if len(begins) else 0
        if cut:
            yield rows.slice(0, cut)
        held = rows.slice(cut)
    if held is not None and held.num_rows:
        yield held


def _joined(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    if not one.num_rows or not other.num_rows:
        return one if one.num_rows else other
    return pa.Table.from_batches([one, other]).combine_chunks().to_batches()[0]
