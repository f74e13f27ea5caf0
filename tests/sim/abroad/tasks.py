"""Blocking code of `halog.runtime` under virtual time: operators' commands, merges, the turns of a line.

Such code runs as it is, on a thread of its own, but never beside anything else: the engine waits while a task runs, and
a task that would wait gives the turn back. So a seed replays the same history. A task that is killed meets `Killed`
wherever it waits, and can do nothing more, as after a kill -9; what stands in its `finally` clauses reaches nobody.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from tests.sim.engine import Engine

SPEED = 20.0
"""Seconds of the runtime in one of the simulation, whose deadlines are some ten times shorter than production's."""

PAUSED_MS = 3.0
"""How often it is looked whether a stopped process goes on."""

T = TypeVar("T")


class Killed(BaseException):
    """The process that this ran in is no more."""


class Owner(Protocol):
    """The process that a task runs in."""

    alive: bool
    paused: bool


class Task:
    """Some blocking code. `owner` None: an operator's command."""

    def __init__(self, name: str, work: Callable[[], None], owner: Owner | None) -> None:
        self.name = name
        self.work = work
        self.owner = owner
        self.turn = 0
        """Which of its resumptions is the next."""
        self.begun = self.killed = self.done = False
        self.error: BaseException | None = None
        self.dies_in = 0
        """It is killed at so many steps from now; 0: it is not."""
        self.dies: Callable[[], None] = self._die
        """How: with the whole process, perhaps."""
        self.go = threading.Lock()
        self.go.acquire()

    def _die(self) -> None:
        self.killed = True

    @property
    def is_dead(self) -> bool:
        return self.killed or (self.owner is not None and not self.owner.alive)


class _Worker(threading.Thread):
    """A thread that runs one task after the other: making one costs as much as ten waits."""

    def __init__(self) -> None:
        super().__init__(name="sim-task", daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            self.jobs.get()()


_IDLE: list[_Worker] = []
os.register_at_fork(after_in_child=_IDLE.clear)


class Tasks:
    """Of one world."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.current: Task | None = None
        self._all: list[Task] = []
        self._back = threading.Lock()
        self._back.acquire()

    def spawn(self, name: str, work: Callable[[], None], owner: Owner | None = None) -> Task:
        """Begin it, a moment from now."""
        task = Task(name, work, owner)
        self._all.append(task)
        self.engine.at(0.0, self._resume, task, 0)
        return task

    def sleep(self, ms: float) -> None:
        """Called by a task."""
        task = self.current
        assert task is not None
        self.engine.at(ms, self._resume, task, task.turn)
        self._give_back(task)

    def step(self, what: str, killed: Callable[[str], None]) -> None:
        """Called by a task before it does something to the world: it may die of it."""
        task = self.current
        assert task is not None
        if task.dies_in == 1 and not task.is_dead:
            killed(f"{task.name} killed at {what}")
            task.dies()
        task.dies_in = max(0, task.dies_in - 1)
        if task.is_dead:
            raise Killed

    def close(self) -> None:
        """End all that is left."""
        for task in self._all:
            task.killed = True
            while task.begun and not task.done:
                self._run(task)

    def _resume(self, task: Task, turn: int) -> None:
        if task.done or task.turn != turn:
            return
        if not task.is_dead and task.owner is not None and task.owner.paused:
            self.engine.at(PAUSED_MS, self._resume, task, turn)
            return
        if task.is_dead and not task.begun:
            task.done = True
            return
        self._run(task)
        if task.error is not None:
            error, task.error = task.error, None
            raise error

    def _run(self, task: Task) -> None:
        before = self.current
        self.current = task
        task.turn += 1
        if task.begun:
            task.go.release()
        else:
            task.begun = True
            worker = _IDLE.pop() if _IDLE else _Worker()
            worker.jobs.put(lambda: self._work(task, worker))
        self._back.acquire()
        self.current = before

    def _work(self, task: Task, worker: _Worker) -> None:
        try:
            task.work()
        except Killed:
            pass
        except BaseException as e:
            task.error = e
        task.done = True
        _IDLE.append(worker)
        self._back.release()

    def _give_back(self, task: Task) -> None:
        self._back.release()
        task.go.acquire()
        if task.is_dead:
            raise Killed


class Clock:
    """The module `time`, for code that runs in tasks."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def monotonic(self) -> float:
        return self._tasks.engine.now * SPEED / 1000.0

    def time_ns(self) -> int:
        return int(self._tasks.engine.now * SPEED * 1_000_000) + 1_700_000_000_000_000_000

    def time(self) -> float:
        return self.time_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        self._tasks.sleep(seconds * 1000.0 / SPEED)


class Event:
    """What a task waits at for all of its time; code that takes its turn at once does not wait."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def set(self) -> None:
        """Nobody is woken."""

    def clear(self) -> None:
        """Likewise."""

    def wait(self, timeout: float) -> None:
        if self._tasks.current is not None:
            self._tasks.sleep(timeout * 1000.0 / SPEED)


class Threads:
    """The module `threading`, as modules use it that run in tasks."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def Event(self) -> Event:
        return Event(self._tasks)


class SimpleQueue(Generic[T]):
    """One that a task waits at."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._items = deque[T]()
        self._waiting: Task | None = None

    def put(self, item: T) -> None:
        self._items.append(item)
        waiting = self._waiting
        self._waiting = None
        if waiting is not None:
            self._tasks.engine.at(0.0, self._tasks._resume, waiting, waiting.turn)

    def get(self, timeout: float) -> T:
        if not self._items:
            self._waiting = self._tasks.current
            self._tasks.sleep(timeout * 1000.0 / SPEED)
            self._waiting = None
        if not self._items:
            raise queue.Empty
        return self._items.popleft()


class _Made:
    """The class `SimpleQueue`, as modules use it."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def __getitem__(self, kind: object) -> _Made:
        return self

    def __call__(self) -> SimpleQueue[Any]:
        return SimpleQueue(self._tasks)


class Queues:
    """The module `queue`, likewise."""

    Empty = queue.Empty

    def __init__(self, tasks: Tasks) -> None:
        self.SimpleQueue = _Made(tasks)
