"""This module checks availability zones in a configuration: which nodes a zone has, whether its quorum makes sense, and
which nodes a policy uses, and for what (P5, Q1).

It never counts who is up; `halog.core.table.zones` does. A quorum that no set of nodes can reach, or that a node alone
always has, is a mistake, and is found here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from halog.config.model import Config, PolicyConfig

PATTERN: Final = frozenset("*?[]")
"""Characters of patterns; no node's name has any of them."""


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names a pattern stands for, in their order; upper and lower case differ."""
    return [name for name in names if fnmatchcase(name, pattern)]


def expanded(entries: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return names and patterns as names, each once, at its first place."""
    known = list(names)
    found = (matching(entry, known) if PATTERN & set(entry) else [entry] for entry in entries)
    return tuple(dict.fromkeys(name for some in found for name in some))


def span_problems(config: Config, key: str, policy: PolicyConfig) -> Iterator[tuple[str, str]]:
    """Yield (key, reason) of everything that is wrong with the zones of a policy, and with its backup nodes."""
    if policy.zone and policy.zones:
        yield f"{key}.zones", "excludes zone: name all of them here"
    elif not policy.zone and not policy.zones:
        yield f"{key}.zone", "is missing"
        return
    where = f"{key}.zones" if policy.zones else f"{key}.zone"
    if len(set(policy.zones)) != len(policy.zones):
        yield where, "names a zone twice"
    unknown = [zone for zone in policy.spans if zone not in config.zones]
    for zone in unknown:
        near = get_close_matches(zone, config.zones, n=1)
        yield where, f"{zone!r} is not in [zones]" + (f"; did you mean {near[0]!r}?" if near else "")
    if not unknown:
        yield from _backup(config, key, policy)


def _backup(config: Config, key: str, policy: PolicyConfig) -> Iterator[tuple[str, str]]:
    name, key = key.partition(".")[2], f"{key}.backup"
    hosts = config.hosts_of(name)
    if policy.backup and policy.static:
        yield key, "excludes partitions named by hand: their node lists say who is preferred"
    for entry in policy.backup:
        if not (matching(entry, hosts) if PATTERN & set(entry) else entry in hosts):
            yield key, f"{entry!r} is none of the policy's nodes: {', '.join(hosts)}"
    if policy.backup and set(hosts) <= set(config.backups_of(name)):
        yield key, "leaves no primary node: some must be preferred"


def quorum_problems(config: Config) -> Iterator[tuple[str, str]]:
    """Yield (key, reason) of every quorum that cannot be meant."""
    for name, zone in config.zones.items():
        given = zone.quorum.given
        if len(given) > 1:
            first, second, *_ = given
            yield f"zones.{name}.quorum.{second}", f"excludes {first}: a zone has one kind of quorum"
        for key, value in given.items():
            nodes = [n for n in config.nodes_of(name) if n in config.nodes]
            why = _wrong(key, value, len(nodes), sum(config.nodes[n].votes for n in nodes))
            if why:
                yield f"zones.{name}.quorum.{key}", why


def _wrong(kind: str, value: int, nodes: int, votes: int) -> str:
    if kind == "minimum_active_remote_nodes":
        if nodes < 2:
            return "needs a zone of two nodes or more: a node has no remote ones here"
        return "" if 1 <= value < nodes else f"must be 1 to {nodes - 1} (the zone has {nodes} nodes), is {value}"
    if votes < 1:
        return "needs votes, and no node of the zone has any"
    if kind == "minimum_votes":
        return "" if 1 <= value <= votes else f"must be 1 to {votes} (the votes of all its nodes), is {value}"
    return "" if 1 <= value <= 100 else f"must be 1 to 100, is {value}"
