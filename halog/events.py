"""This module holds the messages for operators: one registry of stable codes, and the form of an event (Q4, O2).

A code names what happened for as long as halog exists: operators may search for it and set alarms on it, and it never
gets another meaning. Everything else about an event is data. Its text is made here, once, from that data, so that the
log file and the history say the same. Every code belongs to something that happens today. This module is pure: the time
is an input.

docs/guides/operations.md holds the table of all codes (a test compares), docs/protocol.md the bytes of the history.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from halog.errors import RecordFormatError

INFO, WARNING, ERROR = "info", "warning", "error"

TEXT_CHARS = 1_000
"""A longer text in an event is cut: an event must fit any topic."""

ITEMS = 100
"""A list in an event holds at most so many items; the rest is left out."""


class Kind(NamedTuple):
    """A `Kind` is a code and all that is fixed about it. `text` is a template over the event's fields and those of
    `more`."""

    code: str
    name: str
    severity: str
    text: str


CREATED = Kind("HALOG-1001", "created", INFO, "partition {partition} was created: {cause}")
JOINED = Kind("HALOG-1003", "joined", INFO, "node {node} joined: {cause}")
LEFT = Kind("HALOG-1004", "left", WARNING, "node {node} left: {cause}")
ADDED = Kind("HALOG-1005", "added", INFO, "partition {partition}: {node} joins the node list ({kind}): {cause}")
REMOVED = Kind("HALOG-1006", "removed", WARNING, "partition {partition}: {node} leaves the node list: {cause}")
TRANSFER = Kind(
    "HALOG-1007", "transfer requested", INFO, "partition {partition}: {node} is to hand over to {to}: {cause}"
)
INTRUDER = Kind("HALOG-1008", "intruder", WARNING, "{node} was refused: {cause}")
TOO_FEW = Kind(
    "HALOG-1009",
    "too few replicas",
    WARNING,
    "partition {partition}: {have} of {want} sync replicas: {cause}",
)
ROLE = Kind("HALOG-1010", "role change", INFO, "partition {partition}: {node} is {role}: {cause}")
MINIMUM = Kind(
    "HALOG-1011", "minimum size", WARNING, "partition {partition}: {required} nodes are required, not {was}: {cause}"
)
PRIORITY = Kind("HALOG-1012", "priority", INFO, "partition {partition}: the priority of {node} is {level}: {cause}")
DESIGNATED = Kind("HALOG-1013", "designated primary", WARNING, "partition {partition}: {to} may go on alone: {cause}")
DISCARDED = Kind(
    "HALOG-1014",
    "discarded transactions",
    WARNING,
    "partition {partition}: {count} transactions of epoch {of_epoch} were discarded: {cause}",
)
COPY_STOPS = Kind("HALOG-1015", "copy stops", ERROR, "partition {partition}: the copy on {node} cannot go on: {cause}")
NO_QUORUM = Kind(
    "HALOG-1017", "no quorum", ERROR, "partition {partition}: {have} nodes are there, {needed} are needed: {cause}"
)
UNLOGGED_AWAY = Kind(
    "HALOG-1018",
    "waits for holders",
    ERROR,
    "partition {partition}: commits the log may lack keep it from going on: {cause}",
)
UNLOGGED_LOST = Kind(
    "HALOG-1019", "unlogged lost", ERROR, "partition {partition}: commits the log did not have are given up: {cause}"
)
LEASE_AWAITED = Kind(
    "HALOG-1020", "lease awaited", WARNING, "partition {partition}: serves nothing for up to {ms} ms more: {cause}"
)
ZONE_LOST = Kind(
    "HALOG-1021", "zone quorum lost", ERROR, "zone {zone}: {node} has no quorum ({have} {of}, {needed} needed): {cause}"
)
ZONE_BACK = Kind(
    "HALOG-1022", "zone quorum restored", INFO, "zone {zone}: {node} has a quorum again and is {state}: {cause}"
)
ZONE_PARTIAL = Kind("HALOG-1023", "zone partial", WARNING, "zone {zone}: {node} misses {down}: {cause}")
ZONE_WHOLE = Kind("HALOG-1024", "zone active", INFO, "zone {zone}: {node} misses nobody: {cause}")
ZONE_SWITCHED = Kind("HALOG-1025", "zone quorum switched", WARNING, "zone {zone}: the quorum is {now}: {cause}")
MIGRATION = Kind(
    "HALOG-1026", "migration", INFO, "partition {partition}: moves to {to}, with {sync} sync replicas: {cause}"
)
MIGRATED = Kind("HALOG-1027", "migrated", INFO, "partition {partition}: is on {to} now: {cause}")
ACTIVATED = Kind(
    "HALOG-1028", "configuration activated", INFO, "version {version} of the configuration is active: {cause}"
)
TAKEN_UP = Kind(
    "HALOG-1029", "configuration taken up", INFO, "{node} goes by version {version} of the configuration: {cause}"
)
UNREAD = Kind(
    "HALOG-1120",
    "definition that older classes cannot read",
    WARNING,
    "type {type}: {node} published definition {id}, and processes with {older} cannot start any more: {cause}",
)
UNAUTHORIZED = Kind("HALOG-1140", "request refused", WARNING, "{node} was refused a request: {cause}")
CERTIFICATES = Kind("HALOG-1141", "certificates renewed", INFO, "{node} has taken its certificates anew: {cause}")
CERTIFICATES_BAD = Kind(
    "HALOG-1142",
    "certificates not renewed",
    ERROR,
    "{node} goes on with the certificates that it has, and does not take the new files: {cause}",
)
PLAINTEXT = Kind("HALOG-1143", "plain text", ERROR, "{node} takes plain text from other machines: {cause}")
AUDIT_LOST = Kind(
    "HALOG-1160", "audit entries lost", WARNING, "{count} entries of {node} are missing from the audit: {cause}"
)
RETIRED = Kind("HALOG-1121", "definition retired", INFO, "type {type}: definition {id} was taken back: {cause}")
REBALANCE = Kind("HALOG-1030", "rebalance", INFO, "policy {policy}: {moves} partitions are to move: {cause}")
STATE = Kind("HALOG-1035", "partition state", INFO, "partition {partition}: {state}, was {was}: {cause}")
DEFINITION = Kind(
    "HALOG-1036", "definition", INFO, "partition {partition}: {node} has it {said} on {nodes}, {sync} sync: {cause}"
)
REPLICATION = Kind(
    "HALOG-1037", "forced replication", INFO, "partition {partition}: replicas {what} copied anew ({nodes}): {cause}"
)
UNAVAILABLE = Kind("HALOG-1038", "partition unavailable", ERROR, "partition {partition}: {state}, was {was}: {cause}")
DIFFERING = Kind(
    "HALOG-1039",
    "node lists differ",
    ERROR,
    "partition {partition}: {node} has it defined on {defined}, the cluster has it on {listed}: {cause}",
)
REMAPPING = Kind(
    "HALOG-1031", "mapping changes", INFO, "policy {policy}: mapping version {version} is in force: {cause}"
)
REMAPPED = Kind("HALOG-1032", "mapping changed", INFO, "policy {policy}: mapping version {version}: {cause}")
MIRRORING = Kind("HALOG-1040", "not mirrored", ERROR, "partition {partition}: not mirrored from site {site}: {cause}")
PARTED = Kind(
    "HALOG-1041",
    "split brain",
    ERROR,
    "partition {partition}: this site and {site} have gone on each by itself: {cause}",
)
SITES_ASKED = Kind("HALOG-1044", "site switched by hand", WARNING, "partition {partition}: {what}: {cause}")
SITE_AWAY = Kind(
    "HALOG-1045", "sync site away", ERROR, "partition {partition}: site {site} does not confirm commits: {cause}"
)
SITE_BACK = Kind("HALOG-1046", "sync site back", INFO, "partition {partition}: commits wait for site {site}: {cause}")
RESTORED = Kind(
    "HALOG-1042", "restored", INFO, "partition {partition}: {changed} objects were changed by merge {merge}: {cause}"
)
BRANCHES = Kind(
    "HALOG-1047",
    "split brain counted",
    ERROR,
    "partition {partition}: this site and {site} have parted behind lsn {fork}: {here} objects touched here, "
    "{there} there: {cause}",
)
SITE_QUORUM_LOST = Kind(
    "HALOG-1048",
    "no quorum of sites",
    ERROR,
    "partition {partition}: this site has {have} votes of sites and needs {needed}, without {missing}: {cause}",
)
SITE_QUORUM = Kind("HALOG-1049", "quorum of sites", INFO, "partition {partition}: this site has the votes: {cause}")
SITE_TAKEN_OVER = Kind(
    "HALOG-1050",
    "taken over from a site",
    WARNING,
    "partition {partition}: served here, and no more by site {site}: {cause}",
)
SITE_GIVEN_UP = Kind(
    "HALOG-1051", "given up to a site", WARNING, "partition {partition}: site {site} serves it: {cause}"
)
SETTLED = Kind(
    "HALOG-1052",
    "conflicts settled",
    INFO,
    "partition {partition}: {count} conflicts of merge {merge} are settled, {stands} stands: {cause}",
)
DELETED = Kind(
    "HALOG-1108", "deleted by an operator", WARNING, "partition {partition}: {object} was deleted by hand: {cause}"
)
LOG_AWAY = Kind("HALOG-1113", "log away", ERROR, "{node}: the log does not answer since {since}: {cause}")
LOG_BACK = Kind("HALOG-1114", "log back", INFO, "{node}: the log answers again: {cause}")
LINE_CUT = Kind("HALOG-1115", "line cut", ERROR, "{node} and {to} do not reach each other, and both live: {cause}")
LINE_WHOLE = Kind("HALOG-1116", "line whole", INFO, "{node} and {to} reach each other again: {cause}")
RECOVERED = Kind(
    "HALOG-1124",
    "recovered from logs",
    WARNING,
    "the tables of {partitions} partitions were made anew from their logs, {again} commits appended again: {cause}",
)
STORE_ASIDE = Kind("HALOG-1125", "store set aside", ERROR, "{node} has a new store; the old one is {aside}: {cause}")
NOT_TAKEN = Kind(
    "HALOG-1126",
    "nothing taken",
    ERROR,
    "partition {partition}: its log is there, and one epoch after the other does not open: {cause}",
)
LATER_RECORD = Kind(
    "HALOG-1127",
    "written by a later version",
    ERROR,
    "partition {partition}: the copy on {node} stops before what a later version of halog wrote: {cause}",
)
UPGRADE = Kind("HALOG-1129", "upgrade", INFO, "upgrade to halog {to}, {node}: {step}: {cause}")
NOTIFIER_FAILED = Kind(
    "HALOG-1130",
    "node notifier failed",
    WARNING,
    "{notifier} failed at {to} when node {node} became {state}: {cause}",
)
NODE_REFUSED = Kind("HALOG-1131", "nodes do not talk", WARNING, "node {node} is {state} to {to}: {cause}")
LOST = Kind("HALOG-1016", "events lost", WARNING, "{count} events are missing from the history: {cause}")

KINDS: dict[str, Kind] = {
    kind.code: kind
    for kind in (
        CREATED,
        JOINED,
        LEFT,
        ADDED,
        REMOVED,
        TRANSFER,
        INTRUDER,
        TOO_FEW,
        ROLE,
        MINIMUM,
        PRIORITY,
        DESIGNATED,
        DISCARDED,
        COPY_STOPS,
        LOST,
        NO_QUORUM,
        UNLOGGED_AWAY,
        UNLOGGED_LOST,
        LEASE_AWAITED,
        ZONE_LOST,
        ZONE_BACK,
        ZONE_PARTIAL,
        ZONE_WHOLE,
        ZONE_SWITCHED,
        MIGRATION,
        MIGRATED,
        ACTIVATED,
        TAKEN_UP,
        REBALANCE,
        REMAPPING,
        REMAPPED,
        STATE,
        DEFINITION,
        REPLICATION,
        UNAVAILABLE,
        DIFFERING,
        MIRRORING,
        PARTED,
        RESTORED,
        SITES_ASKED,
        SITE_AWAY,
        SITE_BACK,
        BRANCHES,
        SITE_QUORUM_LOST,
        SITE_QUORUM,
        SITE_TAKEN_OVER,
        SITE_GIVEN_UP,
        SETTLED,
        DELETED,
        LOG_AWAY,
        LOG_BACK,
        LINE_CUT,
        LINE_WHOLE,
        UNREAD,
        RETIRED,
        RECOVERED,
        STORE_ASIDE,
        NOT_TAKEN,
        LATER_RECORD,
        UPGRADE,
        NOTIFIER_FAILED,
        NODE_REFUSED,
        UNAUTHORIZED,
        CERTIFICATES,
        CERTIFICATES_BAD,
        PLAINTEXT,
        AUDIT_LOST,
    )
}
"""Every code that can occur, with its kind."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An `Event` is one thing that happened, as the history holds it (JSON, one object). `time_ms` is since 1970, UTC,
    by the clock of the node that reports it; `id` is unique, so that an event written twice counts once."""

    id: str
    code: str
    name: str
    severity: str
    time_ms: int
    cluster: str
    partition: str | None
    node: str
    """The node that the event is about."""
    by: str
    """The node that reports the event."""
    epoch: int | None
    """The number of the partition's epoch, as the reporting node knows it."""
    lsn: int | None
    text: str
    cause: str
    more: dict[str, Any] = {}

    def to_bytes(self) -> bytes:
        """Return the event as a value of the history's topic."""
        return msgspec.json.encode(self)

    @staticmethod
    def from_bytes(data: bytes, written_ms: int = 0) -> Event:
        """Decode a value; fields of newer versions are ignored. What one wrote otherwise counts as not said, as long as
        there are a code and a text; `written_ms` is its time then. RecordFormatError for anything else."""
        try:
            return _DECODER.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as e:
            later = _of_later(data, written_ms)
            if later is not None:
                return later
            raise RecordFormatError(f"an entry of the event history is no event: {e}", head=data[:16].hex()) from e


