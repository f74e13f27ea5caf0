"""Performs merges on the source's node that serves the partition, by the steps of the manual (M2).

The other site's branch is closed, and both are read back to where they parted, while this site goes on serving. Then
this site's epoch ends with nothing in doubt. What it has done meanwhile is read, both are compared, and triggers are
asked. The next epoch opens with the outcome: the whole merge. The other site's mirror finds its own branch in it, and
follows.

If anything fails, or any node dies, before that epoch is open, nothing was changed; the next active node begins again.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import msgspec

from halog.core import effects as fx, results as res
from halog.core.log.chain import ChainState
from halog.core.table.tell import Tell
from halog.errors import CoordinatorError, DeadlineError, HalogError, LogError, RefusedError
from halog.events import RESTORED
from halog.metadata import log_holds as retention, mirror_starts as places, restore_requests as restores
from halog.metadata.cluster_level import raise_level
from halog.metadata.restore_requests import DONE, FAILED, MERGING, NOTHING, READING, SETTLING, RestoreRequest
from halog.ports import TopicPartition, UnknownResult, Versioned
from halog.runtime.merge import closed_branch, spark_results as classified
from halog.runtime.merge.comparison import Finish, GrowingBranch, MergeComparison
from halog.runtime.merge.compensation import Compensations
from halog.runtime.merge.decisions import MergeDecisions, check_keys, counted
from halog.runtime.merge.epoch_reopening import Due, EpochLost, EpochReopening, opening_of
from halog.runtime.merge.in_doubt import RemoteDecisions
from halog.runtime.merge.merge_paces import PACES, MergePaces
from halog.runtime.merge.spark_results import SparkResults
from halog.runtime.rpc.result_errors import to_error
from halog.runtime.support.adapters import SiteAccess
from halog.runtime.support.clock import wall_ms
from halog.runtime.topics.schemas import Definitions, bring
from halog.schema.versions import bringing
from restore.branch import Side, branch
from restore.branches import completed
from restore.creating import KeyDecision, TargetMerge
from restore.divergence import Behind, Fork, Same, compare, history_of
from restore.plan import Choice
from restore.replay import is_merged, merge_records, name_of
from restore.undoing import Undoing, report_of, undone

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.merge")

TRIES = 10
"""So many nodes may begin with the same restore, if each died or was replaced: something in it kills them."""

HOLD_MS = 7 * 24 * 3_600_000
"""The log is held so long after a merge, so that it can be looked at and undone: a week of working days."""

HAND_OVER_S = 10.0
"""A hand-over takes a tenth of a second; a node that is behind catches up first."""

UNTIL: Final = "to undo it, and to see what it decided"


class RestoreDriver:
    """A `RestoreDriver` performs the restores on one host. `definitions`: the topic partition with a site's class
    definitions."""

    def __init__(
        self,
        host: Host,
        reach: Callable[[str], SiteAccess],
        compensate: Compensations,
        definitions: TopicPartition,
        due: Due,
        paces: MergePaces = PACES,
    ) -> None:
        self._host = host
        self._paces = paces
        self._reach = reach
        self._compensate = compensate
        self._definitions = definitions
        self._due = due
        self._asked: dict[str, RestoreRequest] = {}
        """By partition: what was asked for last, as far as this node has heard."""
        self._watched: set[str] = set()
        self._at_it: set[str] = set()
        self._unread: set[str] = set()
        """The partitions whose requests cannot be read just now, of which that was logged."""
        self._workers = ThreadPoolExecutor(paces.at_once, thread_name_prefix="halog-merge")

    def turn(self) -> None:
        """Look once at what is asked for."""
        if not self._watched:
            self._watched.add("")
            self._host.coordinator.watch_children("restores", self._named)
        for name, asked in list(self._asked.items()):
            copy = self._host.copies.get(name)
            if not asked.ended and copy is not None and copy.serving and name not in self._at_it:
                self._at_it.add(name)
                self._workers.submit(self._restore, copy, retention.now_ms())
        self._host.pause(self._paces.look_s)

    def _named(self, partitions: list[str]) -> None:
        for name in set(partitions) - self._watched:
            self._watched.add(name)
            self._host.coordinator.watch(f"restores/{name}", self._heard)

    def _heard(self, path: str, value: Versioned | None) -> None:
        name = path.rpartition("/")[2]
        try:
            if value is not None:
                self._asked[name] = restores.read_restore(name, value.data)
        except CoordinatorError as e:
            logger.error("partition %s cannot be merged, its request cannot be read: %s", name, e)

    def close(self) -> None:
        """Stop when the node closes: what is not done is left to the next active node."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _restore(self, copy: Copy, seen_ms: int) -> None:
        """Restore one partition. `seen_ms`: when this node heard of it; other nodes with slow triggers may have tried
        before."""
        try:
            asked = restores.restore_of(self._host.coordinator, copy.name)
            if asked is not None and not asked.ended:
                self._begin(copy, asked, seen_ms)
            self._unread.discard(copy.name)
        except (HalogError, UnknownResult) as e:
            first = copy.name not in self._unread
            self._unread.add(copy.name)
            logger.log(
                logging.WARNING if first else logging.DEBUG,
                "partition %s: whether it is to be merged cannot be read: %s",
                copy.name,
                e,
            )
        finally:
            self._at_it.discard(copy.name)

    def _begin(self, copy: Copy, asked: RestoreRequest, seen_ms: int) -> None:
        one = msgspec.structs.replace(asked, tries=asked.tries + 1)
        try:
            self._check(asked, seen_ms)
            _PartitionRestore(
                self._host, copy, one, self._reach, self._compensate, self._due, self._definitions, self._paces
            ).run()
        except EpochLost:
            logger.info("the restore of %s is left to the next active node", copy.name)
        except (HalogError, UnknownResult) as e:
            self._failed(copy, one, e)
        except BaseException as e:  # nothing else reports what ends a worker's thread
            logger.exception("the restore of %s failed", copy.name)
            self._failed(copy, one, RefusedError(f"{type(e).__name__}: {e}"))

    def _check(self, asked: RestoreRequest, seen_ms: int) -> None:
        if asked.tries >= TRIES:
            raise RefusedError(f"nodes have begun with it {TRIES} times, and none came to an end: see their logs")
        if seen_ms - asked.at_ms > self._paces.stale_s * 1000:
            raise RefusedError("it was asked for too long ago, and this site did not serve meanwhile: ask again")

    def _failed(self, copy: Copy, asked: RestoreRequest, error: Exception) -> None:
        if self._host.pause(0):
            return  # it is left to the next active node
        logger.error("the restore of %s failed: %s", copy.name, error)
        why = error.message if isinstance(error, HalogError) else str(error)
        failed = msgspec.structs.replace(asked, phase=FAILED, node=self._host.me.node, why=why)
        try:
            restores.progress(self._host.coordinator, copy.name, failed)
        except (HalogError, UnknownResult) as e:
            logger.warning("that the restore failed could not be written: %s", e)


