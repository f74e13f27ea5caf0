"""An error crosses the network as itself: class, message and plain evidence."""

from __future__ import annotations

import pytest

from halog import errors
from halog.runtime.rpc.errors import from_frame, to_frame
from halog.runtime.rpc.frames import decode_reply, encode


@pytest.mark.feature("R5")
def test_an_error_of_the_tree_arrives_as_itself() -> None:
    """Class, message and evidence are the same on the other side."""
    sent = errors.ConflictError("read as 3, is 4", key=b"k", settled_lsn=7, who=("A", 1))
    got = from_frame(decode_reply(encode(to_frame(sent))))  # type: ignore[arg-type]
    assert (type(got), got.message) == (errors.ConflictError, "read as 3, is 4")
    assert got.evidence == {"key": b"k", "settled_lsn": 7, "who": ["A", 1]}


def test_evidence_may_use_any_name() -> None:
    """A key named like a parameter of the error's own does no harm."""
    failed = to_frame(errors.HalogError("x"))
    failed.evidence["message"] = "mine"
    assert from_frame(failed).evidence == {"message": "mine"}


def test_an_unknown_class_arrives_as_the_root_of_the_tree() -> None:
    """A newer node's error is still an error here, with its message."""
    failed = to_frame(errors.ConflictError("later"))
    failed.error = "FutureError"
    assert type(from_frame(failed)) is errors.HalogError
