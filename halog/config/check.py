"""This module checks a configuration as a whole: names, numbers, and that its parts fit each other.

It never repairs a value. Each check yields (key, reason). A process that needs the configuration raises the first one;
`halog config check` shows all of them.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from halog.config.addresses import addresses_problems, place_of
from halog.config.field_types import kinds
from halog.config.mapper import mapper_problems
from halog.config.multi_site import at_site, is_whole, sites_named, sites_of, whole_problems
from halog.config.security import security_problems
from halog.config.sites import (
    comparison_problems,
    home_problems,
    site_problems,
    sync_site_problems,
    takeover_problems,
)
from halog.config.static import CopyCounts, name_problems, shapes, static_problems
from halog.config.tuning import too_long, tuning_problems
from halog.config.zones import PATTERN, matching, quorum_problems, span_problems
from halog.errors import ConfigError

if TYPE_CHECKING:
    from halog.config.model import (
        ApplicationConfig,
        Config,
        LimitsConfig,
        NodeConfig,
        PolicyConfig,
        SiteConfig,
        TimingConfig,
    )

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")
"""Names become topic and znode names. Kafka allows 249 characters; 100 leave room for prefix and suffix."""
NAMED: Final = "1 to 100 of A-Z a-z 0-9 . _ -"
MAX_PARTITIONS: Final = 4_096
LOCAL_SYNC: Final = ("SYNC", "WRITE_NO_SYNC", "NO_SYNC")
BELOW_QUORUM: Final = ("refuse", "wait")
REBALANCE: Final = ("auto", "manual")
REMOTE_SYNC: Final = LOCAL_SYNC
TAIL_FRAME: Final = 10_000_000
"""A node's frame must hold the pushed records that a replica keeps: 8 MB, and their envelope."""
TAIL_KEEP: Final = 10_000
"""The log must not be trimmed past what a replica holds beyond it: 4,096 records, behind the records that came since
its position was stored, 0.1 s ago."""
LEASE_MS: Final = (300, 60_000)
"""If it is shorter, three renewals within it are too many for ZooKeeper; if longer, a cut-off node blocks others for
too long."""
MAX_COPIES: Final = 7
"""More copies than that only make every commit slower."""
LOG_BYTES: Final = 5_900_000
"""halog's topics take records of 6 MiB, and the last record of an object that is too large may exceed the limit by a
twentieth (`halog.core.commit.size_limits`)."""

Problems = Iterator[tuple[str, str]]


NOBODY: Final = ("none", "null")
"""Words that stand for nobody, in any case of letters: on the command line, in tables, in documents."""


def is_plain(text: str) -> bool:
    """Say whether a text may become a part of topic and znode names."""
    return NAME.match(text) is not None and text not in (".", "..")


def wrong_name(text: str) -> str:
    """Return why a cluster, a site, a zone, a policy, a partition or a node cannot have this name; "": it can."""
    if not is_plain(text):
        return f"the name {text[:110]!a} must be {NAMED} (it becomes topic and znode names)"
    if text.startswith("-"):
        return f"the name {text!r} begins with -, as the command line's options do"
    if text.lower() in NOBODY:
        return f"the name {text!r} stands for nobody, on the command line and in what it shows"
    return ""


def wrong_node_name(text: str) -> str:
    """Return why a node cannot have this name; "": it can."""
    if text.lower() == "all":
        return f"the name {text!r} stands for all nodes"
    return wrong_name(text)


def problem(source: str, key: str, reason: str) -> ConfigError:
    """Make the error that names file, key and reason."""
    return ConfigError(f"{source}: {key}: {reason}", file=source, key=key, reason=reason)


def first_problem(config: Config) -> ConfigError | None:
    """Return the error for the first thing that is wrong, or None."""
    for key, reason in all_problems(config):
        return problem(config.source, key, reason)
    return None


def all_problems(config: Config) -> Problems:
    """Yield every (key, reason), the first one first."""
    yield from _types(config)
    yield from _names(config)
    yield from site_problems(config)
    yield from _copies(config.site)
    yield from _modules(config.application)
    yield from _whole(config) if is_whole(config) else _part(config)
    if all(policy.partitions <= MAX_PARTITIONS for policy in config.all_sites.policies.values()):
        yield from name_problems(config)  # which makes them all
    yield from _bindings(config)
    yield from _discovery(config)
    for name, node in config.nodes.items():
        yield from _node(f"nodes.{name}", node)
    yield from _same_data_dir(config)
    yield from _positive(config)
    yield from _timing(config.timing)
    yield from _limits(config.limits)
    yield from _tails(config)
    yield from security_problems(config)
    for user in config.security.roles:
        if not is_plain(user):
            yield f"security.roles.{user[:110]}", f"no certificate names such a user: a name must be {NAMED}"


