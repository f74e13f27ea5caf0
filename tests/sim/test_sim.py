"""The seeds of every `make check`, what they must have met, and the seeds that once found something."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from halog.core.roles import TRANSITIONS
from halog.core.table import states as life, zones as core_zones
from tests.sim import (
    bank,
    counts,
    late,
    leases,
    lives,
    market,
    moves,
    outages,
    parted,
    patient,
    pushed_store,
    reader,
    rough,
    shop,
    silences,
    stills,
    stopping,
    upgrading,
    zones,
)
from tests.sim.abroad import pair, takeover, waiting
from tests.sim.coverage import edge_name
from tests.sim.run import run_seed, run_seeds
from tests.sim.world import is_grouped

pytestmark = pytest.mark.timeout(400)
"""The first test plays them all: half a minute of a core that others use, too."""

SEEDS = 330

STOPPED = 40
"""Histories in which copies stop and are opened again (R6)."""

PUSHED = 60
UPGRADES = 60
"""Histories in which replicas store what they are pushed (R6)."""

ROUGH = 60
"""Rougher ones of these, of their own."""

STILLS = 100
"""Histories in which transactions read whole moments (R5); likewise."""

MOVED = 150
"""Histories in which operators move the partition (P12); they are histories of their own."""

LIVES = 100
"""Histories in which nodes define and disable it, and replicas are copied anew (P7, P12), as many with a quorum."""

LATE = 100
"""Histories in which requests are late (R5); likewise."""

OUTAGES = 60
"""Histories in which the log and the coordinator go away (W1, W4); likewise."""

TWICE = 30
"""Histories in which the log goes twice, and the coordinator in between (W1); likewise."""

SILENCES = 50
"""Histories in which a replica falls silent behind a log that is slow, or away (R4); likewise."""

PARTED = 50
"""Histories in which nodes only lose each other (R4); likewise."""

BANKS = 150
"""Histories over several partitions (D4, D5); they are histories of their own, too."""

PATIENT = 60
"""Those of tellers that say that they live (D5); likewise."""

SHOPS = 60
"""Histories in which a mapping changes (P6, P13); likewise."""

MARKETS = 40
"""Histories of objects that have entries in a key directory (P6); likewise."""

SITES = 107
"""Histories of two sites that part and are merged (M1, M2, M5); likewise. In every fourth sites go on by themselves."""

WAITING = 60
"""More of those in which commits wait for the other site (M5, R6)."""

VOTING = 60
"""Those in which sites go on by themselves (Q1, M5)."""

RARE_SITES = [110, 224, 242, 311, 555, 1955, 2163, 3239, 3431, 3471, 16123]
"""In which two sites part once more, merges die at other steps, or a node ends a switch whose command died; likewise
rare. In 2163, 3239 and 3471 a site is asked to serve again before it knows that it was taken over from; in 1955 its own
vote was claimed right before the line was cut; in 3431 it is with a site that is lost for good. In 311 a site takes
over that has just given its log away; in 16123 one that was stopped answers behind a planned switch."""

RARE_BANKS = [2_097_407, 2_097_517, 2_097_611]
"""Their first partition had decided otherwise; look for new ones when the world's chances change."""

DOZENS = [shop.SEEDS[158], market.SEEDS[126], patient.SEEDS[235]]
"""Of dozens of partitions (`tests.sim.counts`): a shop, a market, and a bank of tellers that say that they live; others
of banks are among the first."""

RARE_SEEDS = [
    700,
    913,
    2792,  # verifying: epoch ended
    560,
    595,
    2221,  # electing: handed over to me
    1024,
    1415,
    2180,  # draining: epoch ended
    642,
    1091,
    1431,  # draining: call off
]
"""Seeds that take an edge the first ones may miss; look for new ones when the world's chances change."""

