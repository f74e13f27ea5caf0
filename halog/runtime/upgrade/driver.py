"""This module brings nodes to a release, one after the other, while the cluster works (U1).

A node is proved to be safe to stop, gives its roles away, is restarted, and is awaited: registered with the release in
a new run, with all its copies caught up and in the sets they belong to, and of the same state as the active copies.
Only then the next one follows. Whatever is not as it should be stops the upgrade, and nothing is undone: what was
proved stays proved, and the nodes that were not reached run what they ran.

Nothing is gone by but what nodes have registered and say. So a command that died is followed by one that sees by itself
which step is the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from halog.errors import DeadlineError, HalogError, RefusedError, VersionMismatchError
from halog.metadata.upgrades import COMPLETE, FINISHED, PAUSED, RUNNING, Upgrade, change
from halog.ports import Coordinator
from halog.runtime.upgrade.fleet import CopyStanding, StateMarks, UpgradedFleet
from halog.runtime.upgrade.order import hosting, release_for, successors
from halog.runtime.upgrade.record import still_proved


class UpgradePaces(NamedTuple):
    """Holds the paces of a command that upgrades nodes."""

    look_s: float = 0.25
    """Between two looks at something that is awaited. A look asks every node."""
    again_s: float = 2.0
    """An operator's node that got a role back before it was stopped gives it away again after this time."""


PACES: Final = UpgradePaces()

_SOMEBODY: Final = "somebody else goes on with this upgrade; see `halog upgrade status`"


class UpgradePausedError(RefusedError):
    """The upgrade does not go on: somebody has paused it, or goes on with it himself."""


class StateMismatchError(RefusedError):
    """The copy of a node that was upgraded has another state than the active one at the same lsn. `evidence`: node,
    partition, lsn."""


class UpgradeProgress(NamedTuple):
    """An `UpgradeProgress` is one step of an upgrade, to be told."""

    node: str
    step: str
    done: int
    of: int
    aloud: bool = False
    """Is an operator to do something now?"""
    ends: bool = False
    """Was this the node's last step?"""


Tell = Callable[[UpgradeProgress], None]


