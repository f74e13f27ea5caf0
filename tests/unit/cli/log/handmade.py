"""A hand-made log, and the verdicts every reader comes to."""

from __future__ import annotations

from halog.core.ids import NO_HASH, EpochId, digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.ports import Entry, TopicPartition
from halog.runtime.topics.log_judge import EntryVerdict, Judge

LOG_ID = b"0123456789abcdef"


def epoch_id(number: int) -> EpochId:
    return EpochId(number, "home", number)


class Log:
    """Records one behind the other, with the verdict every reader comes to; offset n is appended at n ms."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.lsn = 0
        self.last = NO_HASH

    def add(self, record: records.Record, *, counts: bool = True) -> None:
        data = records.encode(record)
        self.entries.append(Entry(TopicPartition("t", 0), len(self.entries), data, len(self.entries)))
        if counts and not isinstance(record, records.EpochStarted):
            self.lsn = record.header.lsn
            self.last = digest(data)

    def header(self, number: int, tx: int = 0) -> records.Header:
        return records.Header(LOG_ID, epoch_id(number), self.lsn + 1, self.last, tx.to_bytes(16, "big"))

    def started(self, number: int) -> None:
        self.add(records.EpochStarted(records.Header(LOG_ID, epoch_id(number)), epoch_id(0), 0))

    def epoch(self, number: int) -> None:
        self.started(number)
        self.add(records.EpochOpened(self.header(number), ()))

    def commit(self, number: int, tx: int, *, counts: bool = True) -> None:
        self.add(records.Commit(self.header(number, tx), ()), counts=counts)

    def judged(self) -> list[EntryVerdict]:
        judge = Judge(ChainState(LOG_ID, "home"))
        return [judge.judge(e) for e in self.entries]