_DECODER = msgspec.json.Decoder(Event)
_CODE = re.compile(r"HALOG-[0-9]{4}")


def is_code(text: str) -> bool:
    """Say whether this has the form of a code, of this version or a later one."""
    return _CODE.fullmatch(text) is not None


def _of_later(data: bytes, written_ms: int) -> Event | None:
    """Return an event with those of its fields that are as they are here. None: it has no code, or no text."""
    try:
        said = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    fits: dict[str, Any] = {}
    for field in msgspec.structs.fields(Event):
        with suppress(KeyError, msgspec.ValidationError):
            fits[field.name] = msgspec.convert(said[field.name], field.type)
    if not is_code(fits.get("code", "")) or "text" not in fits:
        return None
    nowhere = {"partition": None, "epoch": None, "lsn": None, "time_ms": written_ms}
    unsaid = dict.fromkeys(("name", "severity", "cluster", "node", "by", "cause"), "")
    return Event(**{"id": hashlib.sha256(data).hexdigest()[:32], **nowhere, **unsaid, **fits})


class EventPlace(NamedTuple):
    """Says where an event happened: cluster, reporting node, and the partition with its epoch number and lsn, if
    any."""

    cluster: str
    by: str
    partition: str | None = None
    epoch: int | None = None
    lsn: int | None = None


