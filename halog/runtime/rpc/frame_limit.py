"""What is sent whole and fits no frame, told by what it is: a call, its answer, a commit (R8).

Pages and pieces fit by themselves (`halog.runtime.rpc.pages`); here is what cannot be cut. It is refused by the side
that would send it, so nothing has happened: a method that has run changes nothing but its caller's transaction, and
that hears of nothing.
"""

from __future__ import annotations

from halog.backend import Work
from halog.errors import FrameError, RecordTooLargeError
from halog.runtime.rpc import frames
from halog.runtime.rpc.pages import ITEM_BYTES


def too_large(frame: frames.Request, error: FrameError) -> RecordTooLargeError | FrameError:
    """Return the error in the words of the application; `error` itself for what an application cannot make large. It is
    about the request if that was not sent, else about its answer."""
    size, limit = error.evidence.get("size", 0), error.evidence["limit"]
    asked = error.evidence.get("sent", True) is False
    told = _told(frame, asked=asked)
    if told is None:
        return error
    what, remedy = told
    said = RecordTooLargeError(
        f"{what} would have {size:,} bytes, and a frame between two nodes takes {limit:,} (limits.max_frame_bytes); "
        f"nothing was changed; {remedy}",
        size=size,
        limit=limit,
        frame=frame.__struct_config__.tag,  # the name that the wire has: a class may get another one
        sent=not asked,
    )
    said.evidence |= {name: value for name, value in error.evidence.items() if name not in said.evidence}
    if isinstance(frame, frames.Invoke):
        said.evidence["method"] = frame.invocation.method
    if partition := getattr(frame, "partition", ""):
        said.evidence["partition"] = partition
    return said


def _told(frame: frames.Request, *, asked: bool) -> tuple[str, str] | None:
    """Return what the frame is, and what to do; None: it is nothing that an application makes large."""
    if isinstance(frame, frames.Invoke):
        method, partition = frame.invocation.method, frame.partition
        if not asked:
            return (
                f"the answer of method {method}, called in partition {partition} (its result, what it left in objects, "
                "and which ones it has read)",
                "return less, or call it for fewer objects",
            )
        return (
            f"a call of method {method} in partition {partition} ({_of(frame.invocation.work)}, and arguments of "
            f"{len(frame.invocation.args):,} bytes)",
            "give it less, or call it earlier in a transaction of its own",
        )
    if asked and isinstance(frame, frames.Submit | frames.PrepareRequest):
        return f"the commit in partition {frame.partition} ({_of(frame.work)})", "split the transaction"
    if asked and isinstance(frame, frames.Fetch | frames.LeasedFetch):
        longest = max(map(len, frame.keys))
        return (
            f"the question for a key of {longest:,} bytes in partition {frame.partition}",
            "there is no object with this key, since no record takes it",
        )
    return None


def _of(work: Work) -> str:
    read, written = len(work.reads), len(work.writes)
    keys = sum(len(key) + ITEM_BYTES for key, _ in work.reads)
    data = sum(len(w.value or b"") + len(w.key) + ITEM_BYTES for w in work.writes)
    return (
        f"the transaction has read {read:,} objects there, whose keys and versions have about {keys:,} bytes, and "
        f"changed {written:,} of about {data:,}"
    )