class UpgradeDriver:
    """An `UpgradeDriver` goes on with the upgrade that is under way, in one command."""

    def __init__(
        self,
        fleet: UpgradedFleet,
        coordinator: Coordinator,
        run: str,
        tell: Tell,
        now_ms: Callable[[], int],
        timeout_s: float,
        paces: UpgradePaces = PACES,
    ) -> None:
        """Take `run` for this command's mark in the record. `timeout_s`: for each single thing that is awaited."""
        self._fleet = fleet
        self._coordinator = coordinator
        self._run = run
        self._tell = tell
        self._now_ms = now_ms
        self._timeout_s = timeout_s
        self._paces = paces
        self.uncompared: list[str] = []
        """What could not be compared, since a node's halog has no hashes, or there is no other copy."""

    def go(self, nodes: Sequence[str]) -> Upgrade:
        """Bring these nodes to what they should run, in this order. HalogError where it stops, and the record says
        why."""
        at = ""
        try:
            for at in nodes:
                self._bring(at)
        except UpgradePausedError:
            raise
        except HalogError as e:
            self._pause(at, e.message, of_others=isinstance(e, StateMismatchError))
            raise
        except KeyboardInterrupt:
            self._pause(at, "the command was interrupted")
            raise
        return self._end()

    def _pause(self, node: str, why: str, *, of_others: bool = False) -> None:
        """Write why it does not go on, over the reason of a pause that is there. Where that fails the record stands as
        it was: the next command goes on with it. `of_others`: does it stop another command, too, that brings nodes
        forward?"""

        def paused(before: Upgrade | None) -> Upgrade | None:
            if before is None or before.over:
                return None
            if before.run != self._run and (not of_others or before.back):
                return None
            return msgspec.structs.replace(before, state=PAUSED, node=node, why=why, at_ms=self._now_ms())

        with suppress(HalogError):
            change(self._coordinator, paused)

    def _end(self) -> Upgrade:
        """Write that it is complete, or over, if every node runs what it should; or that the next command goes on."""
        now = still_proved(self._mine(), self._fleet.nodes)
        left = [n for n in now.order if n not in now.done and release_for(now, n)]
        if left:
            return self._note(state=PAUSED, node="", why=f"still to come: {', '.join(left)}")
        if now.back:
            return self._note(state=FINISHED, node="", why="every node runs what it ran before")
        return self._note(state=COMPLETE, node="", why=f"every node runs halog {now.to}")

    # --- one node ---

    def _bring(self, node: str) -> None:
        upgrade = self._mine()
        wanted = release_for(upgrade, node)
        self._note(state=RUNNING, node=node, why="")
        found = hosting(self._fleet.nodes).get(node)
        if found is None or found.version != wanted:
            if found is not None:
                self._prove(node)
                self._give_away(node)
                while self._fleet.unsafe(node):  # to hand over takes time, and others may have failed meanwhile
                    self._prove(node)
                    self._give_away(node)
            self._mine()
            self._restart(node, wanted)
        self._catch_up(node)
        self._compare(node)
        self._done(node)

    def _prove(self, node: str) -> None:
        """Wait until the node may stop: what was restarted before may still be catching up."""
        self._say(node, "proves that it is safe to stop")
        why: Sequence[str] = ()

        def safe() -> bool:
            nonlocal why
            self._mine()
            why = self._fleet.unsafe(node)
            return not why

        if not self._within(safe):
            raise RefusedError(
                f"{node} is not safe to stop: {_first(why)}. Mend that, and go on with `halog upgrade start`",
                node=node,
            )

    def _give_away(self, node: str) -> None:
        """Hand over everything that the node is active for, partition by partition, to new nodes first."""
        failed = ""

        def given() -> bool:
            nonlocal failed
            led = self._led_by(node)
            failed = self._hand_over_all(node, led, self._mine()) if led else ""
            return not self._led_by(node)

        if not self._within(given):
            left = ", ".join(self._led_by(node)[:3])
            raise RefusedError(
                f"{node} does not give {left} away: {failed or 'it became active again each time'}. Mend that, and go "
                "on with `halog upgrade start`",
                node=node,
            )

    def _led_by(self, node: str) -> list[str]:
        return [t.name for t in self._fleet.tables if t.active is not None and t.active.node == node]

    def _hand_over_all(self, node: str, partitions: Sequence[str], upgrade: Upgrade) -> str:
        """Hand these over, and return why one stayed; "": none did."""
        failed = ""
        lags = self._fleet.lags(node)
        runs = hosting(self._fleet.nodes)
        new = {n for n, info in runs.items() if info.version == release_for(upgrade, n)}
        tables = {t.name: t for t in self._fleet.tables}
        for number, partition in enumerate(partitions, 1):
            self._say(node, f"hands over {partition}, {number} of {len(partitions)}")
            others = successors(tables[partition], node, runs, new, lags.get(partition, {}))
            if not others:
                failed = f"no other node can take {partition} over now"
                continue
            try:
                self._fleet.hand_over(partition, others[0])
            except VersionMismatchError:
                raise
            except HalogError as e:
                failed = e.message
        return failed

    def _restart(self, node: str, release: str) -> None:
        """Let the node be restarted, and wait until it is back. What it has registered is read again: it may have ended
        and come back by itself since it was proved, and that is not the restart that is awaited."""
        was = hosting(self._fleet.nodes).get(node)
        if was is not None and was.version == release:
            return
        if self._fleet.by_hook:
            self._say(node, f"is restarted under halog {release}")
            self._fleet.restart(node, release)
        else:
            doing = "start" if was is None else "restart"
            self._say(node, f"is restarted by you: {doing} {node} under halog {release} now", aloud=True)
        again_at, is_warned = self._fleet.clock() + self._paces.again_s, False

        def back() -> bool:
            nonlocal again_at, is_warned
            now = hosting(self._fleet.nodes).get(node)
            if now is None:
                return False
            if was is None or now.incarnation != was.incarnation:
                return True
            self._mine()
            if self._fleet.clock() >= again_at:
                if led := self._led_by(node):
                    self._hand_over_all(node, led, self._mine())
                if not self._fleet.by_hook and not is_warned and (why := self._fleet.unsafe(node)):
                    is_warned = True
                    said = (
                        f"is not safe to stop any more: {_first(why)}. Wait until `halog safe-to-stop {node}` says so"
                    )
                    self._say(node, said, aloud=True)
                again_at = self._fleet.clock() + self._paces.again_s
            return False

        if not self._within(back):
            raise DeadlineError(
                f"{node} has not come back under halog {release} within {self._timeout_s:g} s. Its roles are with "
                f"others. Start it under halog {release} and go on with `halog upgrade start`, or take all back with "
                "`halog upgrade rollback`",
                node=node,
                release=release,
            )
        self._check_release(node, release)

    def _check_release(self, node: str, release: str) -> None:
        """Raise RefusedError where a node came back with another release."""
        now = hosting(self._fleet.nodes).get(node)
        if now is not None and now.version != release:
            raise RefusedError(
                f"{node} came back with halog {now.version}, not {release}: install that where it is started, and go "
                "on with `halog upgrade start`",
                node=node,
                release=now.version,
            )

    def _catch_up(self, node: str) -> None:
        """Wait until each of the node's copies was seen with lag 0, and all of them are where they belong."""
        self._say(node, "catches up")
        level: set[str] = set()
        left: list[str] = []

        def caught_up() -> bool:
            nonlocal left
            standings = self._fleet.standings(node)
            level.update(c.partition for c in standings if not c.fault and (c.active or c.lag == 0))
            left = [f"{c.partition}: {_behind(c)}" for c in standings if c.fault or c.partition not in level]
            return not left

        if not self._within(caught_up):
            raise DeadlineError(
                f"{node} has not caught up within {self._timeout_s:g} s: {_first(left)}. See `halog "
                "status`; go on with `halog upgrade start` when it has",
                node=node,
            )

    # --- states ---

    def _compare(self, node: str) -> None:
        """Compare the state of each copy with that of the active one, at a lsn that both know. Those that have none in
        common yet, and those of which no other copy tells just now, are asked again, as they go on."""
        self._say(node, "compares its state with the active copies")
        left = {c.partition for c in self._fleet.standings(node)}

        def compared() -> bool:
            copies = [c for c in self._fleet.standings(node) if c.partition in left]
            only = [c.partition for c in copies if c.is_only]
            self.uncompared.extend(f"{p} on {node}, the only copy" for p in only)
            left.intersection_update(c.partition for c in copies if not c.is_only)
            by = {c.partition: c.reference for c in copies if c.reference and not c.is_only}
            for partition, (here, there) in self._fleet.marks(node, by).items():
                if here is None or there is None:
                    self.uncompared.append(f"{partition} on {node} with {by[partition]}")
                    left.discard(partition)
                elif self._are_equal(node, partition, by[partition], here, there):
                    left.discard(partition)
            return not left

        if not self._within(compared):
            names = ", ".join(sorted(left)[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
            raise DeadlineError(
                f"{node} and the active copies told no hash of one lsn within {self._timeout_s:g} s: {names}. See "
                "`halog status`; go on with `halog upgrade start`",
                node=node,
                partitions=sorted(left),
            )

    def _are_equal(self, node: str, partition: str, other: str, here: StateMarks, there: StateMarks) -> bool:
        """Return whether two copies know a hash of one lsn, and it is the same. StateMismatchError if it is not."""
        common = sorted(here.by_lsn.keys() & there.by_lsn.keys())
        lsn = next((n for n in common if here.by_lsn[n] != there.by_lsn[n]), None)
        if lsn is None and here.is_stored:
            return bool(common)
        wrong = f"the state of {node} is not that of {other} at lsn {lsn}"
        if lsn is None:
            wrong = f"the store of {node} does not hold the objects that it should"
        raise StateMismatchError(
            f"{partition}: {wrong}. {self._move_away(node)}. No other node is restarted; take {node} back with `halog "
            "upgrade rollback`, and keep its data directory",
            node=node,
            partition=partition,
            lsn=lsn,
        )

    def _move_away(self, node: str) -> str:
        """Take the roles from a node whose state is not right, as far as others can have them, and return in a sentence
        what it still leads. Neither a pause nor an error keeps the caller from saying what is not right."""
        with suppress(HalogError):
            found = change(self._coordinator, _leave)
            if found is not None and (led := self._led_by(node)):
                self._hand_over_all(node, led, found)
        try:
            left = self._led_by(node)
        except HalogError as e:
            return f"Nobody can tell what {node} is active for: {e.message}"
        if not left:
            return f"Nothing is active on {node} now; a role that returns by preference is not held back"
        more = f" and {len(left) - 3} partitions more" if len(left) > 3 else ""
        return f"{node} is still active for {', '.join(left[:3])}{more}, which no other node took over"

    # --- the record ---

    def _mine(self) -> Upgrade:
        """Return the record. UpgradePausedError if this command is not to go on."""
        found = change(self._coordinator, _leave)
        _check_mine(found, self._run)
        assert found is not None
        return found

    def _note(self, *, state: str, node: str, why: str) -> Upgrade:
        """Write where it is, if it is still this command's."""

        def noted(before: Upgrade | None) -> Upgrade:
            _check_mine(before, self._run)
            assert before is not None
            now_ms = self._now_ms()
            return msgspec.structs.replace(before, state=state, node=node, why=why, at_ms=now_ms)

        written = change(self._coordinator, noted)
        assert written is not None
        return written

    def _done(self, node: str) -> None:
        def done(before: Upgrade | None) -> Upgrade:
            if before is None or before.run != self._run:
                raise UpgradePausedError(_SOMEBODY)
            nodes = tuple(dict.fromkeys((*before.done, node)))
            return msgspec.structs.replace(before, done=nodes, node="", at_ms=self._now_ms())

        change(self._coordinator, done)
        self._say(node, "is done", ends=True)

    def _say(self, node: str, step: str, *, aloud: bool = False, ends: bool = False) -> None:
        found = change(self._coordinator, _leave)
        done, of = (0, 0) if found is None else (len(found.done), len(found.order))
        self._tell(UpgradeProgress(node, step, done, of, aloud, ends))

    def _within(self, holds: Callable[[], bool]) -> bool:
        """Look until it holds, and return whether it came about within the timeout."""
        until = self._fleet.clock() + self._timeout_s
        while not holds():
            if self._fleet.clock() >= until:
                return False
            self._fleet.rest(self._paces.look_s)
        return True


def _leave(before: Upgrade | None) -> None:
    """Leave the record as it is."""


def _check_mine(found: Upgrade | None, run: str) -> None:
    if found is None or found.run != run:
        raise UpgradePausedError(_SOMEBODY)
    if found.state == PAUSED:
        raise UpgradePausedError(f"the upgrade is paused: {found.why}; go on with `halog upgrade start`")


def _first(reasons: Sequence[str]) -> str:
    """Return the first reasons, and how many more there are."""
    more = f" and {len(reasons) - 3} partitions more" if len(reasons) > 3 else ""
    return "; ".join(reasons[:3]) + more


def _behind(copy: CopyStanding) -> str:
    if copy.fault:
        return copy.fault
    return "it does not say how far it is" if copy.lag is None else f"it is {copy.lag:,} records behind"
