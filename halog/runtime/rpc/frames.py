"""Says which frames nodes exchange: MessagePack arrays with a tag: the class's name unless `tag` says otherwise.
`docs/protocol.md` specifies them by their tags.

Control frames travel one way and unanswered on a node's own connection to another; requests travel on pooled
connections and have exactly one reply. Every connection begins with `Hello`, which is answered with `Welcome` or with
an error. A frame of a later version of halog is read with what this one knows of it (U1). Bytes that are no frame close
the connection; nothing is ever unpickled or imported.
"""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from halog.backend import CommittedObject, Invocation, InvocationResult, Work
from halog.core.ids import EpochId, Position
from halog.core.keys.mapping import Layout
from halog.errors import ConfigError, FrameError
from halog.runtime.rpc.certificate_frames import (
    CertificatesReply as CertificatesReply,
    ReloadCertificates as ReloadCertificates,
)
from halog.runtime.rpc.stranger_text import tag_of

PROTOCOL: Final = 3
"""The highest protocol that this halog speaks. One more wherever a frame changes so that who does not know of it would
do something else. A field behind all others, which may be left out, changes nothing: who does not know it passes it
over."""
LOWEST: Final = 3
"""The lowest one that it speaks still."""


class _Frame(msgspec.Struct, array_like=True, tag=True):
    """This is the base of all frames. New fields come behind all others, and have a default."""


# --- control ---


class Hello(_Frame):
    """`Hello` is the first frame of every connection. It is answered with Welcome, or with ErrorReply."""

    cluster: str
    node: str
    incarnation: int
    protocol: int = PROTOCOL
    """The highest that it speaks."""
    lowest: int = 0
    """The lowest that it speaks; 0: the highest one alone."""
    release: str = ""
    """Which halog it runs; "": one before 0.2."""
    role: str = ""
    """What it is: "node", "client" or "tool"; "": it does not say."""


class KeepAlive(_Frame):
    """Says that the sender lives; `tails` are the last lsns of the partitions it is active for, so that replicas know
    their lag."""

    sent_ms: int
    tails: dict[str, int]


class Offline(_Frame):
    """A node sends this instead of KeepAlive: it is reached, and has no quorum in one of its zones (Q1); others are to
    take it for down."""

    sent_ms: int
    why: str


class Acks(_Frame):
    """A replica has everything up to lsn, applied or held only, and up to flushed on its disk: (partition, epoch, lsn,
    applied, flushed). It holds nothing that is pushed in `sealed` any more: (partition, epoch)."""

    items: list[tuple[str, EpochId, int, bool, int]]
    sealed: list[tuple[str, EpochId]] = []


class FlushRequest(_Frame, tag="Flush"):
    """Commits of my epoch wait until you have everything up to lsn on your disk."""

    partition: str
    epoch: EpochId
    lsn: int


class RecordPush(_Frame, tag="Push"):
    """Records of my epoch, in order, that I have just given to the log; perhaps none."""

    partition: str
    epoch: EpochId
    records: list[bytes]
    shown: int = 0
    """The last lsn that I show, where commits do not wait for the log."""


class AskPosition(_Frame):
    """A candidate asks."""

    partition: str
    round: int


class PositionReply(_Frame, tag="Told"):
    """This is the answer to AskPosition."""

    partition: str
    round: int
    position: Position
    eligible: bool
    tail: tuple[bytes, ...] | None = None
    """Commits I hold that the log may lack; None: I still acknowledge."""
    stood: tuple[int, ...] = ()
    """Earlier incarnations of mine whose acknowledgements my store keeps."""


class Goodbye(_Frame):
    """A node leaves on purpose, and serves nothing any more."""


class DeathNotice(_Frame, tag="Died"):
    """The process that Hello names is no more, says its witness, which knows the secret its registration stands for."""

    secret: bytes


Control = (
    Hello | KeepAlive | Offline | Acks | FlushRequest | RecordPush | AskPosition | PositionReply | Goodbye | DeathNotice
)


# --- requests and replies ---


