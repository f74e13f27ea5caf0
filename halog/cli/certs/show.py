"""`halog certs list|check` shows what a directory of certificates holds, and what is wrong with it (O4)."""

from __future__ import annotations

import click

from halog.cli.certs.group import CertsOptions, certs, directory_options, nodes_option, now
from halog.cli.shared.exit_codes import DEGRADED_EXIT
from halog.cli.shared.messages import say
from halog.cli.shared.options import timeout_option
from halog.cli.shared.output import emit


@certs.command("list")
@directory_options
def list_(options: CertsOptions) -> None:
    """List the certificates: for whom, how long, issued by whom. What ends within 30 days is said on stderr.

    \b
    Examples:
      halog certs list
      halog certs list --format json
    """
    from halog.certs.inventory import AUTHORITIES, AUTHORITY_KEY, KEY, SOON, Inventory
    from halog.cli.certs.views import COLUMNS, certificate_document, certificate_row

    inventory, place, at = Inventory.read(options.directory), options.directory.place, now()
    signing_key = place(AUTHORITY_KEY) if AUTHORITY_KEY in inventory.names else None
    documents = [
        *(
            certificate_document(c, place(AUTHORITIES), signing_key if i == 0 else None, at)
            for i, c in enumerate(inventory.authorities)
        ),
        *(
            certificate_document(h.certificate, place(h.file), place(h.stem + KEY) if h.has_key else None, at)
            for h in inventory.holders
        ),
    ]
    emit(options.format, {"certificates": documents}, COLUMNS, (certificate_row(d) for d in documents))
    for reason in inventory.unreadable.values():
        say(f"warning: {reason}")
    for one in [d for d in documents if d["days_left"] < SOON.days]:
        when = f"ends in {one['days_left']} days" if one["days_left"] >= 0 else "has ended"
        say(f"warning: {one['file']} {when}: {one['identity'] or one['name']}")


@certs.command("check")
@nodes_option
@timeout_option
@directory_options
@click.pass_context
def check(ctx: click.Context, asks_nodes: bool, timeout_s: float, options: CertsOptions) -> None:
    """Check the certificates: chain, dates, names, that keys fit, and who may read them.

    With --cluster also those that the registered nodes present, whatever their files hold. Exits with 0 if nothing
    fails, else with 4. What ends within 30 days is a warning, and so is a node that does not answer.

    \b
    Examples:
      halog certs check
      halog certs check --cluster
      halog certs check --certs-dir /etc/halog/certs --format json
    """
    from halog.certs.verification import FAIL, verify

    inventory, findings = verify(options.directory, options.known_cluster or None, now())
    if asks_nodes:
        from halog.certs.presented import presented_findings
        from halog.cli.certs.nodes import ask_nodes

        presented = ask_nodes(options.config_path, timeout_s)
        findings += presented_findings(inventory, options.cluster, presented, now())
    ok = not any(f.result == FAIL for f in findings)
    document = {"ok": ok, "certificates": len(inventory.holders), "findings": [vars(f) for f in findings]}
    rows = [(f.file, f.result, f.detail, f.advice) for f in findings]
    emit(options.format, document, ("file", "result", "found", "advice"), rows)
    if not findings:
        say(f"{len(inventory.holders)} certificates are well")
    ctx.exit(0 if ok else DEGRADED_EXIT)
