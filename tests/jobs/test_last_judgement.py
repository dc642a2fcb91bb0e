"""Nothing is planned after the end of the input: no batch follows that would be routed by it, and planning takes time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from support.stages import Flow, counting

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.rerouting.precopy import Precopy
from streamtopology.jobs.rerouting.router import InProcessRouter
from streamtopology.jobs.runtime.topology_run import new_history
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.control.decisions import Decision, TopologyFacts
from streamtopology.routing.epochs.epoch import Epoch


class NotedJudgements(Controller):
    """A controller that notes under which epoch it is asked, each time."""

    noted: list[int]

    def step(self, now: float, current: Epoch, facts: TopologyFacts) -> Decision:
        self.noted.append(current.number)
        return super().step(now, current, facts)


def test_the_batch_at_the_end_of_the_input_is_not_judged(tmp_path: Path) -> None:
    noted: list[int] = []

    def router(plan: ExecutionPlan, checkpoint: Checkpoint) -> InProcessRouter:
        controller = NotedJudgements(plan.topology.rebalance, lambda: 0.0)
        controller.noted = noted
        precopy = Precopy(checkpoint, None, lambda text: None, lambda: 0.0)
        return InProcessRouter(plan, checkpoint, controller, new_history(plan.topology), dict, lambda: 0.0, True, precopy)

    flow = Flow(tmp_path, counting(), router=router)
    for _ in range(3):
        flow.batch(s=pa.table({"k": list(range(1_000))}))
    assert len(noted) == 3
    flow.drain()
    assert len(noted) == 3
