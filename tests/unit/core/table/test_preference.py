"""Outcomes, the node list and the election's pick, each against a brute-force twin."""

from __future__ import annotations

from hypothesis import given, strategies as st

from halog.core.ids import Member, Position
from halog.core.log.outcomes import Outcomes
from halog.core.table.preference import NEVER, Candidate, pick
from halog.core.table.table import ASYNC, SYNC, PartitionTable, Replica, arrange
from halog.errors import CoordinatorError
from tests.unit.core.kit import table, tx

NAMES = list("ABCDE")
CANDIDATES = st.lists(
    st.builds(
        Candidate,
        st.sampled_from(NAMES),
        st.builds(Position, st.integers(0, 2), st.integers(0, 3)),
        st.integers(0, 3),
        st.booleans(),
    ),
    unique_by=lambda c: c.node,
)


def beats(a: Candidate, b: Candidate, configured: list[str]) -> bool:
    """The rule as a sentence: one that has it all, else more recent, else higher priority, else earlier in the list."""
    if a.holder != b.holder:
        return a.holder
    if a.position != b.position:
        return a.position > b.position
    if a.priority != b.priority:
        return a.priority > b.priority
    return configured.index(a.node) < configured.index(b.node)


@given(CANDIDATES, st.lists(st.sampled_from(NAMES), unique=True))
def test_the_pick_beats_every_other_able_candidate(candidates: list[Candidate], configured: list[str]) -> None:
    able = [c for c in candidates if c.eligible and c.priority != NEVER and c.node in configured]
    picked = pick(candidates, configured)
    winners = [c.node for c in able if all(c is o or beats(c, o, configured) for o in able)]
    assert picked == (winners[0] if winners else None)


def test_a_never_node_is_never_picked() -> None:
    assert pick([Candidate("A", Position(9, 9), NEVER)], ["A"]) is None


@given(
    st.lists(st.sampled_from(NAMES), unique=True),
    st.sampled_from(NAMES),
    st.lists(st.builds(Member, st.sampled_from(NAMES), st.integers(1, 3)), unique_by=lambda m: m.node),
    st.integers(0, 4),
)
def test_the_node_list_is_the_usable_in_configured_order_the_first_of_them_sync(
    configured: list[str], active: str, usable: list[Member], sync: int
) -> None:
    expected: list[Replica] = []
    for name in configured:
        for m in usable:
            if m.node == name and name != active:
                expected.append(Replica(m.node, m.incarnation, SYNC if len(expected) < sync else ASYNC))
    assert list(arrange(configured, active, usable, sync)) == expected


@given(st.lists(st.integers(1, 40), unique=True), st.integers(1, 8))
def test_outcomes_remember_the_newest_and_call_older_ones_expired(numbers: list[int], keep: int) -> None:
    outcomes = Outcomes(keep=keep)
    ids = [n.to_bytes(8, "big") + tx(n)[8:] for n in sorted(numbers)]
    for lsn, id_ in enumerate(ids):
        outcomes.add(id_, lsn)
    for lsn, id_ in enumerate(ids):
        remembered = lsn >= len(ids) - keep
        assert outcomes.get(id_) == (lsn if remembered else None)
        assert outcomes.expired(id_) == (not remembered)


@given(st.lists(st.binary(min_size=16, max_size=16), unique=True), st.integers(1, 5))
def test_an_id_is_never_forgotten_without_being_expired(ids: list[bytes], keep: int) -> None:
    """Whatever the order of stamps: forgotten and "never seen" cannot be confused."""
    outcomes = Outcomes(keep=keep)
    for lsn, id_ in enumerate(ids):
        outcomes.add(id_, lsn)
    assert all(outcomes.get(i) is not None or outcomes.expired(i) for i in ids)
    copy = Outcomes(outcomes.items(), outcomes.horizon, keep)
    assert (copy.items(), copy.horizon) == (outcomes.items(), outcomes.horizon)


def test_a_znode_comes_back_as_it_was_and_nonsense_is_refused() -> None:
    value = table(replicas=(Replica("B", 1, SYNC),), active=Member("A", 7))
    assert PartitionTable.from_bytes(value.to_bytes()) == value
    for junk in (b"", b"{}", b"[1]", b'{"name":"\xff"}', value.to_bytes()[:-1] + b',"index":"first"}'):
        try:
            PartitionTable.from_bytes(junk)
        except CoordinatorError:
            continue
        raise AssertionError(junk)
