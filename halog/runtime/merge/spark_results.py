"""Reads what a Spark job has found about two branches of a partition, for the node that merges them (S1, M2).

    in the coordinator of the site that merges:  classified/<partition>      JSON: `ClassifiedResult`
    in its Kafka:                                <cluster>.<policy>.merge    records of `restore.results`

The job writes the records first. So what a znode names is there, whole, until the topic deletes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from halog.core.log.chain import ChainState
from halog.errors import CoordinatorError, HalogError, RefusedError
from halog.metadata import log_holds as retention
from halog.metadata.cas import put
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator, Log, TopicPartition, UnknownResult
from restore import results
from restore.branch import Branch, BranchReader
from restore.branches import BranchComparison
from restore.divergence import Fork
from restore.merge import Difference, Even

KEPT_MS: Final = 7 * 24 * 3_600_000
"""The topic keeps what a job found for a week, as long as a branch is held."""

WHY: Final = "to merge by what a Spark job has found"

READ_S: Final = 120.0
"""Reading all of it may take so long."""

AGAIN: Final = "`halog restore --spark` finds it anew, in a new checkpoint directory"


class ClassifiedResult(msgspec.Struct, frozen=True):
    """A `ClassifiedResult` says where the last job's results are."""

    merge: str
    """The merge that the results are for, in hex digits."""
    run: str
    """The run of the job, in hex digits: records of other runs are passed over."""
    manifest: str
    """The name of the manifest's chunk, in hex digits."""
    topic: str
    begin: int
    end: int
    """All records are in [begin, end) of the partition's topic partition."""
    by: str
    at_ms: int


_CLASSIFIED = ZnodeFormat(msgspec.json.Decoder(ClassifiedResult).decode, "is no result of a job")


def classified_of(coordinator: Coordinator, partition: str) -> ClassifiedResult | None:
    """Return where the last results are; None if there are none. CoordinatorError if the znode cannot be read."""
    return _CLASSIFIED.read(coordinator, f"classified/{partition}", partition=partition)


def publish(coordinator: Coordinator, partition: str, found: ClassifiedResult) -> None:
    """Write where the results are; earlier ones are of no use any more. CoordinatorError if others keep changing it."""
    data = msgspec.json.encode(found)
    if not put(coordinator, f"classified/{partition}", lambda before: data):
        raise CoordinatorError(f"znode classified/{partition} is changed by others all the time", partition=partition)


def held_as(site: str) -> str:
    """Return the name of the hold on the source's log, for one initiating site."""
    return f"classified-{site}"


def hold(coordinator: Coordinator, partition: str, site: str, offset: int) -> None:
    """Hold the log as long as the results are kept: the node that merges by them reads what comes behind that offset.
    RefusedError if that is trimmed already. `site`: the initiating one."""
    until = retention.now_ms() + KEPT_MS
    retention.hold(coordinator, partition, held_as(site), retention.Hold(offset, until, WHY))


def let_go(coordinator: Coordinator, partition: str, site: str) -> None:
    """End the hold: the partition was merged."""
    with suppress(HalogError, UnknownResult):  # it expires by itself
        retention.release(coordinator, partition, held_as(site))


class SparkResults:
    """A `SparkResults` is what a job found for one merge, and is compared with what this site has done since."""

    def __init__(
        self, log: Log, coordinator: Coordinator, tp: TopicPartition, partition: str, *, three_way: bool = True
    ) -> None:
        """Read the results. `tp`: where the partition's log is; `three_way`: by which rule it is merged. RefusedError
        if nothing was found, or if it is not there any more."""
        at = classified_of(coordinator, partition)
        if at is None:
            raise RefusedError(f"no Spark job has found what is to be merged of {partition}: {AGAIN}")
        found_at = TopicPartition(at.topic, tp.partition)
        if log.bounds(found_at)[0] > at.begin:
            raise RefusedError(f"what a Spark job has found is not in topic {at.topic} any more: {AGAIN}")
        values = (e.value for e in log.read(found_at, at.begin, at.end, READ_S))
        found = results.read(values, bytes.fromhex(at.run), bytes.fromhex(at.manifest))
        self._three_way = three_way
        self._found = found if three_way else results.two_way_of(found)

    @property
    def keys(self) -> Sequence[Difference]:
        """Return what the job has found of each key."""
        return [*self._found.keys.values()]

    def since(self, name: bytes, fork: Fork) -> BranchReader:
        """Return a reader for what this site has done since. RefusedError if the results are of another merge than
        `name`, or of branches that parted elsewhere."""
        results.check(self._found.manifest, name, fork)
        return BranchReader(self._found.manifest.seen)

    def compared(self, fork: Fork, later: Branch, now: ChainState, even: Even | None = None) -> BranchComparison:
        """Compare both branches, the source's up to `now`. RefusedError if it does not go on from what the job has
        seen."""
        self.check(later, now)
        return results.compared(self._found, fork, later, three_way=self._three_way, even=even)

    def check(self, later: Branch, now: ChainState) -> None:
        """Raise the RefusedError that `compared` would raise, if any."""
        results.check_later(self._found.manifest, later, now)
