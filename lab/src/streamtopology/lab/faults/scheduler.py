"""A deterministic scheduler of real threads: one runs at a time, and at every operation a seed chooses who is next.

A task is a thread of a simulated process. It runs until it takes a step (an operation on something that other processes
see), waits, or ends; then another may continue. Time passes only here: a little with each step, and up to the next alarm when
all wait. A process that was killed ends at the next step of each of its threads, and its memory is gone with them.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from streamtopology.lab.faults.outcome import NO_END

MOST_STEPS = 400_000
# The share of contested steps after which another task may continue.
CONTESTED = 0.7


class Died(BaseException):
    """The process is gone. Not an Exception: nobody is there to handle it."""


@dataclass(eq=False)
class Process:
    """A simulated process on `host`. `role`: driver, executor, copier or world. It stands still until `frozen_until`."""

    name: str
    role: str
    host: str = "driver"
    alive: bool = True
    frozen_until: float = 0.0


@dataclass(eq=False)
class Task:
    """A thread of a process. It waits for `condition`, or until `wake_at`, whichever comes first."""

    process: Process
    name: str
    run: Callable[[], None]
    condition: Callable[[], bool] | None = None
    wake_at: float | None = None
    is_done: bool = False
    error: BaseException | None = None
    carrier: _Carrier | None = None

    def is_ready(self, now: float) -> bool:
        process = self.process
        if not process.alive:
            return True
        if process.frozen_until > now:
            return False
        if self.condition is None:
            return self.wake_at is None or now >= self.wake_at
        return self.condition() or (self.wake_at is not None and now >= self.wake_at)

    def next_alarm(self, now: float) -> float | None:
        """The time at which it may become ready without anyone's doing."""
        if self.process.frozen_until > now:
            return self.process.frozen_until
        return self.wake_at


class _Carrier:
    """A thread of the operating system that runs one task after the other."""

    def __init__(self) -> None:
        self.baton = _thread.allocate_lock()
        self.baton.acquire()
        self.task: Task | None = None
        self.scheduler: Scheduler | None = None
        self.ident = _thread.start_new_thread(self._carry, ())

    def _carry(self) -> None:
        while True:
            self.baton.acquire()
            task, scheduler = self.task, self.scheduler
            assert task is not None
            assert scheduler is not None
            try:
                task.run()
            except BaseException as error:  # noqa: BLE001 - kept for those who look at the task
                task.error = error
            self.task = None
            scheduler.ended(task, self)


# Carriers that wait for a task; they outlive a simulation.
_IDLE: list[_Carrier] = []


@dataclass(eq=False)
class Scheduler:
    """`switching`: the share of steps after which another task may continue, most contested ones aside. `seed` decides who.

    step_seconds: the time that a step takes.
    """

    seed: int
    switching: float
    step_seconds: float = 0.0005
    now: float = 0.0
    steps: int = 0
    _tasks: list[Task] = field(default_factory=list[Task])
    _current: Task | None = None

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._finished = _thread.allocate_lock()
        self._finished.acquire()
        self.stuck: str | None = None

    # --- from outside ---

    def run(self, main: Callable[[], None], process: Process) -> Task:
        """Run `main` and all that it spawns, until every task has ended; return its task."""
        task = self.spawn(process, main, "main")
        self._hand_to(task)
        self._finished.acquire()
        return task

    # --- from tasks ---

    @property
    def is_inside(self) -> bool:
        """True if the calling thread is the task that runs."""
        current = self._current
        return current is not None and current.carrier is not None and current.carrier.ident == _thread.get_ident()

    @property
    def current(self) -> Task:
        assert self._current is not None
        return self._current

    def spawn(self, process: Process, run: Callable[[], None], name: str) -> Task:
        """Start a thread of `process`; it begins when the scheduler lets it."""
        task = Task(process, name, run)
        self._tasks.append(task)
        return task

    def step(self, is_contested: bool = False) -> None:
        """Let another task continue, if the seed says so. Raises Died if the process was killed."""
        self.steps += 1
        self.now += self.step_seconds
        me = self.current
        if self.steps > MOST_STEPS and self.stuck is None:
            self._give_up(f"{NO_END} {MOST_STEPS:,} steps")
        if me.process.frozen_until > self.now or self.random.random() < (CONTESTED if is_contested else self.switching):
            self._switch(me)
        if not me.process.alive:
            raise Died

    def wait(self, condition: Callable[[], bool] | None, seconds: float | None = None) -> bool:
        """Wait for `condition`, at most `seconds`; True if it holds. Raises Died if the process was killed.

        Any thread may ask for the condition: it looks at memory and takes no step.
        """
        me = self.current
        if not me.process.alive:
            raise Died
        if condition is None or not condition():
            me.condition, me.wake_at = condition, None if seconds is None else self.now + seconds
            if condition is None and seconds is None:
                raise ValueError("a wait needs a condition or an end")
            self._switch(me)
            me.condition = me.wake_at = None
            if not me.process.alive:
                raise Died
        return condition is not None and condition()

    def kill(self, process: Process) -> None:
        """End `process`: each of its threads at its next step. Raises Died in one of its own."""
        process.alive = False
        if self.is_inside and self.current.process is process:
            raise Died

    def ended(self, task: Task, carrier: _Carrier) -> None:
        """A task has ended: another one continues; after the last, `run` returns."""
        task.is_done = True
        self._tasks.remove(task)
        _IDLE.append(carrier)
        if not self._tasks:
            self._current = None
            self._finished.release()
            return
        self._hand_to(self._next())

    # --- the baton ---

    def _switch(self, me: Task) -> None:
        following = self._next()
        if following is me:
            return
        carrier = me.carrier
        assert carrier is not None
        self._hand_to(following)
        carrier.baton.acquire()

    def _hand_to(self, task: Task) -> None:
        self._current = task
        if task.carrier is None:
            task.carrier = _IDLE.pop() if _IDLE else _Carrier()
            task.carrier.task, task.carrier.scheduler = task, self
        task.carrier.baton.release()

    def _next(self) -> Task:
        """The task that continues; where none can, time passes until one can."""
        while True:
            ready = [task for task in self._tasks if task.is_ready(self.now)]
            if ready:
                return ready[0] if len(ready) == 1 else ready[self.random.randrange(len(ready))]
            alarms = [alarm for task in self._tasks if (alarm := task.next_alarm(self.now)) is not None]
            if alarms:
                self.now = max(self.now, min(alarms))
            else:
                waiting = ", ".join(f"{task.process.name}/{task.name}" for task in self._tasks)
                self._give_up(f"all wait for each other: {waiting}")

    def _give_up(self, why: str) -> None:
        """End every process: the simulation has failed."""
        self.stuck = why
        for task in self._tasks:
            task.process.alive = False