ONCE_FAILED = [
    8,  # a node whose own epoch had ended stood back for ever for one that saw no reason to stand
    33,  # two nodes with equal incarnations claimed one epoch id, and both served
    2294,  # (of a check) S3 counted what a replica had told an asker as acknowledged
    318,  # a repeated transaction was answered with the next one's lsn
    797,  # the same
    753,  # entries fetched before StopReading were taken by the active
    798,  # the same: its own record was applied twice
    14313,  # (of a check) what a replica kept of an epoch that is void did not count as held (E6)
    11456,  # (of the simulation) a process went on in its epoch under a new producer session
    867,  # pushes behind a hole were told as held when the log filled it, though the position had been told meanwhile
    4961,  # the same
    25226,  # a znode put back to an older epoch named an active that refused commits for ever
    420,
    621,
    4156,
    6256,
    19325,
    20116,  # while commits learned not to wait for the log
    2602,  # an id that was forgotten was said to have been refused, and had happened
    1052092,  # what a transaction had asked a replica to flush was dropped with its copy, and then acknowledged
    4194584,  # what a copy that was dropped had acknowledged came late, and counted for the new one
    6295385,  # a site whose log was fenced by a takeover that came to nothing stopped mirroring until the next commit
    6292095,  # votes that a planned switch left behind, with the line cut, stopped the site that it had made serve
    6292311,  # a site whose votes nobody had ever asked for did not ask others for theirs, and took nothing over
    14156421,  # an epoch that only the log showed was given up unseen, and the next one claimed while the log was away
    13389,  # a znode put back named nobody who held what the log lacked: it was lost, and nobody was told
    6297143,  # a site whose votes had come over the line, and nothing of the log, took over and began another history
]
"""They replay the same history only while the world draws its chances in the same order: bugs have unit tests too."""

INTERESTING = [
    "elections",
    "fenced by gap",
    "deposed by the znode",
    "verifying: gap is dead",
    "verifying: deposed",
    "zombie woke up deposed",
    "append landed after its session ended",
    "appends held",
    "acknowledgement lost",
    "appends acknowledged together",
    "read together",
    "producer session lost",
    "coordinator session lost",
    "coordinator restored from a backup",
    "set unknown, landed",
    "set unknown, never landed",
    "sync set grown",
    "sync set shrunk",
    "hand-over Success",
    "hand-over Refusal",
    "hand-over Unknown",
    "hand-over InactiveCopy",
    "draining: call off",
    "silent replica left",
    "a dead epoch's record landed again",
    "answered before the log, as asked",
    "answered early and lost",
    "flushed as asked",
    "answer Refusal",
    "answer Shortage of replicas",
    "shown before logged",
    "appended again",
    "log away",
    "heir killed",
    "waits for holders",
    "unlogged lost",
    "shown by a replica before its log had it",
    "told what is shown without a record",
    "read at a replica before its log had it",
    "a session need not wait for the log",
    "a session waits for a copy",
    "tail left on the disk",
    "tail brought along",
    "holder stopped",
    "pushed records stored",
    "stands for itself",
    "stands for itself no more",
    "stands for one before",
    "power lost",
    "power lost, kept more",
    "all crash",
    "claimant killed",
    "stored, then acknowledged",
    "held before read",
    "push refused",
    "held forgotten",
    "a dead epoch's push arrived",
    "restarts warm",
    "restarts empty",
    "died for good",
    "client asked again",
    "answer Shortage",
    "acknowledged by a quorum",
    "group changed",
    "no quorum",
    "override for a while",
    "override taken out",
    "an override is over where nobody can take it out",
    "told under a lease",
    "active cut off",
    "handed over under a lease",
    "heir killed under a lease",
    "lease awaited",
    "offline",
    "restored behind another active",
    "quorum switched off",
    "quorum switched on",
    "barrier Success",
    "barrier InactiveCopy",
    "a plain read would be old",
    "answer VersionConflict",
    "answer DuplicateKey",
    "answer Abort",
    "answer ExpiredId",
    "migration wished",
    "migrated",
    "migration refused",
    "placed anew",
    "copy dropped",
    "a node left",
    "a quorum's group changed",
    "enables",
    "disables",
    "disabled on its only node",
    "replication forced",
    "copied anew",
    "went out of a quorum",
    *(f"{kind}: {many}" for kind in ("bank", "shop", "market") for many in counts.TOLD),
    "patient: one partition",
    "patient: dozens of partitions",
    "bank: spread True",
    "bank: spread False",
    "bank: within True",
    "bank: audit True",
    "bank: audit False",
    "bank: initiator died preparing",
    "bank: initiator died deciding",
    "bank: asked the first partition",
    "bank: first partition said Success",
    "bank: first partition said OppositeDecision",
    "bank: vote VersionConflict",
    "bank: vote LockConflict",
    "bank: single LockConflict",
    "bank: outcome behind the horizon",
    "bank: snapshot with somebody in doubt",
    "bank: a lost vote told",
    "shop: a change is turned back",
    "shop: a look-up is refused",
    "shop: single StaleMapping",
    "shop: vote StaleMapping",
    "shop: move False",
    "shop: move None",
    "shop: come and go True",
    "shop: race False",
    "market: a partition is emptied",
    "market: a change is turned back",
    "market: not where its entry says",
    "market: move False",
    "market: come and go True",
    "market: race False",
    "market: vote DuplicateKey",
    "sites: line cut",
    "sites: line cut one way",
    "sites: line slow",
    "sites: line flaps",
    "sites: a site died",
    "sites: parted told",
    "sites: both sites say that they have parted",
    "sites: parted more than once",
    "sites: a node that started found another site serving",
    "sites: deferred",
    "sites: conflict: instance added",
    "sites: conflict: key conflict",
    "sites: conflict: state conflict",
    "sites: conflict: delete update",
    "sites: conflict: update delete",
    "sites: restore failed: RefusedError",
    "sites: told, and the other site has it",
    "sites: told without the other site",
    "sites: answer Shortage of sites",
    "sites: a site is lost for good",
    "sites: lacks nothing",
    "sites: taken over, and something may be lacking",
    "sites: let-go done",
    "sites: let-go failed: RefusedError",
    "sites: sync site away",
    "sites: sync site back",
    "sites: votes claimed",
    "sites: taken over from a site",
    "sites: given up to a site",
    "sites: a site was stopped",
    "sites: no quorum of sites",
    "sites: quorum of sites",
    "sites: answer Shortage of votes",
    "sites: sites that vote are one by themselves",
    "sites: sites that vote have parted",
    "sites: unfinished switch ended",
    "sites: an overruled site still sends",
    "sites: promote done",
    "sites: promote failed: UnreachableError",
    "sites: demote done",
    "sites: undo done",
    "still: begins while objects change",
    "still: shown what was",
    "still: told that it is over",
    "still: waits",
    "log outage",
    "log takes nothing",
    "log asked",
    "coordinator outage",
    "claimed by an answer of before",
    "log answers: quick",
    "log answers: slow",
    "log answers: changing",
    "log went behind its answer",
    "acknowledged behind its epoch",
    "copy stopped",
    "copy reads nothing",
    "silent replica found behind a slow log",
    "line cut, a third node reaches both",
    "active cut off from its quorum",
    "line cut",
    "line refuses",
    "challenge answered",
    "died behind the cut",
    "stopped behind the cut",
    "a request arrived late",
    "handed over and back",
    "answer VersionConflict of what may still arrive",
    "answer DuplicateKey of what may still arrive",
    "answer Shortage of what may still arrive",
    "added",
    "removed",
    "too few replicas",
    "transfer requested",
    "discarded transactions",
]


