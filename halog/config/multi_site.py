"""This module holds one tree of tables for every site of a cluster: nodes say at which site they are, so zones may span
sites (P5, M5).

It never decides what a site does. A site runs with its own part of the tree, and that is a configuration like any other
(`at_site`). So no other module knows of trees, and no rule is weaker for a file that all sites share. Mistakes that
only the whole tree shows are found here: a policy whose home has none of its nodes, a node list in another order than
sites take over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from halog.config.zones import PATTERN, expanded, matching
from halog.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from halog.config.model import Config, NodeConfig, PolicyConfig, RemoteSiteConfig, SiteConfig
    from halog.config.static import StaticPartition

Problems = Iterator[tuple[str, str]]


def is_whole(config: Config) -> bool:
    """Is this a tree of several sites, and not yet the part of one?"""
    return config.whole is None and any(node.site for node in config.nodes.values())


def here(config: Config) -> Config:
    """Return what this site runs with: its own part, or all of it if nodes say no site."""
    return at_site(config, config.site.name) if is_whole(config) else config


def at_site(config: Config, site: str) -> Config:
    """Return what a site runs with: its nodes, the zones and policies that have any of them, and of these the site's
    part. `config`: the tree, or what another site runs with."""
    tree = config.all_sites
    nodes = {name: node for name, node in tree.nodes.items() if node.site == site}
    zones = {n: replace(z, nodes=some) for n, z in tree.zones.items() if (some := _present(z.nodes, nodes))}
    policies = {n: made for n, p in tree.policies.items() if (made := _policy(p, tree, zones, nodes)) is not None}
    own, sites = _reached_from(tree, site)
    return replace(
        tree,
        site=own,
        sites=sites,
        nodes=MappingProxyType(nodes),
        zones=MappingProxyType(zones),
        policies=MappingProxyType(policies),
        whole=tree,
    )


def sites_of(config: Config, nodes: Iterable[str]) -> list[str]:
    """Return the sites these nodes are at, each once; unknown nodes are ignored."""
    return list(dict.fromkeys(config.nodes[n].site for n in nodes if n in config.nodes))


def sites_named(sites: Sequence[str]) -> str:
    """Return the sites' names for people: `site west`, or `sites west, east and moon`."""
    return f"{'site' if len(sites) == 1 else 'sites'} {_and(sites)}"


def is_at(config: Config, policy: str, site: str) -> bool:
    """Has a policy of this site any node at another one? True also if only that site's own file could tell."""
    tree = config.all_sites
    return config.whole is None or site in sites_of(tree, tree.hosts_of(policy))


def elsewhere(config: Config, node: str) -> str:
    """Say at which site a node is, in words; "": it is at this one, or does not exist."""
    known = config.all_sites.nodes.get(node)
    if known is None or node in config.nodes:
        return ""
    return f"node {node} is of site {known.site}, and this is site {config.site.name}"


def check_nodes(config: Config, nodes: Iterable[str]) -> None:
    """Raise UnknownNameError for the first of these nodes that no site has."""
    known = config.all_sites.nodes
    for node in nodes:
        if node not in known:
            raise UnknownNameError.of("node", node, list(config.nodes))


def check_site(config: Config, node: str) -> None:
    """Raise ConfigError for a node of another site: it would look for its partitions on servers that are not its
    own."""
    if away := elsewhere(config, node):
        site = config.all_sites.nodes[node].site
        raise ConfigError(
            f"{config.source}: {away}: start it with the file whose [site] is {site}", node=node, site=site
        )


def node_toml(node: NodeConfig) -> dict[str, Any]:
    """Return a node's entries as the file has them. An empty site is left out, so that the text is the same for every
    halog."""
    return {key: value for key, value in vars(node).items() if value or key != "site"}


# --- the part of one site ---


def _present(entries: Iterable[str], nodes: Iterable[str]) -> tuple[str, ...]:
    """Return the names and patterns that stand for any of these nodes."""
    known = list(nodes)
    return tuple(e for e in entries if (bool(matching(e, known)) if PATTERN & set(e) else e in known))


def _policy(
    policy: PolicyConfig, tree: Config, zones: Mapping[str, Any], nodes: Mapping[str, NodeConfig]
) -> PolicyConfig | None:
    """Return the part of a policy at one site; None: it has no node there."""
    spans = tuple(zone for zone in policy.spans if zone in zones or zone not in tree.zones)
    if not spans:
        return None
    hosts = list(dict.fromkeys(n for zone in spans if zone in zones for n in expanded(zones[zone].nodes, nodes)))
    backup = _present(policy.backup, hosts)
    if set(hosts) <= set(expanded(backup, hosts)):  # primary nodes are elsewhere: here all are alike
        backup = ()
    static = MappingProxyType({name: _partition(p, nodes) for name, p in policy.static.items()})
    return replace(policy, zones=spans if policy.zones else (), backup=backup, static=static)


