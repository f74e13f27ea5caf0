"""halog: managed objects that outlive their process. Public names only, each imported when it is first used (PEP 562).

Never does anything at import: `import halog.errors` or `import mappers` on a Spark executor pulls in nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halog import errors as errors

__version__ = "0.1.0"

# public name -> "module" (the name is the module) or "module:attribute"
_PUBLIC: dict[str, str] = {
    "errors": "halog.errors",
}

__all__ = ["errors", "__version__"]


def __getattr__(name: str) -> Any:
    target = _PUBLIC.get(name)
    if target is None:
        raise AttributeError(f"module 'halog' has no attribute {name!r}")
    module, _, attribute = target.partition(":")
    value = import_module(module)
    return getattr(value, attribute) if attribute else value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
