"""Histories in which requests to commit are late: given up, asked again, and then they arrive (R5, decision 4). Clients
believe no refusal that such a one may overtake, and copies are asked for one epoch only, as `halog.runtime` does it.

They are histories of their own, from 7 * 2^20 on, and what is late is drawn from chances of its own: no other history
is changed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from halog.core import events as ev, results as res
from halog.core.ids import ABSENT

if TYPE_CHECKING:
    from tests.sim.client import Client, Request, Transaction
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range(7 << 20, 8 << 20)
LIKELY, LATE_MS, IMPATIENT_MS = 0.35, 450.0, 10.0
"""How likely a request is under way on a connection of its own, behind no other, for how long at most, and how soon it
is asked again."""


def given(seed: int) -> bool:
    """Are requests late in this history?"""
    return seed in SEEDS


def is_restless(seed: int) -> bool:
    """Do epochs end all the time in it? In the others they last, and what is in a request's way is not for long."""
    return given(seed) and seed % 2 == 0


def deletes(seed: int) -> float:
    """How many changes are that; 0.0: as many as usual."""
    return 0.5 if given(seed) and not is_restless(seed) else 0.0


def chances(seed: int, client: str) -> random.Random | None:
    """What of a client's requests is late is drawn from these; None: nothing is."""
    return random.Random(f"{seed}/{client}/late") if given(seed) else None


def sent(client: Client, target: Process, request: ev.Submitted, epoch: int) -> bool:
    """Is it under way for long? Then it is sent here."""
    if client.slow is None or client.world.healed or client.slow.random() >= LIKELY:
        return False
    client.world.engine.at(client.slow.random() * LATE_MS, _arrives, client, target, request, epoch)
    return True


def _arrives(client: Client, target: Process, request: ev.Submitted, epoch: int) -> None:
    if request.token != client.world.requests[request.token].tx.token:
        client.world.cover.hit("a request arrived late")
    target.submit(request, epoch)


def rests(client: Client, tx: Transaction) -> float:
    """How long a client does nothing once it was told that what may be late did not happen, or nothing more of it; so
    that nothing else is in its way when it arrives. 0: no longer than usual."""
    if client.slow is None or not tx.out or tx.happened is not None or client.world.healed:
        return 0.0
    return LATE_MS * client.slow.random()


def asks(client: Client) -> bool:
    """Does it ask what became of it, rather than present it again?"""
    return client.slow is not None and is_restless(client.world.seed) and client.slow.random() < 0.3


def prepare(world: World, length: float) -> float:
    """Epochs that end while the same node is active again soon; how much longer such a history takes."""
    if not given(world.seed):
        return 0.0
    for _ in range(world.operator.randint(5, 10) if is_restless(world.seed) else 0):
        world.engine.at(60.0 + world.operator.random() * length, world.operator.choice((_to_and_fro, _anew)), world)
    return LATE_MS


def _anew(world: World) -> None:
    """The active's producer fails; it may be elected again."""
    p = world.active()
    if p is not None and p.session is not None:
        p.session.fail("the producer failed")


def _to_and_fro(world: World) -> None:
    """The active hands over, and is handed back to."""
    p = world.active()
    others = [] if p is None else [r.node for r in p.partition.state.table.replicas]
    if p is not None and others:
        p.deliver(ev.HandOverAsked(world.hand_over_token(), world.operator.choice(others)))
        world.engine.at(world.operator.uniform(10.0, 60.0), _back, world, p.name)


def _back(world: World, to: str) -> None:
    p = world.active()
    if p is not None and p.name != to:
        world.cover.hit("handed over and back")
        p.deliver(ev.HandOverAsked(world.hand_over_token(), to))


def exactly(request: ev.Submitted, client: Client, epoch: int) -> ev.Submitted:
    """The request as `halog.runtime.node.request_server` hands it over, in these histories."""
    return request if client.slow is None else msgspec.structs.replace(request, epoch=epoch, exact=True)


def is_anothers(p: Process, request: ev.Submitted | ev.PrepareAsked, epoch: int) -> bool:
    """Is the request for another epoch than the one that `p` leads? Of what is exact the core says so itself."""
    exact = isinstance(request, ev.Submitted) and request.exact
    return not exact and p.partition.leading is not None and p.partition.state.chain.state.led != epoch


def may_be_overtaken(request: Request, result: res.Result) -> bool:
    """Is it no refusal, since an earlier request may still arrive in its epoch, and find nothing in its way?"""
    for_good = isinstance(result, res.OversizedRecord) or (
        isinstance(result, res.VersionConflict) and result.expected != ABSENT
    )
    return not request.asked and request.tx.out >= request.epoch > 0 and not for_good


def asks_under(tx: Transaction) -> int:
    """The epoch under which it is asked what became of it: the highest that a request was sent for."""
    return tx.attempt
