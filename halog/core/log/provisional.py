"""Versions of what is visible before the log has it, where the log is what the policy waits for (R6, decision 14).

Such a commit may be lost, and its lsn given to another one. So until the log has it the version of what it changed
names its epoch too: whoever read it is judged right by the writer of that very epoch, and by nobody else.
"""

from __future__ import annotations

EARLY = 1 << 62
"""Versions from here on are early; lsns never get there."""
_LSN_BITS = 40
_LSN = (1 << _LSN_BITS) - 1
_EPOCHS = (1 << 22) - 1


def early_version(epoch: int, lsn: int) -> int:
    """The version of an object that is `lsn` of epoch number `epoch`, if the log takes it."""
    return EARLY | (epoch & _EPOCHS) << _LSN_BITS | lsn & _LSN


def lsn_of(version: int) -> int:
    """Its lsn, early or not."""
    return version if version < EARLY else version & _LSN


def as_logged(version: int, epoch: int) -> int:
    """The same as an lsn, for the writer of `epoch`; one that was read early in another epoch stays what it is."""
    lsn = lsn_of(version)
    return lsn if version == early_version(epoch, lsn) else version
