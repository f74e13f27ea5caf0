"""Merges, as the node performs them that serves the partition at the source: the manual's steps, for each (M2).

The other site's branch is closed, and both are read back to where they parted, while this one serves on. Then this
site's epoch ends with nothing in doubt, what it has done meanwhile is read, both are compared, triggers are asked, and
the next epoch opens with the outcome: the merge, whole. The other site's mirror finds its own branch in it, and
follows.

Whatever fails, and whoever dies, before that epoch is open: nothing was changed; the next active node begins again."""

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
from halog.metadata.restore_requests import DONE, FAILED, MERGING, NOTHING, READING, SETTLING, Restore
from halog.ports import TopicPartition, UnknownResult, Versioned
from halog.runtime.merge import closed_branch, spark_results as classified
from halog.runtime.merge.comparison import Comparing, Finish, Growing
from halog.runtime.merge.compensation import Compensations
from halog.runtime.merge.decisions import Deciding, check_keys, counted
from halog.runtime.merge.epoch_reopening import Due, Lost, Reopening, opening_of
from halog.runtime.merge.in_doubt import Elsewhere
from halog.runtime.merge.spark_results import Results
from halog.runtime.rpc.result_errors import to_error
from halog.runtime.support.adapters import Remote
from halog.runtime.topics.schemas import Definitions, bring
from halog.schema.versions import bringing
from restore.branch import Side, branch
from restore.branches import completed
from restore.creating import Decided, Into
from restore.divergence import Behind, Fork, Same, compare, history_of
from restore.plan import Choice
from restore.replay import is_merged, merge_records, name_of
from restore.undoing import Undoing, report_of, undone

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.merge")

LOOK_S = 0.3
"""How often it is looked whether something is asked for."""

AT_ONCE = 4
"""Partitions merged at the same time: while one waits for its log another one compares."""

CLOSE_S = 30.0
"""For the other site to close its branch: its nodes end their epochs, and fence their log."""

TRIES = 10
"""Nodes that begin with the same restore, one after the other died or was replaced: something in it kills them."""

STALE_MS = 15 * 60_000
"""What was asked for that long ago is not what anybody waits for: the partition was served elsewhere, or nowhere."""

HOLD_MS = 7 * 24 * 3_600_000
"""How long the log is held so that a merge can be looked at, and undone: a week of working days."""

HAND_OVER_S = 10.0
"""It takes a tenth of a second; a node that is behind catches up first."""

UNTIL: Final = "to undo it, and to see what it decided"


