"""This module brings a file of exported objects into a cluster: it checks the whole file, then cuts it into
transactions.

It never trusts a line. Each is decoded by this cluster's stored definition, its key must be the one that its fields
say, and a reference is taken only to be replaced. The file is read twice, so its size does not matter. Kept in memory
are a digest and, for references, two identities for each object.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from halog.backend import Work, Write
from halog.cli.objects.completion import completed
from halog.cli.objects.references import refs_of, with_refs
from halog.cli.shared.export_sum import ChecksumCheck, is_sum
from halog.cli.shared.files import Source
from halog.cli.shared.placed_objects import ObjectSpread, unique_keys
from halog.core.commit.size_limits import most_bytes
from halog.core.keys.mapping import Place
from halog.core.log.records import CREATE
from halog.errors import (
    ConfigError,
    DuplicateKeyError,
    FieldTypeError,
    HalogError,
    RecordFormatError,
    RecordTooLargeError,
)
from halog.runtime.keys.key_owners import Owner
from halog.runtime.rpc.pages import ITEM_BYTES
from halog.runtime.rpc.result_errors import object_too_large
from halog.schema import ForeignType
from halog.transactions.gathered import ROOM_BYTES, Gathered

if TYPE_CHECKING:
    from rich.progress import Progress

    from halog.cli.shared.connection import ClusterConnection
    from halog.runtime.topics.schemas import Definitions

BATCH_OBJECTS = 500
"""So many objects make a transaction: about 100 kB, far from the record limit, and few enough to hold up nobody."""
BATCH_BYTES = 1_000_000
"""A transaction has no more bytes than this, or a fifth of the largest record allowed, if that is less: big objects go
alone."""
CHECK_OBJECTS, CHECK_BYTES = 500, 8_000_000
"""So many keys are asked for at once, and so many bytes of their objects are held meanwhile."""


class ExportLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds a line of the file. `version`, `definition` and `number` are the exporter's."""

    type: str
    key: list[Any]
    fields: dict[str, Any]
    ref: str = ""
    version: int = 0
    definition: str = ""
    number: int = 0


class Item(msgspec.Struct, frozen=True):
    """Holds a checked line: where its object goes."""

    number: int
    line: ExportLine
    foreign: ForeignType
    index_key: bytes
    place: Place
    owner: Owner
    """Says where a new object goes whose `place` is only that of its entry."""
    size: int = 0
    """The size of its value."""


class ImportPlan(msgspec.Struct):
    """Holds what importing the file would do."""

    source: Source
    counts: dict[str, int]
    """How many objects are to be created, by type."""
    there: Counter[str] = msgspec.field(default_factory=Counter)
    """How many objects the file has, by type."""
    outside: int = 0
    skipped: set[int] = msgspec.field(default_factory=set)
    """The numbers of the lines whose object exists."""
    pointed: Counter[str] = msgspec.field(default_factory=Counter)
    """How often objects to be created point to a reference of the file."""
    renamed: dict[str, bytes] = msgspec.field(default_factory=dict)
    """Reference in the file → reference of the object to be created."""
    verified: bool = False
    """Is the file as it was exported, and complete?"""
    cut: int = 0
    """The number of its last line, if only the beginning of the line is there and it is left out."""


# --- reading and checking ---


def check_file(
    connection: ClusterConnection, source: Source, skip_existing: bool, bar: Progress, *, strict: bool
) -> ImportPlan:
    """Check every line, and every key against the cluster and the file. Return the plan, or raise the first error by
    line. With `strict`, also check that an export is whole."""
    plan = ImportPlan(source, {})
    task = bar.add_task("checking", total=None, note="")
    seen: dict[bytes, int] = {}
    group: list[Item] = []
    held = 0
    verifying = ChecksumCheck(source, strict=strict)
    for item in items(connection, source, verifying):
        with at_line(source, item.number):
            _check_unique(item, seen)
            size = len(item.foreign.encode(item.line.fields))
        group.append(msgspec.structs.replace(item, size=size))
        held += size
        if len(group) == CHECK_OBJECTS or held >= CHECK_BYTES:
            _admit(connection, group, plan, skip_existing)
            group, held = [], 0
            bar.update(task, completed=item.number)
    verifying.end()
    plan.verified, plan.cut = verifying.verified, verifying.cut_line
    _admit(connection, group, plan, skip_existing)
    plan.outside = sum(count for ref, count in plan.pointed.items() if ref not in plan.renamed)
    return plan


