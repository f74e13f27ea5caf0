"""This module makes the configuration a process runs with from the activated version and the process's own file (P11).
Pure.

It never mixes two values of one key: each key is the version's or the own file's, as `changes.RULES` says. What nodes
must agree on comes from the version, which all of them read; what only a machine can know comes from its own file.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from halog.config.changes import (
    AT_ONCE,
    BY_PLAN,
    NAMED,
    OWN_FILE,
    RULES,
    KeyChange,
    KeyPath,
    differences,
)
from halog.config.model import ApplicationConfig, Config, NodeConfig, PolicyConfig, RemoteSiteConfig
from halog.config.multi_site import here


def merged(own: Config, active: Config) -> Config:
    """Return what a process with the file `own` runs with while `active` is the active version. ConfigError if the two
    do not fit each other. A mapper whose module the file does not name is accepted here: most tools never call a
    mapper, and a process that does is refused then."""
    base = Path(own.source).absolute().parent
    own, active = own.all_sites, active.all_sites
    site = dataclasses.replace(
        own.site,
        name=active.site.name,
        replication_factor=active.site.replication_factor,
        min_insync_replicas=active.site.min_insync_replicas,
        votes=active.site.votes,
    )
    nodes = {name: _node(base, own.nodes.get(name), node) for name, node in active.nodes.items()}
    sites = {name: _site(base, own.sites.get(name), other) for name, other in active.sites.items()}
    made = dataclasses.replace(
        active,
        cluster=own.cluster,
        site=site,
        sites=sites,
        application=own.application,
        security=own.security,
        nodes=nodes,
        source=f"{own.source} under {active.source}",
        written=None,
    )
    modules = tuple(dict.fromkeys((*own.application.modules, *active.application.modules)))
    # each node's place as activated: what one file says of another node may be outdated
    dataclasses.replace(made, nodes=active.nodes, application=ApplicationConfig(modules)).validate()
    return here(made)


def _node(base: Path, own: NodeConfig | None, active: NodeConfig) -> NodeConfig:
    """Return a node with its place on disk and network: the own file's, or the activated one if the file does not name
    the node."""
    if own is None:
        return dataclasses.replace(active, data_dir=base / active.data_dir)
    return dataclasses.replace(
        active, data_dir=own.data_dir, address=own.address, listen=own.listen, advertise=own.advertise
    )


def _site(base: Path, own: RemoteSiteConfig | None, active: RemoteSiteConfig) -> RemoteSiteConfig:
    """Return another site with the own file's way to it, or the version's if the file does not name the site. Votes are
    always the version's: two sites that count different votes could each have more than half."""
    if own is None:
        return active if active.embedded is None else dataclasses.replace(active, embedded=base / active.embedded)
    return dataclasses.replace(own, votes=active.votes)


def disagreements(own: Config, active: Config, node: str) -> list[KeyChange]:
    """Return where the file contradicts the active version about keys that are not the file's to decide. A key that is
    not in the file says nothing; nor does a table of names that is absent, or that only names `node` itself."""
    written = own.written
    if written is None:
        return [c for c in differences(own, active) if c.effect != OWN_FILE]
    listed = {key[0] for key in written if key[:2] != ("nodes", node)}
    said = [c for c in differences(own, active) if c.key in written or (c.key[0] in listed and _is_entry(c.key))]
    return [c for c in said if c.effect != OWN_FILE]


def _is_entry(key: KeyPath) -> bool:
    return len(key) == 2 and key[0] in NAMED


_LIVE = {"static"} | {
    f.name
    for f in dataclasses.fields(PolicyConfig)
    if f.metadata.get("table", True) and RULES[f"policies.*.{f.name}"].effect in (AT_ONCE, BY_PLAN)
}


def live(running: Config, new: Config) -> Config:
    """Return what a process that runs with `running` can go over to without a restart, where `new` is what it would
    start with. A policy that comes to its site waits for a restart: nodes create its partitions when they start."""
    before, after = running.all_sites, new.all_sites
    policies = {name: _policy(policy, after.policies.get(name)) for name, policy in before.policies.items()}
    made = here(
        dataclasses.replace(
            before,
            zones=after.zones,
            nodes=after.nodes,
            discovery=after.discovery,
            policies=policies,
            source=after.source,
        )
    )
    kept = {name: policy for name, policy in made.policies.items() if name in running.policies}
    return dataclasses.replace(made, policies=kept)


def _policy(running: PolicyConfig, new: PolicyConfig | None) -> PolicyConfig:
    if new is None:
        return running
    return dataclasses.replace(running, **{name: getattr(new, name) for name in _LIVE})


def waiting(running: Config, new: Config) -> list[KeyPath]:
    """Return the keys of `new` that take a restart of the process that runs with `running`, for policies at its
    site."""
    then, new = (dataclasses.replace(c, whole=None) for c in (live(running, new), new))
    return [c.key for c in differences(then, new) if c.effect != OWN_FILE]
