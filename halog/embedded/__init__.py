"""This package runs real Kafka (KRaft) and real ZooKeeper as child processes on loopback: an *embedded site* (O3).

    with EmbeddedSite("/tmp/site") as info:
        print(info.bootstrap, info.zookeeper)

One supervisor process owns both servers. Whatever ends it (`stop`, `halog down`, kill -9, the death of the Python
process that started it) ends them. This package imports nothing of halog except its errors, and never talks to the
servers beyond asking whether they answer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halog.embedded.control import SiteControl, attach, read_site
    from halog.embedded.datadir import default_data_dir
    from halog.embedded.model import RemoteListener, SecureListeners, SiteInfo
    from halog.embedded.site import EmbeddedSite

__all__ = [
    "EmbeddedSite",
    "RemoteListener",
    "SecureListeners",
    "SiteControl",
    "SiteInfo",
    "attach",
    "default_data_dir",
    "read_site",
]

_HOME = {
    "EmbeddedSite": "site",
    "RemoteListener": "model",
    "SecureListeners": "model",
    "SiteControl": "control",
    "SiteInfo": "model",
    "attach": "control",
    "default_data_dir": "datadir",
    "read_site": "control",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'halog.embedded' has no attribute {name!r}")
    return getattr(import_module(f"halog.embedded.{_HOME[name]}"), name)