class _PartitionRestore:
    """Restores one partition, as far as this node gets."""

    def __init__(
        self,
        host: Host,
        copy: Copy,
        asked: RestoreRequest,
        reach: Callable[[str], SiteAccess],
        compensate: Compensations,
        due: Due,
        definitions: TopicPartition,
        paces: MergePaces,
    ) -> None:
        self._paces = paces
        self._host = host
        self._copy = copy
        self._asked = asked
        self._reach = reach
        self._deciding = MergeDecisions(compensate())
        self._definitions = definitions
        self._own = GrowingBranch(host, copy)
        self._reopening = EpochReopening(host, copy, due, paces.settle_s)
        self._result: Callable[[], dict[str, object]] = dict
        """Returns the result in numbers."""

    def run(self) -> None:
        """Restore the partition. EpochLost; other errors say why it failed, and then nothing was changed."""
        self._say(READING)
        if self._asked.undo:
            self._undo(Undoing(bytes.fromhex(self._asked.undo)))
            return
        remote = self._reach(self._asked.site)
        try:
            self._merge(remote)
        finally:
            remote.close()

    def _say(self, phase: str, why: str = "", **more: object) -> None:
        now = msgspec.structs.replace(self._asked, phase=phase, node=self._host.me.node, why=why, **more)
        restores.progress(self._host.coordinator, self._copy.name, now)

    # --- a merge ---

    def _merge(self, remote: SiteAccess) -> None:
        theirs, ours = self._closed(remote), self._own.now().state
        ended = restores.closed_at(remote.coordinator, self._copy.name)
        if ended is not None and is_merged(ours, ended):
            self._was_merged(name_of(ended))
            return
        relation = compare(history_of(ours), history_of(theirs.state))
        by_a_job = self._asked.classified and isinstance(relation, Fork)
        if isinstance(relation, Same) or (isinstance(relation, Behind) and not relation.first):
            self._say(NOTHING, f"site {remote.name} has nothing that this one lacks")
            return
        if isinstance(relation, Behind):  # this site has done nothing yet: what the other did is merged all the same
            relation = Fork((relation.at,), ())
        if not isinstance(relation, Fork):
            raise LogError(f"the logs of {self._copy.name} at the two sites are not of one history")
        bring(remote.log, self._host.log, self._definitions)  # objects of classes that only the other site has
        fork, elsewhere = relation, RemoteDecisions(remote, self._host.site)
        name = name_of(theirs.state)
        comparing = self._comparing()
        if by_a_job:
            finish = comparing.by_results(fork, self._results(), name, self._deciding_of)
        else:
            finish = comparing.by_itself(fork, theirs, branch(theirs, fork, elsewhere.committed), name)
        floor = max(e.number for e, _ in (*theirs.state.lineage, (theirs.state.epoch, 0)))
        _check_apart(self._own.now().state, theirs)
        self._state_level(theirs.state.level)
        if self._open(floor, lambda e: self._records(e, theirs, finish, name), name):
            classified.let_go(self._host.coordinator, self._copy.name, self._asked.site)

    def _state_level(self, level: int) -> None:
        """Let the log state the other branch's level before anything of it is merged into it (U1)."""
        said = f"its log is to state level {level} first, as the other branch does"
        for _ in range(int(self._paces.close_s / self._paces.look_s)):
            if self._own.now().state.level >= level:
                return
            raise_level(self._host.coordinator, level, f"the merge of {self._copy.name}", wall_ms())
            self._say(READING, said)
            self._own.go_on(self._paces.look_s)
        raise DeadlineError(f"{said}: does its active node append?")

    def _comparing(self) -> MergeComparison:
        even = bringing(Definitions(self._host.log, self._definitions.topic).all())
        return MergeComparison(self._own, self._deciding, even, three_way=not self._asked.two_way)

    def _results(self) -> SparkResults:
        of, three_way = (self._copy.tp, self._copy.name), not self._asked.two_way
        return SparkResults(self._host.log, self._host.coordinator, *of, three_way=three_way)

    def _deciding_of(self, keys: int) -> None:
        self._say(READING, f"{keys:,} keys that a Spark job has compared are decided")

    def _was_merged(self, name: bytes) -> None:
        """Report a merge that was done by a node which died before it could say so."""
        result: dict[str, object] = {}
        try:
            entries = report_of(self._own.now(), name)
            decided = [KeyDecision(Choice(e.found, None, e.then), e.verdict) for e in entries]
            result = counted(decided)
        except HalogError as e:
            logger.warning("what the merge of %s did is not in the log any more: %s", self._copy.name, e)
        why = self._hand_over() or "it was merged before"
        self._say(DONE, why, merge=name.hex(), result=result)
        classified.let_go(self._host.coordinator, self._copy.name, self._asked.site)

    def _closed(self, remote: SiteAccess) -> Side:
        """Return the other site's branch, once it is closed."""
        for _ in range(int(self._paces.close_s / self._paces.look_s)):
            side = closed_branch.closed_side(remote, self._host.site, self._copy.name, self._copy.tp)
            if isinstance(side, Side):
                return side
            self._say(READING, side)
            self._own.go_on(self._paces.look_s)
        raise DeadlineError(f"{side}: is a node there up, and is the partition given to this site?")

    def _records(self, e: fx.MergeDue, theirs: Side, finish: Finish, name: bytes) -> list[bytes]:
        """Return the records that open the epoch, and keep the result in numbers."""
        _check_apart(e.state, theirs)
        self._say(MERGING, merge=name.hex())
        found = finish(self._own.at(e.state, e.offset))
        check_keys(self._copy.name, found.keys)
        found = completed(found, self._copy.objects.find)
        settled = self._deciding.settled(found.keys, TargetMerge(self._copy.name, name, self._copy.objects.find))

        def result() -> dict[str, object]:
            return {"parted_behind": found.fork_lsn, **counted([s.decided for s in settled])}

        self._result = result
        return merge_records(opening_of(e), [theirs.state], found, [s.merged for s in settled], name)

    # --- undoing one ---

    def _undo(self, found: Undoing) -> None:
        self._own.read_on(lambda: found.read(self._own.now(), self._own.go_on))  # before an epoch is ended for it
        if found.put_back is None and self._open(0, lambda e: self._undone(e, found), found.name):
            return
        if found.put_back is None:
            self._say(NOTHING, "nothing is to be changed", result=self._result())
        else:  # perhaps by a node that was doing this very undo and died
            own = self._asked.begun and found.put_back
            phase, result = (DONE, {"changed": found.put_back}) if own else (NOTHING, {})
            self._say(phase, "it was undone before", merge=found.name.hex(), result=result)

    def _undone(self, e: fx.MergeDue, found: Undoing) -> list[bytes]:
        found.read(self._own.at(e.state, e.offset))
        if found.put_back is not None:  # somebody undid it since the last look
            return []
        made = undone(found.report, found.left, self._copy.objects.find)

        def result() -> dict[str, object]:
            return made.numbers

        self._result = result
        return merge_records(opening_of(e), [], None, made.merged, found.undoes) if made.merged else []

    # --- the epoch that opens with it ---

    def _open(self, floor: int, made: Callable[[fx.MergeDue], list[bytes]], name: bytes) -> bool:
        """Open the next epoch with these records. False if there were none: it opened as any other does."""

        def held(e: fx.MergeDue) -> list[bytes]:
            records = made(e)
            if records:
                self._hold(name, e.offset)
            return records

        self._say(SETTLING, begun=True)
        if not self._reopening.open(floor, held, lambda why: self._say(SETTLING, why, begun=True)):
            return False
        self._offer()
        result = self._result()
        self._say(DONE, self._hand_over(), result=result, merge=name.hex())
        more = {"merge": name.hex(), "site": self._asked.site or "-", **result}
        self._host.telling.told(self._copy, Tell(RESTORED, "", "undone" if self._asked.undo else "merged", more))
        return True

    def _hand_over(self) -> str:
        """Hand over to the node that is to serve from now on; return why it does not, if so. The merge stands all the
        same."""
        to, until = self._asked.active, time.monotonic() + HAND_OVER_S
        if to in ("", self._host.me.node):
            return ""
        while True:
            told = queue.SimpleQueue[res.Result]()
            self._copy.hand_over(to, told.put, "asked for with the restore")
            try:
                result = told.get(timeout=HAND_OVER_S)
            except queue.Empty:
                return f"not handed over to {to} within {HAND_OVER_S:g} s"
            if isinstance(result, res.Success):
                return ""
            # it may have left the node list for a moment
            if time.monotonic() >= until or self._host.pause(self._paces.look_s):
                return f"not handed over to {to}: {to_error(result, self._copy.name)}"

    def _offer(self) -> None:
        """Write where the other site can begin to read; without it, that site reads on from where it last
        stood."""
        try:
            places.offer(self._host.coordinator, self._copy.name, self._reopening.before)
        except (HalogError, UnknownResult) as e:
            logger.warning("where the other site can read on in the log of %s was not written: %s", self._copy.name, e)

    def _hold(self, name: bytes, offset: int) -> None:
        """Hold the log for a week from now; after an undo the hold of its merge lasts so long, too."""
        of, until = (self._host.coordinator, self._copy.name), retention.now_ms() + HOLD_MS
        held = f"restore-{name.hex()[:12]}"
        try:
            before = retention.holds(*of).get(held)
            first = offset if before is None else min(offset, before.offset)
            retention.hold_the_rest(*of, held, first, UNTIL, until)
        except (HalogError, UnknownResult) as e:
            logger.warning("the log of %s is not held behind its merge: %s", self._copy.name, e)


def _check_apart(ours: ChainState, theirs: Side) -> None:
    """Raise EpochLost if another node has merged it while this one compared: the next attempt finds it done."""
    if is_merged(ours, theirs.state):
        raise EpochLost
