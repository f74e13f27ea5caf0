"""Events and effects of what a replica stores before it acknowledges it: `halog.core.replica.pushed_store`; told from
`halog.core.events` like all others."""

from __future__ import annotations

import msgspec

from halog.core.ids import EpochId


class Stow(msgspec.Struct, frozen=True):
    """Store these held records of `epoch`, the last of which is `upto`, before the effects behind this one; `anew`:
    nothing of what was stowed before is needed any more. `flush`: report Stowed once they are on the disk."""

    epoch: EpochId
    upto: int
    records: tuple[bytes, ...]
    anew: bool
    flush: bool


class Stand(msgspec.Struct, frozen=True):
    """Note, before the effects behind this one, for which incarnations of this node the store stands: what each of them
    told as held is stowed, or in the log. `flush`: down to the disk."""

    incarnations: tuple[int, ...]
    flush: bool


class Stowed(msgspec.Struct, frozen=True):
    """What was stowed of `epoch` up to that lsn is on the disk."""

    epoch: EpochId
    upto: int
