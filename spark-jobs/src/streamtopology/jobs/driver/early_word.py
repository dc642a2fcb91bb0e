"""Words on executors whose state fills their memory, before the kernel kills them: then nothing would say why."""

from __future__ import annotations

from streamtopology.contract.stats import CROWDED, SlotMemory
from streamtopology.jobs.plan.results import Results
from streamtopology.routing.epochs.placement import Placement

REMEDY = "give its class more memory, or add executors"


class EarlyWord:
    """Names each executor once, until its state has room again."""

    def __init__(self) -> None:
        self._named: set[str] = set()
        self._crowded: dict[str, SlotMemory] = {}

    def texts(self, results: Results, placement: Placement) -> list[str]:
        """Return a sentence for each executor that has become crowded with this committed batch."""
        self._crowded = {placement.slots[one.slot]: one for one in results.memory if one.share > CROWDED}
        fresh = [name for name in self._crowded if name not in self._named]
        self._named = set(self._crowded)
        return [f"{self._crowded[name].text(name)}: {REMEDY}" for name in fresh]

    def after_losses(self) -> str:
        """Return what is likely behind executors that die again and again; empty where memory is not."""
        worst = sorted(self._crowded.items(), key=lambda one: -one[1].share)
        return f"{worst[0][1].text(worst[0][0])}, which is likely why it dies: {REMEDY}" if worst else ""
