"""What the integration tests see of their site: the embedded one, or three servers of each kind in containers."""

from __future__ import annotations

from typing import Any, Protocol


class Info(Protocol):
    """Where the servers listen."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def zookeeper(self) -> str: ...


class Site(Protocol):
    """`server` is "kafka" or "zookeeper", all of them; where there are three of each, also one of them by its name.

    Each call returns when it is done: started servers answer."""

    @property
    def info(self) -> Info: ...
    def kill(self, server: Any) -> object: ...
    def start_server(self, server: Any) -> object: ...
    def restart(self, server: Any) -> object: ...
    def pause(self, server: Any) -> object: ...
    def resume(self, server: Any) -> object: ...