LIFE = [
    f"{state.value}, {happening}" for state, ways in life.TRANSITIONS.items() for happening in ways if state is not None
]
"""Every row; `define` is what a state begins with."""

KINDS = ("", "shop: ", "market: ")
"""Histories in which states are kept. Only in the latter two do objects change partition (Updating)."""


ZONE = [f"{state.value}, {happening}" for state, ways in core_zones.TRANSITIONS.items() for happening in ways]


@pytest.fixture(scope="module")
def seen() -> Counter[str]:
    """Everything the check run's seeds met; a broken promise stops the run with the line that replays it."""
    counts: Counter[str] = Counter()
    grouped = [n for n in range(SEEDS, 4 * SEEDS) if is_grouped(n)]
    read = [n for n in range(SEEDS, 4 * SEEDS) if n in reader.SEEDS or n in leases.SEEDS]
    zoned = [n for n in range(SEEDS, 8 * SEEDS) if n in zones.SEEDS]
    moved = moves.SEEDS[:MOVED]
    banks = [*bank.SEEDS[:BANKS], *RARE_BANKS, *DOZENS, *shop.SEEDS[:SHOPS], *market.SEEDS[:MARKETS]]
    lived = [*lives.SEEDS[:LIVES], *[n for n in lives.SEEDS[: 11 * LIVES] if is_grouped(n)]]
    sites = [pair.SEEDS[n] for n in (*range(SITES), *RARE_SITES)]
    stopped = stopping.SEEDS[:STOPPED]
    belated = [*outages.SEEDS[:OUTAGES], *parted.SEEDS[:PARTED], *patient.SEEDS[:PATIENT]]
    belated += [
        *outages.TWICE[:TWICE],
        *silences.SEEDS[:SILENCES],
        *[n for n in parted.SEEDS[: 8 * PARTED] if is_grouped(n)],
    ]
    belated += [*late.SEEDS[:LATE], *pushed_store.SEEDS[:PUSHED], *rough.SEEDS[:ROUGH], *stills.SEEDS[:STILLS]]
    belated += upgrading.SEEDS[:UPGRADES]
    sites += [*waiting.SEEDS[:WAITING], *takeover.SEEDS[:VOTING]]
    seeds = dict.fromkeys(
        [*range(SEEDS), *RARE_SEEDS, *grouped, *read, *zoned, *moved, *stopped, *belated, *banks, *lived, *sites]
    )
    # In one process it would be at it when all other tests are done, and leave all cores but one idle.
    for outcome in run_seeds(seeds, os.cpu_count() or 1):
        assert not outcome.failure, f"{outcome.failure}\n  python -m tests.sim.run --seed {outcome.seed} -v"
        counts.update(outcome.counts)
    return counts


