"""This module takes the hosts of a certificate: DNS names and IP addresses at which its holder is reached."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from cryptography import x509

from halog.errors import ConfigError

_LABEL: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
MOST_CHARACTERS: Final = 253
MOST_HOSTS: Final = 100


def host_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    """Return the hosts as subject alternative names, each once. ConfigError names one that is neither a DNS name nor an
    IP address."""
    found = list(dict.fromkeys(_host_name(host) for host in hosts))
    if len(found) > MOST_HOSTS:
        raise ConfigError(f"{len(found)} hosts are more than a certificate takes ({MOST_HOSTS})")
    return found


def _host_name(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        if "%" not in host:  # an interface of one machine
            return x509.IPAddress(address)
    if "*" in host:
        raise ConfigError(f"the host {host[:MOST_CHARACTERS]!a} has a wildcard; name each host")
    if not host.isascii():
        raise ConfigError(f"the host {host[:MOST_CHARACTERS]!a} is not ASCII; give the name that DNS knows (xn--…)")
    labels = host.split(".")
    if len(host) > MOST_CHARACTERS or not all(_LABEL.fullmatch(label) for label in labels) or labels[-1].isdigit():
        raise ConfigError(
            f"the host {host[:MOST_CHARACTERS]!a} is neither a DNS name nor an IP address; a port does not belong there"
        )
    return x509.DNSName(host.lower())


def host_texts(names: Iterable[x509.GeneralName]) -> list[str]:
    """Return the hosts among subject alternative names as text."""
    return [str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress)]
