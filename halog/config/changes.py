"""This module says what a change of each key means for a running cluster, and in which keys two configurations differ.
Pure.

It never decides whether a change is possible now: that takes the cluster (`halog.runtime.placement.config_admission`).
`RULES` has a line for every key there is, found out from the code that reads it, so that a difference is never shown
without its effect; a test compares it with the dataclasses of `model`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from halog.config.model import Config, NodeConfig, PolicyConfig
from halog.config.multi_site import node_toml
from halog.config.static import as_toml
from halog.config.write import toml_key

KeyPath = tuple[str, ...]

AT_ONCE: Final = "at once"
RESTART: Final = "at each node's restart"
BY_PLAN: Final = "by halog plan"
OWN_FILE: Final = "own file"
MOVES: Final = "moves objects"
REFUSED: Final = "refused"

NAMED: Final = ("sites", "zones", "policies", "nodes", "bindings", "discovery")
"""Tables whose keys are names."""


class Rule(NamedTuple):
    """Says when a change of a key takes effect, if it is not refused, and what an operator should know about it."""

    effect: str
    why: str


_MADE: Final = Rule(RESTART, "fixed once the policy has partitions")
_MAPPED: Final = Rule(RESTART, "nodes know without a restart where keys belong: see `halog rebalance status`")
"""This holds as long as objects are where the mapping has them, or on their way; else an activation moves them
(MOVES)."""
_LOCAL: Final = "each machine reaches the site in its own way"
_LOCAL_OTHER: Final = "each machine reaches the other sites in its own way"
_NODE: Final = "only that node's machine knows it"
_SECURE: Final = Rule(OWN_FILE, "each process has its own certificate, and changes over by itself")
_NEW: Final = Rule(RESTART, "of every process that uses it")
_SITES: Final = Rule(RESTART, "of the nodes, each while it is active")
_VOTES: Final = Rule(RESTART, "of the nodes; the same at every site: change it while all of them reach each other")
_SPREAD: Final = 'nodes spread copies anew by themselves; `rebalance = "manual"`: `halog plan create` and `apply` do'
_BROUGHT: Final = (
    'nodes bring partitions there by themselves; `rebalance = "manual"`: `halog plan create` and `apply` do'
)

RULES: Final[Mapping[str, Rule]] = {
    "cluster.name": Rule(REFUSED, "it is the name in front of every topic and znode: another name is another cluster"),
    "site.name": Rule(RESTART, "fixed once a partition had an active node: it stands in every epoch"),
    "site.bootstrap": Rule(OWN_FILE, _LOCAL),
    "site.zookeeper": Rule(OWN_FILE, _LOCAL),
    "site.embedded": Rule(OWN_FILE, _LOCAL),
    "site.replication_factor": Rule(RESTART, "may only be lowered: halog changes no topic that exists"),
    "site.min_insync_replicas": Rule(RESTART, "may only be lowered: halog changes no topic that exists"),
    "site.votes": _VOTES,
    "sites.*": Rule(RESTART, "of every process that reaches it"),
    "sites.*.bootstrap": Rule(OWN_FILE, _LOCAL_OTHER),
    "sites.*.zookeeper": Rule(OWN_FILE, _LOCAL_OTHER),
    "sites.*.embedded": Rule(OWN_FILE, _LOCAL_OTHER),
    "sites.*.requests": Rule(OWN_FILE, _LOCAL_OTHER),
    "sites.*.votes": _VOTES,
    "sites.*.nodes.*": Rule(OWN_FILE, _LOCAL_OTHER),
    "application.modules": Rule(OWN_FILE, "no process imports what another one wrote into ZooKeeper"),
    "zones.*": Rule(AT_ONCE, ""),
    "zones.*.nodes": Rule(AT_ONCE, _SPREAD),
    "zones.*.quorum.minimum_votes": Rule(AT_ONCE, ""),
    "zones.*.quorum.percentage": Rule(AT_ONCE, ""),
    "zones.*.quorum.minimum_active_remote_nodes": Rule(AT_ONCE, ""),
    "policies.*": Rule(RESTART, "the first node that starts with it creates its partitions"),
    "policies.*.zone": Rule(AT_ONCE, _SPREAD),
    "policies.*.zones": Rule(AT_ONCE, _SPREAD),
    "policies.*.backup": Rule(AT_ONCE, _SPREAD),
    "policies.*.home": Rule(RESTART, "fixed once the policy has partitions: it is where their log begins"),
    "policies.*.sync_sites": _SITES,
    "policies.*.sync_site_away": _SITES,
    "policies.*.sync_site_away_ms": _SITES,
    "policies.*.takeover": _SITES,
    "policies.*.takeover_after_ms": _SITES,
    "policies.*.comparison": Rule(AT_ONCE, "for restores that are asked for from then on"),
    "policies.*.kind": _MADE,
    "policies.*.partitions": _MAPPED,
    "policies.*.partitions.*": Rule(BY_PLAN, f"{_BROUGHT}, with `--policy`"),
    "policies.*.rebalance": _NEW,
    "policies.*.sync_replicas": Rule(BY_PLAN, _BROUGHT),
    "policies.*.async_replicas": Rule(BY_PLAN, _BROUGHT),
    "policies.*.local_sync": _MADE,
    "policies.*.remote_sync": _MADE,
    "policies.*.quorum": _MADE,
    "policies.*.below_quorum": Rule(AT_ONCE, ""),
    "policies.*.count_never": _MADE,
    "policies.*.lease_ttl_ms": _MADE,
    "policies.*.mapper": _MAPPED,
    "policies.*.ring_size": _MAPPED,
    "policies.*.move_objects": _NEW,
    "policies.*.move_pause_ms": _NEW,
    "policies.*.move_threads": _NEW,
    "policies.*.copy_threads": _NEW,
    "policies.*.copy_bytes_per_s": Rule(AT_ONCE, "for migrations that are asked for from then on"),
    "policies.*.call_deadline_ms": _NEW,
    "policies.*.append_deadline_ms": _NEW,
    "policies.*.doubt_timeout_ms": _NEW,
    "policies.*.min_stay_ms": _NEW,
    "policies.*.join_settle_ms": _NEW,
    "policies.*.replace_after_ms": _NEW,
    "policies.*.before_images": Rule(RESTART, "each node writes them while it is active"),
    "bindings.*": Rule(RESTART, "of every process that uses the type"),
    "discovery.*": Rule(AT_ONCE, "in every process; `[sites.NAME.nodes]` of its own file wins"),
    "nodes.*": Rule(AT_ONCE, ""),
    "nodes.*.data_dir": Rule(OWN_FILE, _NODE),
    "nodes.*.address": Rule(OWN_FILE, _NODE),
    "nodes.*.listen": Rule(OWN_FILE, _NODE),
    "nodes.*.advertise": Rule(OWN_FILE, _NODE),
    "nodes.*.votes": Rule(AT_ONCE, ""),
    "nodes.*.failure_domain": Rule(AT_ONCE, _SPREAD),
    "nodes.*.site": Rule(AT_ONCE, "its old site first; it is started with the new one's file and an empty directory"),
    "timing.keep_alive_ms": _NEW,
    "timing.non_response_timeout_ms": _NEW,
    "timing.session_timeout_ms": _NEW,
    "timing.append_deadline_ms": _NEW,
    "timing.call_deadline_ms": _NEW,
    "timing.attempt_timeout_ms": _NEW,
    "timing.doubt_timeout_ms": _NEW,
    "timing.store_flush_ms": _NEW,
    "timing.min_stay_ms": _NEW,
    "timing.join_settle_ms": _NEW,
    "timing.replace_after_ms": _NEW,
    "timing.close_deadline_ms": _NEW,
    "limits.max_record_bytes": _NEW,
    "limits.max_in_flight": _NEW,
    "limits.max_in_flight_bytes": _NEW,
    "limits.max_outcomes": _NEW,
    "limits.store_flush_changes": _NEW,
    "limits.max_frame_bytes": _NEW,
    "snapshot.every_records": _NEW,
    "snapshot.every_ms": _NEW,
    "snapshot.keep_records": _NEW,
    "security.node_tls": _SECURE,
    "security.certs_dir": _SECURE,
    "security.ca": _SECURE,
    "security.cert": _SECURE,
    "security.key": _SECURE,
    "security.plaintext_until": _SECURE,
    "security.roles.*": _SECURE,
    "security.zookeeper.tls": _SECURE,
    "security.zookeeper.check_hostname": _SECURE,
    "security.zookeeper.ca": _SECURE,
    "security.zookeeper.cert": _SECURE,
    "security.zookeeper.key": _SECURE,
    "security.zookeeper.auth": _SECURE,
    "security.zookeeper.username": _SECURE,
    "security.zookeeper.password.file": _SECURE,
    "security.zookeeper.password.env": _SECURE,
    "security.zookeeper.password.command": _SECURE,
    "security.zookeeper.principals": _SECURE,
    "security.zookeeper.acl": _SECURE,
    "security.kafka.protocol": _SECURE,
    "security.kafka.mechanism": _SECURE,
    "security.kafka.username": _SECURE,
    "security.kafka.password.file": _SECURE,
    "security.kafka.password.env": _SECURE,
    "security.kafka.password.command": _SECURE,
    "security.kafka.ca": _SECURE,
    "security.kafka.cert": _SECURE,
    "security.kafka.key": _SECURE,
    "security.kafka.token.file": _SECURE,
    "security.kafka.token.env": _SECURE,
    "security.kafka.token.command": _SECURE,
    "security.kafka.token_endpoint": _SECURE,
    "security.kafka.client_id": _SECURE,
    "security.kafka.client_secret.file": _SECURE,
    "security.kafka.client_secret.env": _SECURE,
    "security.kafka.client_secret.command": _SECURE,
    "security.kafka.scope": _SECURE,
}
"""Rules by pattern: `*` stands for a name. A pattern that ends in `*` is a whole entry that appears or goes."""


class KeyChange(NamedTuple):
    """Holds a key in which two configurations differ, and its two values. None: the key is absent."""

    key: KeyPath
    was: Any
    now: Any
    effect: str
    why: str

    @property
    def text(self) -> str:
        """Return the key as TOML would name it."""
        return key_text(self.key)


def key_text(key: KeyPath) -> str:
    """Return the key as text: `policies.fleet.partitions`; names that TOML would quote are quoted."""
    return ".".join(toml_key(part) for part in key)


def pattern(key: KeyPath) -> str:
    """Return the key's pattern in `RULES`."""
    if key[:2] == ("security", "roles"):
        return "security.roles.*"
    names = (1, 3) if key[2:3] in (("partitions",), ("nodes",)) else (1,)
    return ".".join("*" if i in names and key[0] in NAMED else part for i, part in enumerate(key))


