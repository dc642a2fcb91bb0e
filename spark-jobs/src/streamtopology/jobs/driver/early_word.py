"""Words on executors whose state fills their memory, before the kernel kills them: then nothing would say why."""

from __future__ import annotations

from streamtopology.contract.stats import CROWDED, ROOMY, SlotMemory
from streamtopology.jobs.driver.attempt_runner import AttemptLost, ExecutorLost, PythonWorkerDied
from streamtopology.jobs.plan.results import Results
from streamtopology.routing.epochs.placement import Placement

REMEDY = "give its class more memory, or add executors"


class EarlyWord:
    """Names each executor once, until its state has room again."""

    def __init__(self) -> None:
        self._crowded: dict[str, SlotMemory] = {}

    def texts(self, results: Results, placement: Placement) -> list[str]:
        """Return a sentence for each executor that has become crowded with this committed batch."""
        before, found = self._crowded, {placement.slots[one.slot]: one for one in results.memory}
        bars = {name: ROOMY if name in before else CROWDED for name in found}
        self._crowded = {name: memory for name, memory in found.items() if memory.share > bars[name]}
        fresh = [name for name in self._crowded if name not in before]
        return [f"{self._crowded[name].text(name)}: {REMEDY}" for name in fresh]

    def likely_cause(self, loss: AttemptLost) -> str:
        """Return what is likely behind executors that die again and again; empty where memory is not."""
        names = loss.names if isinstance(loss, ExecutorLost) else list(self._crowded)
        dead = [name for name in names if name in self._crowded]
        if not dead or not isinstance(loss, ExecutorLost | PythonWorkerDied):
            return ""
        fullest = max(dead, key=lambda name: self._crowded[name].share)
        return f"{self._crowded[fullest].text(fullest)}, which is likely why it dies: {REMEDY}"
