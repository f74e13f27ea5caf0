"""This module has the group `halog acl` (N5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from halog.cli.shared.messages import say

if TYPE_CHECKING:
    from halog.cli.shared.cluster_options import ClusterOptions


@click.group("acl")
def acl() -> None:
    """Say who may use what halog keeps in Kafka and ZooKeeper, and give it to whom it belongs.

    \b
    Examples:
      halog acl kafka --role node --print
      halog acl zookeeper --check
      halog acl zookeeper --apply
    """


def note_in_audit(options: ClusterOptions) -> None:
    """Reach the cluster as other commands do, which is what the audit goes by. What was changed before was changed
    without: it may have been what keeps others out."""
    from halog.errors import HalogError

    try:
        with options.connect():
            pass
    except HalogError as error:
        say(f"the audit does not have this command: {error.message}")