class Restoring:
    """Of one host. `definitions`: where a site has those of its classes."""

    def __init__(
        self, host: Host, reach: Callable[[str], Remote], compensate: Compensations, definitions: TopicPartition
    ) -> None:
        self._host = host
        self._reach = reach
        self._compensate = compensate
        self._definitions = definitions
        self._due: Due = {}
        self._asked: dict[str, Restore] = {}
        """By partition, what was asked for last, as far as this node has heard."""
        self._watched: set[str] = set()
        self._at_it: set[str] = set()
        self._unread: set[str] = set()
        """Of which it cannot be read just now what is asked for, and that was said."""
        self._workers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="halog-merge")

    def turn(self) -> None:
        """One look at what is asked for."""
        if not self._watched:
            self._watched.add("")
            self._host.coordinator.watch_children("restores", self._named)
        for name, asked in list(self._asked.items()):
            copy = self._host.copies.get(name)
            if not asked.ended and copy is not None and copy.serving and name not in self._at_it:
                self._at_it.add(name)
                self._workers.submit(self._restore, copy, retention.now_ms())
        self._host.pause(LOOK_S)

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
            logger.error("nobody can merge %s: %s", name, e)

    def close(self) -> None:
        """Once the node closes: what is not done is the next active node's."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def due(self, copy: Copy, e: fx.MergeDue) -> None:
        """The epoch that a merge is to open was started. With the copy's lock held."""
        waiting = self._due.get(copy.name)
        if waiting is not None:
            waiting.put(e)

    def _restore(self, copy: Copy, seen_ms: int) -> None:
        """`seen_ms`: since when this node has known of it; others may have been before it, with slow triggers."""
        try:
            asked = restores.restore_of(self._host.coordinator, copy.name)
            if asked is not None and not asked.ended:
                self._begin(copy, asked, seen_ms)
            self._unread.discard(copy.name)
        except (HalogError, UnknownResult) as e:
            first = copy.name not in self._unread
            self._unread.add(copy.name)
            logger.log(logging.WARNING if first else logging.DEBUG, "%s: is it to be merged? %s", copy.name, e)
        finally:
            self._at_it.discard(copy.name)

    def _begin(self, copy: Copy, asked: Restore, seen_ms: int) -> None:
        one = msgspec.structs.replace(asked, tries=asked.tries + 1)
        try:
            self._check(asked, seen_ms)
            _OneRestore(self._host, copy, one, self._reach, self._compensate, self._due, self._definitions).run()
        except Lost:
            logger.info("the restore of %s is left to the next active node", copy.name)
        except (HalogError, UnknownResult) as e:
            self._failed(copy, one, e)
        except BaseException as e:  # nobody else hears what ends a worker's thread
            logger.exception("the restore of %s failed", copy.name)
            self._failed(copy, one, RefusedError(f"{type(e).__name__}: {e}"))

    def _check(self, asked: Restore, seen_ms: int) -> None:
        if asked.tries >= TRIES:
            raise RefusedError(f"{TRIES} times a node has begun with it, and none has come to an end: see their logs")
        if seen_ms - asked.at_ms > STALE_MS:
            raise RefusedError("it was asked for too long ago, and this site did not serve meanwhile: ask again")

    def _failed(self, copy: Copy, asked: Restore, error: Exception) -> None:
        if self._host.pause(0):
            return  # the next active node's
        logger.error("the restore of %s failed: %s", copy.name, error)
        why = error.message if isinstance(error, HalogError) else str(error)
        failed = msgspec.structs.replace(asked, phase=FAILED, node=self._host.me.node, why=why)
        try:
            restores.progress(self._host.coordinator, copy.name, failed)
        except (HalogError, UnknownResult) as e:
            logger.warning("nobody could be told: %s", e)


