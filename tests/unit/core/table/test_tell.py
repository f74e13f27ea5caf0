"""What a copy tells operators (Q4): why an epoch began, who came and went, what was discarded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.core import effects as fx, events as ev
from halog.core.commit.discards import KEEP, Discards
from halog.core.log.outcomes import Outcomes
from halog.core.log.transactions import Ledger
from halog.core.roles import Role
from halog.core.table.changes import NodeList, group_changes, migration_asked, told_by
from halog.core.table.table import ASYNC, DEFINED, DISABLED, ENABLED, SYNC, Group, PartitionDefinition, Replica, Target
from halog.core.table.tell import Tell
from halog.events import (
    ADDED,
    DESIGNATED,
    DISCARDED,
    ITEMS,
    MIGRATED,
    MIGRATION,
    MINIMUM,
    PRIORITY,
    REMOVED,
    TOO_FEW,
    TRANSFER,
    Kind,
)
from tests.unit.core.kit import SETTINGS, A, B, C, Core, Script, create, epoch, table, tx


def opened_because(core: Core) -> str:
    """Takes the partition and says why."""
    script = Script()
    core.step(ev.Ticked(), after_ms=core.p.campaign.patience)
    core.step(ev.CasDone(core.one(fx.SetTable).round, ev.Cas.OK, core.p.state.version + 1))
    mine = core.p.state.table.epoch
    core.step(ev.EntriesRead([(0, script.started(mine))]))
    core.step(ev.EntriesRead([(1, script.opened(mine))]))
    (changed,) = core.of(fx.RoleChanged)
    assert changed.role == Role.ACTIVE.value
    return changed.why


@pytest.mark.feature("Q4", "O2")
def test_the_first_epoch_says_that_there_was_none() -> None:
    assert opened_because(Core().electing()) == "the partition never had an active node"


@pytest.mark.feature("Q4", "P10")
def test_an_election_says_how_the_active_was_seen_to_go() -> None:
    core = Core(active=B, epoch=epoch(4), replicas=(Replica("A", 1, SYNC),)).loaded()
    core.alive(B, C)
    core.step(ev.AliveChanged(frozenset({A, C}), "B: its address refuses connections"))
    assert opened_because(core) == "B: its address refuses connections"


@pytest.mark.feature("Q4")
def test_an_active_nobody_saw_go_is_not_up() -> None:
    core = Core(active=B, epoch=epoch(4)).loaded()
    core.alive(C)
    core.step(ev.Ticked(), after_ms=SETTINGS.start_grace_ms)
    assert opened_because(core) == "B is not up"


@pytest.mark.feature("Q4")
def test_an_epoch_given_up_is_named_with_its_number() -> None:
    core = Core(active=B, epoch=epoch(4)).loaded()
    core.alive(B, C)
    core.step(ev.TableSeen(1, table(active=None, epoch=epoch(4))))
    assert opened_because(core) == "B gave up epoch 4"


@pytest.mark.feature("Q4", "Q5")
def test_a_requested_transfer_is_told_with_who_asked() -> None:
    core = Core().with_sync_replica()
    core.step(ev.HandOverAsked(77, "B", "asked for by somebody"))
    told = core.one(Tell)
    assert (told.kind, told.cause, told.more) == (TRANSFER, "asked for by somebody", {"to": "B"})
    core = Core().with_sync_replica()
    core.step(ev.HandOverAsked(77, "D", "asked for by somebody"))  # refused
    assert not core.of(Tell)


# --- the node list ---

BEFORE = table(active=A, epoch=epoch(1), replicas=(Replica("B", 2, SYNC), Replica("C", 3, ASYNC)))


def test_after_a_takeover_the_old_active_and_who_is_not_up_are_told_to_be_removed() -> None:
    """P10: the node that is gone is taken out of the node list in the same step."""
    group = NodeList(BEFORE, B, "A: its address refuses connections")
    told = list(group.changed(table(active=B, epoch=epoch(2))))
    assert [(t.kind, t.node, t.cause) for t in told] == [
        (REMOVED, "A", "its address refuses connections"),
        (REMOVED, "C", "it is not up"),
    ]
    assert not list(group.changed(table(active=B, epoch=epoch(2))))


@pytest.mark.feature("Q4", "Q5")
def test_who_handed_over_and_left_is_not_removed_for_the_hand_over() -> None:
    (told, *_) = NodeList(BEFORE, B, "").changed(table(active=B, epoch=epoch(2)))
    assert (told.kind, told.node, told.cause) == (REMOVED, "A", "it is not up")


@pytest.mark.feature("Q4", "R4")
def test_a_restarted_replica_is_removed_and_added() -> None:
    """Members are incarnations: what came back has promised nothing."""
    group = NodeList(BEFORE, A, "")
    group.because(B, "B: silent for 700 ms")
    now = table(active=A, epoch=epoch(1), replicas=(Replica("C", 3, SYNC), Replica("B", 9, ASYNC)))
    told = [(t.kind, t.node, t.cause, t.more) for t in group.changed(now)]
    assert told == [
        (REMOVED, "B", "silent for 700 ms", {}),
        (ADDED, "B", "it has caught up", {"kind": "async"}),
    ]


@pytest.mark.feature("Q4", "R4")
def test_too_few_replicas_are_told_once_and_again_after_there_were_enough() -> None:
    """Not at once: a node that restarts takes its place within moments."""
    group = NodeList(BEFORE, A, "")
    group.because(B, "it left")
    alone = table(active=A, epoch=epoch(1))
    list(group.changed(alone))
    assert not list(group.ticked(0, 1_500))
    assert not list(group.ticked(1_499, 1_500))
    (told,) = group.ticked(1_500, 1_500)
    assert (told.kind, told.cause, told.more) == (TOO_FEW, "it is not up", {"have": 0, "want": 1})
    assert not list(group.ticked(9_000, 1_500))
    list(group.changed(BEFORE))
    assert not list(group.ticked(9_001, 1_500))
    list(group.changed(alone))
    assert not list(group.ticked(9_002, 1_500))
    assert [t.kind for t in group.ticked(10_502, 1_500)] == [TOO_FEW]


def test_an_active_alone_tells_that_it_is() -> None:
    core = Core().with_sync_replica()
    core.step(ev.AliveChanged(frozenset({A}), "B: it left"))
    core.step(ev.CasDone(core.one(fx.SetTable).round, ev.Cas.OK, 3))
    assert [(t.kind, t.cause) for t in core.of(Tell)] == [(REMOVED, "it left")]
    told: list[fx.Effect] = []
    for _ in range(SETTINGS.silent_ms // 20 + 2):
        told += core.step(ev.Ticked(), after_ms=20)
    assert [t.kind for t in told if isinstance(t, Tell)] == [TOO_FEW]


# --- the group ---


@pytest.mark.feature("Q3", "Q4")
@pytest.mark.parametrize(("required", "may_fork"), [(1, {"may_fork": True}), (2, {}), (3, {})])
def test_an_override_with_which_two_halves_could_go_on_says_so(required: int, may_fork: dict[str, bool]) -> None:
    plain = table(quorum=2)
    overridden = table(quorum=2, group=Group(required=required, required_reason="rack 4 moves"))
    (told,) = group_changes(plain, overridden)
    assert (told.kind, told.cause) == (MINIMUM, "rack 4 moves")
    assert told.more == {"required": required, "was": 2, **may_fork}
    (ended,) = group_changes(overridden, plain)
    assert (ended.cause, ended.more) == (
        "the override has ended: an operator took it back",
        {"required": 2, "was": required},
    )


@pytest.mark.feature("Q3", "Q4")
@pytest.mark.parametrize("field", ["until_ms", "reason"])
def test_an_override_that_is_given_anew_is_told_though_the_number_is_the_same(field: str) -> None:
    """It lasts longer, or has another reason."""
    given: dict[str, Any] = {"required_until_ms": 100, "required_reason": "fire"}
    given |= {f"designated{name.removeprefix('required')}": value for name, value in given.items()}
    before = table(group=Group(required=2, designated="A", **given))
    given |= {f"{what}_{field}": 200 if field == "until_ms" else "flood" for what in ("required", "designated")}
    told = list(group_changes(before, table(group=Group(required=2, designated="A", **given))))
    until, why = given["required_until_ms"], given["required_reason"]
    assert [(t.kind, t.cause, t.more["until_ms"]) for t in told] == [(MINIMUM, why, until), (DESIGNATED, why, until)]
    assert not list(group_changes(before, before))


@pytest.mark.feature("Q2", "P12")
def test_the_priority_of_a_node_that_is_to_get_a_copy_is_told() -> None:
    moving = table(target=Target(("A", "D"), 1))
    (told,) = group_changes(moving, msgspec.structs.replace(moving, group=Group(priorities={"D": 0})))
    assert (told.kind, told.node, told.more) == (PRIORITY, "D", {"level": "never"})


# --- discarded transactions ---


@pytest.mark.feature("Q4", "X9")
def test_what_was_in_flight_when_an_epoch_ended_is_told_once_it_is_certain() -> None:
    """Not before a higher epoch has opened, and not while a caller may still try again (R4)."""
    core = Core().with_sync_replica()
    core.submit(1, create(b"one"))
    core.submit(2, create(b"two"))
    ended = core.p.state.chain.state.epoch.number
    core.step(ev.AppendFailed(-1, "the broker is gone"))
    assert not told_after(core, 2 * SETTINGS.discarded_ms)
    script, higher = Script(core.p.state.chain.state.lsn, core.p.state.chain.state.hash), epoch(ended + 1)
    at = core.p.state.next_offset
    core.step(ev.EntriesRead([(at, script.started(higher))]))
    core.step(ev.EntriesRead([(at + 1, script.opened(higher))]))
    (told,) = told_after(core, 20)
    assert (told.kind, told.cause) == (DISCARDED, "the broker is gone")
    assert told.more["of_epoch"] == ended
    assert [t["tx"] for t in told.more["transactions"]] == [tx(1).hex(), tx(2).hex()]
    assert not told_after(core, SETTINGS.discarded_ms)


@pytest.mark.feature("Q4", "X9")
def test_a_transaction_that_was_tried_again_is_not_discarded() -> None:
    core = Core().with_sync_replica()
    core.submit(1, create(b"one"))
    core.submit(2, create(b"two"))
    ended = core.p.state.chain.state.epoch.number
    core.step(ev.AppendFailed(-1, "the broker is gone"))
    script, higher = Script(core.p.state.chain.state.lsn, core.p.state.chain.state.hash), epoch(ended + 1)
    at = core.p.state.next_offset
    for i, data in enumerate([script.started(higher), script.opened(higher), script.commit(higher, 2)]):
        core.step(ev.EntriesRead([(at + i, data)]))
    (told,) = told_after(core, SETTINGS.discarded_ms + 20)
    assert [t["tx"] for t in told.more["transactions"]] == [tx(1).hex()]


@pytest.mark.feature("Q4", "X9")
@pytest.mark.parametrize(("first", "tells"), [("A", True), ("C", False)])
def test_a_late_record_of_a_dead_epoch_is_told_by_the_first_replica(first: str, tells: bool) -> None:
    replicas = (Replica(first, 1 if first == "A" else 3, SYNC),)
    core = Core(active=B, epoch=epoch(2), replicas=replicas).loaded()
    core.alive(B, C)
    script = Script()
    for i, data in enumerate([script.started(epoch(2)), script.opened(epoch(2))]):
        core.step(ev.EntriesRead([(i, data)]))
    core.step(ev.EntriesRead([(2, Script().commit(epoch(1), 7))]))
    told = told_after(core, SETTINGS.discarded_ms + 20)
    assert [t["tx"] for e in told for t in e.more["transactions"]] == ([tx(7).hex()] if tells else [])


@pytest.mark.feature("Q4", "X9")
def test_nothing_is_told_before_a_callers_deadline_and_what_it_last_tried_have_passed() -> None:
    kept = Discards(Outcomes(), Ledger())
    kept.left(tx(1), 1, 7, 100, "fenced")
    assert not list(kept.certain(100 + SETTINGS.discarded_ms - 1, SETTINGS.discarded_ms, 2))
    assert len(list(kept.certain(100 + SETTINGS.discarded_ms, SETTINGS.discarded_ms, 2))) == 1


@pytest.mark.feature("Q4", "X9")
def test_what_happened_is_not_told_and_what_did_not_is_though_the_outcome_table_forgot_both() -> None:
    """A busy partition forgets an outcome before a caller's deadline has passed."""
    outcomes = Outcomes(keep=2)
    kept = Discards(outcomes, Ledger())
    kept.left(tx(1), 1, 7, 0, "fenced")
    kept.left(tx(2), 1, 8, 0, "fenced")
    for n in (1, 3, 4, 5, 6):
        outcomes.add(tx(n), n)
    assert outcomes.get(tx(1)) is None
    assert outcomes.expired(tx(2))
    (told,) = kept.certain(10, 10, 2)
    assert [t["tx"] for t in told.more["transactions"]] == [tx(2).hex()]


