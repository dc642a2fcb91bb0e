"""Large state is pre-copied; whatever the result of the copy, the plan runs and counts are right."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from support.reasons import BY_TEST
from support.stages import Flow, manifest

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.rerouting import precopy
from streamtopology.jobs.rerouting.precopy import Precopy, PrecopyJob, PrecopyProcess
from streamtopology.jobs.rerouting.precopy_job import migrate
from streamtopology.jobs.rerouting.router import InProcessRouter
from streamtopology.jobs.runtime.topology_run import new_history
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.table.table import RoutingTable

KEYS = 3_000


class Here:
    """Copies in this process on request; `fails` is the reason why it cannot."""

    def __init__(self, uri: str, epoch: int) -> None:
        self.uri, self.epoch = uri, epoch
        self.fails: str | None = None
        self.stopped = False

    def copy(self) -> None:
        migrate(Checkpoint.attach(self.uri), self.epoch, lambda text: None)

    def failure(self) -> str | None:
        return self.fails

    def stop(self) -> None:
        self.stopped = True


class Copied:
    """A flow under the real router whose copiers the test has in hand."""

    def __init__(
        self,
        folder: Path,
        threshold: str = "4Ki",
        start: Callable[[str, int], PrecopyJob] | None = None,
        run: str = "count",
        compaction: Callable[[Checkpoint], Compaction] = Compaction,
    ) -> None:
        operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": run}
        given = manifest([operator], {"s": "k BIGINT, v BIGINT"}, rebalance={"mode": "Off"}, migration={"threshold": threshold})
        self.now = 0.0
        self.reported: list[str] = []
        self.copiers: list[Here] = []
        self._start = start or self._begin
        self.seen = Counter[int]()
        self.flow = Flow(folder, given, router=self._router, compaction=compaction)
        self.batch(list(range(KEYS)))

    @property
    def router(self) -> InProcessRouter:
        assert isinstance(self.flow.router, InProcessRouter)
        return self.flow.router

    def _begin(self, uri: str, epoch: int) -> PrecopyJob:
        self.copiers.append(Here(uri, epoch))
        return self.copiers[-1]

    def _router(self, plan: ExecutionPlan, checkpoint: Checkpoint) -> InProcessRouter:
        self.precopy = Precopy(checkpoint, self._start, self.reported.append, lambda: self.now)
        controller = Controller(plan.topology.rebalance, lambda: self.now)
        return InProcessRouter(
            plan, checkpoint, controller, new_history(plan.topology), dict, lambda: self.now, precopy=self.precopy
        )

    def batch(self, keys: list[int]) -> int:
        self.seen.update(keys)
        return self.flow.batch(s=pa.table({"k": keys, "v": [0] * len(keys)})).epoch

    def publish(self, every: int = 4) -> int:
        """Every `every`th bucket goes to the next instance; the epoch's number."""
        buckets = self.buckets()
        buckets[::every] = (buckets[::every] + 1) % 4
        return self._publish(buckets)

    def publish_to(self, instance: int, former: tuple[int, ...]) -> int:
        """All buckets of `former` instances go to `instance`; the epoch's number."""
        buckets = self.buckets()
        buckets[np.isin(buckets, former)] = instance
        return self._publish(buckets)

    def buckets(self) -> npt.NDArray[np.int32]:
        table = self.router.ready().epoch.routes["n"].table
        assert table is not None
        return table.buckets.copy()

    def _publish(self, buckets: npt.NDArray[np.int32]) -> int:
        epoch = self.router.ready().epoch
        number = 1 + max(self.flow.checkpoint.epochs())
        table = RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), buckets)
        self.router.publish(Epoch(number, {"n": replace(epoch.routes["n"], table=table)}, epoch.source_shares, BY_TEST))
        return number

    def snapshots(self) -> list[str]:
        """The snapshots that the newest commit names."""
        commit = self.flow.checkpoint.last_commit()
        assert commit is not None
        return [of.snapshot for of in commit.state["n"].values() if of.snapshot is not None]

    def check(self) -> None:
        assert {row["k"]: row["count"] for row in self.flow.state("n")} == self.seen


def test_batches_keep_the_former_epoch_until_all_is_copied(tmp_path: Path) -> None:
    flow = Copied(tmp_path)
    epoch = flow.publish()
    assert flow.batch([1, 2]) == epoch - 1
    assert flow.batch([1, 2]) == epoch - 1
    flow.copiers[0].copy()
    assert flow.batch([2, 3]) == epoch
    assert flow.copiers[0].stopped
    assert any("bytes are pre-copied" in reported for reported in flow.reported)
    flow.check()
    assert flow.batch([5]) == epoch
    flow.check()


def test_progress_of_the_copy_is_reported_once(tmp_path: Path) -> None:
    def stop_after_one(text: str) -> None:
        raise InterruptedError(text)

    flow = Copied(tmp_path)
    epoch = flow.publish()
    with pytest.raises(InterruptedError):
        migrate(flow.flow.checkpoint, epoch, stop_after_one)
    flow.batch([1])
    flow.batch([1])
    assert flow.reported.count(f"epoch {epoch}: 1 of 4 instances are pre-copied") == 1


