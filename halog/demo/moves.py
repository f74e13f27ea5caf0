"""This module changes the cluster on purpose while the client goes on: a node joins, objects move to other partitions,
a node leaves.

Each change goes the way of an operator's command: a configuration is activated, a mapping is begun, a drain is planned
and requested; the nodes do the rest by themselves. It never stops a node that still hosts something. It does not ask a
node whether it is done: the partition tables and the mapping's znode say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from halog.core.placement import drain as draining
from halog.demo import cluster
from halog.demo.probe import Prober
from halog.demo.result import Latencies, PlannedChange
from halog.demo.scene import Scene
from halog.demo.stage import Stage
from halog.errors import HalogError
from halog.runtime.placement import plan as plans
from halog.runtime.placement.migration import migrate
from halog.runtime.remap import remap_request as wishes

LIMIT_S = 120.0
"""Each takes some seconds; a loaded machine may need ten times that."""
STOP_S = 15.0
"""A node that hosts nothing has nothing to hand over."""


class PlannedChanges:
    """`PlannedChanges` makes the planned changes of one run. Call it on the main thread: a node that joins dies with
    that."""

    def __init__(self, stage: Stage, scene: Scene, prober: Prober) -> None:
        self.stage = stage
        self.scene = scene
        self.prober = prober

    def join(self) -> PlannedChange:
        """Add a fourth node to the configuration; it gets its share by itself (P2, P11, P13)."""
        name, stage = cluster.JOINING, self.stage
        self.scene.phase = f"node {name} joins"
        self.scene.tell(f"node {name} is added to the configuration and started")

        def change() -> None:
            stage.activate(
                cluster.with_nodes(stage.config, stage.run_dir, (*stage.config.nodes, name)), f"{name} joins"
            )
            stage.start_node(name)
            stage.wait(f"node {name} to get its share", self._has_its_share, LIMIT_S)

        found = replace(self._measured(change), partitions=stage.watch.hosted(name))
        self._tell(f"node {name} has its share, {found.partitions} partitions,", found)
        return found

    def _has_its_share(self) -> bool:
        """Is everything done that the nodes planned for the new node?"""
        plan = plans.read(self.stage.coordinator)
        if plan is None or not any(cluster.JOINING in m.target.nodes for m in plan.moves):
            return False
        states = plans.states_of(plan, self.stage.watch.tables.values())
        return set(states.values()) == {plans.DONE} and self.stage.is_whole()

    def another_ring(self) -> PlannedChange:
        """Move nearly every object to another partition, as `halog rebalance` does (P6, P13)."""
        stage, config = self.stage, cluster.with_ring(self.stage.config, cluster.RING)
        self.scene.phase = "objects move to other partitions"
        self.scene.tell(f"a ring of {cluster.RING:,} slots: nearly every object moves to another partition")

        def change() -> None:
            stage.node.runtime.operators.rebalance(cluster.POLICY, config)
            stage.wait("every object to be where the other ring has it", self._is_mapped, LIMIT_S)

        found = self._measured(change)
        stage.activate(config, "another ring")
        self.prober.prepare()
        self._tell("every object is where the other ring has it", found)
        return found

    def _is_mapped(self) -> bool:
        return wishes.progress(self.stage.coordinator, cluster.POLICY).state == wishes.DONE

    def leave(self, name: str) -> PlannedChange:
        """Drain a node, end it, and take it out of the configuration (P12)."""
        stage = self.stage
        had = stage.watch.hosted(name)
        self.scene.phase = f"node {name} leaves"
        self.scene.tell(f"node {name} is drained: its {had} partitions go to the others, then it is ended")

        def change() -> None:
            self._drain(name)
            stage.wait(f"node {name} to be empty", lambda: not stage.watch.hosted(name) and stage.is_whole(), LIMIT_S)
            stage.end_node(name, STOP_S)

        found = replace(self._measured(change), partitions=had)
        rest = [n for n in stage.config.nodes if n != name]
        stage.activate(cluster.with_nodes(stage.config, stage.run_dir, rest), f"{name} has left")
        self._tell(f"node {name} has left", found)
        return found

    def _drain(self, name: str) -> None:
        stage, tables = self.stage, self.stage.watch.tables.values()
        up = list(stage.watch.latest)
        moves = draining.plan(tables, name, {cluster.POLICY: list(stage.config.nodes)}, up, up)
        if stuck := [m for m in moves if m.target is None]:
            raise HalogError(f"node {name} cannot be drained: {stuck[0].partition} cannot leave it, {stuck[0].why}")
        for move in moves:
            assert move.target is not None
            migrate(
                stage.coordinator,
                stage.config,
                up,
                move.partition,
                move.target.nodes,
                move.target.sync_replicas,
                told=stage.node.runtime.operators.told,
            )

    # --- measured, told ---

    def _measured(self, change: Callable[[], None]) -> PlannedChange:
        at, began = self.scene.seconds, time.monotonic()
        slowest = self.prober.through(change)
        return PlannedChange(round(at, 1), round(time.monotonic() - began, 1), pause_ms=Latencies.of(slowest.values()))

    def _tell(self, what: str, change: PlannedChange) -> None:
        pause = change.pause_ms
        self.scene.tell(
            f"{what} after {change.seconds} s; the slowest write of each partition took {pause.median or 0:,.0f} ms "
            f"(median), {pause.worst or 0:,.0f} ms (worst of {pause.count})"
        )
