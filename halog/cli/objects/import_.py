"""`halog import` creates the objects of JSON lines through ordinary transactions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import progress, say
from halog.cli.shared.output import emit

if TYPE_CHECKING:
    from halog.cli.objects.import_plan import ImportPlan
    from halog.cli.shared.connection import ClusterConnection


@click.command("import")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Check everything, also for duplicates; change nothing.")
@click.option("--skip-existing", is_flag=True, help="Leave objects whose key exists alone, instead of refusing.")
@click.option("--unverified", is_flag=True, help="Import what is there, also of a file that was cut or changed.")
@cluster_options
def import_(path: Path, dry_run: bool, skip_existing: bool, unverified: bool, options: ClusterOptions) -> None:
    """Create the objects of a file that `halog export` wrote; `-` is standard input.

    The whole file is checked first: types, fields, keys, and that no key exists, in the cluster or twice in the file.
    An error is named by its line; then nothing has changed. After that the objects are created, up to 500 in a
    transaction. They are new instances: each gets a new reference, and references among objects of the file point to
    the new ones. A node that declares the types must have published them.

    An export that is cut or was changed is refused, by its checksum line. A file without one, written by hand or by an
    old halog, is taken as it is: a message says that it may be incomplete.

    \b
    Examples:
      halog import all.jsonl --dry-run
      halog import all.jsonl
      halog import all.jsonl --skip-existing --format json
      gunzip < all.jsonl.gz | halog import -
    """
    from halog.cli.objects.import_plan import check_file
    from halog.cli.shared.files import Source

    source = Source(path)
    with options.connect() as connection:
        with progress() as bar:
            plan = check_file(connection, source, skip_existing, bar, strict=not unverified)
        if not dry_run:
            _create(connection, plan)
    if plan.outside:
        say(f"references to objects outside the file: {plan.outside}, kept as they are")
    if plan.cut:
        say(f"{source} ends within line {plan.cut}, which was left out")
    if not plan.verified and not unverified:
        say(f"{source} has no checksum line: whether it is complete is not known")
    document = {
        "file": str(path),
        "verified": plan.verified,
        "objects": plan.there.total(),
        "dry_run": dry_run,
        "created": 0 if dry_run else sum(plan.counts.values()),
        "would_create": sum(plan.counts.values()) if dry_run else 0,
        "existing": len(plan.skipped),
        "types": plan.counts,
    }
    verb = "would be created" if dry_run else "created"
    rows = [(name, plan.counts.get(name, 0), there) for name, there in plan.there.items()]
    all_of_it = "all", sum(plan.counts.values()), plan.there.total()
    emit(options.format, document, ["type", verb, "of"], [*rows, all_of_it])


def _create(connection: ClusterConnection, plan: ImportPlan) -> None:
    from halog.cli.objects.import_plan import batches
    from halog.errors import HalogError

    done = 0
    with progress() as bar:
        task = bar.add_task("objects", total=sum(plan.counts.values()), note="")
        try:
            for objects, works in batches(connection, plan):  # a mapper that is asked where they go may fail
                connection.commit(works)
                done += objects
                bar.update(task, completed=done)
        except HalogError as error:
            error.message = f"after {done:,} objects: {error.message}; go on with --skip-existing"
            raise
