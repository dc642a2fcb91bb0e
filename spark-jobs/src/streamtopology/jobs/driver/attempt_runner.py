"""The port through which the driver runs attempts.

Spark implements it in `streamtopology.jobs.spark.attempt_runner`. Tests implement it in one process, and so run the whole
data plane, with its failures, without a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.results import Results

# Rows of a batch that only the runner's engine can read; the driver passes them on.
ForeignRows = Any

# The output of a first stage that was started early; the driver passes it on.
Prefetched = Any


@dataclass(frozen=True)
class Executor:
    """An executor that may be given work, and the name of the slot that it fills."""

    id: str
    host: str
    slot: str


class AttemptRunner(Protocol):
    """Runs the stages of an attempt: partition i on the i-th of its executors."""

    def executors(self) -> list[Executor]:
        """Return the executors that may be given work now, in the order of their partitions."""
        ...

    def await_executors(self, wanted: Callable[[Executor], bool]) -> list[Executor]:
        """Wait for at least one executor that is `wanted`; return all of them, in the order of their partitions.

        Raises Unavailable if none comes in time, or if one that lives cannot run tasks.
        """
        ...

    def begin_batch(self, batch: int) -> None:
        """Tag the log lines of driver and executors with `batch` from now on."""
        ...

    def run(
        self,
        attempt: Attempt,
        depth: int,
        executors: Sequence[Executor],
        rows: ForeignRows = None,
        prefetched: Prefetched = None,
    ) -> Results:
        """Run all `depth` levels of `attempt`; its first stage is `prefetched` where that is given. Raises AttemptLost."""
        ...

    def prefetch(self, attempt: Attempt, executors: Sequence[Executor]) -> Prefetched:
        """Start the first stage of a later attempt on executors that have nothing else to do; returns at once."""
        ...


class AttemptLost(StreamTopologyError):
    """An attempt was lost by no fault of its own: a retry on the remaining executors can succeed."""


class ExecutorLost(AttemptLost):
    """Executors of the attempt died. `names`: their slots' names."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(f"executor {names[0]} was lost" if len(names) == 1 else f"executors {', '.join(names)} were lost")


class PythonWorkerDied(AttemptLost):
    """A task's Python process was killed; its executor lives and starts another."""

    def __init__(self) -> None:
        super().__init__("a Python worker died")


class TaskResubmitted(AttemptLost):
    """Spark ran a task again, because the executor with its output died; the files of its first run exist."""

    def __init__(self) -> None:
        super().__init__("Spark ran one of its tasks a second time, as an executor had died")


class LargeEnvelope(AttemptLost):
    """A task had more for one partition than the attempt's blobs hold; more of them can."""

    def __init__(self) -> None:
        super().__init__("a task sends more to an executor than was foreseen; it is divided more finely now")


class ShuffleLost(AttemptLost):
    """The output of a task did not reach the next stage, although the executors of both live.

    `between`: the one that sent it and the one that did not get it, as a sentence calls them, where they are known.
    """

    def __init__(self, between: tuple[str, str] | None = None) -> None:
        if between is None:
            super().__init__("an executor could not fetch the output of another")
        else:
            super().__init__(f"{between[0]} could not reach {between[1]}")
