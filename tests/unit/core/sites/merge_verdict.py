"""For the model of two sites: is a merge right, and has every write become of it what the rules say?"""

from __future__ import annotations

from collections.abc import Set

from halog.core.ids import NO_TX
from restore.merge import AGREED, Instance, State
from restore.report import entry
from tests.unit.core.sites.copy_model import Copy, Held

KEYS = [b"a", b"b", b"c", b"d", b"e"]


def is_right(copy: Copy, ours: dict[bytes, Held], theirs: dict[bytes, Held]) -> None:
    """Everything that was different is in the report, as it was; and what that says stands."""
    told = {m.key: entry(m) for m in copy.merges[-1].merged}
    for key in KEYS:
        s, i, now = (_state(found.get(key)) for found in (ours, theirs, copy.objects))
        if key not in told:
            assert s == i == now, f"{key!r} is not in the merge: {s}, {i}, {now}"
            continue
        found, then = told[key].found, told[key].then
        assert found.source == s, f"{key!r} is told to be {found.source} at the source, and is {s}"
        known = found.initiating is None or found.initiating.value is not None
        assert found.initiating == i if known else i is not None, f"{key!r} of the initiating site is {i}"
        assert now == then
        assert s != i or found.kind in AGREED
        writers = [{c.tx for c in by if c.tx != NO_TX} for by in (found.source_by, found.initiating_by)]
        assert not writers[0] & writers[1], f"{key!r}: a transaction is merged with itself"
        made = (None, Instance((s or i or Instance(b"", b"")).ref, b"made of %s" % key))
        created = s is None and then is not None and (then.value or b"").startswith(b"beside ")
        assert then in (s, i) or ((then in made or created) and told[key].verdict), f"{key!r} is {then} of nowhere"


def accounted(copy: Copy, acknowledged: Set[bytes]) -> None:
    """Every acknowledged write stands, or was merged, superseded or overruled; the last is in the report."""
    assert acknowledged <= set(copy.happened), "an acknowledged transaction is unknown"
    for m in copy.merges:
        for one in m.merged:
            told = entry(one)
            for by, state in (
                (told.found.source_by, told.found.source),
                (told.found.initiating_by, told.found.initiating),
            ):
                if by and told.then != state and not told.found.is_conflict:
                    assert told.verdict or told.found.by_default != state


def _state(found: Held | None) -> State:
    return None if found is None else Instance(found.ref, found.value)
