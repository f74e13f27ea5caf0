"""This module makes versions for changes that are visible before the log has them, where the policy waits for the log
(R6, decision 14).

Such a commit may be lost, and its lsn given to another one. So until the log has it, the version of what it changed
names its epoch too. The writer of that very epoch judges a read of such a version correctly; no other writer accepts
it.
"""

from __future__ import annotations

EARLY = 1 << 62
"""Versions from here on are early; lsns never get so high."""
_LSN_BITS = 40
_LSN = (1 << _LSN_BITS) - 1
_EPOCHS = (1 << 22) - 1


def early_version(epoch: int, lsn: int) -> int:
    """Return the version of an object that becomes `lsn` of epoch number `epoch` if the log takes it."""
    return EARLY | (epoch & _EPOCHS) << _LSN_BITS | lsn & _LSN


def lsn_of(version: int) -> int:
    """Return the version's lsn, early or not."""
    return version if version < EARLY else version & _LSN


def as_logged(version: int, epoch: int) -> int:
    """Return the version as an lsn, for the writer of `epoch`. One that was read early in another epoch stays as it
    is."""
    lsn = lsn_of(version)
    return lsn if version == early_version(epoch, lsn) else version