def operators_problems(config: Config) -> Problems:
    """Yield every (key, reason) of a file that an operator has checked or activated. Beyond `all_problems` these are
    things that only the operator can see to, who writes for all nodes. A process that starts checks less: it uses its
    own node's place alone, and what its file or an older version says of another node may be outdated."""
    yield from all_problems(config)
    yield from shared_addresses(config)


def _part(config: Config) -> Problems:
    """Check what one site runs with."""
    yield from _zones(config)
    yield from quorum_problems(config)
    for name, policy in config.policies.items():
        yield from _policy(config, f"policies.{name}", policy)


def _whole(config: Config) -> Problems:
    """Check a file that all sites share; if it holds together, check what each of them would run with, too."""
    found = [*_zones(config), *whole_problems(config)]
    for name, policy in config.policies.items():
        found += span_problems(config, f"policies.{name}", policy)
        found += static_problems(config, f"policies.{name}", policy)
    yield from found
    where: dict[tuple[str, str], list[str]] = {}
    for site in () if found else sites_of(config, config.nodes):
        for wrong in dict.fromkeys(_part(at_site(config, site))):
            where.setdefault(wrong, []).append(site)
    for (key, reason), sites in where.items():
        yield key, f"{reason} (at {sites_named(sites)})"


def _types(config: Config) -> Problems:
    """Check the types of a Config built in Python; values read from a file are of the right type already."""
    for section in (f for f in dataclasses.fields(config) if f.metadata.get("table", True)):
        value = getattr(config, section.name)
        entries = value.items() if isinstance(value, Mapping) else [("", value)]
        for name, entry in entries:
            if dataclasses.is_dataclass(entry):
                yield from _entry_types(f"{section.name}.{name}" if name else section.name, entry)


def _entry_types(where: str, entry: Any) -> Problems:
    for key, allowed in kinds(type(entry)).items():
        value = getattr(entry, key)
        if dataclasses.is_dataclass(value):
            yield from _entry_types(f"{where}.{key}", value)
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            yield f"{where}.{key}", f"must be {' or '.join(k.__name__ for k in allowed)}, is {type(value).__name__}"


def _names(config: Config) -> Problems:
    named = [("cluster.name", config.cluster.name), ("site.name", config.site.name)]
    for section in ("sites", "zones", "policies", "nodes"):
        named += [(f"{section}.{name}", name) for name in getattr(config, section)]
    for policy, entry in config.policies.items():
        named += [(f"policies.{policy}.partitions.{name}", name) for name in entry.static]
    for key, name in named:
        if why := (wrong_node_name if key.startswith("nodes.") else wrong_name)(name):
            yield key, why


def _copies(site: SiteConfig) -> Problems:
    factor, in_sync = site.replication_factor, site.min_insync_replicas
    if factor is None:
        if in_sync is not None:
            yield "site.min_insync_replicas", "needs site.replication_factor: out of how many?"
        return
    if not 1 <= factor <= MAX_COPIES:
        yield "site.replication_factor", f"must be 1 to {MAX_COPIES}, is {factor}"
    if site.embedded is not None and factor > 1:
        yield "site.replication_factor", f"is {factor}, and an embedded site has one broker"
    if in_sync is not None and not max(1, factor - 1) <= in_sync <= factor:
        need = f"{max(1, factor - 1)} or {factor}" if factor > 1 else "1"
        yield "site.min_insync_replicas", f"must be {need} with replication_factor {factor}, is {in_sync}"


def _modules(application: ApplicationConfig) -> Problems:
    for module in application.modules:
        if not all(part.isidentifier() for part in module.split(".")):
            yield "application.modules", f"{module!r} is no module name"


def _zones(config: Config) -> Problems:
    for name, zone in config.zones.items():
        key = f"zones.{name}.nodes"
        if not zone.nodes:
            yield key, "must name at least one node"
        if len(set(zone.nodes)) != len(zone.nodes):
            yield key, "names a node twice"
        for node in zone.nodes:
            if PATTERN & set(node):
                if not matching(node, config.nodes):
                    yield key, f"{node!r} matches none of [nodes]: {', '.join(config.nodes)}"
            elif node not in config.nodes:
                yield key, f"{node!r} is not in [nodes]" + _near(node, config.nodes)