def test_little_state_moves_with_the_next_batch(tmp_path: Path) -> None:
    flow = Copied(tmp_path, threshold="1Gi")
    epoch = flow.publish()
    assert flow.batch([1]) == epoch
    assert not flow.copiers
    flow.check()


def test_dead_copier_is_restarted_and_resumes(tmp_path: Path) -> None:
    flow = Copied(tmp_path)
    epoch = flow.publish()
    flow.copiers[0].fails = "the process ended with code -9: it printed nothing"
    assert flow.batch([1]) == epoch - 1
    flow.copiers[-1].copy()
    assert len(flow.copiers) == 2
    assert flow.batch([1]) == epoch
    flow.check()


@pytest.mark.parametrize("late", [False, True])
def test_state_that_cannot_be_copied_moves_with_the_batch(tmp_path: Path, late: bool) -> None:
    flow = Copied(tmp_path)
    epoch = flow.publish()
    for number in range(6):
        flow.now += 1000.0 if late else 0.1
        flow.copiers[-1].fails = None if late else "no space left"
        if flow.batch([number]) == epoch:
            break
    assert any("its state moves with the batches" in reported for reported in flow.reported)
    assert len(flow.copiers) == (1 if late else precopy.MOST_STARTS)
    assert flow.flow.checkpoint.precopies.leases() == []
    flow.check()


def test_half_of_a_damaged_copy_is_no_part_of_the_state_that_moves_without_it(tmp_path: Path) -> None:
    """Instance 3 merges the keys of instance 1 and fails on those of instance 2; meanwhile both have forgotten theirs."""
    flow = Copied(tmp_path, run="streamtopology.lab.faults.thirds:Thirds")
    epoch = flow.publish_to(3, (1, 2))
    flow.flow.meanwhile.append(flow.copiers[0].copy)
    assert flow.batch(2 * list(range(KEYS))) == epoch - 1
    (of_instance_2,) = tmp_path.glob(f"checkpoint/state/n/3/*-e{epoch}-2-*.delta")
    of_instance_2.write_bytes(b"damaged")
    assert flow.batch([KEYS]) == epoch
    assert any("the state moves with the batches" in reported for reported in flow.flow.reported)
    flow.batch(list(range(KEYS)))
    assert {row["k"]: row["tuples"] for row in flow.flow.state("n")} == dict.fromkeys(range(KEYS + 1), 1)


def test_no_chain_is_compacted_while_it_is_copied(tmp_path: Path) -> None:
    """The batch that moves the copies takes every later delta, each in a file of its own."""
    flow = Copied(tmp_path, compaction=partial(Compaction, most_deltas=2))
    epoch = flow.publish()
    for _ in range(8):
        assert flow.batch(list(range(100))) == epoch - 1
    assert flow.snapshots() == []
    flow.copiers[0].copy()
    assert flow.batch([1]) == epoch
    flow.check()
    for _ in range(8):
        flow.batch(list(range(100)))
    assert flow.snapshots()
    flow.check()


def test_a_newer_plan_supersedes_one_that_is_being_prepared(tmp_path: Path) -> None:
    flow = Copied(tmp_path)
    first, second = flow.publish(4), flow.publish(8)
    assert flow.copiers[0].stopped
    flow.copiers[1].copy()
    assert flow.batch([1]) == second != first
    assert flow.flow.checkpoint.precopies.leases() == []
    flow.check()


def test_an_operator_may_prepare_what_is_small_and_let_it_go_uncopied(tmp_path: Path) -> None:
    flow = Copied(tmp_path, threshold="1Gi")
    epoch = flow.router.ready().epoch
    flow.router.publish(replace(epoch, number=epoch.number + 1), prepared=True)
    assert flow.batch([1]) == epoch.number
    flow.router.run_prepared(epoch.number + 1)
    assert flow.batch([1]) == epoch.number + 1
    flow.check()


def test_a_real_process_copies_and_ends_with_the_run(tmp_path: Path) -> None:
    processes: list[PrecopyProcess] = []

    def start(uri: str, epoch: int) -> PrecopyJob:
        processes.append(PrecopyProcess(uri, epoch))
        return processes[-1]

    flow = Copied(tmp_path, start=start)
    epoch = flow.publish()
    processes[0].process.kill()
    while flow.batch([1]) != epoch:
        time.sleep(0.1)
    flow.check()
    assert len(processes) == 2
    assert flow.router.ready().epoch.number == epoch
    flow.publish(8)
    flow.precopy.close()
    assert all(process.process.poll() is not None for process in processes)


def test_a_copying_process_ends_when_its_driver_is_gone(tmp_path: Path) -> None:
    flow = Copied(tmp_path)
    flow.publish()
    orphan = PrecopyProcess(f"{flow.flow.checkpoint.uri}-nowhere", 99)  # waits for a lease that never comes
    assert orphan.process.stdin is not None
    orphan.process.stdin.close()
    assert orphan.process.wait(30) == 1
