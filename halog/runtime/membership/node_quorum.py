"""Says whether this node may serve, judged from whom its connections reach: the node quorum at work (Q1).

The channel decides, not the registrations: a node that is cut off from everybody cannot read these, and hears within
the non-response timeout that nobody answers. While ZooKeeper is away the channel still tells who is there, so nobody
goes offline for that. (A registration that ZooKeeper shows to be gone counts as ever, see `members`.) The states and
their arithmetic are `halog.core.table.zones`; this module keeps them, and tells of their changes.

zones/<name>    ZoneSwitch as JSON, changed by compare-and-set only; absent: the quorum is as configured
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from halog.core.table.zones import NodeContacts, QuorumCount, Zone, ZoneState, count, first_state, happening, next_state
from halog.errors import CoordinatorError, HalogError
from halog.events import ZONE_BACK, ZONE_LOST, ZONE_PARTIAL, ZONE_SWITCHED, ZONE_WHOLE, Kind
from halog.metadata.zone_switches import ZoneSwitch, path_of, read_switch, switch_of
from halog.ports import Coordinator, Versioned

if TYPE_CHECKING:
    from halog.config import Config
    from halog.runtime.events.history import History

logger = logging.getLogger("halog.zones")

LOOK_S = 0.1
"""How often a node that is online looks for copies that are not: one may have been opened as the quorum came back."""

_TOLD: dict[ZoneState, Kind] = {
    ZoneState.ACTIVE: ZONE_WHOLE,
    ZoneState.PARTIAL: ZONE_PARTIAL,
    ZoneState.DISABLED: ZONE_LOST,
}


def zones_of(config: Config, node: str) -> list[Zone]:
    """Return the zones a node is in, as the core counts them."""
    made = []
    for name, zone in config.zones.items():
        nodes = config.nodes_of(name)
        if node in nodes:
            votes = {n: config.nodes[n].votes for n in nodes}
            quorum = zone.quorum
            remote = quorum.minimum_active_remote_nodes or 0
            made.append(Zone(name, votes, quorum.minimum_votes or 0, quorum.percentage or 0, remote))
    return made


class _Standing:
    """A standing is how this node stands in one of its zones."""

    __slots__ = ("counted", "state", "switch", "zone")

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.switch = ZoneSwitch()
        self.state = first_state(zone, off=False)
        self.counted = QuorumCount(0, 0, "votes", ())

    @property
    def why(self) -> str:
        """Return why the node is offline for this zone; "": it is not."""
        if self.state is not ZoneState.DISABLED:
            return ""
        return f"zone {self.zone.name} has no quorum here: {self.counted}"


class _Watching(NamedTuple):
    """Switches are read there, and `changed` is told when one moves."""

    coordinator: Coordinator
    changed: Callable[[], None]


class NodeQuorum:
    """Says whether a hosting node may serve, in one run of it."""

    def __init__(self, me: str, zones: list[Zone], history: History) -> None:
        self._me = me
        self._history = history
        self._standings = {zone.name: _Standing(zone) for zone in zones}
        self._sight = NodeContacts()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._restore: Callable[[], None] | None = None
        """Restores copies that are offline, once; None: there are none yet."""
        self._watching: _Watching | None = None
        """None: it does not know yet how the switches stand."""
        self._watched: set[str] = set()

    @property
    def guarded(self) -> bool:
        """Has any of this node's zones a quorum?"""
        return any(s.zone.guarded for s in self._standings.values())

    # --- judging ---

    def judge(self, sight: NodeContacts) -> str:
        """Return why this node is offline, seeing these others; "": it is not, or it does not know yet how the switches
        stand. One thread calls it at a time."""
        if self._watching is None:
            return ""
        self._sight = sight
        for s in self._standings.values():
            s.counted = count(s.zone, self._me, sight)
            what = happening(s.state, s.counted, off=s.switch.off)
            if what is not None:
                was, s.state = s.state, next_state(s.state, what)
                self._tell(s, was)
        return "; ".join(filter(None, (s.why for s in self._standings.values())))

    def _tell(self, s: _Standing, was: ZoneState) -> None:
        c, down = s.counted, ", ".join(s.counted.down)
        if not s.zone.guarded:
            return
        kind = ZONE_BACK if was is ZoneState.DISABLED else _TOLD[s.state]
        why = f"{down} down" if down else "all nodes discovered are up"
        if kind is ZONE_BACK:
            why = str(c) + (", the quorum is switched off" if s.switch.off else "")
        elif kind is ZONE_LOST:
            why = f"{why}; it serves nothing" if down else "it serves nothing"
        more = {
            "zone": s.zone.name,
            "state": s.state.value,
            "have": c.have,
            "needed": c.needed,
            "of": c.of,
            "down": down,
        }
        self._history.tell(kind, why, more=more)

    # --- the switch ---

    def watch(self, coordinator: Coordinator, changed: Callable[[], None]) -> None:
        """Learn how the switches stand now, and call `changed` when one moves. The coordinator tells of the first ones
        before the last ones are learnt: until then nothing is judged, and `changed` is not called."""
        for s in self._standings.values():
            if s.zone.guarded:
                s.switch = read_switch(coordinator, s.zone.name)
                s.state = first_state(s.zone, off=s.switch.off)
                self._watch_switch(coordinator, s.zone.name)
        self._watching = _Watching(coordinator, changed)

    def _watch_switch(self, coordinator: Coordinator, name: str) -> None:
        if name not in self._watched:
            self._watched.add(name)
            coordinator.watch(path_of(name), lambda _, found: self._moved(name, found))

    def _learn_switch(self, coordinator: Coordinator, s: _Standing) -> None:
        """Learn the switch of a zone that this node is in, or that has a quorum, only now."""
        try:
            s.switch = read_switch(coordinator, s.zone.name)
        except HalogError as e:
            logger.warning("zone %s: whether its quorum is switched off is not known yet: %s", s.zone.name, e)
        self._watch_switch(coordinator, s.zone.name)

    def _moved(self, name: str, found: Versioned | None) -> None:
        s = self._standings.get(name)
        if s is None:  # a version activated since has the node in this zone no more
            return
        was = s.switch.off
        try:
            s.switch = switch_of(name, found)
        except CoordinatorError as e:
            logger.error("zone %s: its quorum stays %s: %s", name, "off" if was else "on", e)
            return
        first = min({self._me} | (self._sight.up & set(s.zone.votes)))
        if first == self._me and was != s.switch.off:  # one tells
            now = "off" if s.switch.off else "on"
            self._history.tell(ZONE_SWITCHED, s.switch.reason or "asked for", more={"zone": name, "now": now})
        self._tell_changed()

    def _tell_changed(self) -> None:
        if self._watching is not None:
            self._watching.changed()

    # --- another configuration ---

    def configure(self, zones: list[Zone]) -> None:
        """An activated version has these zones for this node: from now on they count. How it stands in a zone that it
        was in already goes on from there."""
        standings = {}
        for zone in zones:
            known = self._standings.get(zone.name)
            s = standings[zone.name] = known or _Standing(zone)
            s.zone = zone
            if known is None:
                s.state = ZoneState.ACTIVE  # it serves; the count that follows says whether it may
            watching = self._watching
            if watching is not None and zone.guarded and (known is None or zone.name not in self._watched):
                self._learn_switch(watching.coordinator, s)
        self._standings = standings
        self._restore_if_guarded()
        self._tell_changed()

    # --- coming back ---

    def tend(self, restore: Callable[[], None]) -> None:
        """Call `restore` again and again while a zone has a quorum, on a thread of its own: the log may be away."""
        self._restore = restore
        self._restore_if_guarded()

    def _restore_if_guarded(self) -> None:
        if self.guarded and self._restore is not None and self._thread is None:
            self._thread = threading.Thread(target=self._tend, args=(self._restore,), name="halog-zones", daemon=True)
            self._thread.start()

    def _tend(self, restore: Callable[[], None]) -> None:
        while not self._closing.wait(LOOK_S):
            restore()

    def close(self) -> None:
        """Restore nothing more."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(5)

    # --- for operators ---

    @property
    def reaches(self) -> list[str]:
        """Return the others that count here for a quorum, offline or not."""
        return sorted(self._sight.reached)

    def view(self) -> list[dict[str, object]]:
        """Return plain values, a zone each."""
        return [
            {
                "zone": s.zone.name,
                "state": s.state.value,
                "quorum": s.zone.demand or None,
                "off": s.switch.off,
                "have": s.counted.have,
                "needed": s.counted.needed,
                "of": s.counted.of,
                "down": list(s.counted.down),
            }
            for s in self._standings.values()
        ]
