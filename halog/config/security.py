"""This module has `[security]`: how nodes, clients and commands know each other on the node channel, and who may do
what.

It belongs to each process's own file: where certificates stand is known to its machine alone, and a switch from plain
text to TLS goes from process to process. It reads no certificate; see `halog.adapters.tcp.security`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from halog.config.addresses import is_loopback
from halog.config.kafka_security import KafkaSecurity, kafka_problems
from halog.config.zookeeper_security import ZooKeeperSecurity, zookeeper_problems

if TYPE_CHECKING:
    from halog.config.model import Config

OFF, ACCEPT, REQUIRED = "off", "accept", "required"
NODE_TLS: Final = (OFF, ACCEPT, REQUIRED)
ROLES: Final = ("viewer", "client", "operator", "node")
"""The roles, each of which may do all that those before it may."""
LARGEST_TLS_FRAME: Final = 0x16 << 24
"""A frame of so many bytes begins as TLS does, and a listener tells them apart by that."""

Problems = Iterator[tuple[str, str]]


DAYS: Final = frozenset({"security.plaintext_until"})
"""The keys whose value is a day."""


@dataclass(frozen=True)
class SecurityConfig:
    """`[security]` says how this process shows who it is, and whom it talks to."""

    node_tls: str = OFF  # a node of its own needs no certificates; beyond loopback plain text takes `plaintext_until`
    certs_dir: Path | None = None  # as `halog certs` makes it, or its user's part of that; None: all three are given
    ca: Path | None = None  # the authorities that are trusted, one or several in one file; None: certs_dir/ca.crt
    cert: Path | None = None  # this process's, with those between it and an authority; None: as found in certs_dir
    key: Path | None = None  # the key to it, without a password; None: likewise
    plaintext_until: str = ""  # a day, as 2027-06-30: so long a node may be reached without TLS from other machines
    roles: Mapping[str, str] = field(default_factory=dict)  # of users: viewer, client, operator or node; others: none
    zookeeper: ZooKeeperSecurity | None = None  # None: plain text, nobody in particular, and znodes for everybody
    kafka: KafkaSecurity | None = None  # how brokers are spoken to; None: in plain text

    @property
    def last_plain_day(self) -> datetime.date | None:
        """Return the last day on which plain text is allowed; None: none is given."""
        return datetime.date.fromisoformat(self.plaintext_until) if self.plaintext_until else None


NOTHING_SET: Final = SecurityConfig()
"""What counts for a file without the table."""


class PlainNode(NamedTuple):
    """A `PlainNode` takes plain text from other machines."""

    node: str
    address: str


def security_problems(config: Config) -> Problems:
    """Yield (key, reason) of what cannot be meant, whatever the day."""
    security = config.security
    if security.node_tls not in NODE_TLS:
        yield "security.node_tls", f"{security.node_tls[:110]!r} must be one of {', '.join(NODE_TLS)}"
    elif security.node_tls != OFF:
        given = {"ca": security.ca, "cert": security.cert, "key": security.key}
        missing = next((key for key, file in given.items() if file is None), None)
        if missing is not None and security.certs_dir is None:
            yield f"security.{missing}", f"is missing, and so is security.certs_dir: node_tls is {security.node_tls}"
        if config.limits.max_frame_bytes >= LARGEST_TLS_FRAME:
            yield "limits.max_frame_bytes", f"must be below {LARGEST_TLS_FRAME} where node_tls is {security.node_tls}"
    if security.plaintext_until and _day(security.plaintext_until) is None:
        yield "security.plaintext_until", f"{security.plaintext_until[:110]!r} must be a day, as 2027-06-30"
    for name, role in security.roles.items():
        if role not in ROLES:
            yield f"security.roles.{name}", f"{str(role)[:110]!r} must be one of {', '.join(ROLES)}"
    yield from zookeeper_problems(security.zookeeper, security.certs_dir, security.ca, security.cert)
    yield from kafka_problems(config)


def _day(text: str) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(text) if len(text) == len("2027-06-30") else None
    except ValueError:
        return None


def plain_nodes(config: Config) -> list[PlainNode]:
    """Return the nodes that this file lets take plain text from other machines."""
    if config.security.node_tls == REQUIRED:
        return []
    return [
        PlainNode(name, address)
        for name, node in config.nodes.items()
        if (address := next((a for a in (*node.listens, *node.reached) if not is_loopback(a)), ""))
    ]


def security_warnings(config: Config) -> Problems:
    """Yield (key, reason) of nodes that a later start refuses: what this file says of another node may be outdated."""
    if config.security.last_plain_day is None:
        for plain in plain_nodes(config):
            said = f"is missing: node {plain.node} takes plain text at {plain.address}, and does not start so"
            yield "security.plaintext_until", said


def plain_node(config: Config, node: str) -> PlainNode | None:
    """Return a node if this file lets it take plain text from other machines; None: it does not."""
    return next((plain for plain in plain_nodes(config) if plain.node == node), None)


def plaintext_problem(config: Config, node: str, today: datetime.date) -> tuple[str, str] | None:
    """Return (key, reason) if this node may not be started as it is configured; None: it may."""
    found = plain_node(config, node)
    last = config.security.last_plain_day
    if found is None or (last is not None and today <= last):
        return None
    how = f"node {node} takes plain text at {found.address}, which other machines reach"
    if last is None:
        said = f'{how}: set node_tls = "required", or plaintext_until = "DATE" in [security] for the time being'
        return "security.plaintext_until", said
    return "security.plaintext_until", f'{how}, and {last} is over: set node_tls = "required", or a later day'
