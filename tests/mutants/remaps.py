"""Mutants of a mapping that changes (T8). Only the histories of a shop can notice."""

from __future__ import annotations

from typing import Any

import msgspec

from halog.core import effects as fx, events as ev, results as res
from halog.core.commit.participant import Participant
from halog.core.keys.mapping import Place, PolicyMapping
from halog.core.log import records
from halog.core.log.transactions import Applied, Ledger
from tests.mutants.registry import mutant, patch
from tests.sim import shop

SEEDS = shop.SEEDS[:2_000]


@mutant("T8", SEEDS)
def what_was_routed_by_an_older_mapping_is_let_in() -> None:
    """Trace 33, of commits and votes."""

    def admits(self: Participant, e: ev.Submitted, now: int, out: list[fx.Effect]) -> bool:
        real(self, e, now, out)
        if out and isinstance(out[-1], fx.Reply) and isinstance(out[-1].result, res.StaleMapping):
            out.pop()
        return True

    real = patch(Participant, "admits", admits)


@mutant("T8", SEEDS)
def a_vote_that_was_routed_by_an_older_mapping_is_let_in() -> None:
    """A create that reserves its key by owners of old."""

    def prepare(self: Participant, e: ev.PrepareAsked, now: int, out: list[fx.Effect]) -> None:
        real(self, msgspec.structs.replace(e, mapping=max(e.mapping, self.writer.mapping)), now, out)

    real = patch(Participant, "prepare", prepare)


@mutant("T8", SEEDS)
def a_partition_forgets_the_change_when_it_fails_over() -> None:
    """Trace 33: `MapperChanged` is in the log, and not in what a reader keeps."""

    def accepted(self: Ledger, record: records.Record, offset: int) -> Applied:
        mapping = self.mapping
        meant = real(self, record, offset)
        if type(record) is records.MapperChanged:
            self.mapping = mapping
        return meant

    real = patch(Ledger, "accepted", accepted)


@mutant("T8", SEEDS)
def the_new_mapping_is_served_before_the_log_says_so() -> None:
    """No `MapperChanged` before the first request by the new mapping."""

    def remap(self: Participant, version: int, token: int, now: int, out: list[fx.Effect]) -> None:
        self.writer.mapping = self.ledger.mapping = max(self.ledger.mapping, version)

    patch(Participant, "remap", remap)


@mutant("T8", SEEDS)
def a_look_up_asks_the_new_owner_first() -> None:
    """Trace 34."""

    def owners(self: Place) -> tuple[str, ...]:
        return (self.partition, self.before) if self.before else (self.partition,)

    patch(Place, "owners", property(owners))


@mutant("T8", SEEDS)
def a_create_looks_at_its_new_owner_only() -> None:
    """It does not keep its key from the old one."""

    def place(key: bytes, mapping: PolicyMapping) -> Place:
        return placed(key, mapping)._replace(before="")

    def created(self: shop.Customer, errand: shop.Errand) -> None:
        keep, shop.place = shop.place, place
        try:
            real(self, errand)
        finally:
            shop.place = keep

    placed = shop.place
    real = patch(shop.Customer, "create", created)


@mutant("T8", SEEDS)
def a_partition_is_clean_though_somebody_is_in_doubt() -> None:
    """Who was routed by an older mapping may still bring an object that belongs elsewhere."""
    patch(Ledger, "older", lambda self, version: 0)


@mutant("T8", SEEDS)
def a_change_is_done_with_the_first_clean_partition() -> None:
    """Objects are left where nobody looks for them."""

    def names(self: PolicyMapping, policy: str) -> tuple[Any, ...]:
        return self.now.partition_names(policy)[:1]

    patch(PolicyMapping, "partition_names", names)


@mutant("P8", SEEDS)
def objects_of_an_only_partition_do_not_go() -> None:
    """Only where a mapping has one partition (`tests.sim.counts`)."""

    def updating(self: PolicyMapping, policy: str) -> tuple[str, ...]:
        return real(self, policy) if len(self.partition_names(policy)) > 1 else ()

    real = patch(PolicyMapping, "updating", updating)


@mutant("T8", SEEDS)
def a_mapping_counts_sixteen_of_its_partitions() -> None:
    """Only where it has more."""

    def names(self: PolicyMapping, policy: str) -> tuple[str, ...]:
        return real(self, policy)[:16]

    real = patch(PolicyMapping, "partition_names", names)
