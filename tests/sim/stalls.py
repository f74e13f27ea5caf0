"""What must hold of objects and their entries (P6), from the logs alone: they agree, in every transaction."""

from __future__ import annotations

from halog.core.keys.directory import entry_key, is_entry, object_key, unpacked
from halog.core.log.records import CREATE, DELETE, UPDATE, Change
from tests.sim.ballots import Told, judged
from tests.sim.goods import replayed
from tests.sim.market import TYPE, Market
from tests.sim.shop import STEADY, owner
from tests.sim.violation import demand

Changes = dict[str, tuple[Change, ...]]
"""Of one transaction, by partition."""


def finish(market: Market) -> None:
    """Everything, once all is quiet."""
    logs, _, lost = judged(market)
    there = {name: replayed(log) for name, log in logs.items()}
    for changes in _transactions(logs) if not market.changes_kind else ():
        _agree(changes)
    _all_listed(market, there)
    _none_lost(market, there, lost=lost)


def _transactions(logs: dict[str, Told]) -> list[Changes]:
    done: dict[bytes, Changes] = {}
    for name, log in logs.items():
        for tx, what in log.happened():
            done.setdefault(tx, {})[name] = what.changes
    return list(done.values())


def _agree(changes: Changes) -> None:
    """No transaction leaves an object without its entry, or an entry without its object: each that was right before it
    is right behind it."""
    goods = [(name, c) for name, its in changes.items() for c in its if not is_entry(c.key)]
    entries = [(name, c) for name, its in changes.items() for c in its if is_entry(c.key)]
    said = {object_key(c.key): unpacked(c.value).partition for _, c in entries if c.value is not None}
    come = {c.key: name for name, c in goods if c.op == CREATE}
    gone = {c.key for _, c in goods if c.op == DELETE} - come.keys()
    unlisted = {object_key(c.key) for _, c in entries if c.op == DELETE} - said.keys()
    for key, name in come.items():
        demand(said.get(key) == name, f"P6: {key!r} is put into {name}, its entry says {said.get(key)}")
    demand(gone == unlisted, f"P6: {gone} are deleted, the entries of {unlisted} are")
    carried = {c.key for _, c in entries if c.op == CREATE} & {c.key for _, c in entries if c.op == DELETE}
    for key in said.keys() - come.keys():
        demand(entry_key(key) in carried, f"P6: the entry of {key!r} says {said[key]} and nothing was put there")
    for _, c in entries:
        demand(c.op != UPDATE or object_key(c.key) in come, f"P6: the entry of {object_key(c.key)!r} was changed alone")


def _all_listed(market: Market, there: dict[str, dict[bytes, bytes]]) -> None:
    """At the end: one entry for each object, where its key hashes to; and one object for each entry. Or no entries, and
    objects where their keys hash to."""
    layout = market.mapping.now
    homes: dict[bytes, list[str]] = {}
    listed: dict[bytes, list[str]] = {}
    for name, now in there.items():
        for key, value in now.items():
            if is_entry(key):
                listed.setdefault(object_key(key), []).append(unpacked(value).partition)
                demand(name == owner(object_key(key), layout), f"T8: the entry of {object_key(key)!r} is in {name}")
            else:
                homes.setdefault(key, []).append(name)
                demand(name in layout.names, f"T8: {key!r} is left in {name}")
    if not layout.listed:
        demand(not listed, f"P6: entries are left that say {listed}")
        listed = {key: [owner(key, layout)] for key in homes}
    demand(homes == listed, f"P6: objects are in {homes}, they belong or their entries say {listed}")
    doubled = {key: names for key, names in homes.items() if len(names) != 1}
    demand(not doubled, f"P6: {doubled} exist more than once")


def _none_lost(market: Market, there: dict[str, dict[bytes, bytes]], *, lost: bool) -> None:
    values = {key: value.removeprefix(TYPE) for now in there.values() for key, value in now.items()}
    for key in STEADY if not lost else ():
        demand(key in values or key not in market.exists, f"P6: {key!r} is lost")
        least, most = market.counted[key], market.counted[key] + market.doubtful[key]
        demand(key not in values or least <= int(values[key]) <= most, f"P6: {key!r} was counted {values.get(key)!r}")