def _tame(value: Any) -> Any:
    """Return the value shortened, and without lone surrogates, which no encoder takes. Bytes are left alone: they are
    halog's own, the reporting code bounds them, and they become base64."""
    if isinstance(value, str):
        return value[:TEXT_CHARS].encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_tame(item) for item in value[:ITEMS]]
    if isinstance(value, dict):
        return {_tame(key): _tame(item) for key, item in list(value.items())[:ITEMS]}
    return value


def lean(whole: Event) -> Event:
    """Return the event without the bytes that it carries, for places that have no room for them."""
    return msgspec.structs.replace(whole, more=_without_bytes(whole.more))


def _without_bytes(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_bytes(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_bytes(item) for key, item in value.items() if not isinstance(item, bytes)}
    return value


def event(
    kind: Kind, at: EventPlace, *, name: str, time_ms: int, node: str, cause: str, more: Mapping[str, Any] | None = None
) -> Event:
    """Make an event of `kind` with its text; `name` becomes its id. KeyError if `more` lacks a field that the template
    names.

    Names and texts may come from strangers: the event is short all the same, and can be encoded.
    """
    facts = {key: _tame(value) for key, value in (more or {}).items()}
    node, cause = _tame(node), _tame(cause)
    text = kind.text.format(**facts, partition=at.partition, node=node, cause=cause)
    return Event(
        id=name,
        code=kind.code,
        name=kind.name,
        severity=kind.severity,
        time_ms=time_ms,
        cluster=at.cluster,
        partition=at.partition,
        node=node,
        by=at.by,
        epoch=at.epoch,
        lsn=at.lsn,
        text=text,
        cause=cause,
        more=facts,
    )