def test_what_happened_before_or_may_have_is_not_waited_for() -> None:
    """A second record of a transaction that was committed is skipped, too."""
    outcomes = Outcomes(keep=2)
    for n in (1, 2, 3):
        outcomes.add(tx(n), n)
    kept = Discards(outcomes, Ledger())
    kept.left(tx(3), 1, 7, 0, "fenced")
    kept.left(tx(1), 1, 8, 0, "fenced")
    assert not kept


@pytest.mark.feature("Q4")
def test_ids_waited_for_are_bounded_and_all_of_them_are_named() -> None:
    """In as many events as it takes: an event is short."""
    kept = Discards(Outcomes(), Ledger())
    for n in range(KEEP + 5):
        kept.left(tx(n), 1, n, 0, "fenced")
    for n in range(KEEP + 5, 2 * KEEP):
        kept.left(tx(n), 2, n, 0, "fenced")
    told = list(kept.certain(10, 10, 2))
    assert all(e.more["count"] == len(e.more["transactions"]) <= ITEMS for e in told)
    assert [t["tx"] for e in told for t in e.more["transactions"]] == [tx(n).hex() for n in range(KEEP)]
    assert not kept


def told_after(core: Core, ms: int) -> list[Tell]:
    effects: list[fx.Effect] = []
    for _ in range(max(1, ms // 20)):
        effects += core.step(ev.Ticked(), after_ms=20)
    return [e for e in effects if isinstance(e, Tell) and e.kind is DISCARDED]


@pytest.mark.feature("P7", "O2")
@pytest.mark.parametrize(
    ("before", "now", "cause"),
    [
        (DEFINED, ENABLED, "B enabled its definition"),
        ("", ENABLED, "B enabled its definition"),
        (ENABLED, DISABLED, "B disabled it"),
        (ENABLED, ENABLED, "an operator's command"),
        ("", DEFINED, "an operator's command"),
        ("", "", "an operator's command"),
    ],
)
def test_a_move_says_which_node_has_asked_for_it_by_a_definition(before: str, now: str, cause: str) -> None:
    def said(what: str) -> dict[str, PartitionDefinition]:
        return {"B": PartitionDefinition(("B", "A"), 1, what)} if what else {}

    moving = table(definitions=said(now), target=Target(("B", "A"), 1))
    (told,) = migration_asked(table(definitions=said(before)), moving)
    assert (told.kind, told.cause) == (MIGRATION, cause)


@pytest.mark.feature("P12", "O2")
@pytest.mark.parametrize(
    ("before", "told"),
    [
        ({}, [MIGRATION, MIGRATED]),
        ({"target": Target(("C",), 0)}, [MIGRATION, MIGRATED]),
        ({"target": Target(("B", "A"), 1)}, [MIGRATED]),
        ({"configured": ("B", "A")}, []),
    ],
)
def test_where_another_site_serves_it_a_move_is_over_with_the_wish(before: dict[str, Any], told: list[Kind]) -> None:
    """No node of this site does a step of it, so whoever asks tells the end, too, and nodes do not."""
    was = table(**{"configured": ("A", "B"), "sync_replicas": 1, "owner": "west", **before})
    now = table(configured=("B", "A"), sync_replicas=1, owner="west")
    assert [t.kind for t in migration_asked(was, now)] == told
    assert all(t.logged for t in told_by(A, frozenset({A, B}), was, now, ()))


@pytest.mark.feature("P12", "O2")
def test_nodes_tell_their_log_files_of_a_wish_and_the_history_of_its_end() -> None:
    moves, is_there = table(target=Target(("B", "A"), 1)), table(configured=("B", "A"))
    told = [*told_by(A, frozenset({A, B}), table(), moves, ()), *told_by(B, frozenset({B}), moves, is_there, ())]
    assert [(t.kind, t.logged) for t in told] == [(MIGRATION, True), (MIGRATED, False)]
