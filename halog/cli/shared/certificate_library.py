"""This module says whether certificates can be made here: the package for it is an extra."""

from __future__ import annotations

from importlib.util import find_spec


def check_library() -> None:
    """Raise HalogError where the package that makes certificates is not installed."""
    from halog.errors import HalogError

    if find_spec("cryptography") is None:
        raise HalogError(
            "certificates are made with the package cryptography, which is not installed: pip install 'halog[certs]'"
        )
