"""What must hold when a mapping has changed (T8), from the logs alone: nothing lost, doubled or misplaced."""

from __future__ import annotations

from halog.core.ids import ABSENT
from tests.sim.ballots import Told, judged
from tests.sim.shop import STEADY, Shop, owner
from tests.sim.violation import demand


def finish(shop: Shop) -> None:
    """Everything, once all is quiet."""
    logs, _, lost = judged(shop)
    _all_in_place(shop, {name: replayed(log) for name, log in logs.items()}, lost=lost)


def replayed(log: Told) -> dict[bytes, bytes]:
    """What is in a partition at the end."""
    now: dict[bytes, tuple[int, bytes]] = {}
    for _, (lsn, reads, changes) in log.happened():
        for key, version in (*reads, *((c.key, c.replaced) for c in changes)):
            found = now[key][0] if key in now else ABSENT
            demand(found == version, f"T4: lsn {lsn} of {log.name} rests on {key!r} at {version}, not {found}")
        for c in changes:
            if c.value is None:
                del now[c.key]
            else:
                now[c.key] = lsn, c.value
    return {key: value for key, (_, value) in now.items()}


def _all_in_place(shop: Shop, there: dict[str, dict[bytes, bytes]], *, lost: bool) -> None:
    where: dict[bytes, list[str]] = {}
    values: dict[bytes, bytes] = {}
    for name, now in there.items():
        for key, value in now.items():
            where.setdefault(key, []).append(name)
            values[key] = value
    for key, names in where.items():
        demand(len(names) == 1, f"T8: {key!r} is in {names}")
        demand(names == [owner(key, shop.mapping.now)], f"T8: {key!r} is misplaced in {names}")
    for key in STEADY if not lost else ():
        demand(key in where or key not in shop.exists, f"T8: {key!r} is lost")
        least, most = shop.counted[key], shop.counted[key] + shop.doubtful[key]
        demand(key not in where or least <= int(values[key]) <= most, f"T8: {key!r} was counted {values.get(key)!r}")
