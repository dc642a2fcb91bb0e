"""The world of one history: disk, hosts, the lives of the driver one after the other, and the faults that strike them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import obstore

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs import failpoints
from streamtopology.jobs.checkpoint import Checkpoint, LocalStore
from streamtopology.jobs.checkpoint.s3_store import S3Store
from streamtopology.jobs.connectors.sinks.kafka import BATCH_HEADER
from streamtopology.jobs.driver.watermarks import END_OF_TIME
from streamtopology.jobs.errors import AnotherDriver
from streamtopology.jobs.pods.configmap_watch import ConfigMapContent
from streamtopology.lab.faults import bucket
from streamtopology.lab.faults.broker import Broker
from streamtopology.lab.faults.bucket import Bucket
from streamtopology.lab.faults.disk import FaultyDisk
from streamtopology.lab.faults.executors import Worker
from streamtopology.lab.faults.life import Life, Ports
from streamtopology.lab.faults.old_volume import OldVolume
from streamtopology.lab.faults.outcome import NO_END, STRUCK, Outcome, Place, kind_of_file
from streamtopology.lab.faults.outputs import Outputs
from streamtopology.lab.faults.people import People
from streamtopology.lab.faults.producer import Producer
from streamtopology.lab.faults.scheduler import Died, Process, Scheduler
from streamtopology.lab.faults.stdlib import Clocks, simulated
from streamtopology.lab.faults.story import ON_THE_NETWORK, Event, Fault, Story
from streamtopology.lab.faults.topologies import TOPOLOGY

# The most lives of a history without faults, and what each fault adds: a full disk ends some, one after the other.
_CALM_LIVES, _LIVES_OF_A_FAULT = 80, 4
_WRITES = ("write", "append to", "link", "make folder")
_USURPED_SECONDS, _SLOWEST_SECONDS = 90.0, 20.0


class World:
    """All that outlives a driver. `step` is called by every operation on the disk and by Spark, in the task that does it."""

    def __init__(self, story: Story, folder: Path, keep_trace: bool = False) -> None:
        self.story = story
        self.folder = folder
        self.root = folder / "checkpoint"
        self.scheduler = Scheduler(story.seed, story.switching, story.step_seconds)
        self.clocks = Clocks(self.scheduler)
        self.bucket = Bucket(self.step, self._made) if story.shape.bucket else None
        self.outputs = Outputs(folder / "out", self.bucket if story.shape.publishes_to_bucket else None)
        self.broker = Broker(self.step)
        self.disk = FaultyDisk(step=self.step, linked=self._linked, mirrored=f"{self.root}/outputs/")
        self.disk.folders |= {str(folder), *map(str, folder.parents)}
        self.disk.durable_folders |= self.disk.folders
        self.volume = OldVolume(story, self.disk)
        self.process = Process("world", "world", host="world")
        self.commits: dict[int, dict[str, Any]] = {}
        self.operators: dict[int, frozenset[str]] = {}
        """By committed batch, the operators that it ran."""
        self._operators_of_epoch: dict[int, frozenset[str]] = {}
        self._acknowledged = -1
        self.batch = 0
        self._attempt = 0
        self.journal: list[str] = []
        self.wrong: str | None = None
        self.covered = Counter[Place]()
        self.lines: list[str] | None = [] if keep_trace else None
        self._hash = hashlib.sha256()
        self._counts = Counter[str]()
        self._faults = _by_place(story.faults)
        self._events: dict[tuple[int, int], list[Event]] = defaultdict(list)
        for event in story.events:
            self._events[event.batch, event.nth].append(event)
        self._writes_failing = 0
        self._shuffles_lost = 0
        self._repeating = set[Process]()
        self._too_busy = set[Process]()
        self._excuses = 0
        self._lives: list[Life] = []
        self._met_another = set[Life]()
        """Those that began while one that had stood still was not stopped: of two, each batch may end one."""
        self._people = self._new_people()
        self._uuids = Random(story.seed + 1)
        self._skip = len(str(folder)) + 1
        self.producer = Producer(self.scheduler, folder / "in", story.files, lambda: len(self.commits))
        for name in ("out", *(f"in/{source}" for source in story.shape.sources)):
            (folder / name).mkdir(parents=True)

    def run(self) -> Outcome:
        failpoints.watch(self._passing)
        try:
            with simulated(self.scheduler, self.clocks, lambda: self._uuids.getrandbits(128)):
                main = self.scheduler.run(self._main, self.process)
        finally:
            failpoints.watch(None)
        if self.scheduler.stuck is not None:
            self.wrong = self.scheduler.stuck
        elif main.error is not None:
            raise main.error
        lives, trace = len(self._lives), self._hash.hexdigest()
        return Outcome(self.wrong, len(self.commits), lives, self.scheduler.steps, trace, self.journal, self.covered)

    def open_checkpoint(self) -> Checkpoint:
        store = LocalStore(self.root, self.disk) if self.bucket is None else S3Store(bucket.CHECKPOINT)
        return Checkpoint.of(store, TOPOLOGY)

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """While entered, the bucket answers, if the checkpoint is in one."""
        with ExitStack() as undo:
            if self.bucket is not None:
                undo.enter_context(mock.patch.dict(os.environ, bucket.ENVIRONMENT))
                for name, function in self.bucket.functions().items():
                    undo.enter_context(mock.patch.object(obstore, name, function))
            yield

    # --- what happens by itself ---

    def _main(self) -> None:
        """Start driver after driver until the input is drained and one has ended well: the last one publishes again."""
        self.scheduler.spawn(self.process, lambda: self.producer.run(Random(self.story.seed + 2)), "producer")
        while True:
            life = self._start_life()
            self.scheduler.wait(lambda life=life: _has_ended(life) or life.process.frozen_until > self.scheduler.now + 1)
            if not _has_ended(life):
                self.scheduler.wait(lambda life=life: _has_ended(life), _USURPED_SECONDS)
            if _has_ended(life):
                life.process.alive = False  # with its main thread all others end, before another process takes its place
            if self._is_hopeless(life) or (self._is_drained() and _has_ended_well(life)):
                break
        self._end_all()

    def _is_hopeless(self, life: Life) -> bool:
        """True if the run has stopped for good, or in a way that it must not."""
        error = None if life.task is None or not _has_ended(life) else life.task.error
        if life.thread_ended_by is not None:
            self.wrong = f"a thread of the driver ended by {life.thread_ended_by!r}"
        if error is not None and not isinstance(error, (Died, StreamTopologyError)):
            self.wrong = f"the driver ended by {type(error).__name__}: {error}"
        elif error is not None and not isinstance(error, Died):
            if "Traceback" in str(error):
                self.wrong = f"a task failed: {error}"
            elif self.volume.is_refusal(str(error), self.commits):
                self.note(f"a sink refuses what is not the same again, and the run stops: {str(error)[:150]}")
                return True
            elif isinstance(error, AnotherDriver) and life in self._met_another:
                self.note(f"{life.process.name} has lost to another one")
            elif self._excuses == 0:
                self.wrong = f"the run stopped, and nothing was wrong: {error}"
            else:
                self._excuses -= 1
                self.note(f"the run stops: {str(error).partition(';')[0][:150]}")
        if len(self._lives) > _CALM_LIVES + _LIVES_OF_A_FAULT * len(self.story.faults):
            self.wrong = f"{NO_END} {len(self._lives)} starts"
        return self.wrong is not None

    def _is_drained(self) -> bool:
        """True if the newest commit has closed all windows for good."""
        return self.batch > 0 and self.commits[self.batch - 1]["watermark_after"] == END_OF_TIME

    def _start_life(self) -> Life:
        story, number = self.story, len(self._lives)
        ports = Ports(
            scheduler=self.scheduler,
            step=self.step,
            open_checkpoint=lambda process: self.open_checkpoint(),
            loses_shuffle=self._loses_shuffle,
            repeats_task=self._repeats_task,
            is_too_busy=self._is_too_busy,
            real_time=story.real_time,
            broker=self.broker,
            folder=self.folder,
            task_bytes=story.shape.task_bytes,
            most_deltas=story.most_deltas,
            commits_per_sweep=story.commits_per_sweep,
        )
        self.producer.disturb()
        process = Process(f"driver {number + 1}", "driver")
        manifest = self._people.manifest()
        life = Life(ports, process, manifest, story.seed + number, self._people.routing(), self._left_behind(manifest))
        if not all(map(_has_ended, self._lives)):
            self._met_another.add(life)
        self._lives.append(life)
        life.task = self.scheduler.spawn(life.process, life.run, "main")
        self.scheduler.spawn(life.process, lambda: self._drain(life), "closer")
        return life

    def _left_behind(self, manifest: Mapping[str, Any]) -> Mapping[str, Worker]:
        """By slot the memory of workers that outlive the newest driver. One that still runs loses them to its successor.

        They are of use to the same manifest alone.
        """
        if not self.story.real_time or not self._lives or self._lives[-1].manifest != manifest:
            return {}
        return self._lives[-1].left_behind(Random(f"left {self.story.seed} {len(self._lives)}"))

    def _new_people(self) -> People:
        def deliver(content: ConfigMapContent) -> None:
            self._lives[-1].mailbox.append(content)

        checkpoint = str(self.root) if self.bucket is None else bucket.CHECKPOINT
        where = (str(self.folder / "in"), self.outputs.place, checkpoint)
        return People(self.story, self.scheduler, self.clocks, self.process, where, self.open_checkpoint, deliver, self.note)

    def _drain(self, life: Life) -> None:
        """Ask for the end once all files are there."""
        self.scheduler.wait(lambda: _has_ended(life) or (life.query is not None and self.producer.is_done))
        if not _has_ended(life):
            life.stop(drain=True)

    def _repeats_task(self, process: Process) -> bool:
        """True if Spark runs the task that has just ended once more, its output being lost."""
        repeats = process in self._repeating
        self._repeating.discard(process)
        return repeats

    def _is_too_busy(self, process: Process) -> bool:
        """True if Spark no longer waits for the executor of `process` to have room for the task that is pinned to it."""
        is_busy = process in self._too_busy
        self._too_busy.discard(process)
        return is_busy

    def _loses_shuffle(self) -> bool:
        self.step("exchange", "")
        self._shuffles_lost, lost = max(self._shuffles_lost - 1, 0), self._shuffles_lost
        return lost > 0

    # --- operations, and what comes at them ---

    def _passing(self, point: str) -> None:
        if point == "commit.written":
            self._acknowledged = max(self.commits)
        elif point in ("sink.placed", "kafka.committed") and (early := self._published_early()):
            self.wrong = f"sink {early} has batch {self.batch}, which is not committed"
        self.step(point, "")

    def _published_early(self) -> str | None:
        """The sink that holds the batch that is to be committed next."""
        if self.volume.may_be_in_sinks(self.batch):
            return None
        for topic, _, headers in self.broker.visible[-1:]:
            if int(headers[BATCH_HEADER]) >= self.batch:
                return topic
        return self.outputs.sink_with(self.batch)

    def step(self, operation: str, path: str) -> None:
        if not self.scheduler.is_inside:
            return
        process = self.scheduler.current.process
        if not process.alive:
            raise Died
        role, where = process.role, path[self._skip :] if path.startswith("/") else path
        line = f"{process.name} {operation} {where}"
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)
        nth = self._counts[role]
        self._counts[role] += 1
        if role == "driver" and (self.batch, nth) in self._events:
            for event in self._events.pop((self.batch, nth)):
                self.producer.disturb()
                self._people.act(event, self._lives[-1])
        fault = self._faults.pop((self.batch, role, nth), None)
        if fault is not None:
            self._strike(fault, process, operation, where)
        if self._writes_failing and operation in _WRITES and role != "world":
            self._writes_failing -= 1
            raise OSError(errno.ENOSPC, "No space left on device", path)
        self.scheduler.step(is_contested=bool(contested := self.story.contested) and contested in where)

    def _linked(self, path: str, data: bytes) -> None:
        if path.startswith(f"{self.root}/"):
            self._made(path[len(f"{self.root}/") :], data)

    def _made(self, path: str, data: bytes) -> None:
        """Take note of a file of the checkpoint: a commit record, perhaps, and then the next batch begins."""
        if path.startswith("commits/"):
            record = json.loads(data.splitlines()[-1])
            if record["batch"] < self.batch:
                return  # of a driver that stood still until the record of its batch had been swept: it takes it back
            self.commits[record["batch"]] = record
            self.operators[record["batch"]] = self._operators_of_epoch[record["epoch"]]
            self.batch = record["batch"] + 1
            self._attempt = 0
            self._counts.clear()
            self.volume.committed(record["batch"])
        elif path.startswith("epochs/"):
            manifest = json.loads(data)["manifest"]
            self._operators_of_epoch[int(Path(path).stem)] = frozenset(one["name"] for one in manifest["spec"]["operators"])
        elif path.startswith("batches/"):
            self._attempt = int(Path(path).stem.partition("-")[2])

    def _paths(self, folder: str) -> list[str]:
        """The complete files of the checkpoint in `folder`."""
        if self.bucket is not None:
            return [path for path in self.bucket.below(bucket.CHECKPOINT) if path.startswith(f"{folder}/")]
        below = f"{self.root}/{folder}/"
        return [path for path in self.disk.names if path.startswith(below) and not path.endswith(".partial")]

    def _lose_commits(self) -> None:
        """Take over what the power cut has left; an acknowledged commit that is gone is wrong."""
        newest = max((int(Path(path).stem) for path in self._paths("commits")), default=-1)
        self.commits = {batch: record for batch, record in self.commits.items() if batch <= newest}
        if self._acknowledged > newest:
            self.wrong = f"batch {self._acknowledged} was committed, and a power cut has undone it"
        self.batch = newest + 1

    def _strike(self, fault: Fault, process: Process, operation: str, where: str) -> None:
        done, kind = f"{operation} {kind_of_file(where)}".strip(), self._kind_of(fault)
        self.covered[Place(process.role, done, self._situation(), kind)] += 1
        random = Random(fault.seed)
        self.producer.disturb()
        self.note(f"{process.name} {STRUCK[kind]} before {operation} {where}".rstrip())
        match kind:
            case "kill":
                self._kill(process, random)
            case "kill and edit":
                self._people.edit(random)
                self._kill(process, random)
            case "old volume":
                self._end_all()
                self.volume.put_back(self.commits)
                self.batch = max(self.commits, default=-1) + 1
                self._acknowledged = self.batch - 1
                self.producer.silences = [count for count in self.producer.silences if count <= self.batch]
                self.note("  all is as it was then")
                raise Died
            case "power":
                self._end_all()
                lost = self._cut_power(random)
                self._excuses += 1
                self._lose_commits()
                if lost:
                    self.note(f"  not as it was on the disk: {', '.join(path[self._skip :] for path in lost)}")
                raise Died
            case "no space":
                self._writes_failing = random.randint(1, 4)
                self._excuses += self._writes_failing
            case "hang":
                process.frozen_until = self.scheduler.now + random.uniform(80, 400)
                self.producer.disturb(400)
                if process.role == "driver":
                    self._excuses += 2
            case "short hang":
                process.frozen_until = self.scheduler.now + random.uniform(1, 50)
                self.producer.disturb(50)
            case "requests fail" | "answers lost" if self.bucket is not None:
                many = random.randint(1, 5)
                self.bucket.failing, self.bucket.losing = (many, 0) if kind == "requests fail" else (0, many)
            case "slow":  # a thread waits; the others of its process do not
                self.producer.disturb(_SLOWEST_SECONDS)
                self.scheduler.wait(None, random.choice((0.01, 0.1, 1.0, _SLOWEST_SECONDS)))
            case "commit answer lost":
                self.broker.losing = random.randint(1, 3)
            case "task twice" | "message twice":
                self._repeating.add(process)
            case "task elsewhere" | "message late":
                self._too_busy.add(process)
            case _:
                self._shuffles_lost = 1

    def _cut_power(self, random: Random) -> list[str]:
        """Lose what was not synced. Returns what is not as it was."""
        if self.bucket is not None:
            return []
        return self.disk.cut_power(random.getrandbits(32))

    def _kind_of(self, fault: Fault) -> str:
        """A bucket has space; requests to it fail instead, or their answers are lost. In real time there is a network."""
        if self.story.real_time and fault.kind in ON_THE_NETWORK:
            return ON_THE_NETWORK[fault.kind]
        if fault.kind != "no space" or self.bucket is None:
            return fault.kind
        return "requests fail" if fault.seed % 2 else "answers lost"

    def _situation(self) -> str:
        """Name what is under way besides the batch."""
        last = self.commits.get(self.batch - 1)
        if last is None:
            return "first batch"
        if last["switch"] is not None:
            return "switching"
        if self._paths("migrations"):
            return "pre-copying"
        return "retrying" if self._attempt > 1 else "as usual"

    def _end_all(self) -> None:
        for life in self._lives:
            for one in (life.process, *life.processes):
                one.alive = False

    def _kill(self, process: Process, random: Random) -> None:
        """A driver's executors outlive it by some seconds, and so may its pre-copy process."""
        for life in self._lives:
            if life.process is process:
                for left in life.processes:
                    self._end_later(left, random.choice((0.0, 0.01, 0.1, 10.0)))
        self.scheduler.kill(process)

    def _end_later(self, process: Process, seconds: float) -> None:
        def end() -> None:
            self.scheduler.wait(None, seconds)
            process.alive = False

        self.scheduler.spawn(self.process, end, "reaper")

    def note(self, text: str) -> None:
        attempt = f", attempt {self._attempt}" if self._attempt else ""
        self.journal.append(f"batch {self.batch}{attempt}: {text}")


def _has_ended_well(life: Life) -> bool:
    return life.task is not None and life.task.is_done and life.task.error is None


def _has_ended(life: Life) -> bool:
    return not life.process.alive or (life.task is not None and life.task.is_done)


def _by_place(faults: tuple[Fault, ...]) -> dict[tuple[int, str, int], Fault]:
    return {(fault.batch, fault.role, fault.nth): fault for fault in faults}
