"""`halog certs sign` signs requests that were made where the key of their holder is (O4)."""

from __future__ import annotations

from pathlib import Path

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


@certs.command("sign")
@click.option(
    "--csr",
    "request_path",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="The request, as `halog certs create-node --csr` or another program made it.",
)
@days_option(365)
@authority_key_option
@overwrite_option
@cluster_name_option
@directory_options
def sign(request_path: Path, days: int, ca_key: Path | None, overwrite: bool, options: CertsOptions) -> None:
    """Make the certificate that a node or a user requests, and write it into the directory.

    The request must name one holder of this cluster, by its URI. Its other names may be hosts only. How long the
    certificate is valid and what it may be used for is decided here. Look at what the answer says: whoever made the
    request can be that holder from now on.

    \b
    Example:
      halog certs sign --csr node.A.csr
    """
    from halog.certs.inventory import CERTIFICATE, KEY
    from halog.certs.issuance import sign_request
    from halog.cli.certs.views import certificate_document, show_made

    key = authority_key(options, ca_key)
    holder, made = sign_request(options.directory, request_path, options.cluster, key, now(), days, overwrite=overwrite)
    place, stem = options.directory.place, holder.identity.stem
    own = place(stem + KEY) if place(stem + KEY).exists() else None
    show_made(certificate_document(made, place(stem + CERTIFICATE), own, now()), options.format)
