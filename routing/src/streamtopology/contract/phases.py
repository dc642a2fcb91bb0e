"""The phases of a run, and what it is doing in them."""

from __future__ import annotations

from dataclasses import dataclass

from streamtopology.contract.reasons import Documented


class Phase(Documented):
    """Phases of a run, in their order."""

    STARTING = "starting", "something that the run needs is not there yet: executors, a manifest"
    WARMING_UP = "warming up", "the executors load their code"
    RUNNING = "running", "batches run"
    DONE = "done", "the input has ended, or the run was stopped"


@dataclass(frozen=True)
class Activity:
    """A phase, and where there is more to say than its name, the text for people that says it."""

    phase: Phase
    detail: str = ""

    def __str__(self) -> str:
        return self.detail or self.phase.value

    @staticmethod
    def of_text(text: str) -> Activity:
        """Return the activity that this text renders, as far as it is known: a text of its own is one of a start."""
        if text in {phase.value for phase in Phase}:
            return Activity(Phase(text))
        return Activity(Phase.STARTING, text)