class _OneRestore:
    """Of one partition, as far as this node gets."""

    def __init__(
        self,
        host: Host,
        copy: Copy,
        asked: Restore,
        reach: Callable[[str], Remote],
        compensate: Compensations,
        due: Due,
        definitions: TopicPartition,
    ) -> None:
        self._host = host
        self._copy = copy
        self._asked = asked
        self._reach = reach
        self._deciding = Deciding(compensate())
        self._definitions = definitions
        self._own = Growing(host, copy)
        self._reopening = Reopening(host, copy, due)
        self._result: Callable[[], dict[str, object]] = dict
        """In numbers."""

    def run(self) -> None:
        """Lost; errors say why it failed, and then nothing was changed."""
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

    def _merge(self, remote: Remote) -> None:
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
        if isinstance(relation, Behind):  # this one has done nothing yet: what the other one did is merged all the same
            relation = Fork((relation.at,), ())
        if not isinstance(relation, Fork):
            raise LogError(f"the logs of {self._copy.name} at the two sites are not of one history")
        bring(remote.log, self._host.log, self._definitions)  # objects of classes that only the other site has
        fork, elsewhere = relation, Elsewhere(remote, self._host.site)
        name = name_of(theirs.state)
        comparing = self._comparing()
        if by_a_job:
            finish = comparing.by_results(fork, self._results(), name, self._deciding_of)
        else:
            finish = comparing.by_itself(fork, theirs, branch(theirs, fork, elsewhere.committed), name)
        floor = max(e.number for e, _ in (*theirs.state.lineage, (theirs.state.epoch, 0)))
        _check_apart(self._own.now().state, theirs)
        if self._open(floor, lambda e: self._records(e, theirs, finish, name), name):
            classified.let_go(self._host.coordinator, self._copy.name, self._asked.site)

    def _comparing(self) -> Comparing:
        even = bringing(Definitions(self._host.log, self._definitions.topic).all())
        return Comparing(self._own, self._deciding, even, three_way=not self._asked.two_way)

    def _results(self) -> Results:
        of, three_way = (self._copy.tp, self._copy.name), not self._asked.two_way
        return Results(self._host.log, self._host.coordinator, *of, three_way=three_way)

    def _deciding_of(self, keys: int) -> None:
        self._say(READING, f"it is decided what is to stand under {keys:,} keys that a Spark job has compared")

    def _was_merged(self, name: bytes) -> None:
        """By a node that died before it could say so."""
        result: dict[str, object] = {}
        try:
            entries = report_of(self._own.now(), name)
            decided = [Decided(Choice(e.found, None, e.then), e.verdict) for e in entries]
            result = counted(decided)
        except HalogError as e:
            logger.warning("what the merge of %s did is not in the log any more: %s", self._copy.name, e)
        why = self._hand_over() or "it was merged before"
        self._say(DONE, why, merge=name.hex(), result=result)
        classified.let_go(self._host.coordinator, self._copy.name, self._asked.site)

    def _closed(self, remote: Remote) -> Side:
        """The other site's branch, once it is closed."""
        for _ in range(int(CLOSE_S / LOOK_S)):
            side = closed_branch.closed_side(remote, self._host.site, self._copy.name, self._copy.tp)
            if isinstance(side, Side):
                return side
            self._say(READING, side)
            self._own.go_on(LOOK_S)
        raise DeadlineError(f"{side}: is a node there up, and is the partition given to this site?")

    def _records(self, e: fx.MergeDue, theirs: Side, finish: Finish, name: bytes) -> list[bytes]:
        """What opens the epoch, and its result in numbers."""
        _check_apart(e.state, theirs)
        self._say(MERGING, merge=name.hex())
        found = finish(self._own.at(e.state, e.offset))
        check_keys(self._copy.name, found.keys)
        found = completed(found, self._copy.objects.find)
        settled = self._deciding.settled(found.keys, Into(self._copy.name, name, self._copy.objects.find))
        self._result = lambda: {"parted_behind": found.fork_lsn, **counted([s.decided for s in settled])}
        return merge_records(opening_of(e), [theirs.state], found, [s.merged for s in settled], name)

    # --- undoing one ---

    def _undo(self, found: Undoing) -> None:
        self._own.read_on(lambda: found.read(self._own.now(), self._own.go_on))  # before anything is ended for it
        if found.put_back is None and self._open(0, lambda e: self._undone(e, found), found.name):
            return
        if found.put_back is None:
            self._say(NOTHING, "nothing is to be changed", result=self._result())
        else:  # by a node that was at this very undo and died, perhaps
            own = self._asked.begun and found.put_back
            phase, result = (DONE, {"changed": found.put_back}) if own else (NOTHING, {})
            self._say(phase, "it was undone before", merge=found.name.hex(), result=result)

    def _undone(self, e: fx.MergeDue, found: Undoing) -> list[bytes]:
        found.read(self._own.at(e.state, e.offset))
        if found.put_back is not None:  # since it was read the last time
            return []
        made = undone(found.report, found.left, self._copy.objects.find)
        self._result = lambda: made.numbers
        return merge_records(opening_of(e), [], None, made.merged, found.undoes) if made.merged else []

    # --- the epoch that opens with it ---

    def _open(self, floor: int, made: Callable[[fx.MergeDue], list[bytes]], name: bytes) -> bool:
        """False: it opened as any other does, since nothing was made."""

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
        """To the node that is to serve from now on; why not, if it does not. What was merged stands all the same."""
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
            if isinstance(result, res.Happened):
                return ""
            if time.monotonic() >= until or self._host.pause(LOOK_S):  # it may have left the node list for a moment
                return f"not handed over to {to}: {to_error(result, self._copy.name)}"

    def _offer(self) -> None:
        """Where the other site can begin to read; if it cannot be said, that site reads from where it last stood."""
        try:
            places.offer(self._host.coordinator, self._copy.name, self._reopening.before)
        except (HalogError, UnknownResult) as e:
            logger.warning("a place to read the log of %s from could not be offered: %s", self._copy.name, e)

    def _hold(self, name: bytes, offset: int) -> None:
        """For a week from now; behind an undo its merge is held on, too."""
        of, until = (self._host.coordinator, self._copy.name), retention.now_ms() + HOLD_MS
        held = f"restore-{name.hex()[:12]}"
        try:
            before = retention.holds(*of).get(held)
            first = offset if before is None else min(offset, before.offset)
            retention.hold_the_rest(*of, held, first, UNTIL, until)
        except (HalogError, UnknownResult) as e:
            logger.warning("the log of %s is not held behind its merge: %s", self._copy.name, e)


def _check_apart(ours: ChainState, theirs: Side) -> None:
    """Lost where another node has merged it while this one compared: whoever begins again finds it done."""
    if is_merged(ours, theirs.state):
        raise Lost
