"""This module keeps the names of two clusters apart: none may lead to another cluster's topic or transactional id.

Topics are `<cluster>.<policy>.log` and the like, transactional ids `halog.<cluster>.<partition>`. Names of policies and
partitions have no dot, so each topic says which cluster it belongs to: cluster "fleet.eu" with policy "p", not cluster
"fleet" with policy "eu.p". Names of clusters that were made earlier stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halog.config.model import Config


def ambiguous(config: Config, policy: str) -> Iterator[tuple[str, str]]:
    """Yield (key, reason) for each name of a new policy that could be taken for another cluster's."""
    cluster = config.cluster.name
    for name, key in ((policy, f"policies.{policy}"), *_partitions(config, policy)):
        if "." in name:
            first, _, rest = name.partition(".")
            yield (
                key,
                f"a new name must be without a dot: cluster {cluster} with {name} would share its topics with cluster "
                f"{cluster}.{first} with {rest}; call it {name.replace('.', '-')}, for example",
            )


def _partitions(config: Config, policy: str) -> Iterator[tuple[str, str]]:
    for name in config.all_sites.policies[policy].static:
        yield name, f"policies.{policy}.partitions.{name}"
