"""`halog certs renew` makes newer certificates of the same names (O4)."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import click

from halog.cli.certs.create import make_request
from halog.cli.certs.group import (
    CertsOptions,
    authority_key,
    authority_key_option,
    certs,
    cluster_name_option,
    days_option,
    directory_options,
    now,
)
from halog.cli.shared.exit_codes import DEGRADED_EXIT
from halog.cli.shared.messages import say
from halog.cli.shared.options import Duration, Text
from halog.cli.shared.output import emit


@certs.command("renew")
@click.argument("names", type=Text(), nargs=-1, metavar="[NAME]...")
@click.option("--all", "is_all", is_flag=True, help="Renew every certificate of a node, a user or a server.")
@click.option("--within", "within_ms", type=Duration(), help="With --all: only what ends within this time.")
@click.option("--csr", "is_request", is_flag=True, help="Make a request by the present key, to be signed elsewhere.")
@days_option(365)
@authority_key_option
@cluster_name_option
@directory_options
@click.pass_context
def renew_(
    ctx: click.Context,
    names: tuple[str, ...],
    is_all: bool,
    within_ms: int | None,
    is_request: bool,
    days: int,
    ca_key: Path | None,
    options: CertsOptions,
) -> None:
    """Make new keys and certificates of the same names, and put them in the place of the former ones.

    A NAME is that of a node, a user or a server, or of a file without .crt (node.A). While the authority is being
    replaced, --all is about what the leaving one has issued. A certificate whose key is not here is left as it is, and
    named; the exit code is 4 then.

    \b
    Examples:
      halog certs renew A
      halog certs renew --all --within 30d
      halog certs renew A --csr
    """
    from halog.certs.inventory import CERTIFICATE, KEY
    from halog.certs.issuance import holder_to_renew, renew
    from halog.cli.certs.views import COLUMNS, certificate_document, certificate_row

    if bool(names) == is_all or (within_ms is not None and not is_all):
        raise click.UsageError("give names, or --all; --within goes with --all")
    if is_request:
        if len(names) != 1 or ca_key is not None:
            raise click.UsageError("--csr makes one request: give one name, without --ca-key")
        make_request(options, holder_to_renew(options.directory, names[0]))
        return
    stems, without_key = _chosen(options, within_ms) if is_all else (list(names), [])
    made = renew(options.directory, stems, options.cluster, authority_key(options, ca_key), now(), days)
    place = options.directory.place
    documents = [certificate_document(c, place(s + CERTIFICATE), place(s + KEY), now()) for s, c in made]
    document = {"renewed": documents, "without_key": without_key}
    emit(options.format, document, COLUMNS, (certificate_row(d) for d in documents))
    for stem in without_key:
        say(f"{stem}: its key is not here; make a request where it is, and sign it: `halog certs sign --csr`")
    ctx.exit(DEGRADED_EXIT if without_key else 0)


def _chosen(options: CertsOptions, within_ms: int | None) -> tuple[list[str], list[str]]:
    """Return what is renewed, and what would be if its key were here. NothingToDoError if there is neither."""
    from halog.certs.issuance import to_renew
    from halog.errors import NothingToDoError

    found = to_renew(options.directory, None if within_ms is None else dt.timedelta(milliseconds=within_ms), now())
    if not found:
        raise NothingToDoError("there is no certificate to renew; nothing was changed")
    return [h.stem for h in found if h.has_key], [h.stem for h in found if not h.has_key]
