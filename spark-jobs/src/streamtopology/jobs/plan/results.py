"""The results of one attempt, as the driver collects them from its tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from streamtopology.contract.stats import SlotMemory
from streamtopology.contract.wire_values import SPARSE, AnyFloat
from streamtopology.jobs.checkpoint import StateRef
from streamtopology.jobs.plan.span import Span
from streamtopology.routing.load import working
from streamtopology.routing.load.load_report import LoadReport, SourceReport

# A node, and the report of one of its instances to the choosers of that node, in wire form.
LearningReport = tuple[str, Mapping[str, Any]]


# Two sizes of rows that were read: in memory, and as their descriptors foresaw it.
ReadBytes = Sequence[int]


class FailureKind(Enum):
    """The cause of a task's failure, as far as the driver acts by it."""

    # The message is meant for users: it names the problem, where it is, and what to do.
    EXPLAINED = "explained"
    # The rows of the batch are larger than was foreseen; a smaller batch can pass.
    TOO_LARGE = "too-large"
    # A task has more for one partition than the attempt's number of blobs can hold.
    LARGE_ENVELOPE = "large-envelope"
    # Pre-copied state cannot be read; the state it was copied from can.
    PRECOPY_UNUSABLE = "precopy-unusable"
    # Spark has run the task twice in one attempt, and both runs would write the same files.
    RESUBMITTED = "resubmitted"
    # Any other error; its traceback is part of the message to users.
    UNEXPECTED = "unexpected"


@dataclass(frozen=True)
class TaskFailure:
    """An error in user code or data. `where`: the operator and instance, or what the task was doing."""

    where: str
    message: str
    kind: FailureKind
    traceback: str


@dataclass(frozen=True)
class Compacted:
    """A snapshot of the files of `covered`, an instance's state or the beginning of it; or why it could not be made."""

    covered: StateRef
    snapshot: str | None = None
    failure: str | None = None


@dataclass(frozen=True)
class ContainerMemory:
    """What the processes of an executor's container hold together, and the most that they may."""

    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True)
class InstanceResult:
    """The outcome of one instance's run: its load, its delta file, its staged outputs per sink.

    `span`: from the start of its task to its own end. `rows_out`: rows that each of its sinks gets. `adopted`: pre-copied
    files that its state now begins with. `learning_report`: what the instance reports to the choosers of its operator, where
    these learn. `compacted`: a compaction that the driver asked for and that is over. `partial`: what it gathered of keys with
    another home, see `operators.partials`. `memory`: of its executor, where that has a limit. `moving_seconds`: of taking keys
    in, and of dropping those that have left.
    """

    report: LoadReport
    delta: str | None
    outputs: Mapping[str, Sequence[str]]
    dead_letters: str | None
    span: Span
    adopted: Sequence[str] = ()
    learning_report: Mapping[str, Any] | None = None
    rows_out: Mapping[str, int] = field(default_factory=dict)
    due: AnyFloat | None = None
    due_at: AnyFloat | None = None
    compacted: Compacted | None = None
    partial: str | None = None
    memory: ContainerMemory | None = field(default=None, metadata=SPARSE)
    moving_seconds: float = field(default=0.0, metadata=SPARSE)


@dataclass(frozen=True)
class SourceResult:
    """The outcome of a task of the first stage.

    `set_aside`: rows as they go to the dead letters. `event_times`: the newest by source and partition, epoch seconds.
    `read_bytes`: by source.
    """

    report: SourceReport
    span: Span
    set_aside: Sequence[Mapping[str, str]] = ()
    event_times: Mapping[str, Mapping[str, AnyFloat]] = field(default_factory=dict)
    read_bytes: Mapping[str, ReadBytes] = field(default_factory=dict)


@dataclass(frozen=True)
class MovedState:
    """State that one task handed over to new owners: (node, keys or rows, bytes); and the seconds that it took."""

    moves: Sequence[tuple[str, int, int]]
    seconds: float = 0.0