class Fetch(_Frame):
    """Asks for committed objects under index keys, once lsn `settled` is there, or after a moment; nothing without
    `least`. Answered with as many of the first ones as fit a frame."""

    partition: str
    keys: list[bytes]
    settled: int
    least: int = 0
    mapping: int = 0
    """The version of the mapping that led there (T8)."""
    brief: bool = False
    """Only whether they are there: references and versions, and no values."""


class Scan(_Frame):
    """`Scan` asks for a page of committed objects whose key starts with `prefix`, behind `after`: at most `limit`, and
    what fits a frame. `local`: of this node's own copy."""

    partition: str
    prefix: bytes
    after: bytes
    limit: int
    local: bool
    least: int = 0
    """As in Fetch."""
    mapping: int = 0
    """As in Fetch."""


class Count(_Frame):
    """`Count` asks how many committed objects are there whose key starts with `prefix`, behind `after`. It is answered
    with Counted, of as many as are counted in a moment."""

    partition: str
    prefix: bytes
    after: bytes
    mapping: int = 0
    """As in Fetch."""


class MomentFetch(_Frame, tag="Look"):
    """`MomentFetch` asks for objects under index keys, as they were at a moment of the active node's. It is answered
    with MomentReply."""

    partition: str
    keys: list[bytes]
    moment: bytes = b""
    """As an earlier answer named it; empty: at the one that is now, once this copy is not in doubt about them."""
    after: int = 0
    """The lsn that the reader's session has seen."""
    mapping: int = 0
    """As in Fetch."""


class MomentScan(_Frame, tag="LookThrough"):
    """`MomentScan` asks for a page of objects whose key starts with `prefix`, behind the key `behind`, as MomentFetch
    does. It is answered with MomentReply."""

    partition: str
    prefix: bytes
    behind: bytes
    limit: int
    moment: bytes = b""
    after: int = 0
    mapping: int = 0
    least: int = 0
    """As in Fetch."""
    passing: bool = False
    """Of a scan: its moment is its own, and is let go of with the last page, or by MomentEnd."""


class MomentEnd(_Frame, tag="LetGo"):
    """Nobody asks for this moment of a scan any more. Answered with Confirmation."""

    partition: str
    moment: bytes


class Submit(_Frame):
    """Commit `work` as transaction `tx`; `epoch` is the highest epoch number the sender knows of: in another one it is
    not done, and a later one is told as NotActiveError, evidence `epoch`."""

    partition: str
    tx: bytes
    work: Work
    epoch: int = 0


class PrepareRequest(_Frame, tag="Prepare"):
    """`PrepareRequest` asks to vote on `work`, a part of transaction `tx` over `participants` (T1). It is answered with
    CommitReply: the log has it; of the `last` vote, that of the first partition behind all others: the log has the
    commit. `epoch`: see Submit."""

    partition: str
    tx: bytes
    first: str
    participants: tuple[str, ...]
    digest: bytes
    work: Work
    epoch: int = 0
    last: bool = False


class Decide(_Frame):
    """Commit or abort `tx`: as its first partition decides it (`decides`), or as that has decided. Answered with
    OutcomeReply: "committed", "aborted", "expired", or "unknown": ask again."""

    partition: str
    tx: bytes
    commit: bool
    decides: bool
    participants: tuple[str, ...] = ()


class Votes(_Frame):
    """Asks what is in doubt in a partition behind the id `behind`, as far as a frame takes it, how `ids` were decided
    there, and for the `latest` decisions."""

    partition: str
    ids: list[bytes]
    latest: int = 0
    behind: bytes = b""


class Reach(_Frame):
    """Is everything up to `lsn` visible there? Answered with Confirmation when it is."""

    partition: str
    lsn: int


class LeasedFetch(_Frame, tag="Leased"):
    """Committed objects under index keys, as the active node may say without asking anybody; else NoLease."""

    partition: str
    keys: list[bytes]
    mapping: int = 0
    """As in Fetch."""


class Barrier(_Frame):
    """Which lsn must reads have to miss nothing answered before this was asked? Answered with CommitReply."""

    partition: str


