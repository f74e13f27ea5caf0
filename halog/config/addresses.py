"""This module says what may be an address of a node or a server, and reads those of a key: one, or several in order of
preference.

It resolves no name and connects to nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

Problems = Iterator[tuple[str, str]]

Addresses = str | tuple[str, ...]
"""One address, or several in order of preference."""

_ZERO: Final = re.compile(r"(?:0[xX])?0+(?:\.(?:0[xX])?0+){0,3}")
"""The short forms of 0.0.0.0, as the system's resolver takes them: 0, 0x0, 0.0."""
MOST_DIGITS: Final = 20
"""Most digits of a port, leading zeros included: converting thousands of digits would take long."""
MOST_NAME: Final = 253
"""Most characters of a host's name, as resolvers take it; a part of it between dots has 63 at most."""


def listed(addresses: Addresses) -> tuple[str, ...]:
    """Return the addresses in order of preference; an empty text is none."""
    if isinstance(addresses, str):
        return (addresses,) if addresses else ()
    return addresses


def is_loopback(address: str) -> bool:
    """Say whether only processes of the same machine reach this address (host:port)."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


def addresses_problems(key: str, addresses: Addresses, *, zero: bool = True, every: bool = False) -> Problems:
    """Yield (key, reason) of each that is no host:port, or names one place twice; and if there is none. `zero` and
    `every`: see `address_problems`."""
    found = listed(addresses)
    if not found:
        yield key, "must name at least one address, as host:port"
    seen: set[tuple[str, int]] = set()
    for address in found:
        wrong = list(address_problems(key, address, zero=zero, every=every))
        yield from wrong
        place = place_of(address)
        if not wrong and place is not None and place in seen:
            yield key, f"names {address!r} twice; name each address once, the preferred one first"
        if place is not None:
            seen.add(place)


def _port(text: str) -> int | None:
    """Return the port's number; None: it is no port."""
    if not (text.isascii() and text.isdigit()) or len(text) > MOST_DIGITS or int(text) > 65_535:
        return None
    return int(text)


def place_of(address: str) -> tuple[str, int] | None:
    """Return the host and port of a node, the same however they are written; None: the address has none."""
    host, _, text = address.rpartition(":")
    port, bare = _port(text), host.strip("[]").lower()
    if port is None:
        return None
    try:
        return str(ipaddress.ip_address(bare)), port
    except ValueError:
        return bare, port


def address_problems(key: str, address: str, *, zero: bool = True, bare: bool = True, every: bool = False) -> Problems:
    """Yield (key, reason) if this is no host:port. `zero`: may the port be any free one? `bare`: may an IPv6 address
    stand without brackets? The clients of Kafka and ZooKeeper take none. `every`: may it stand for all interfaces?"""
    host, colon, text = address.rpartition(":")
    port = _port(text)
    if not colon or not host or port is None:
        yield key, f"{address[:110]!r} must be host:port"
    elif not _may_be_host(host) or (not bare and ":" in host and not host.startswith("[")):
        form = ", with an IPv6 address in brackets: [::1]:7400" if set(":[]") & set(host) else ""
        yield key, f"{address[:MOST_NAME]!r} must be host:port{form}"
    elif port == 0 and not zero:
        yield key, f"{address!r}: a server to connect to needs a port"
    elif names_all_interfaces(host):
        why = "stands for every interface of the machine that reads it, so other machines would connect to themselves"
        if not every:
            yield key, f"{address!r} {why}; {_mend(key)}"
    elif _names_many(host):
        why = "is a multicast or broadcast address, which no server can be reached at"
        yield key, f"{address!r} {why}; name the host or the address by which other machines reach this one"


def _mend(key: str) -> str:
    """Return what to do about the address of all interfaces."""
    reached = "the host or the address by which other machines reach this one"
    node, _, which = key.rpartition(".")
    if which == "listen":
        return f"set {node}.advertise to {reached}"
    apart = f", or set {node}.listen to this and {node}.advertise to that" if which == "address" else ""
    return f"name {reached}{apart}"


def _may_be_host(host: str) -> bool:
    """Says whether it is a name or an address: `::1` alone would be the port 1 of a host called `:`."""
    if any(c.isspace() or c in "/@" for c in host):
        return False
    if not set(":[]") & set(host):
        return _may_be_name(host)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        ipaddress.IPv6Address(bare)
    except ValueError:
        return False
    return True


def _may_be_name(host: str) -> bool:
    """Says whether a resolver takes it: one that has an empty part ("db..example") raises instead of looking it up."""
    try:
        return host.isprintable() and len(host.encode("idna")) <= MOST_NAME
    except UnicodeError:
        return False


def _names_many(host: str) -> bool:
    try:
        ip = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip.is_multicast or ip == ipaddress.IPv4Address("255.255.255.255")


def names_all_interfaces(host: str) -> bool:
    """Says whether this is the address of all interfaces, in any form that the system's resolver takes for it."""
    bare = host.strip("[]").partition("%")[0]
    try:
        ip = ipaddress.ip_address(bare)
    except ValueError:
        return bare == "*" or _ZERO.fullmatch(bare) is not None
    return (getattr(ip, "ipv4_mapped", None) or ip).is_unspecified
