"""This module finds out which server is missing, for whoever is told that something did not happen: it is asked at that
moment."""

from __future__ import annotations

from halog.core.table.table import PartitionTable
from halog.errors import HalogError, UnreachableError
from halog.ports import KeyedLog, TopicPartition

ASK_S = 0.3
"""A log that is there answers within ms; who is told has waited for seconds already."""


def log_missing(log: KeyedLog, table: PartitionTable | None, timeout_s: float = ASK_S) -> str:
    """Return what is wrong with the log of a partition; "": it answers, or it is not known."""
    if table is None:
        return ""
    try:
        log.bounds(TopicPartition(table.topic, table.index), timeout_s)
    except UnreachableError as error:
        address = error.evidence.get("address")
        return f"Kafka at {address} does not answer" if address else error.message
    except HalogError:
        return ""
    return ""
