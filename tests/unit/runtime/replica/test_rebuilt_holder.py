"""What a fresh eye found: a holder whose copy is rebuilt in the same run of its node."""

from __future__ import annotations

import pytest

from halog.core import events as ev
from halog.core.roles import Role
from halog.testing.cluster import wait_until
from tests.unit.counting import Counter
from tests.unit.runtime.host.test_faults import add, copy_on, host_of
from tests.unit.runtime.replica.unlogged import log_of, running
from tests.unit.runtime.store.test_unlogged_records import acknowledged_and_not_in_the_log

pytestmark = pytest.mark.feature("R6", "P1")


@pytest.mark.parametrize("remote_sync", ["NO_SYNC", "WRITE_NO_SYNC", "SYNC"])
def test_a_copy_that_is_rebuilt_does_not_forget_what_its_node_acknowledged(remote_sync: str) -> None:
    """The reader of the replica was slow, and the log was trimmed before it: its copy is made anew, by the same run of
    the node, which the znode goes on to name as a holder. Then the active dies, with what the log never had."""
    with running(remote_sync) as cluster:
        acknowledged_and_not_in_the_log(cluster)
        active = cluster.active_for(Counter, "c")
        (replica,) = [n for n in cluster.names if n != active]
        old = copy_on(cluster, replica)
        assert old.core.state.held.run
        old.post(ev.LogLost("the log begins at 4, this copy needs 3"))
        copies = host_of(cluster, replica).copies  # between the two there is none
        wait_until(
            lambda: (now := copies.get(old.name)) not in (None, old) and now.core.state.role is Role.FOLLOWING,
            "it is rebuilt",
        )
        cluster.kill(active)
        cluster.broker.drop_held(log_of(cluster))
        wait_until(lambda: cluster.active_for(Counter, "c") == replica, "it takes over")
        assert add(cluster) == 9