def tree(config: Config) -> dict[str, Any]:
    """Return all tables as plain values, as JSON and TOML know them: without absent keys, and with those of all
    sites."""
    config = config.all_sites
    found = {
        f.name: _plain(getattr(config, f.name)) for f in dataclasses.fields(config) if f.metadata.get("table", True)
    }
    return {name: table for name, table in found.items() if table or name not in NAMED}


def _plain(value: Any) -> Any:
    if isinstance(value, PolicyConfig):
        value = as_toml(value)
    elif isinstance(value, NodeConfig):
        value = node_toml(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, Mapping):
        plain = {key: _plain(item) for key, item in value.items() if item is not None}
        return {key: item for key, item in plain.items() if item != {}}
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def differences(old: Config, new: Config) -> list[KeyChange]:
    """Return every key in which they differ, in the order of the file; an entry that one of them lacks is one
    difference."""
    return [KeyChange(key, was, now, *RULES[pattern(key)]) for key, was, now in _differing(tree(old), tree(new), ())]


def _differing(old: Mapping[str, Any], new: Mapping[str, Any], above: KeyPath) -> Iterator[tuple[KeyPath, Any, Any]]:
    for name in dict.fromkeys((*old, *new)):
        key, was, now = (*above, name), old.get(name), new.get(name)
        whole = len(key) == 2 and key[0] in NAMED and (was is None or now is None)
        whole |= len(key) == 4  # a partition named by hand
        tables = all(value is None or isinstance(value, Mapping) for value in (was, now))
        if tables and not whole:
            yield from _differing(was or {}, now or {}, key)
        elif was != now:
            yield key, was, now
