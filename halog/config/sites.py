"""This module checks the sites of a cluster in a configuration: how each is reached, and where the partitions of a
policy begin (M5).

It never connects to one; `halog.runtime.node.wiring` finds the addresses. A site is the same two servers whether it is
this one or another, so both are checked by the same rules. Settings that would make a mirror wrong are refused here.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from halog.config.addresses import Problems, address_problems, addresses_problems
from halog.config.mapper import is_listed

if TYPE_CHECKING:
    from halog.config.model import Config, PolicyConfig, RemoteSiteConfig, SiteConfig

_NAME: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+")
"""One part of a path of ZooKeeper's."""
SERVERS: Final = ("bootstrap", "zookeeper")

TAKEOVER: Final = ("operator", "quorum", "always")
TAKEOVER_MS: Final = (2_000, 3_600_000)
"""Votes are renewed eight times in it, so a stall of a tenth of a second does not cost a site its vote. Beyond an hour,
an operator should decide."""
MAX_VOTES: Final = 1_000

COMPARISON: Final = ("three-way", "two-way")

SITE_AWAY: Final = ("refuse", "drop")
AWAY_MS: Final = (2_000, 600_000)
"""A mirror reports its progress twice a second, perhaps from a busy machine; nobody waits longer than this for a
commit."""


def site_problems(config: Config) -> Problems:
    """Yield (key, reason) of everything that is wrong with how this site and the others are reached."""
    yield from _servers("site", config.site)
    for name, site in config.sites.items():
        yield from _servers(f"sites.{name}", site)
        for node, address in site.nodes.items():
            yield from addresses_problems(f"sites.{name}.nodes.{node}", address, zero=False)
    for where, votes in [("site", config.site.votes), *((f"sites.{n}", s.votes) for n, s in config.sites.items())]:
        if not 0 <= votes <= MAX_VOTES:
            yield f"{where}.votes", f"must be 0 to {MAX_VOTES}, is {votes}"
    own = config.sites.get(config.site.name)
    if own is not None and own.votes != config.site.votes:
        yield (
            f"sites.{config.site.name}.votes",
            f"is {own.votes}, and site.votes, of the same site, {config.site.votes}",
        )
    yield from _shared(config)


def _servers(where: str, site: SiteConfig | RemoteSiteConfig) -> Problems:
    servers = [k for k in SERVERS if getattr(site, k) is not None]
    if site.embedded is not None and servers:
        yield f"{where}.{servers[0]}", f"excludes {where}.embedded: a site is embedded, or made of existing servers"
    if site.embedded is None and len(servers) < 2:
        missing = "bootstrap" if "bootstrap" not in servers else "zookeeper"
        yield f"{where}.{missing}", "is missing; give bootstrap and zookeeper, or embedded (a data directory)"
    for key in servers:
        addresses, slash, chroot = getattr(site, key).partition("/")
        for address in addresses.split(","):
            yield from address_problems(f"{where}.{key}", address.strip(), zero=False, bare=False)
        if slash and key != "zookeeper":
            yield f"{where}.{key}", f"'/{chroot}': Kafka has no paths; give host:port, several with commas between"
        elif chroot:
            yield from _chroot_problems(f"{where}.{key}", chroot)


def _chroot_problems(key: str, chroot: str) -> Problems:
    """Yield (key, reason) if ZooKeeper has no such path. One more `/` at its beginning or end is accepted."""
    names = chroot.strip("/").split("/")
    if "," in chroot:
        yield key, f"'/{chroot}': a chroot stands once, behind the last address, and has no comma"
    elif chroot.strip("/") and not all(_NAME.fullmatch(name) and name not in (".", "..") for name in names):
        yield key, f"'/{chroot}' is no path of ZooKeeper's: its names are not empty, '.' or '..', and are printable"


def plain(servers: str) -> str:
    """Return the servers without the spaces around each address, which not every client takes."""
    addresses, slash, chroot = servers.partition("/")
    return ",".join(address.strip() for address in addresses.split(",")) + slash + chroot


def _shared(config: Config) -> Problems:
    """Refuse one server for two sites: each of them would mirror what it has just written."""
    seen: dict[tuple[str, object], str] = {}
    for where, site in [("site", config.site), *((f"sites.{name}", s) for name, s in config.other_sites.items())]:
        for key in (*SERVERS, "embedded"):
            value = getattr(site, key)
            value = plain(value) if isinstance(value, str) else value
            other = seen.setdefault((key, value), where) if value is not None else where
            if other != where:
                called = f", whose name is {config.site.name!r}" if other == "site" else ""
                yield f"{where}.{key}", f"is that of [{other}]{called}; each site has its own Kafka and ZooKeeper"