def _node(key: str, node: NodeConfig) -> Problems:
    yield from addresses_problems(f"{key}.address", node.address)
    if node.listen != "":
        yield from addresses_problems(f"{key}.listen", node.listen, every=bool(node.advertise))
    if node.advertise != "":
        yield from addresses_problems(f"{key}.advertise", node.advertise)
    if node.votes < 0:
        yield f"{key}.votes", f"must not be negative, is {node.votes}"
    if node.failure_domain and not is_plain(node.failure_domain):
        yield f"{key}.failure_domain", f"must be {NAMED}, is {node.failure_domain[:110]!r}"


def _near(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _policy(config: Config, key: str, policy: PolicyConfig) -> Problems:
    yield from span_problems(config, key, policy)
    known = all(zone in config.zones for zone in policy.spans)
    for name in ("sync_replicas", "async_replicas"):
        if getattr(policy, name) < 0:
            yield f"{key}.{name}", "must not be negative"
    copies = 1 + policy.sync_replicas + policy.async_replicas
    if known and not policy.static and copies > (nodes := len(config.hosts_of(key.partition(".")[2]))):
        have = f"zone {' and '.join(map(repr, policy.spans))} {'has' if len(policy.spans) == 1 else 'have'} {nodes}"
        yield f"{key}.sync_replicas", f"an active and its replicas need {copies} nodes, {have}"
    if policy.rebalance not in REBALANCE:
        yield f"{key}.rebalance", f"{policy.rebalance!r} must be one of {', '.join(REBALANCE)}"
    yield from static_problems(config, key, policy)
    yield from home_problems(config, key, policy)
    yield from sync_site_problems(config, key, policy)
    yield from takeover_problems(config, key, policy)
    yield from comparison_problems(key, policy)
    yield from _safety(key, policy, shapes(key, policy))
    if not 1 <= policy.partitions <= MAX_PARTITIONS:
        yield f"{key}.partitions", f"must be 1 to {MAX_PARTITIONS}"
    yield from tuning_problems(key, policy)
    yield from mapper_problems(config, key, policy)


def _safety(key: str, policy: PolicyConfig, copies: list[CopyCounts]) -> Problems:
    if policy.local_sync not in LOCAL_SYNC:
        yield f"{key}.local_sync", f"{policy.local_sync!r} must be one of {', '.join(LOCAL_SYNC)}"
    elif policy.unlogged and (alone := [c.key for c in copies if not c.sync_replicas]):
        what = f"{alone[0]} has none" if policy.static else "else nobody but the active node has a commit"
        yield f"{key}.local_sync", f"NO_SYNC needs sync_replicas of 1 or more: {what}"
    if policy.remote_sync not in REMOTE_SYNC:
        yield f"{key}.remote_sync", f"{policy.remote_sync!r} must be one of {', '.join(REMOTE_SYNC)}"
    if policy.below_quorum not in BELOW_QUORUM:
        yield f"{key}.below_quorum", f"{policy.below_quorum!r} must be one of {', '.join(BELOW_QUORUM)}"
    if policy.lease_ttl_ms and not LEASE_MS[0] <= policy.lease_ttl_ms <= LEASE_MS[1]:
        yield f"{key}.lease_ttl_ms", f"must be 0 (no leases) or {LEASE_MS[0]} to {LEASE_MS[1]}"
    elif policy.lease_ttl_ms and policy.unlogged:
        yield (
            f"{key}.lease_ttl_ms",
            "excludes local_sync NO_SYNC: there operators may end an epoch that still has one",
        )
    for where, count, sync in copies if policy.quorum else ():
        if sync < count // 2:
            need = f"a quorum of {count} nodes is {count // 2 + 1}, the active and {count // 2} replicas"
            what = "sync replicas " if policy.static else ""
            yield where, f"{what}must be at least {count // 2}: {need}; async ones acknowledge late"


def _bindings(config: Config) -> Problems:
    for name, policy in config.bindings.items():
        if name != "*" and PATTERN & set(name):
            yield f'bindings."{name}"', 'is a pattern; only type names and "*" (every declared type) are taken'
        if policy not in config.all_sites.policies:
            yield f'bindings."{name}"', f"{policy!r} is not in [policies]" + _near(policy, config.policies)


def _same_data_dir(config: Config) -> Problems:
    """Refuse one data directory for two nodes at the same host, and one within another's; on two hosts it may be the
    same path."""
    seen: dict[tuple[str, str], list[tuple[str, PurePath]]] = {}
    for name, node in config.nodes.items():
        own = PurePath(os.path.normpath(node.data_dir))
        hosts = list(dict.fromkeys(address.rpartition(":")[0] for address in node.reached))
        found = (_shared_directory(name, own, host, seen.get((node.site, host), [])) for host in hosts)
        yield from next((problem for problem in found if problem), [])
        for host in hosts:
            seen.setdefault((node.site, host), []).append((name, own))


def _discovery(config: Config) -> Problems:
    """Check the addresses by which nodes are reached. Nodes of another site may be unknown here."""
    for name, addresses in config.discovery.items():
        yield from addresses_problems(f"discovery.{name}", addresses, zero=False)
        if name not in config.all_sites.nodes and not config.other_sites:
            yield f"discovery.{name}", f"{name!r} is not in [nodes]" + _near(name, config.nodes)


def _shared_directory(name: str, own: PurePath, host: str, others: list[tuple[str, PurePath]]) -> list[tuple[str, str]]:
    """Return the first problem of a node's directory with those of others at one of its hosts."""
    for other, its in others:
        if its == own:
            why = f"is node {other}'s too, at the same host {host}; each node needs its own"
            return [(f"nodes.{name}.data_dir", why)]
        if own.is_relative_to(its) or its.is_relative_to(own):
            inner, outer = (name, other) if own.is_relative_to(its) else (other, name)
            why = f"lies in that of node {outer}, at the same host {host}; each node needs its own"
            return [(f"nodes.{inner}.data_dir", why)]
    return []


def shared_addresses(config: Config) -> Problems:
    """Yield (key, reason) of each address of a node of a zone that is also another node's. A node in no zone may have
    left its machine to the other; a port 0 is any free one."""
    used = {node for zone in config.all_sites.zones for node in config.all_sites.nodes_of(zone)}
    seen: dict[tuple[str, str, int], str] = {}
    for name, node in config.all_sites.nodes.items():
        for address in node.reached if name in used else ():
            place = place_of(address)
            if place is None or place[1] == 0:
                continue
            other = seen.setdefault((node.site, *place), name)
            if other != name:
                key = "advertise" if node.advertise else "listen" if node.listen else "address"
                yield f"nodes.{name}.{key}", f"{address!r} is node {other}'s too; each node needs its own"


def _positive(config: Config) -> Problems:
    for section in ("timing", "limits", "snapshot"):
        for item in dataclasses.fields(getattr(config, section)):
            value = getattr(getattr(config, section), item.name)
            if type(value) is int and value < 1:
                yield f"{section}.{item.name}", f"must be at least 1, is {value}"
            elif type(value) is int and (why := too_long(item.name, value)):
                yield f"{section}.{item.name}", why


def _timing(timing: TimingConfig) -> Problems:
    if timing.non_response_timeout_ms <= 2 * timing.keep_alive_ms:
        need = f"more than twice keep_alive_ms ({timing.keep_alive_ms})"
        yield "timing.non_response_timeout_ms", f"must be {need}, or one lost keep-alive ends a node"
    if timing.session_timeout_ms < 1_000:
        yield "timing.session_timeout_ms", "must be at least 1000: ZooKeeper grants no less than two ticks of 500 ms"


def _tails(config: Config) -> Problems:
    unlogged = [name for name, policy in config.policies.items() if policy.unlogged]
    if unlogged and config.limits.max_frame_bytes < TAIL_FRAME:
        yield "limits.max_frame_bytes", f"must be at least {TAIL_FRAME}: policies.{unlogged[0]} has local_sync NO_SYNC"
    if unlogged and config.snapshot.keep_records < TAIL_KEEP:
        yield "snapshot.keep_records", f"must be at least {TAIL_KEEP}: policies.{unlogged[0]} has local_sync NO_SYNC"


def _limits(limits: LimitsConfig) -> Problems:
    if limits.max_record_bytes > LOG_BYTES:
        yield "limits.max_record_bytes", f"must be at most {LOG_BYTES}: halog's topics take records of 6 MiB"
    if limits.max_in_flight_bytes < limits.max_record_bytes:
        yield "limits.max_in_flight_bytes", f"must be at least max_record_bytes ({limits.max_record_bytes})"
    if limits.max_frame_bytes < 2 * limits.max_record_bytes:
        yield "limits.max_frame_bytes", f"must be at least twice max_record_bytes ({limits.max_record_bytes})"
