"""The smallest application worth a cluster: counters, in a registry of their own."""

from __future__ import annotations

from halog.schema import Registry, managed

REGISTRY = Registry()


@managed(key="name", registry=REGISTRY)
class Counter:
    name: str
    value: int = 0

    def add(self, n: int) -> int:
        self.value += n
        return self.value