def _partition(partition: StaticPartition, nodes: Mapping[str, NodeConfig]) -> StaticPartition:
    """Return the part of a partition at one site. Its first node there is active while the site serves, so it is never
    async."""
    kept = tuple(node for node in partition.nodes if node in nodes)
    late = partition.asynchronous
    return replace(partition, nodes=kept, asynchronous=None if late is None or not kept else _those_of(late, kept[1:]))


def _those_of(names: Iterable[str], known: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name in known)


def _reached_from(tree: Config, site: str) -> tuple[SiteConfig, Mapping[str, RemoteSiteConfig]]:
    """Return [site] and [sites] as seen from a site, for checks; only the addresses as seen from here are known."""
    if site == tree.site.name or site not in tree.sites:
        return tree.site, tree.sites
    there, own = tree.sites[site], tree.site
    ways = ("bootstrap", "zookeeper", "embedded", "votes")
    sites = {name: way for name, way in tree.sites.items() if name not in (site, own.name)}
    sites[own.name] = replace(there, requests=True, nodes={}, **{key: getattr(own, key) for key in ways})
    return replace(own, name=site, **{key: getattr(there, key) for key in ways}), sites


# --- what is wrong with the tree ---


def whole_problems(config: Config) -> Problems:
    """Yield (key, reason) of nodes whose site is unknown, and of policies that no site's own part could tell are
    wrong."""
    yield from _sites(config)
    for name, policy in config.policies.items():
        if all(zone in config.zones for zone in policy.spans):
            yield from _home(config, f"policies.{name}", policy, sites_of(config, config.hosts_of(name)))


def _sites(config: Config) -> Problems:
    known = (config.site.name, *config.other_sites)
    said = next(name for name, node in config.nodes.items() if node.site)
    for name, node in config.nodes.items():
        if not node.site:
            yield f"nodes.{name}.site", f"is missing: node {said} says at which site it is, so all others are to"
        elif node.site not in known:
            near = get_close_matches(node.site, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"name its servers in [sites.{node.site}]"
            yield (
                f"nodes.{name}.site",
                f"{node.site!r} is neither this site, {config.site.name!r}, nor in [sites]; {hint}",
            )
    if not any(node.site == config.site.name for node in config.nodes.values()):
        yield "site.name", f"{config.site.name!r} is the site of none of [nodes]: they are at {_and(_all(config))}"


def _all(config: Config) -> list[str]:
    return sites_of(config, config.nodes)


def _home(config: Config, key: str, policy: PolicyConfig, sites: list[str]) -> Problems:
    if not policy.home:
        if len(sites) > 1:
            yield f"{key}.home", f"is missing: its nodes are at {sites_named(sites)}; at which one does it begin?"
        return
    for where, names in ((f"{key}.home", (policy.home,)), (f"{key}.sync_sites", policy.sync_sites)):
        for name in names:
            if name not in sites:
                yield where, f"none of its nodes is at site {name}: they are at {_and(sites)}"
    if policy.takeover != "operator" and len(sites) == 1:
        yield f"{key}.takeover", f"{policy.takeover!r} needs nodes at another site to take over: all are at {sites[0]}"
    for name, partition in policy.static.items():
        where = f"{key}.partitions.{name}"
        yield from _order(config, where, policy.home, partition.nodes)
        yield from _everywhere(config, where, sites, partition.nodes)


def _order(config: Config, key: str, home: str, nodes: tuple[str, ...]) -> Problems:
    """Check that the home's nodes come first: the next node of a site takes over, and another site only after them
    all."""
    at = [(node, config.nodes[node].site) for node in nodes if node in config.nodes]
    away = next((i for i, (_, site) in enumerate(at) if site != home), len(at))
    behind = next((node for node, site in at[away:] if site == home), "")
    if behind:
        node, site = at[away]
        yield key, f"names {behind}, of its home {home}, behind {node}, of site {site}: those of the home come first"
    elif at and not away:
        node, site = at[0]
        yield key, f"names no node of its home {home}, where it begins; the first one, {node}, is of site {site}"


def _everywhere(config: Config, key: str, sites: list[str], nodes: tuple[str, ...]) -> Problems:
    """Check that each site of the policy has a copy of each partition. A site without one could neither mirror the
    partition nor take it over; if commits wait for its log, none would ever return."""
    there = sites_of(config, nodes)
    for site in sites if there else ():
        if site not in there:
            yield key, f"names no node of site {site}, where its policy has some: give it one, or a policy without them"


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "none"
