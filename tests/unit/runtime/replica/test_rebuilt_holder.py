"""What a fresh eye found: a holder whose copy is rebuilt in the same run of its node."""

from __future__ import annotations

from functools import partial

import pytest

from halog.core import events as ev
from halog.core.roles import Role
from halog.errors import LaterRecordError, StoreError
from halog.runtime.store import unlogged_tail
from halog.testing.cluster import wait_until
from tests.unit.counting import Counter
from tests.unit.runtime.host.test_faults import add, copy_on, host_of
from tests.unit.runtime.host.test_snapshots import of_a_later_format, on, state
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


def is_left(key: bytes, items: object) -> bool:
    """Is this what a copy that stops leaves?"""
    return isinstance(items, list) and [k for k, _ in items] == [key]


@pytest.mark.feature("R6", "U1")
@pytest.mark.parametrize("left", [True, False], ids=["left on its disk", "in memory alone"])
def test_a_copy_that_cannot_be_rebuilt_by_this_version_keeps_what_its_node_acknowledged(left: bool) -> None:
    """The only snapshot is of a later version. Nothing that the node has is deleted for one that it cannot read."""
    with running() as cluster:
        acknowledged_and_not_in_the_log(cluster)
        active = cluster.active_for(Counter, "c")
        (replica,) = [n for n in cluster.names if n != active]
        taker, leading = on(cluster, active)
        taker.take(leading)
        topic, marker = taker.state_tp(leading), state(cluster, active)[b"p"]
        assert marker is not None
        cluster.broker.write(topic, [(b"p", of_a_later_format(marker), {})], marker=False)
        taker.log.trim(log_of(cluster), 2)
        old = copy_on(cluster, replica)
        old.save()
        store, prefix = old.objects.store, old.objects.prefix
        if not left:
            its_own = partial(is_left, prefix + b"u")
            refused = cluster.disks[replica].faults.fail("flush", StoreError("no space left"), its_own, times=1)
        old.post(ev.LogLost("the log begins at 4, this copy needs 3"))
        assert left or refused.ended
        stored = dict(store.scan(prefix))
        assert len(unlogged_tail.stored(store, prefix)) == (3 if left else 0)
        copies = host_of(cluster, replica).copies
        wait_until(lambda: (now := copies.get(old.name)) not in (None, old) and now.error is not None, "it stops")
        assert isinstance(copy_on(cluster, replica).error, LaterRecordError)
        now = dict(store.scan(prefix))
        assert len(unlogged_tail.stored(store, prefix)) == 3
        assert now == {prefix + b"u": now[prefix + b"u"], **stored}
        cluster.broker.write(topic, [(b"p", marker, {})], marker=False)  # what a later version reads in it
        for name in cluster.names:
            cluster.kill(name)
        cluster.broker.drop_held(log_of(cluster))
        for name in cluster.names:
            cluster.restart(name)
        cluster.settle()
        assert add(cluster) == 9