@pytest.mark.feature("P1", "P10", "R1")
def test_no_promise_is_broken_in_any_seed(seen: Counter[str]) -> None:
    assert seen["elections"] > SEEDS


@pytest.mark.feature("R6", "P1")
def test_what_replicas_stored_outlives_all_processes(seen: Counter[str]) -> None:
    """Nothing that was acknowledged may be lost in these, unless a disk was, or a node for good."""
    assert seen["stands for one before"] > PUSHED // 3 + ROUGH
    assert seen["power lost"] > PUSHED // 10
    assert seen["claimant killed"] > ROUGH // 10


@pytest.mark.feature("U1")
def test_nothing_of_a_level_is_written_before_the_log_states_it(seen: Counter[str]) -> None:
    """It is judged in each history (`tests.sim.upgrading`), and that all may go back until then."""
    assert seen["records of the higher level"] > UPGRADES
    assert seen["all went back"] > UPGRADES // 20
    assert seen["level put back"] > UPGRADES // 20


@pytest.mark.feature("P12")
def test_partitions_move_through_every_fault(seen: Counter[str]) -> None:
    assert seen["migrated"] > MOVED


@pytest.mark.feature("R4", "R5")
def test_requests_that_are_late_are_done_in_their_epoch_or_not_at_all(seen: Counter[str]) -> None:
    assert seen["a request arrived late"] > 3 * LATE


@pytest.mark.feature("R5")
def test_transactions_see_whole_moments_of_a_copy_that_changes(seen: Counter[str]) -> None:
    assert seen["still: whole"] > 50 * STILLS


@pytest.mark.feature("R4", "P10")
def test_nobody_claims_epoch_after_epoch_while_the_log_is_away(seen: Counter[str]) -> None:
    """And somebody serves at once when it is back; both are judged in each history (`tests.sim.outages`)."""
    assert seen["log outage"] > OUTAGES // 2
    assert seen["log back, nobody was active"] > OUTAGES // 6


@pytest.mark.feature("R4")
def test_a_silent_replica_is_found_and_no_other_leaves_however_slow_the_log(seen: Counter[str]) -> None:
    """Both are judged in each history (`tests.sim.silences`)."""
    assert seen["silent replica found"] > SILENCES * 4 // 5
    assert seen["silent replica found behind a slow log"] > SILENCES // 3


@pytest.mark.feature("P7", "P8", "P12")
def test_replicas_are_copied_anew_through_every_fault(seen: Counter[str]) -> None:
    assert seen["copied anew"] > LIVES / 4


@pytest.mark.feature("P8")
@pytest.mark.parametrize("row", LIFE)
def test_every_row_of_the_state_table_is_taken(seen: Counter[str], row: str) -> None:
    """By a node of a partition whose operators move it, or of one of several between which objects move."""
    assert any(seen[f"{kind}life: {row}"] for kind in KINDS)


