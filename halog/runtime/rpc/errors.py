"""Errors are sent across the network by class name of the one error tree, with plain evidence. Failures that stop a
copy are made here, too."""

from __future__ import annotations

from halog import errors
from halog.runtime.rpc.frames import ErrorReply


def _tree(root: type[errors.HalogError]) -> dict[str, type[errors.HalogError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found.update(_tree(child))
    return found


_CLASSES = _tree(errors.HalogError)


def to_frame(error: BaseException) -> ErrorReply:
    """Return any exception as a reply; what is not of the tree becomes a HalogError naming its class."""
    if isinstance(error, errors.HalogError) and type(error).__name__ in _CLASSES:
        return ErrorReply(type(error).__name__, error.message, {k: _plain(v) for k, v in error.evidence.items()})
    try:
        text = f"{type(error).__name__} on the active node: {error}"
    except BaseException:  # of its own text
        text = f"{type(error).__name__} on the active node"
    return ErrorReply("HalogError", text, {})


def from_frame(failed: ErrorReply) -> errors.HalogError:
    """The error a node answered."""
    cls = _CLASSES.get(failed.error, errors.HalogError)
    error = cls(failed.message)
    error.evidence.update(failed.evidence)
    return error


def not_allowed(error: errors.HalogError, node: str) -> errors.UnauthorizedError | None:
    """Return what to tell whoever asked `node`, where that one did not let this process in for its certificate, or for
    want of a role: such a refusal is no silence, and stays. None: the error is another one."""
    words = error.evidence.get("unauthorized")
    if not isinstance(words, str):
        return None
    evidence = {key: value for key, value in error.evidence.items() if key != "unauthorized"}
    return errors.UnauthorizedError(
        f"node {node} does not let this process in: {words}; nothing was done", **{**evidence, "node": node}
    )


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return repr(value)


def ours(error: Exception, what: str) -> errors.LogError | errors.StoreError:
    """Return any failure as one that stops a copy."""
    if isinstance(error, errors.LogError | errors.StoreError):
        return error
    return errors.LogError(f"{what} could not be performed: {type(error).__name__}: {error}")