@dataclass
class Results:
    """Everything that the tasks of an attempt reported."""

    instances: list[InstanceResult] = field(default_factory=list)
    source_tasks: list[SourceResult] = field(default_factory=list)
    failures: list[TaskFailure] = field(default_factory=list)
    keys_moved: dict[str, int] = field(default_factory=dict)
    bytes_moved: dict[str, int] = field(default_factory=dict)
    # The longest that a task took to hand state over.
    handing_seconds: float = 0.0
    # The time for which a row between two executors kept a link busy, as last measured; 0 where it was not.
    remote_seconds: float = 0.0

    @property
    def sources(self) -> list[SourceReport]:
        """The load of each task of the first stage."""
        return [task.report for task in self.source_tasks]

    @property
    def remote_rows(self) -> int:
        """The rows that operators sent to other executors."""
        sent = [onward for result in self.instances for onward in result.report.onward.values()]
        return sum(onward.rows - onward.stayed for onward in sent)

    @property
    def memory(self) -> tuple[SlotMemory, ...]:
        """Of executors with a limit of it, by slot."""
        limits = {result.report.slot: result.memory for result in self.instances if result.memory is not None}
        state = Counter[int]()
        for result in self.instances:
            state[result.report.slot] += result.report.state_bytes
        return tuple(
            SlotMemory(slot, state[slot], max(memory.limit_bytes - memory.used_bytes + state[slot], 0))
            for slot, memory in sorted(limits.items())
        )

    @property
    def moving_seconds(self) -> float:
        """The seconds by which moving state has made the batch longer: of handing it over, then of taking it in."""
        taking: dict[int, float] = defaultdict(float)
        for result in self.instances:
            taking[result.report.slot] += result.moving_seconds
        return self.handing_seconds + max(taking.values(), default=0.0)

    @property
    def working_seconds(self) -> float:
        """The seconds of the batch that its rows needed."""
        return working.working_seconds(self.sources, (result.report for result in self.instances))

    @property
    def event_times(self) -> dict[str, dict[str, float]]:
        """The newest event time by source and partition, epoch seconds."""
        newest: dict[str, dict[str, float]] = {}
        for task in self.source_tasks:
            for source, times in task.event_times.items():
                known = newest.setdefault(source, {})
                known.update({name: max(time, known.get(name, time)) for name, time in times.items()})
        return newest

    @property
    def read_bytes(self) -> dict[str, ReadBytes]:
        """The sizes of the rows that were read, by source."""
        sizes: dict[str, ReadBytes] = {}
        for task in self.source_tasks:
            for source, of_task in task.read_bytes.items():
                sizes[source] = [known + more for known, more in zip(sizes.get(source, (0, 0)), of_task, strict=True)]
        return sizes

    @property
    def compacted(self) -> dict[tuple[str, int], Compacted]:
        """The compactions that are over, by node and instance."""
        given = {(result.report.operator, result.report.instance): result.compacted for result in self.instances}
        return {instance: compacted for instance, compacted in given.items() if compacted is not None}

    @property
    def partials(self) -> dict[str, list[str]]:
        """By node, what instances gathered of keys with another home, in the order of instances."""
        gathered: dict[str, list[str]] = {}
        for result in sorted(self.instances, key=lambda result: result.report.instance):
            if result.partial is not None:
                gathered.setdefault(result.report.operator, []).append(result.partial)
        return gathered

    @property
    def due(self) -> float | None:
        """The event time (epoch seconds) at which some operator has something to do; None: never."""
        return min((result.due for result in self.instances if result.due is not None), default=None)

    @property
    def due_at(self) -> float | None:
        """The processing time (epoch seconds) at which some operator has something to do; None: never."""
        return min((result.due_at for result in self.instances if result.due_at is not None), default=None)

    @property
    def set_aside(self) -> list[Mapping[str, str]]:
        """Rows of sources that go to the dead letters."""
        return [row for task in self.source_tasks for row in task.set_aside]

    @property
    def skipped_rows(self) -> Counter[str]:
        """Rows by source that were deleted before they could be read."""
        return sum((Counter(report.skipped_rows) for report in self.sources), Counter())

    @property
    def learning_reports(self) -> list[LearningReport]:
        """The reports of instances whose choosers learn."""
        given = [(result.report.operator, result.learning_report) for result in self.instances]
        return [(node, report) for node, report in given if report is not None]

    def failure(self, *kinds: FailureKind) -> TaskFailure | None:
        """The first failure of any of `kinds`, in their order; None if there is none."""
        return next((failure for kind in kinds for failure in self.failures if failure.kind is kind), None)