class Validate(_Frame):
    """Do these versions still hold?"""

    partition: str
    reads: list[tuple[bytes, int]]
    least: int = 0
    """As in Fetch."""
    mapping: int = 0
    """As in Fetch."""


class Invoke(_Frame):
    """Run a method."""

    partition: str
    invocation: Invocation
    number: bytes = b""
    """The same at every attempt, and of no other request: what runs under it is not begun again, but answered to all
    who ask. Without one each attempt runs."""


class AskOutcome(_Frame):
    """What became of `tx`, attempted under epoch number `attempt`?"""

    partition: str
    tx: bytes
    attempt: int


class HandOverRequest(_Frame, tag="HandOver"):
    """Make node `to` active."""

    partition: str
    to: str
    number: bytes = b""
    """As in Invoke."""
    again: bool = False
    """An attempt before this one may have been acted on."""


class Move(_Frame):
    """Move those objects of a partition, by index key, that belong elsewhere by now (T8). Answered with MoveReply."""

    partition: str
    keys: list[bytes]
    mapping: int = 0
    """Only by this version of the mapping; 0: by whichever is served."""
    versions: list[int] = []
    """Those of the objects when they were found, in the order of the keys; none: not known."""
    number: bytes = b""
    """As in Invoke."""


NUMBERED: Final = frozenset((Invoke, Move, HandOverRequest))
"""What may take longer than an attempt to ask for it."""


class MappingQuestion(_Frame, tag="CanMap"):
    """Would you know where keys of `policy` belong, if this were its layout? Answered with Confirmation, or
    ConfigError."""

    policy: str
    layout: Layout


class StatusRequest(_Frame, tag="Status"):
    """Everything an operator sees of a node."""


class Loads(_Frame):
    """How full are the partitions you are active for, and how busy is your host?"""


class StateHashes(_Frame):
    """`StateHashes` asks for the hash of the objects of a node's copy, active or not. It is answered with
    StateHashesReply; with RefusedError by a node that has no copy, or one that has not read its log yet."""

    partition: str
    scan: bool = False
    """Look also at what is stored, object by object: that takes seconds for a million."""


Request = (
    Fetch
    | LeasedFetch
    | Reach
    | Scan
    | Count
    | MomentFetch
    | MomentScan
    | Barrier
    | Submit
    | Validate
    | Invoke
    | AskOutcome
    | HandOverRequest
    | StatusRequest
    | PrepareRequest
    | Decide
    | Votes
    | Move
    | MappingQuestion
    | Loads
    | MomentEnd
    | StateHashes
    | ReloadCertificates
)


class Welcome(_Frame):
    """This is the reply to Hello."""

    node: str
    protocol: int
    """The highest that both speak: it counts on this connection."""
    release: str
    incarnation: int = 0
    """Which run of the node this is."""
    offline: str = ""
    """Why the node says that it is offline (Q1); "": it does not say so."""


class Objects(_Frame):
    """This is the reply to Fetch, Leased and Scan: the first of what was asked for, at least one if there is any."""

    items: list[CommittedObject | None]
    end: bool
    """Is that all? Who asked goes on behind the last one if not, however few they are."""


class CountReply(_Frame, tag="Counted"):
    """This is the reply to Count: how many of each type id, up to key `last`; `end`: these are all. `lsn`: the last one
    that was visible before."""

    types: dict[bytes, int]
    last: bytes
    end: bool
    lsn: int


class MomentReply(_Frame, tag="Seen"):
    """This is the reply to MomentFetch and MomentScan: the name of the moment, and what was there, as in Objects."""

    moment: bytes
    items: list[CommittedObject | None]
    end: bool


class MoveReply(_Frame, tag="Moved"):
    """This is the reply to Move: how many moved, how many of those that are there did not, and how many looks at an
    object found it changed since the look before, so that it was mapped again."""

    moved: int
    stayed: int
    again: int = 0


class NoLease(_Frame, tag="Unleased"):
    """This is the reply to Leased: the node is active, as far as it knows, and without a lease just now."""


class CommitReply(_Frame, tag="Committed"):
    """This is the reply to Submit, Barrier and HandOverRequest."""

    lsn: int


