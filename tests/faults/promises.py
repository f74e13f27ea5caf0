"""The promises of architecture.md that faults try to break, by number, as `build/faults.json` names them.

Without 6, which is of compensation triggers, and 7: quorums are broken in tests/integration/cluster/test_quorum.py.
"""

from __future__ import annotations

PROMISES: dict[int, str] = {
    1: "A commit that returned is never lost while the log, or one replica the policy waited for, survives.",
    2: "Per partition one history: every reader that reads to the end sees the same objects, whoever wrote.",
    3: "At most one node can commit in a partition of one site at any time; epochs only grow.",
    4: "Committed read-write transactions are strictly serialisable within a partition; plain reads are whole.",
    5: "Nothing half-done: it is complete or did not happen, at every crash point.",
    8: "Bad input is refused with an error that names it, and changes nothing.",
}
