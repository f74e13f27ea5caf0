"""Banks whose tellers say that they live (D5): while a participant does not vote, a failover of its own perhaps, those
that have are asked for the same vote again, as `halog.runtime.client.heartbeat` does, well before they doubt anybody.

They are histories of their own. What a participant says then is believed: one that has copied an abort of the first
partition says that nothing happened, and the teller repeats that.
"""

from __future__ import annotations

from halog.core import results as res
from tests.sim.bank import make as make_bank
from tests.sim.bank_world import Bank, Heard
from tests.sim.teller import Deal, Teller

SEEDS = range(10 << 20, 21 << 19)
DOUBT_MS = 150.0
RENEW_MS = DOUBT_MS / 4


AWAY, AWAY_MS = 0.3, 800.0
"""How likely a participant of a deal is reached by nobody for a while, and for how long at most."""
STILL, STILL_MS = 0.5, 500.0
"""How likely whoever waits for one stands still meanwhile, and is doubted."""
LATE, LATE_MS = 0.3, 500.0
"""How likely the last vote is asked for by a request that takes so long, while he who has sent it stands still."""


class Patient(Teller):
    """Drives a deal as long as it lives."""

    def __init__(self, bank: Bank, name: str, *, quota: int) -> None:
        super().__init__(bank, name, quota=quota)
        self._away: dict[tuple[bytes, str], float] = {}
        """Until when a deal does not reach a participant."""
        self._still: dict[bytes, float] = {}
        """Until when nobody says that it lives."""

    def _prepare(self, deal: Deal) -> None:
        now = self.bank.engine.now
        if not deal.step:
            still = 0.0
            if self.rng.random() < AWAY:
                self._away[deal.id, self.rng.choice(deal.parts)] = now + self.rng.random() * AWAY_MS
                still = self.rng.random() * STILL_MS if self.rng.random() < STILL else 0.0
            self.bank.engine.at(RENEW_MS + still, self._renew, deal, now)
        super()._prepare(deal)

    def _ask_vote(self, deal: Deal, home: str, heard: Heard, *, last: bool = False, late_ms: float = 0.0) -> None:
        now = self.bank.engine.now
        if last and not late_ms and not self.bank.healed and self.rng.random() < LATE:
            late_ms = self.rng.random() * LATE_MS
            self._still[deal.id] = now + self.rng.random() * late_ms
        if now >= self._away.get((deal.id, home), 0.0):
            super()._ask_vote(deal, home, heard, last=last, late_ms=late_ms)

    def _renew(self, deal: Deal, since: float) -> None:
        if self.deal is not deal:
            if deal.told is True and self.bank.engine.now - since > 2 * DOUBT_MS:
                self.bank.cover.hit("a long wait, and committed")
            return
        for home in sorted(deal.prepared) if self.bank.engine.now >= self._still.get(deal.id, 0.0) else ():
            self._ask_vote(deal, home, lambda r, p: self._renewed(deal, r))
        self.bank.engine.at(RENEW_MS, self._renew, deal, since)

    def _renewed(self, deal: Deal, result: res.Result) -> None:
        if self.deal is deal:
            self.bank.cover.hit(f"vote again {type(result).__name__}")
            if isinstance(result, res.OppositeDecision):
                self._end(deal, False)


def make(seed: int, *, verbose: bool = False) -> Bank:
    """See `tests.sim.bank`."""
    return make_bank(seed, verbose=verbose, teller=Patient)
