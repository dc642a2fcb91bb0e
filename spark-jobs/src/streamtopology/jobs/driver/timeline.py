"""The instants of a batch's steps in the driver, for its trace: one reading of the clock a step."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from streamtopology.contract.stats import BatchSteps


@dataclass(frozen=True)
class LostAttempt:
    """An attempt that came to nothing for `reason`, an error of type `kind`; its times are by the monotonic clock."""

    number: int
    submitted_at: float
    ended_at: float
    kind: str
    reason: str


def _none() -> list[LostAttempt]:
    return []


@dataclass
class Timeline:
    """Seconds of the monotonic clock, by which tasks' spans are, too; `began_epoch` is the begin in epoch seconds."""

    began_at: float
    began_epoch: float
    submitted_at: float = 0.0
    collected_at: float = 0.0
    committed_at: float = 0.0
    published_at: float = 0.0
    judged_at: float = 0.0
    lost: list[LostAttempt] = field(default_factory=_none)

    @staticmethod
    def begin() -> Timeline:
        return Timeline(time.monotonic(), time.time())

    def submit(self) -> float:
        """An attempt goes to the executors now. Returns that instant."""
        self.submitted_at = time.monotonic()
        return self.submitted_at

    def lose(self, number: int, error: Exception) -> None:
        """The submitted attempt has come to nothing."""
        self.lost.append(LostAttempt(number, self.submitted_at, time.monotonic(), type(error).__name__, str(error)))

    def collect(self) -> float:
        """The results of the attempt are here. Returns that instant."""
        self.collected_at = time.monotonic()
        return self.collected_at

    def commit(self) -> None:
        self.committed_at = time.monotonic()

    def publish(self) -> None:
        self.published_at = time.monotonic()

    def judge(self) -> None:
        """All who learn from the batch have."""
        self.judged_at = time.monotonic()

    def steps(self, working_seconds: float) -> BatchSteps:
        """The steps of the published batch, whose rows the executors worked on for `working_seconds`."""
        submitted_at = self.lost[0].submitted_at if self.lost else self.submitted_at
        working = min(working_seconds, self.collected_at - submitted_at)
        return BatchSteps(
            choosing=submitted_at - self.began_at,
            working=working,
            passing=self.collected_at - submitted_at - working,
            committing=self.committed_at - self.collected_at,
            publishing=self.published_at - self.committed_at,
        )

    def epoch_seconds(self, instant: float) -> float:
        """An instant of the monotonic clock in epoch seconds, as far as the clocks have kept their distance in the batch."""
        return self.began_epoch + instant - self.began_at
