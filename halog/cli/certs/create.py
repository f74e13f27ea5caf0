"""`halog certs create-ca|create-node|create-user|create-server` makes keys and certificates (O4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from halog.cli.certs.group import (
    CertsOptions,
    authority_key,
    authority_key_option,
    certs,
    cluster_name_option,
    days_option,
    directory_options,
    now,
    overwrite_option,
)
from halog.cli.shared.messages import say
from halog.cli.shared.options import Text
from halog.cli.shared.output import emit_json

if TYPE_CHECKING:
    from halog.certs.authority import Holder

host_option = click.option(
    "--host",
    "hosts",
    type=Text(),
    multiple=True,
    metavar="HOST",
    help="A DNS name or an IP address at which it is reached; may be repeated.",
)
request_option = click.option(
    "--csr",
    "is_request",
    is_flag=True,
    help="Make the key and a request, which is signed where the authority's key is.",
)


@certs.command("create-ca")
@days_option(3_650)
@overwrite_option
@cluster_name_option
@directory_options
def create_ca(days: int, overwrite: bool, options: CertsOptions) -> None:
    """Make the authority of a cluster: ca.crt, which everybody trusts, and ca.key, which signs.

    Whoever has ca.key can be any node and any user. It may be kept elsewhere: only these commands need it (--ca-key).

    \b
    Examples:
      halog certs create-ca
      halog certs create-ca --cluster fleet --certs-dir /etc/halog/certs
    """
    from halog.certs.inventory import AUTHORITIES, AUTHORITY_KEY
    from halog.certs.issuance import create_authority
    from halog.cli.certs.views import certificate_document, show_made

    made = create_authority(options.directory, options.cluster, now(), days, overwrite=overwrite)
    place = options.directory.place
    show_made(certificate_document(made, place(AUTHORITIES), place(AUTHORITY_KEY), now()), options.format)


@certs.command("create-node")
@click.argument("name", type=Text())
@host_option
@request_option
@days_option(365)
@authority_key_option
@overwrite_option
@cluster_name_option
@directory_options
def create_node(
    name: str,
    hosts: tuple[str, ...],
    is_request: bool,
    days: int,
    ca_key: Path | None,
    overwrite: bool,
    options: CertsOptions,
) -> None:
    """Make the key and the certificate of a node: node.NAME.key and node.NAME.crt.

    Nodes know each other by the name in the certificate, wherever they are reached; --host is for other programs.

    \b
    Examples:
      halog certs create-node A
      halog certs create-node A --host a.example.org --host 10.0.0.5
      halog certs create-node A --csr
    """
    from halog.certs.authority import Holder
    from halog.certs.hosts import host_names
    from halog.certs.identity import HolderIdentity, HolderKind

    holder = Holder(HolderIdentity.of(options.cluster, HolderKind.NODE, name), host_names(hosts))
    _make(options, holder, ca_key, days, overwrite=overwrite, is_request=is_request)


@certs.command("create-user")
@click.argument("name", type=Text())
@click.option(
    "--role",
    type=click.Choice(["client", "operator", "viewer"]),
    help="Told in the certificate, for people; who may do what is said elsewhere.",
)
@request_option
@days_option(365)
@authority_key_option
@overwrite_option
@cluster_name_option
@directory_options
def create_user(
    name: str,
    role: str | None,
    is_request: bool,
    days: int,
    ca_key: Path | None,
    overwrite: bool,
    options: CertsOptions,
) -> None:
    """Make the key and the certificate of a user, a person or an application: user.NAME.key and user.NAME.crt.

    \b
    Examples:
      halog certs create-user alice --role operator
      halog certs create-user shop --role client
    """
    from halog.certs.authority import Holder
    from halog.certs.identity import HolderIdentity, HolderKind

    holder = Holder(HolderIdentity.of(options.cluster, HolderKind.USER, name), role=role or "")
    _make(options, holder, ca_key, days, overwrite=overwrite, is_request=is_request)


@certs.command("create-server")
@click.argument("name", type=click.Choice(["kafka", "zookeeper"]))
@click.option(
    "--host",
    "hosts",
    type=Text(),
    multiple=True,
    required=True,
    metavar="HOST",
    help="A DNS name or an IP address at which the servers are reached; may be repeated.",
)
@days_option(365)
@authority_key_option
@overwrite_option
@cluster_name_option
@directory_options
def create_server(
    name: str, hosts: tuple[str, ...], days: int, ca_key: Path | None, overwrite: bool, options: CertsOptions
) -> None:
    """Make the key and the certificate of the Kafka brokers, or of the ZooKeeper servers.

    Clients compare the address that they connect to with the hosts. kafka.pem (zookeeper.pem) has the key and the
    certificate in one file: a keystore of type PEM.

    \b
    Examples:
      halog certs create-server kafka --host kafka1.example.org --host kafka2.example.org
      halog certs create-server zookeeper --host 10.0.0.7
    """
    from halog.certs.authority import Holder
    from halog.certs.hosts import host_names
    from halog.certs.identity import HolderIdentity, HolderKind

    holder = Holder(HolderIdentity.of(options.cluster, HolderKind.SERVER, name), host_names(hosts))
    _make(options, holder, ca_key, days, overwrite=overwrite, is_request=False)


def _make(
    options: CertsOptions, holder: Holder, ca_key: Path | None, days: int, *, overwrite: bool, is_request: bool
) -> None:
    from halog.certs.inventory import CERTIFICATE, KEY
    from halog.certs.issuance import create
    from halog.cli.certs.views import certificate_document, show_made

    if is_request:
        if overwrite or ca_key is not None:
            raise click.UsageError("--csr neither signs nor replaces a key: give it without --overwrite and --ca-key")
        make_request(options, holder)
        return
    made = create(options.directory, holder, authority_key(options, ca_key), now(), days, overwrite=overwrite)
    place, stem = options.directory.place, holder.identity.stem
    show_made(certificate_document(made, place(stem + CERTIFICATE), place(stem + KEY), now()), options.format)


def make_request(options: CertsOptions, holder: Holder) -> None:
    """Write a request for a holder's certificate, and say what to do with it."""
    from halog.certs.issuance import request

    written = request(options.directory, holder)
    if options.format == "json":
        emit_json({"identity": holder.identity.uri, "request": str(written)})
        return
    say(f"{written} is to be signed: `halog certs sign --csr {written.name}` where the authority's key is")
