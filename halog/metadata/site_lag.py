"""This module says what a site lacks of what another one has acknowledged, as far as it was told before that one fell
silent (M5)."""

from __future__ import annotations

from datetime import UTC, datetime

from halog.metadata.mirrors import COMPARES, standing
from halog.metadata.sync_waits import FRESH_S, awaited
from halog.ports import Coordinator

OLD_MS = int(3 * FRESH_S * 1000)
"""Whether commits wait for this site is asked every few seconds: an answer that is so much older than the mirror's last
word says nothing of then."""


def lacking(coordinator: Coordinator, partition: str, site: str) -> str:
    """Return what may be missing here of what `site` has acknowledged, if it is not asked. "": nothing, unless an
    operator there let go of this site after it was seen last: seconds before the mirror's last word, or after it."""
    known, now = awaited(coordinator, partition, site), standing(coordinator, partition)
    now = now if now is not None and now.site == site else None
    known = known if known is not None and known.waits else None
    if now is not None and now.parted:  # whatever its commits waited for before
        return "what it has done since both went on"
    if now is not None and now.error == COMPARES:
        return "all that it has done since it serves"
    if known is not None and not known.may_drop and (now is None or now.at_ms - known.at_ms <= OLD_MS):
        return ""
    if now is None:
        return "nothing was ever mirrored"
    if now.error:  # said again and again, so its time is of now
        return f"what was acknowledged since it could not be mirrored any more ({now.error})"
    after = f"{_time(now.at_ms)}{f', and {now.behind} entries before that' if now.behind else ''}"
    if known is None:
        return f"what was acknowledged after {after}"
    if known.may_drop:
        return f"what was acknowledged once commits went on without this site, after {after}"
    return (
        f"what was acknowledged after {after}, if commits did not wait for this site any more: they did at "
        f"{_time(known.at_ms)}, and whether they did later was not seen"
    )


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
