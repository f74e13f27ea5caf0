"""A command brings nodes to another release: its order, each refusal, and what is left where it stops or dies (U1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.errors import DeadlineError, RefusedError
from halog.metadata.upgrades import COMPLETE, FINISHED, PAUSED, RUNNING, Upgrade, change, read_upgrade
from halog.runtime.upgrade.driver import StateMismatchError, UpgradeDriver, UpgradePausedError, UpgradeProgress
from halog.runtime.upgrade.order import ordered
from halog.runtime.upgrade.record import UpgradeCommand, begun, paused, to_come, turned_back
from tests.unit.runtime.upgrade.fake_fleet import NEW, OLD, FakeFleet, Killed

pytestmark = pytest.mark.feature("U1")

TIMEOUT_S = 60.0


class Site:
    """A fleet, its coordinator, and the commands that one gives there."""

    def __init__(self) -> None:
        self.fleet = FakeFleet()
        self.coordinator = MemoryCoordinator()
        self.coordinator.connect(lambda state: None)
        self.told: list[UpgradeProgress] = []
        self.runs = 0

    def command(self) -> UpgradeCommand:
        self.runs += 1
        return UpgradeCommand(f"run{self.runs}", "ops@here", int(self.fleet.now * 1000))

    def start(self, one: str = "", to: str = NEW, tell: Callable[[UpgradeProgress], None] | None = None) -> Upgrade:
        order = ordered("ABC", self.fleet.tables)
        made = partial(begun, to=to, order=order, nodes=dict(self.fleet.nodes), command=self.command())
        return self._go(change(self.coordinator, made), one, tell)

    def rollback(self) -> Upgrade:
        made = partial(turned_back, level=1, nodes=dict(self.fleet.nodes), command=self.command())
        return self._go(change(self.coordinator, made), "", None)

    def _go(self, now: Upgrade | None, one: str, tell: Callable[[UpgradeProgress], None] | None) -> Upgrade:
        assert now is not None
        nodes = [n for n in to_come(now) if one in ("", n)]
        driver = UpgradeDriver(
            self.fleet, self.coordinator, now.run, tell or self.told.append, lambda: int(self.fleet.now), TIMEOUT_S
        )
        try:
            return driver.go(nodes)
        finally:
            self.uncompared = driver.uncompared

    def record(self) -> Upgrade:
        found = read_upgrade(self.coordinator)
        assert found is not None
        return found

    def releases(self) -> dict[str, str]:
        return {n: i.version for n, i in self.fleet.nodes.items()}


@pytest.fixture
def site() -> Site:
    return Site()


def restarts(site: Site) -> list[str]:
    return [what for what in site.fleet.did if what.startswith("restart")]


def test_all_are_brought_there_the_least_active_first_and_new_ones_take_over(site: Site) -> None:
    now = site.start()
    assert (now.state, now.done) == (COMPLETE, ("C", "B", "A"))
    assert site.releases() == dict.fromkeys("ABC", NEW)
    assert restarts(site) == [f"restart {n} {NEW}" for n in "CBA"]
    did = site.fleet.did
    assert did.index("hand p-2 to C") < did.index(f"restart B {NEW}"), "C is the new one, A is sync"
    assert did.index("prove B") > did.index("compare p-0 of C")
    assert now.before == dict.fromkeys("ABC", OLD)
    assert site.uncompared == []


def test_nothing_is_active_on_a_node_that_is_restarted(site: Site) -> None:
    led: list[list[str]] = []
    real = site.fleet.restart

    def restart(node: str, release: str) -> None:
        led.append([t.name for t in site.fleet.tables if t.active is not None and t.active.node == node])
        real(node, release)

    site.fleet.restart = restart  # type: ignore[method-assign]
    site.start()
    assert led == [[], [], []]


def test_one_node_is_brought_there_and_the_rest_waits(site: Site) -> None:
    now = site.start("B")
    assert (now.state, now.done, now.why) == (PAUSED, ("B",), "still to come: C, A")
    assert site.start().state == COMPLETE
    assert restarts(site) == [f"restart {n} {NEW}" for n in "BCA"]


def test_what_is_not_safe_to_stop_is_waited_for(site: Site) -> None:
    site.fleet.refusals["B"] = ["p-2: A is 70,000 records behind"]
    site.fleet.after(20.0, site.fleet.refusals.clear)
    assert site.start().state == COMPLETE


def test_what_stays_unsafe_stops_it_with_the_reason_and_nothing_is_restarted(site: Site) -> None:
    site.fleet.refusals["C"] = ["p-0: no copy would be left"]
    with pytest.raises(RefusedError, match="C is not safe to stop: p-0: no copy would be left") as caught:
        site.start()
    assert (restarts(site), site.record().state, site.record().node) == ([], PAUSED, "C")
    assert site.record().why == caught.value.message


def test_a_role_that_is_not_given_away_stops_it(site: Site) -> None:
    site.fleet.sticks.add("p-2")
    with pytest.raises(RefusedError, match=r"B does not give p-2 away: A is not an available replica"):
        site.start("B")
    assert restarts(site) == []


def test_a_hook_that_fails_stops_it_and_it_goes_on_when_repeated(site: Site) -> None:
    site.fleet.hook_fails.add("B")
    with pytest.raises(RefusedError, match="the hook for B ended with 3"):
        site.start()
    assert (site.record().state, site.record().done) == (PAUSED, ("C",))
    site.fleet.hook_fails.clear()
    assert site.start().state == COMPLETE


def test_a_node_that_never_comes_back_is_a_deadline_that_says_what_to_do(site: Site) -> None:
    site.fleet.comes_back["C"] = None
    with pytest.raises(DeadlineError, match=f"C has not come back under halog {NEW} within 60 s") as caught:
        site.start()
    assert "halog upgrade rollback" in caught.value.message
    site.fleet.comes_back.clear()
    assert site.start().state == COMPLETE
    assert restarts(site)[:2] == [f"restart C {NEW}"] * 2, "it is started by the hook, too, when it is down"


def test_a_node_that_comes_back_with_another_release_is_named(site: Site) -> None:
    site.fleet.comes_back["C"] = "0.2.9"
    with pytest.raises(RefusedError, match=f"C came back with halog 0.2.9, not {NEW}"):
        site.start()
    assert site.record().state == PAUSED


def test_a_copy_that_does_not_catch_up_stops_it(site: Site) -> None:
    site.fleet.stays_behind.add("C")
    with pytest.raises(DeadlineError, match="C has not caught up within 60 s: p-0: it is 900 records behind"):
        site.start()
    assert site.record().done == ()


def test_other_objects_of_one_log_stop_it_and_take_the_roles_away(site: Site) -> None:
    site.fleet.other_state.add("C")
    site.fleet.after(3.5, lambda: site.fleet.lead("p-1", "C"))
    with pytest.raises(StateMismatchError, match="p-0: the state of C is not that of A at lsn") as caught:
        site.start()
    assert caught.value.exit_code == 5
    assert "Nothing is active on C now" in caught.value.message
    assert (caught.value.evidence["node"], caught.value.evidence["partition"]) == ("C", "p-0")
    assert all(t.active is not None and t.active.node != "C" for t in site.fleet.tables)
    assert site.record().state == PAUSED
    assert restarts(site) == [f"restart C {NEW}"]


def test_a_store_that_does_not_hold_the_objects_stops_it(site: Site) -> None:
    site.fleet.rotten.add("C")
    with pytest.raises(StateMismatchError, match="p-0: the store of C does not hold the objects that it should"):
        site.start()
    assert site.record().state == PAUSED


def test_copies_without_a_lsn_in_common_are_asked_again(site: Site) -> None:
    site.fleet.silent.add("p-1")
    site.fleet.after(30.0, site.fleet.silent.clear)
    assert site.start().state == COMPLETE
    other = Site()
    other.fleet.silent.add("p-1")
    with pytest.raises(DeadlineError, match="C and the active copies told no hash of one lsn within 60 s: p-1"):
        other.start()


def test_a_halog_without_hashes_is_compared_by_nothing_and_named(site: Site) -> None:
    site.fleet.too_old.add("A")
    assert site.start("C").done == ("C",)
    assert site.uncompared == ["p-0 on C with A", "p-1 on C with A"]


def test_a_pause_is_heeded_behind_the_step(site: Site) -> None:
    def pause(step: UpgradeProgress) -> None:
        if step.step == "catches up" and step.node == "C":
            change(site.coordinator, partial(paused, command=UpgradeCommand("", "me@here", 0)))

    with pytest.raises(UpgradePausedError, match="me@here paused it"):
        site.start(tell=pause)
    assert (site.record().done, site.record().state) == (("C",), PAUSED), "what was under way was proved"
    assert site.releases() == {"A": OLD, "B": OLD, "C": NEW}
    assert site.start().state == COMPLETE


def test_a_command_does_nothing_more_once_another_goes_on(site: Site) -> None:
    def other(step: UpgradeProgress) -> None:
        if step.step == "catches up":
            change(site.coordinator, lambda u: u and msgspec.structs.replace(u, run="other"))

    with pytest.raises(UpgradePausedError, match="somebody else goes on"):
        site.start(tell=other)
    assert (site.record().run, site.record().state) == ("other", RUNNING)


STEPS = [
    "prove C",
    f"restart C {NEW}",
    "compare p-0 of C",
    "hand p-2",
    f"restart B {NEW}",
    "compare p-2 of B",
    "prove A",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_command_that_died_is_followed_by_one_that_goes_on(site: Site, step: str) -> None:
    """At whatever step: nothing is restarted twice that runs the release, and everything is proved."""
    site.fleet.dies_at = step
    with pytest.raises(Killed):
        site.start()
    assert site.record().state == RUNNING
    site.fleet.rest(10.0)
    now = site.start()
    assert (now.state, sorted(now.done)) == (COMPLETE, ["A", "B", "C"])
    assert restarts(site) == [f"restart {n} {NEW}" for n in "CBA"]
    assert now.before == dict.fromkeys("ABC", OLD)


def test_a_command_that_is_interrupted_leaves_a_record_that_says_so(site: Site) -> None:
    def interrupt(step: UpgradeProgress) -> None:
        if step.step == "catches up":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        site.start(tell=interrupt)
    assert (site.record().state, site.record().why) == (PAUSED, "the command was interrupted")
    assert site.start().state == COMPLETE


def test_all_go_back_in_the_opposite_order(site: Site) -> None:
    site.start()
    site.fleet.did.clear()
    now = site.rollback()
    assert (now.state, now.back) == (FINISHED, True)
    assert site.releases() == dict.fromkeys("ABC", OLD)
    assert restarts(site) == [f"restart {n} {OLD}" for n in "ABC"]


def test_what_was_not_reached_is_not_restarted_where_all_go_back(site: Site) -> None:
    site.start("C")
    site.fleet.did.clear()
    assert site.rollback().state == FINISHED
    assert restarts(site) == [f"restart C {OLD}"]


def test_a_rollback_that_stopped_may_go_forward_again(site: Site) -> None:
    site.start()
    site.fleet.hook_fails.add("B")
    with pytest.raises(RefusedError):
        site.rollback()
    assert site.releases() == {"A": OLD, "B": NEW, "C": NEW}
    site.fleet.hook_fails.clear()
    now = site.start()
    assert (now.state, now.back, site.releases()) == (COMPLETE, False, dict.fromkeys("ABC", NEW))
    assert now.before == dict.fromkeys("ABC", OLD)


def test_a_node_that_was_down_is_started_and_left_as_it_is_where_all_go_back(site: Site) -> None:
    site.fleet.stop("C")
    assert site.start().state == COMPLETE
    assert site.record().before == dict.fromkeys("AB", OLD)
    assert site.rollback().state == FINISHED
    assert site.releases() == {"A": OLD, "B": OLD, "C": NEW}


def test_an_operator_is_told_and_roles_that_come_back_meanwhile_are_given_away_again(site: Site) -> None:
    fleet = site.fleet
    fleet.by_hook = False
    fleet.after(5.0, lambda: fleet.lead("p-2", "B"))
    fleet.after(20.0, lambda: fleet.restart("B", NEW))
    assert site.start("B").done == ("B",)
    assert [s.step for s in site.told if s.aloud] == [f"is restarted by you: restart B under halog {NEW} now"]
    assert fleet.did.count("hand p-2 to A") == 2


def test_what_was_proved_and_put_back_by_hand_is_brought_there_again(site: Site) -> None:
    site.start("C")
    site.fleet.stop("C")
    site.fleet.boot("C", OLD)
    assert site.start("B").why == "still to come: C, A"
    assert site.record().done == ("B",)
    now = site.start()
    assert (now.state, site.releases()) == (COMPLETE, dict.fromkeys("ABC", NEW))


def test_what_is_put_back_by_hand_while_others_are_brought_there_is_still_to_come(site: Site) -> None:
    def by_hand(step: UpgradeProgress) -> None:
        if step.node == "A" and step.step == "catches up":
            site.fleet.stop("C")
            site.fleet.boot("C", OLD)

    assert (site.start(tell=by_hand).state, site.record().why) == (PAUSED, "still to come: C")
    assert site.start().state == COMPLETE
    site.fleet.hook_fails.add("A")
    with pytest.raises(RefusedError):
        site.rollback()
    site.fleet.hook_fails.clear()
    assert site.rollback().state == FINISHED
    assert site.releases() == dict.fromkeys("ABC", OLD)


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("run", ["", "other"])
def test_other_objects_are_told_and_recorded_also_where_it_was_paused_meanwhile(
    site: Site, leads: bool, run: str
) -> None:
    def pause(step: UpgradeProgress) -> None:
        if step.step.startswith("compares"):
            change(site.coordinator, partial(paused, command=UpgradeCommand("", "me@here", 0)))
            if run:
                change(site.coordinator, lambda u: u and msgspec.structs.replace(u, run=run, state=RUNNING))
            if leads:
                site.fleet.lead("p-1", "C")

    site.fleet.other_state.add("C")
    with pytest.raises(StateMismatchError, match="p-0: the state of C is not that of A") as caught:
        site.start(tell=pause)
    assert (site.record().state, site.record().node, site.record().why) == (PAUSED, "C", caught.value.message)
    assert all(t.active is not None and t.active.node != "C" for t in site.fleet.tables)


def test_other_objects_are_told_also_where_the_roles_stay(site: Site) -> None:
    site.fleet.other_state.add("C")
    site.fleet.sticks.add("p-1")
    site.fleet.after(3.5, partial(site.fleet.lead, "p-1", "C"))
    with pytest.raises(StateMismatchError, match="p-0: the state of C is not that of A") as caught:
        site.start()
    assert "C is still active for p-1, which no other node took over. No other" in caught.value.message
    assert site.record().why == caught.value.message


def test_a_copy_whose_others_tell_nothing_just_now_is_waited_for(site: Site) -> None:
    site.fleet.unseen.add("p-1")
    site.fleet.after(30.0, site.fleet.unseen.clear)
    assert site.start("C").done == ("C",)
    assert site.fleet.now >= 30.0
    assert "compare p-1 of C" in site.fleet.did
    other = Site()
    other.fleet.unseen.add("p-1")
    with pytest.raises(DeadlineError, match="C and the active copies told no hash of one lsn within 60 s: p-1"):
        other.start("C")
    assert (other.record().done, other.uncompared) == ((), [])


def test_the_only_copy_is_compared_with_nothing_and_named(site: Site) -> None:
    site.fleet.single.add("p-1")
    assert site.start("C").done == ("C",)
    assert site.uncompared == ["p-1 on C, the only copy"]


def test_what_becomes_unsafe_while_roles_are_handed_over_is_waited_for(site: Site) -> None:
    fleet, at = site.fleet, 0.0

    def unsafe(step: UpgradeProgress) -> None:
        nonlocal at
        if step.step.startswith("hands over p-2") and not at:
            at = fleet.now + 20.0
            fleet.refusals["B"] = ["p-2: A is 70,000 records behind"]
            fleet.after(20.0, fleet.refusals.clear)
        if step.node == "B" and step.step.startswith("is restarted"):
            assert fleet.now >= at

    assert site.start("B", tell=unsafe).done == ("B",)
    assert at


def test_an_operator_is_told_once_that_a_node_is_not_safe_to_stop_any_more(site: Site) -> None:
    fleet = site.fleet
    fleet.by_hook = False

    def refuse() -> None:
        fleet.refusals["B"] = ["p-2: A is 70,000 records behind"]

    fleet.after(5.0, refuse)
    fleet.after(15.0, fleet.refusals.clear)
    fleet.after(20.0, partial(fleet.restart, "B", NEW))
    assert site.start("B").done == ("B",)
    aloud = [s.step for s in site.told if s.aloud]
    assert len(aloud) == 2
    assert aloud[1].startswith("is not safe to stop any more: p-2: A is 70,000 records behind. Wait until")


@pytest.mark.parametrize("by_hook", [True, False])
@pytest.mark.parametrize("release", [OLD, NEW])
def test_a_crash_while_roles_are_handed_over_is_not_the_restart_that_is_awaited(
    site: Site, by_hook: bool, release: str
) -> None:
    fleet, ended = site.fleet, False
    fleet.by_hook = by_hook

    def crash(step: UpgradeProgress) -> None:
        nonlocal ended
        if step.step.startswith("hands over p-2") and not ended:
            ended = True
            fleet.stop("B")
            fleet.boot("B", release)
        if step.aloud:
            fleet.after(20.0, partial(fleet.restart, "B", NEW))

    assert site.start("B", tell=crash).done == ("B",)
    assert ended
    assert fleet.nodes["B"].incarnation == (3 if release == OLD else 2)
    assert restarts(site) == ([f"restart B {NEW}"] if release == OLD else []), "it may come back with the release"
