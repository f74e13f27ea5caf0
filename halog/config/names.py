"""Names that other names are made of: no two clusters may come to the same topic, or transactional id, by theirs.

Topics are `<cluster>.<policy>.log` and the like, transactional ids `halog.<cluster>.<partition>`. Names of policies and
partitions have no dot, so that each of them says which cluster it is of: cluster "fleet.eu" with policy "p", not
cluster "fleet" with policy "eu.p". Those of clusters that were made before stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halog.config.model import Config


def ambiguous(config: Config, policy: str) -> Iterator[tuple[str, str]]:
    """(key, reason) for each name of a new policy that would not do."""
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
