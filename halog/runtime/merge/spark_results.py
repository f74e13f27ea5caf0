"""What a Spark job has found about two branches of a partition, where the node that merges them looks for it (S1, M2).

In the coordinator of the site that merges:  classified/<partition>      JSON: `Classified`
In its Kafka:                                 <cluster>.<policy>.merge    records of `restore.results`

The job writes the records first. So what a znode names is there, whole, until the topic lets go of it.
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
from halog.ports import Coordinator, Log, TopicPartition, UnknownResult
from restore import results
from restore.branch import Branch, BranchReader
from restore.branches import BranchComparison
from restore.divergence import Fork
from restore.merge import Difference, Even

KEPT_MS: Final = 7 * 24 * 3_600_000
"""How long the topic has what a job found: a week, as a branch is held."""

WHY: Final = "to merge by what a Spark job has found"

READ_S: Final = 120.0
"""For all of it to come."""

AGAIN: Final = "`halog restore --spark` finds it anew, in a new checkpoint directory"


class Classified(msgspec.Struct, frozen=True):
    """What was found last."""

    merge: str
    """The merge that it is for, in hex digits."""
    run: str
    """Of the job, in hex digits: records of others are passed over."""
    manifest: str
    """The name of that chunk, in hex digits."""
    topic: str
    begin: int
    end: int
    """All records are in [begin, end) of the partition's."""
    by: str
    at_ms: int


_CLASSIFIED = msgspec.json.Decoder(Classified)


def classified_of(coordinator: Coordinator, partition: str) -> Classified | None:
    """What was found last. CoordinatorError if it cannot be read."""
    found = coordinator.get(f"classified/{partition}")
    try:
        return None if found is None else _CLASSIFIED.decode(found.data)
    except msgspec.MsgspecError as e:
        raise CoordinatorError(f"znode classified/{partition} is no result of a job: {e}", partition=partition) from e


def publish(coordinator: Coordinator, partition: str, found: Classified) -> None:
    """Say where it is; what was found before is of no use any more. CoordinatorError if others do so all the time."""
    data = msgspec.json.encode(found)
    if not put(coordinator, f"classified/{partition}", lambda before: data):
        raise CoordinatorError(f"znode classified/{partition} is changed by others all the time", partition=partition)


def held_as(site: str) -> str:
    """The hold of the source's log, for one initiating site."""
    return f"classified-{site}"


def hold(coordinator: Coordinator, partition: str, site: str, offset: int) -> None:
    """As long as what was found is kept: the node that merges by it reads what comes behind that offset. RefusedError
    if that is trimmed already. `site`: the initiating one."""
    until = retention.now_ms() + KEPT_MS
    retention.hold(coordinator, partition, held_as(site), retention.Hold(offset, until, WHY))


def let_go(coordinator: Coordinator, partition: str, site: str) -> None:
    """It has merged."""
    with suppress(HalogError, UnknownResult):  # it ends by itself
        retention.release(coordinator, partition, held_as(site))


class Results:
    """Of one merge: what a job found, and what this site has done since the job looked."""

    def __init__(
        self, log: Log, coordinator: Coordinator, tp: TopicPartition, partition: str, *, three_way: bool = True
    ) -> None:
        """`tp`: where the partition's log is; `three_way`: by which rule it is merged. RefusedError where nothing was
        found, or it is not there any more."""
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
        """What the job has found of each key."""
        return [*self._found.keys.values()]

    def since(self, name: bytes, fork: Fork) -> BranchReader:
        """For what this site has done since. RefusedError if what was found is of another merge than `name`, or of
        branches that parted elsewhere."""
        results.check(self._found.manifest, name, fork)
        return BranchReader(self._found.manifest.seen)

    def compared(self, fork: Fork, later: Branch, now: ChainState, even: Even | None = None) -> BranchComparison:
        """Both branches, the source's up to `now`. RefusedError where it does not go on from what the job has seen."""
        self.check(later, now)
        return results.compared(self._found, fork, later, three_way=self._three_way, even=even)

    def check(self, later: Branch, now: ChainState) -> None:
        """RefusedError where it would be refused."""
        results.check_later(self._found.manifest, later, now)