def home_problems(config: Config, key: str, policy: PolicyConfig) -> Problems:
    """Yield (key, reason) of a home that is no site, or whose log may lack commits."""
    if not policy.home:
        return
    known = (config.site.name, *config.other_sites)
    if policy.home not in known:
        near = get_close_matches(policy.home, config.other_sites, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"name its servers in [sites.{policy.home}]"
        yield f"{key}.home", f"{policy.home!r} is neither this site, {config.site.name!r}, nor in [sites]; {hint}"
    elif policy.unlogged:
        why = "its log may lack what nodes have, and so would a mirror of it"
        yield f"{key}.local_sync", f"NO_SYNC excludes home: {why}; use WRITE_NO_SYNC, or take out {key}.home"


def sync_site_problems(config: Config, key: str, policy: PolicyConfig) -> Problems:
    """Yield (key, reason) of sites that commits cannot wait for."""
    known = tuple(dict.fromkeys((config.site.name, *config.other_sites)))
    for name in policy.sync_sites:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"name its servers in [sites.{name}]"
            yield f"{key}.sync_sites", f"{name!r} is neither this site, {config.site.name!r}, nor in [sites]; {hint}"
        if policy.sync_sites.count(name) > 1:
            yield f"{key}.sync_sites", f"names {name!r} twice"
    if policy.sync_sites and not policy.home:
        yield f"{key}.sync_sites", f"needs {key}.home: a policy without one is mirrored to no other site"
    elif policy.sync_sites == (policy.home,):
        yield f"{key}.sync_sites", f"names only the home, {policy.home!r}: no commit there would wait for another site"
    if not policy.sync_sites and policy.sync_site_away != SITE_AWAY[0]:
        yield f"{key}.sync_site_away", f"needs {key}.sync_sites: which sites do commits wait for?"
    if policy.sync_site_away not in SITE_AWAY:
        yield f"{key}.sync_site_away", f"{policy.sync_site_away!r} must be one of {', '.join(SITE_AWAY)}"
    if not AWAY_MS[0] <= policy.sync_site_away_ms <= AWAY_MS[1]:
        yield f"{key}.sync_site_away_ms", f"must be {AWAY_MS[0]} to {AWAY_MS[1]}, is {policy.sync_site_away_ms}"


def comparison_problems(key: str, policy: PolicyConfig) -> Problems:
    """Yield (key, reason) of a comparison that does not exist, or that has nothing to compare."""
    if policy.comparison not in COMPARISON:
        yield f"{key}.comparison", f"{policy.comparison!r} must be one of {', '.join(COMPARISON)}"
    elif policy.two_way and not policy.home:
        yield f"{key}.comparison", f"'two-way' needs {key}.home: no other site has a policy without one"


def base_warnings(config: Config) -> Problems:
    """Yield (key, advice) of policies whose conflicts would have no base."""
    for name, policy in config.policies.items():
        if policy.home and not policy.before_images and not policy.two_way:
            yield (
                f"policies.{name}.before_images",
                "false, and with a home: where both sites have changed an object, what it was when they parted is in "
                "no log; counters, sets and fields are then not merged, but left to an operator",
            )


def takeover_problems(config: Config, key: str, policy: PolicyConfig) -> Problems:
    """Yield (key, reason) of a takeover that could not come about, or would let two sites answer for one."""
    if policy.takeover not in TAKEOVER:
        yield f"{key}.takeover", f"{policy.takeover!r} must be one of {', '.join(TAKEOVER)}"
        return
    if not TAKEOVER_MS[0] <= policy.takeover_after_ms <= TAKEOVER_MS[1]:
        yield f"{key}.takeover_after_ms", f"must be {TAKEOVER_MS[0]} to {TAKEOVER_MS[1]}, is {policy.takeover_after_ms}"
    if policy.takeover == "operator":
        return
    if not policy.home:
        yield f"{key}.takeover", f"{policy.takeover!r} needs {key}.home: no other site has a policy without one"
    if policy.takeover == "always" and is_listed(policy.mapper):
        yield (
            f"{key}.takeover",
            f"'always' excludes mapper {policy.mapper!r}: both sites may go on by themselves, and what keeps a "
            "directory of keys cannot be merged again; say 'quorum' or 'operator', or take a mapper that goes by keys",
        )
    if not policy.votes_bind:
        return
    votes = [n for n in config.site_votes.values() if n]
    if not votes:
        yield f"{key}.takeover", "'quorum' needs votes: no site has any ([site] votes, [sites.NAME] votes)"
    elif len(votes) == 2 and votes[0] == votes[1]:
        yield (
            f"{key}.takeover",
            f"'quorum' lets no site go on alone: of {sum(votes)} votes each has {votes[0]}. Give one of the two more "
            "([site] votes, [sites.NAME] votes), or add a third site",
        )
    if policy.lease_ttl_ms:
        yield f"{key}.lease_ttl_ms", "excludes takeover 'quorum': a lease says nothing of other sites"
