"""The promises that faults try to break, by number, as `build/faults.json` names them: the list of
docs/architecture.md, which says more of some (`tests/unit/docs/test_promises.py` compares them).

No fault here is of 6: in tests/sim/abroad whoever merges dies at any step, and triggers decide there; nor of 7: quorums
are lost in tests/integration/cluster/test_quorum.py and those of zones in test_zones.py beside it.
"""

from __future__ import annotations

PROMISES: dict[int, str] = {
    1: "A commit that returned is never lost while the log, or one replica or site the policy waited for, survives.",
    2: "Per partition one history: every reader that reads to the end sees the same objects, whoever wrote.",
    3: "At most one node can commit in a partition of one site at any time; epochs only grow.",
    4: "Committed read-write transactions are strictly serialisable within a partition, and serialisable across "
    "partitions; plain reads are whole transactions in log order",
    5: "Nothing half-done: a transaction, a failover, a hand-over, a move, a merge is complete or did not happen, at "
    "every crash point.",
    6: "A compensation trigger's effect is applied exactly once",
    7: "A node that has lost its quorum serves nothing, and says so",
    8: "Bad input (configuration, record, schema, frame, size) is refused with an error that names it, and changes "
    "nothing.",
}