class Confirmation(_Frame, tag="Valid"):
    """This is the reply to Validate, Reach, MomentEnd and MappingQuestion."""


class InvocationReply(_Frame, tag="Answered"):
    """This is the reply to Invoke."""

    invoked: InvocationResult


class OutcomeReply(_Frame, tag="OutcomeIs"):
    """This is the reply to AskOutcome: "happened" (with lsn), "did not happen", "expired" or "unknown"; and to
    Decide."""

    outcome: str
    lsn: int


class Doubt(msgspec.Struct, array_like=True, frozen=True):
    """A `Doubt` is a transaction in doubt, as one participant knows it."""

    tx: bytes
    first: str
    participants: tuple[str, ...]
    digest: bytes
    lsn: int
    reads: int
    changes: int
    types: tuple[bytes, ...]
    """The ids of the types that it would write."""


class VotesReply(_Frame, tag="VotesAre"):
    """This is the reply to Votes. `doubts`: by id; `decided`: (id, committed, lsn)."""

    doubts: list[Doubt]
    decided: list[tuple[bytes, bool, int]]
    end: bool
    """Are these all that are in doubt?"""


class StatusReply(_Frame, tag="StatusIs"):
    """This is the reply to StatusRequest, in plain values."""

    status: dict[str, object]


class LoadsReply(_Frame, tag="LoadsAre"):
    """This is the reply to Loads: objects by partition, of those that are counted already; of the host, processes that
    run or wait to run for each core, and the share of its memory in use; None: it does not say."""

    objects: dict[str, int]
    cpu: float | None
    memory: float | None


class StateHashesReply(_Frame, tag="StateHashesAre"):
    """This is the reply to StateHashes: the hash of the copy's objects at `lsn`, where it is now, and at earlier lsns,
    which all copies remember (`halog.runtime.store.state_hash`)."""

    lsn: int
    hash: bytes
    marks: tuple[tuple[int, bytes], ...]
    """(lsn, hash), ascending."""
    scanned: bytes = b""
    """What the stored objects come to, at `lsn`; b"": nobody asked for it."""


class ErrorReply(_Frame, tag="Failed"):
    """This is the reply where a request met an error of the halog tree, by class name."""

    error: str
    message: str
    evidence: dict[str, object]


Reply = (
    Welcome
    | Objects
    | CountReply
    | MomentReply
    | MoveReply
    | NoLease
    | CommitReply
    | Confirmation
    | InvocationReply
    | OutcomeReply
    | VotesReply
    | StatusReply
    | LoadsReply
    | StateHashesReply
    | CertificatesReply
    | ErrorReply
)


class UnknownFrame(msgspec.Struct, frozen=True):
    """An `UnknownFrame` stands for a frame that this halog does not know."""

    tag: str
    """As it came; quoted and shortened where it is no name."""


_ENCODER = msgspec.msgpack.Encoder()
_INCOMING = msgspec.msgpack.Decoder(Control | Request)
_REPLY = msgspec.msgpack.Decoder(Reply)


def encode(frame: Control | Request | Reply) -> bytes:
    """Return a frame's bytes."""
    return _ENCODER.encode(frame)


def decode_incoming(data: bytes) -> Control | Request | UnknownFrame:
    """Return what a peer sent us; FrameError if it is no frame."""
    try:
        frame: Control | Request = _INCOMING.decode(data)
        return frame
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ConfigError) as e:
        tag = tag_of(data)
        if tag is not None and tag not in _TAGS:
            return UnknownFrame(tag)
        raise FrameError(f"a peer sent {len(data)} bytes that are no frame of protocol {PROTOCOL}: {e}") from e


_TAGS: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Control | Request))


def decode_reply(data: bytes) -> Reply:
    """Return what a node answered; FrameError if it is no reply."""
    try:
        frame: Reply = _REPLY.decode(data)
        return frame
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise FrameError(f"a node answered {len(data)} bytes that are no reply of protocol {PROTOCOL}: {e}") from e


WAIT_S = 0.5
"""Longest wait for a commit in flight before a read is answered; the caller asks again."""
