"""Empty batches before the first real one, so that it finds kernels compiled and plans cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamtopology.jobs.driver.attempt_runner import AttemptLost, AttemptRunner, Executor
from streamtopology.jobs.driver.failures import raise_failures
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.worker.stage_tasks import rehearse


def warm_up(
    runner: AttemptRunner,
    dry_attempt: Callable[[], tuple[Attempt, Sequence[Executor]]],
    depth: int,
    notify: Callable[[str], None],
    rounds: int,
) -> None:
    """Send `rounds` empty batches through every stage, after one through this process. A lost one is not repeated."""
    rehearse(dry_attempt()[0], depth)
    for _ in range(rounds):
        attempt, executors = dry_attempt()
        try:
            results = runner.run(attempt, depth, executors)
        except AttemptLost as loss:
            notify(f"warming up: {loss}")
            continue
        raise_failures(results)


def attempt_alone(plan: ExecutionPlan, run: str, checkpoint: str, iterations_per_second: float) -> Attempt:
    """Return an empty attempt under `plan` on one executor, which runs all instances."""
    return Attempt(
        run=run,
        checkpoint=checkpoint,
        number=0,
        attempt=0,
        epoch=plan.epoch.number,
        previous_epoch=None,
        previous=None,
        slot_by_partition=(0,),
        partition_by_instance=(0,) * len(plan.placement.slot_by_instance),
        dry=True,
        iterations_per_second=iterations_per_second,
    )
