"""How a history is told with `-v`: one short line per event and effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halog.core import events as ev
from halog.core.ids import EpochId, Member, Position
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.table.table import PartitionTable


def short(value: object) -> str:
    """One short line of a frozen value."""
    teller = _TELLERS.get(type(value))
    if teller is not None:
        return teller(value)
    if hasattr(value, "__struct_fields__"):
        fields = ", ".join(f"{n}={short(getattr(value, n))}" for n in value.__struct_fields__)
        return f"{type(value).__name__}({fields})"
    text = repr(value)
    return text if len(text) < 100 else text[:97] + "..."


def _table(t: PartitionTable) -> str:
    replicas = " ".join(f"{r.node}/{r.incarnation}:{r.kind}" for r in t.replicas)
    return f"[epoch {t.epoch.number} active {short(t.active)} replicas {replicas or '-'}]"


def _record(r: Any) -> str:
    h = r.header
    return f"{type(r).__name__} e{h.epoch.number} lsn {h.lsn} tx {int.from_bytes(h.tx[8:], 'big')}"


def _chain(s: ChainState) -> str:
    marks = "".join(
        m for m, on in ((" open", s.opened), (" void", s.void), (f" for {s.closed_for}", s.closed_for)) if on
    )
    return f"[e{s.epoch.number}{marks} led {s.led} lsn {s.lsn}]"


def _bytes(data: bytes) -> str:
    if len(data) == 16:
        return f"#{int.from_bytes(data[8:], 'big')}"
    try:
        return _record(records.decode(data))
    except Exception:
        return repr(data[:20])


_TELLERS: dict[type[Any], Callable[[Any], str]] = {
    PartitionTable: _table,
    ChainState: _chain,
    bytes: _bytes,
    EpochId: lambda e: f"e{e.number}",
    Member: lambda m: f"{m.node}/{m.incarnation}",
    Position: lambda p: f"{p.epoch}.{p.lsn}",
    frozenset: lambda s: "{" + " ".join(sorted(short(m) for m in s)) + "}",
    records.Change: lambda c: f"{'CUD'[c.op]} {c.key!r} over {c.replaced}",
    list: lambda v: "[" + ", ".join(short(x) for x in v) + "]",
    tuple: lambda v: "(" + ", ".join(short(x) for x in v) + ")",
    str: lambda s: s,
    ev.Cas: lambda c: c.value,
    **dict.fromkeys((records.Commit, records.EpochStarted, records.EpochOpened, records.HandedOver), _record),
}
