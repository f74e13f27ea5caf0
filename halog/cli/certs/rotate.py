"""`halog certs rotate-ca begin|status|finish|abort` replaces the authority under traffic (O4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from halog.cli.certs.group import (
    CertsOptions,
    authority_key,
    authority_key_option,
    certs,
    cluster_name_option,
    days_option,
    directory_options,
    nodes_option,
    now,
)
from halog.cli.shared.messages import echo_facts, say
from halog.cli.shared.options import timeout_option
from halog.cli.shared.output import emit_json

if TYPE_CHECKING:
    from halog.certs.rotation_plan import RotationPlan


@certs.group("rotate-ca")
def rotate_ca() -> None:
    """Replace the authority that signs, while everybody goes on.

    First everybody trusts both authorities, then everybody gets a certificate of the new one, then the old one is
    dropped. A command that was killed is given again, and goes on.

    \b
    Examples:
      halog certs rotate-ca begin
      halog certs renew --all
      halog certs rotate-ca status
      halog certs rotate-ca finish
    """


@rotate_ca.command("begin")
@days_option(3_650)
@authority_key_option
@cluster_name_option
@directory_options
def begin_(days: int, ca_key: Path | None, options: CertsOptions) -> None:
    """Make a new authority, which signs from now on; ca.crt holds both.

    The new key takes the place of the old one, which is kept as ca.old.key until the end. Bring ca.crt to everybody
    before anything is renewed: who does not trust the new authority refuses what it has signed.

    \b
    Example:
      halog certs rotate-ca begin
    """
    from halog.certs.rotation import Rotation

    plan = Rotation(options.directory, authority_key(options, ca_key)).begin(options.cluster, now(), days)
    _show(options, plan)
    say("ca.crt holds both authorities: bring it to everybody; then `halog certs renew --all`")


@rotate_ca.command("status")
@directory_options
def status_(options: CertsOptions) -> None:
    """Say how far a rotation is, what is still to be reissued, and what is next.

    \b
    Examples:
      halog certs rotate-ca status
      halog certs rotate-ca status --format json
    """
    from halog.certs.rotation_plan import read_plan

    _show(options, read_plan(options.directory))


@rotate_ca.command("finish")
@nodes_option
@timeout_option
@authority_key_option
@directory_options
def finish_(asks_nodes: bool, timeout_s: float, ca_key: Path | None, options: CertsOptions) -> None:
    """Drop the authority that leaves, and its key. There is no way back then.

    Refused (exit code 5) while a certificate of the directory was issued by it. With --cluster also while a registered
    node presents such a one, or does not answer.

    \b
    Examples:
      halog certs rotate-ca finish --cluster
      halog certs rotate-ca finish
    """
    from halog.certs.certificate import fingerprint
    from halog.certs.rotation import Rotation

    present = list[str]()
    if asks_nodes:
        from halog.certs.presented import in_the_way
        from halog.cli.certs.nodes import ask_nodes

        present = in_the_way(options.directory, ask_nodes(options.config_path, timeout_s))
    plan = Rotation(options.directory, authority_key(options, ca_key)).finish(present)
    if options.format == "json":
        emit_json({"state": "finished", "authority": fingerprint(plan.signing)})
        return
    say("ca.crt holds one authority again: bring it to everybody")


@rotate_ca.command("abort")
@authority_key_option
@directory_options
def abort_(ca_key: Path | None, options: CertsOptions) -> None:
    """Go back to the authority that was there before: at once, if the new one has issued nothing.

    Else the old one signs again, and both are trusted until what the new one has issued is reissued (`halog certs
    renew --all`) and `halog certs rotate-ca finish` drops it.

    \b
    Example:
      halog certs rotate-ca abort
    """
    from halog.certs.rotation import Rotation
    from halog.certs.rotation_plan import RotationPhase

    plan = Rotation(options.directory, authority_key(options, ca_key)).abort()
    is_over = plan.phase is RotationPhase.FINISH
    _show(options, None if is_over else plan)
    if is_over:
        say("ca.crt holds the former authority alone: bring it to everybody")


def _show(options: CertsOptions, plan: RotationPlan | None) -> None:
    document = {"state": "none", "next": None} if plan is None else _document(options, plan)
    if options.format == "json":
        emit_json(document)
        return
    echo_facts(
        (name.replace("_", " "), ", ".join(value) or "nothing" if isinstance(value, list) else value)
        for name, value in document.items()
    )


def _document(options: CertsOptions, plan: RotationPlan) -> dict[str, Any]:
    from halog.certs.certificate import fingerprint
    from halog.certs.inventory import Inventory
    from halog.certs.rotation_plan import RotationPhase

    left = [h.stem for h in Inventory.read(options.directory).issued_by(plan.leaving)]
    if plan.phase is RotationPhase.REISSUE:
        state = "both trusted" if left else "all reissued"
        following = "halog certs renew --all" if left else "halog certs rotate-ca finish"
    else:
        again = "finish" if plan.phase is RotationPhase.FINISH else "abort" if plan.back else "begin"
        state, following = f"{again} was interrupted", f"halog certs rotate-ca {again}"
    return {
        "state": state,
        "goes_back": "yes" if plan.back else "no",
        "since": plan.since,
        "signs": fingerprint(plan.signing)[:16],
        "leaves": fingerprint(plan.leaving)[:16],
        "to_reissue": left,
        "next": following,
    }
