"""This module notes in a store that it was made in place of a damaged one, which was set aside.

Key `halog:replaced`, MessagePack [when, in ms since 1970; why; where the other one is now; has it been told?; the runs
of this node that have used the new one, by their incarnations]. Earlier runs may have stored in the other one what the
log lacks (decision 49). No node goes on without that, unless another node has it or an operator gives it up. Runs are
told apart by their incarnations, and not by time: wall clocks are set.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from halog.errors import StoreError
from halog.ports import Store
from halog.runtime.support.clock import wall_ms

_KEY: Final = b"halog:replaced"
KEPT: Final = 1_000


class StoreReplacement(msgspec.Struct, array_like=True, frozen=True):
    """Says that another store stood here."""

    at_ms: int
    why: str
    aside: str
    """Where the other one is; "": it was gone."""
    told: bool = False
    runs: tuple[int, ...] = ()
    """The last `KEPT` runs that have used this one."""


_REPLACED = msgspec.msgpack.Decoder(StoreReplacement)


def note(store: Store, why: str, aside: Path | None, *, told: bool = False) -> None:
    """Write this note as the first thing in a new store. `told`: operators know of it."""
    _write(store, StoreReplacement(wall_ms(), why, "" if aside is None else str(aside), told))


def found(store: Store) -> StoreReplacement | None:
    """Return the note; None: the store is the first one here, as far as is known."""
    data = store.get(_KEY)
    try:
        return None if data is None else _REPLACED.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise StoreError(f"the local store's note of the store it replaced cannot be read: {e}", rebuild=True) from e


def began(store: Store, incarnation: int) -> None:
    """Note that another run of this node uses the store."""
    what = found(store)
    if what is not None:
        _write(store, msgspec.structs.replace(what, runs=(*what.runs[1 - KEPT :], incarnation)))


def tell(store: Store, told: Callable[[str, str], None]) -> None:
    """Report once that another store stood here: why it does not, and where it is now."""
    what = found(store)
    if what is not None and not what.told:
        told(what.why, what.aside)
        _write(store, msgspec.structs.replace(what, told=True))


def _write(store: Store, what: StoreReplacement) -> None:
    store.write([(_KEY, msgspec.msgpack.encode(what))], flush=True)
