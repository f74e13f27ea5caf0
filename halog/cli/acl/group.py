"""This module has the group `halog acl` (N5)."""

from __future__ import annotations

import click


@click.group("acl")
def acl() -> None:
    """Say who may use what halog keeps in ZooKeeper, and give it to the cluster alone.

    \b
    Examples:
      halog acl zookeeper --check
      halog acl zookeeper --apply
    """