def items(connection: ClusterConnection, source: Source, verifying: ChecksumCheck | None = None) -> Iterator[Item]:
    """Yield the lines of the file that have objects, checked one by one; errors name the line. `verifying` reads
    along."""
    try:
        with source.open() as file:
            for number, raw in enumerate(file, 1):
                if not raw.strip():
                    continue
                with at_line(source, number):
                    try:
                        document = _document(raw)
                    except RecordFormatError as error:
                        if raw.endswith(b"\n"):
                            raise
                        if verifying is not None:
                            verifying.cut(number, error)
                        return
                    item = None if is_sum(document) else _item(connection, number, document)
                if verifying is not None and item is None:
                    verifying.sum(document)
                elif verifying is not None and item is not None:
                    verifying.object(number, raw, item.line.number)
                if item is not None:
                    yield item
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {error.strerror}") from error


@contextmanager
def at_line(source: Source, number: int) -> Iterator[None]:
    """Have errors inside name the line."""
    try:
        yield
    except HalogError as error:
        error.message = f"{source}, line {number}: {error.message}"
        raise


def _document(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise RecordFormatError("is not UTF-8 text") from error
    except (ValueError, RecursionError) as error:
        raise RecordFormatError(f"not an exported object: {str(error)[:200]}") from error


def _item(connection: ClusterConnection, number: int, document: Any) -> Item:
    from halog.cli.shared.values import key_from_plain

    try:
        line = msgspec.convert(document, ExportLine)
    except ValueError as error:
        raise RecordFormatError(f"not an exported object: {str(error)[:200]}") from error
    foreign = _foreign(connection.definitions, line)
    if line.definition and line.definition != foreign.type_id.hex():
        line = msgspec.structs.replace(line, fields=completed(foreign.parsed.record, line.fields))
    if [line.fields.get(name) for name in foreign.parsed.key] != line.key:
        raise FieldTypeError(f"{line.type}: the key {json.dumps(line.key)} is not what its fields say", type=line.type)
    key = key_from_plain(foreign.parsed, line.key)
    owner = connection.owner(line.type)
    connection.check_settled([owner.policy])
    place = owner.place(line.type, foreign.routing_key(key))
    return Item(number, line, foreign, foreign.index_key(key), place, owner)


def _foreign(definitions: Definitions, line: ExportLine) -> ForeignType:
    """Return the definition that wrote the line, if this cluster knows it, else the current one of the name."""
    for definition in reversed(definitions.named(line.type)):
        if definition.type_id.hex() == line.definition:
            return definitions.foreign(definition.type_id)
    return definitions.foreign(definitions.current(line.type).type_id)


def _check_unique(item: Item, seen: dict[bytes, int]) -> None:
    mark = hashlib.blake2b(item.index_key, digest_size=16).digest()
    before = seen.setdefault(mark, item.number)
    if before != item.number:
        raise DuplicateKeyError(
            f"{item.line.type} {json.dumps(item.line.key, ensure_ascii=False)} is on line {before} already",
            type=item.line.type,
        )


def _check_size(connection: ClusterConnection, item: Item) -> None:
    """Raise RecordTooLargeError for an object that no active node would take."""
    config = connection.config
    keeps = config.policies[item.owner.policy].before_images
    limit = most_bytes(config.limits.max_record_bytes, len(item.index_key), before_images=keeps)
    if (size := item.size) > limit:
        name = f"{item.line.type} {json.dumps(item.line.key, ensure_ascii=False)[:200]}"
        raise RecordTooLargeError(object_too_large(name, size, limit), size=size, limit=limit, type=item.line.type)


def _admit(connection: ClusterConnection, group: Sequence[Item], plan: ImportPlan, skip_existing: bool) -> None:
    """Ask the cluster for the keys of a group, and give the new objects their references."""
    present = _present(connection, group)
    for item in group:
        ref = present.get(item.number)
        plan.there[item.line.type] += 1
        with at_line(plan.source, item.number):
            _check_admissible(item, plan, exists=ref is not None and not skip_existing)
            if ref is None:
                _check_size(connection, item)
        if ref is not None:
            plan.skipped.add(item.number)
        else:
            plan.counts[item.line.type] = plan.counts.get(item.line.type, 0) + 1
            plan.pointed.update(refs_of(item.foreign, item.line.fields))
        if item.line.ref:
            plan.renamed[item.line.ref] = ref or connection.new_reference().to_bytes()


def _check_admissible(item: Item, plan: ImportPlan, *, exists: bool) -> None:
    if exists:
        raise DuplicateKeyError(
            f"{item.line.type} {json.dumps(item.line.key, ensure_ascii=False)} exists; nothing was imported "
            "(--skip-existing leaves existing objects alone)",
            type=item.line.type,
            key=item.line.key,
        )
    if item.line.ref in plan.renamed:
        raise RecordFormatError(
            f"reference {item.line.ref} stands on an earlier line already: two objects, one identity"
        )


def _present(connection: ClusterConnection, group: Sequence[Item]) -> dict[int, bytes]:
    """Return {line number: reference} of the objects that exist."""
    by_place: dict[Place, list[Item]] = {}
    for item in group:
        by_place.setdefault(item.place, []).append(item)
    present = {}
    for place, asked in by_place.items():
        keys = unique_keys(place, [item.index_key for item in asked])
        found = connection.fetch(place.partition, keys, brief=True)
        present.update({i.number: f.ref for i, f in zip(asked, found, strict=True) if f is not None})
    return present


# --- writing ---


def batches(
    connection: ClusterConnection, plan: ImportPlan, room: int = ROOM_BYTES
) -> Iterator[tuple[int, Mapping[str, Work]]]:
    """Yield the transactions that create what the plan says, place by place as they fill, the fullest early where all
    together need more memory than `room`: how many objects, and the works by partition. MapperError, ConfigError of a
    mapper that is asked at create."""
    spreading, owners = ObjectSpread(connection), dict[Place, Owner]()
    most = min(BATCH_BYTES, connection.config.limits.max_record_bytes // 5)
    pending: dict[Place, list[Write]] = {}
    sizes: dict[Place, int] = {}
    gathered = Gathered[Place](room)

    def sent(place: Place) -> tuple[int, Mapping[str, Work]]:
        gathered.sent(place)
        del sizes[place]
        writes = pending.pop(place)
        return len(writes), spreading.spread(place, owners[place], writes)

    for item in items(connection, plan.source):
        if item.number in plan.skipped:
            continue
        write = _write(connection, item, plan)
        size = len(write.key) + len(write.value or b"") + ITEM_BYTES
        place = item.place
        owners[place] = item.owner
        if place in pending and (len(pending[place]) >= BATCH_OBJECTS or sizes[place] + size > most):
            yield sent(place)
        pending.setdefault(place, []).append(write)
        sizes[place] = sizes.get(place, 0) + size
        if gathered.add(place, size):
            yield from map(sent, gathered.fullest())
    yield from map(sent, list(pending))


def _write(connection: ClusterConnection, item: Item, plan: ImportPlan) -> Write:
    ref = plan.renamed.get(item.line.ref) if item.line.ref else None
    with at_line(plan.source, item.number):
        value = item.foreign.encode(with_refs(item.foreign, item.line.fields, plan.renamed))
    return Write(CREATE, ref or connection.new_reference().to_bytes(), item.index_key, value, -1)
