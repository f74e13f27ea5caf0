"""Requests while another site takes over, and answers that were lost on the line: one history, and each commit once."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from halog.adapters.memory import Attempt
from halog.backend import Work
from halog.errors import OutcomeUnknownError, PartitionUnavailableError, SwitchedError, UnreachableError
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
from tests.unit.requests import asks
from tests.unit.sites.asking import NAMES, demote, note, promote, rename
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_switching import switching
from tests.unit.sites.two import east, fly, heads, level, west

pytestmark = pytest.mark.feature("M5", "R5")
__all__ = ["east", "west"]


# --- another site takes over ---


def test_requests_follow_the_site_that_serves(west: Cluster, east: Cluster) -> None:
    """There and back, with clients of both sites that never reconnect."""
    west.see(east)
    clients: tuple[Any, Any] = west.client(), east.client()
    fly(west, 1)
    for site in (east, west, east):
        promote(site)
        for client in clients:
            text = f"{site.site} {client.runtime.name}"
            wait_until(partial(_renamed, client, 1, text), "it is served again")
            assert note(clients[0], 1) == note(clients[1], 1) == text
    level(west, east)


def _renamed(node: Any, number: int, text: str) -> bool:
    try:
        rename(node, number, text)
    except SwitchedError:
        return False
    return True


@pytest.mark.parametrize("who", ["client of the west", "client of the east", "node that takes over"])
def test_a_transaction_that_began_before_a_take_over_is_run_again(west: Cluster, east: Cluster, who: str) -> None:
    west.see(east)
    fly(west, 1)
    node: Any = west.client() if "west" in who else east.client()
    serves = "east" if "west" in who else ""
    if "node" in who:
        active = west.partition_of(Flight, 1)
        node = east.node(east.names[0])
    with pytest.raises(SwitchedError, match="run the transaction again"), node.transaction() as tx:
        tx.get(Flight, 1).note = "old"
        promote(east)
        if "node" in who and not node.runtime.is_active(active):
            node.runtime.operators.hand_over(active, node.runtime.name)
            wait_until(lambda: node.runtime.is_active(active), "it is active itself")
        wait_until(lambda: _sees(node, serves), "it knows")
    assert note(node, 1) == ""
    rename(node, 1, "new")
    level(west, east)


def _sees(client: Any, owner: str) -> bool:
    return {client.runtime.router.site_of(n) for n in NAMES} == {owner}


def test_a_transaction_over_partitions_that_are_switching_waits_for_the_last_of_them(
    west: Cluster, east: Cluster
) -> None:
    """They are switched one by one. Who comes in between meets two sites, for a moment."""
    west.see(east)
    fly(west, 1)
    level(west, east)
    client: Any = east.client()
    numbers = [next(n for n in range(10, 99) if east.partition_of(Flight, n) == name) for name in NAMES]
    switching(east).promote(NAMES[:1])
    wait_until(lambda: client.runtime.router.site_of(NAMES[0]) == "", "the client knows")
    later = threading.Timer(0.3, lambda: switching(east).promote(NAMES[1:]))
    later.start()
    try:
        client.transactional(retries=3)(lambda: [client.create(Flight(n)) for n in numbers])()
    finally:
        later.join()
    assert note(client, numbers[0]) == ""


def test_one_that_has_read_while_they_switched_is_run_again(west: Cluster, east: Cluster) -> None:
    """What it has read at one site, and what it has read at the other, are of two moments."""
    west.see(east)
    numbers = [next(n for n in range(10, 99) if east.partition_of(Flight, n) == name) for name in NAMES]
    fly(west, *numbers)
    client: Any = east.client()
    switching(east).promote(NAMES[:1])
    wait_until(lambda: client.runtime.router.site_of(NAMES[0]) == "", "the client knows")
    later = threading.Timer(0.3, lambda: switching(east).promote(NAMES[1:]))
    with pytest.raises(SwitchedError, match="run the transaction again"), client.transaction() as tx:
        for number in numbers:
            tx.get(Flight, number).note = "both"
        later.start()
    later.join()
    client.transactional(retries=50)(lambda: [setattr(client.get(Flight, n), "note", "new") for n in numbers])()
    assert {note(client, n) for n in numbers} == {"new"}


def test_what_was_read_in_one_history_changes_nothing_in_another(west: Cluster, east: Cluster) -> None:
    """Both sites have gone on, and the same version is another state at each: a transaction that read the one must not
    commit over the other, though the version it names is there."""
    west.see(east)
    fly(west, 1)
    level(west, east)
    east.cut()
    promote(east, may_fork=True)
    client = west.client()
    there = east.client()
    rename(there, 1, "east")
    partition = west.partition_of(Flight, 1)
    while heads(west)[partition][0] < heads(east)[partition][0]:
        rename(client, 1, f"west {heads(west)[partition][0]}")
    assert heads(west)[partition][0] == heads(east)[partition][0], "the object has the same version at both"
    east.mend()
    with pytest.raises(SwitchedError), client.transaction() as tx:
        assert tx.get(Flight, 1).note.startswith("west")
        tx.get(Flight, 1).note = "over it"
        demote(west, "east")
        wait_until(lambda: _sees(client, "east"), "it knows")
    assert note(client, 1) == note(there, 1) == "east"


def test_reads_of_two_histories_are_no_snapshot(west: Cluster, east: Cluster) -> None:
    west.see(east)
    one = 0
    other = next(n for n in range(1, 100) if west.partition_of(Flight, n) == west.partition_of(Flight, one))
    fly(west, one, other)
    client = west.client()
    with pytest.raises(SwitchedError), client.transaction() as tx:
        tx.get(Flight, one)
        promote(east)
        wait_until(lambda: _sees(client, "east"), "it knows")
        tx.get(Flight, other)


# --- in the middle of a request ---


def _lose_answers(client: Any, then: Any) -> None:
    """Commits arrive, and nobody hears what became of them; `then` happens behind the first."""

    def lost(attempt: Attempt[bytes]) -> bytes:
        attempt.land()
        then()
        address = attempt.about.address
        raise UnreachableError(f"{address} broke the connection", address=address, sent=True)

    client.runtime.router.channel.faults.add("request", lost, asks(frames.Submit), times=1)


def test_an_answer_that_was_lost_on_the_line_is_asked_for_again(west: Cluster, east: Cluster) -> None:
    """By its id: it happens once."""
    fly(west, 1)
    client = east.client()
    _lose_answers(client, lambda: None)
    rename(client, 1, "once")
    partition = west.partition_of(Flight, 1)
    assert note(client, 1) == "once"
    assert heads(west)[partition][0] == _version(client, 1), "nothing was written behind it"


def _version(client: Any, number: int) -> int:
    info = registry.info(Flight)
    (found,) = client.runtime.fetch(
        client.runtime.partition_of(info.name, info.routing_key((number,))), [info.index_key((number,))]
    )
    return int(found.version)


def test_a_commit_that_a_take_over_left_without_an_answer_is_unknown(west: Cluster, east: Cluster) -> None:
    """It is not presented to the other history; whether it happened its id tells."""
    west.see(east)
    fly(west, 1)
    client: Any = east.client()

    def taken_over() -> None:
        promote(east)
        wait_until(lambda: _sees(client, ""), "it knows")

    _lose_answers(client, taken_over)
    with pytest.raises(OutcomeUnknownError) as caught:
        rename(client, 1, "perhaps")
    tx, partition = bytes.fromhex(caught.value.evidence["tx"]), caught.value.evidence["partition"]
    assert client.runtime.operators.outcome(partition, tx, 0) == "happened"
    assert note(client, 1) == "perhaps"


def test_nor_is_one_that_rests_on_nothing_presented_at_both(west: Cluster, east: Cluster) -> None:
    """A load's, which may go to any site: what the second one answers says nothing of the first."""
    west.see(east)
    client: Any = east.client()
    partition = west.partition_of(Flight, 1)
    before = heads(west)[partition][0]

    def taken_over() -> None:
        promote(east)
        wait_until(lambda: _sees(client, ""), "it knows")

    _lose_answers(client, taken_over)
    with pytest.raises(OutcomeUnknownError):
        client.runtime.commit(partition, client.runtime.new_transaction_id(), Work((), ()))
    level(west, east)
    assert heads(west)[partition][0] == before + 3, "the commit, the end of its epoch, and the next one's opening"


def test_a_cut_in_the_middle_of_a_commit_is_unknown_when_its_time_is_up(west: Cluster, east: Cluster) -> None:
    fly(west, 1)
    client: Any = east.client()
    client.runtime.asker.call_s = 1.0
    _lose_answers(client, east.cut)
    with pytest.raises(OutcomeUnknownError):
        rename(client, 1, "arrived")
    with pytest.raises(PartitionUnavailableError, match="served by site west"):
        note(client, 1)
    assert note(west.client(), 1) == "arrived"
