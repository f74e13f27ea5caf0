"""This module counts what a judge finds wrong, and keeps the first few in words."""

from __future__ import annotations

from typing import ClassVar


class Complaints:
    """`Complaints` counts what a subclass finds wrong."""

    most_examples: ClassVar[int] = 8

    def __init__(self) -> None:
        self.wrong = 0
        self.examples: list[str] = []

    def complain(self, text: str) -> None:
        """Count one more thing that is not as it should be."""
        self.wrong += 1
        if len(self.examples) < self.most_examples:
            self.examples.append(text)