@pytest.mark.feature("P8", "P13")
def test_a_partition_is_active_again_once_its_objects_have_gone(seen: Counter[str]) -> None:
    """Looked at while the active has nothing left that belongs elsewhere."""
    assert seen["shop: active again, and clean"] > SHOPS
    assert seen["market: active again, and clean"] > MARKETS


@pytest.mark.feature("Q1")
@pytest.mark.parametrize("row", ZONE)
def test_every_row_of_the_node_quorum_is_taken(seen: Counter[str], row: str) -> None:
    assert seen[f"zone: {row}"]


@pytest.mark.feature("D4", "D5")
def test_money_is_conserved_through_every_fault(seen: Counter[str]) -> None:
    assert seen["bank: spread True"] > BANKS


@pytest.mark.feature("D4", "D5")
def test_a_living_initiator_is_not_doubted_and_believes_an_abort(seen: Counter[str]) -> None:
    assert seen["patient: vote again Success"] > PATIENT
    assert seen["patient: vote again OppositeDecision"] > PATIENT // 20
    assert seen["patient: a long wait, and committed"] > PATIENT // 10


@pytest.mark.feature("P6", "P13")
def test_goods_are_neither_lost_nor_doubled_nor_missed_while_they_move(seen: Counter[str]) -> None:
    assert seen["shop: a change is done"] > SHOPS
    assert seen["shop: move True"] > SHOPS // 2


@pytest.mark.feature("P6", "P13")
def test_objects_and_their_entries_agree_through_every_fault(seen: Counter[str]) -> None:
    assert seen["market: update True"] > 2 * MARKETS
    assert seen["market: move True"] > MARKETS


@pytest.mark.feature("M1", "M2", "M3")
def test_two_sites_are_made_one_through_every_fault(seen: Counter[str]) -> None:
    """And what was merged can be undone. Each history is judged by `tests.sim.abroad.accounts`."""
    assert seen["sites: merged"] > SITES // 4
    assert seen["sites: undone"]


@pytest.mark.feature("M5", "R6")
def test_what_waited_for_the_other_site_is_there_through_every_fault(seen: Counter[str]) -> None:
    """Each acknowledgement is judged by `tests.sim.abroad.waiting`; in some histories a whole site never comes back."""
    assert seen["sites: told, and the other site has it"] > 3 * WAITING
    assert seen["sites: a site is lost for good"] > WAITING // 6
    assert seen["sites: lacks nothing"] > WAITING // 20


@pytest.mark.feature("Q1", "M5")
def test_sites_go_on_by_themselves_through_every_fault(seen: Counter[str]) -> None:
    """Each acknowledgement is judged by `tests.sim.abroad.takeover`: no two sites answer in turns, and one does."""
    assert seen["sites: told with the votes"] > 10 * VOTING
    assert seen["sites: the other site answers"] > VOTING // 6
    assert seen["sites: alone at the end, and goes on"] > VOTING // 4


@pytest.mark.feature("M2", "M5")
@pytest.mark.parametrize("what", ["merge", "line", "restore", "promote", "promote --may-fork"])
def test_whoever_is_at_it_dies_at_many_steps(seen: Counter[str], what: str) -> None:
    """Nodes that merge, or give their log away, and operators' commands."""
    steps = {name for name in seen if name.startswith(f"sites: {what} killed at ")}
    assert len(steps) >= 3, steps


@pytest.mark.parametrize(
    "edge",
    [edge_name(role, h) for role, ways in TRANSITIONS.items() for h in ways if h != "lost"],
)
def test_every_edge_of_the_role_table_is_taken(seen: Counter[str], edge: str) -> None:
    """But for `lost`: this world loses no log (unit tests take those edges)."""
    assert seen[edge]


@pytest.mark.parametrize("what", INTERESTING)
def test_every_interesting_thing_is_met(seen: Counter[str], what: str) -> None:
    assert seen[what]


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_seeds_that_once_failed_pass(seed: int) -> None:
    assert run_seed(seed).failure == ""


@pytest.mark.parametrize("seed", [5, late.SEEDS[6], pair.SEEDS[6], waiting.SEEDS[6], takeover.SEEDS[6]])
def test_a_seed_replays_the_same_history(seed: int) -> None:
    first, again = run_seed(seed), run_seed(seed)
    assert (first.events, first.counts) == (again.events, again.counts)
