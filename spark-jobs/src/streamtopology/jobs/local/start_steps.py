"""The steps of a start on this machine, in the words of the live view, and how long a start usually takes here."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from streamtopology.contract import formatting
from streamtopology.contract.phases import Phase
from streamtopology.jobs.local.local_cluster import cache_folder
from streamtopology.jobs.observe.history import History

STEPS = 5
_WAITING = 3
_KEPT = 5
_UNKNOWN = "20 to 60 s"


class StartSteps:
    """Gives `report` a sentence for each step, with the usual duration of the whole start of `executors` executors."""

    def __init__(self, executors: int, report: Callable[[str], None], folder: Path | None = None) -> None:
        self._executors = executors
        self._report = report
        self._file = (folder or cache_folder()) / "starts.json"
        self._usual = self._usual_text()
        self._step = 0
        self._warm = 0

    def cluster(self, has_spark: bool = True) -> None:
        executors = formatting.counted(self._executors, "executor", "executors")
        self._begin(1, f"starting Spark's driver, then {executors}" if has_spark else f"starting {executors}")

    def driver(self) -> None:
        self._begin(2, "opening the session; then the executors start")

    def executors(self, warm: int) -> None:
        """Wait for the executors, of which `warm` are ready."""
        self._warm = warm
        self._begin(_WAITING, f"{self._warm_text()}; the first batch waits for all")

    def query(self) -> None:
        self._begin(4, "opening the checkpoint and the sources")

    def warm_up(self) -> str:
        """Return the sentence of the last step."""
        self._step = 5
        return self._sentence("empty batches load the operators; then comes the first batch")

    def detail(self, text: str) -> None:
        """Report `text` as part of the current step; once the start is over, as it is."""
        if not 0 < self._step < STEPS:
            self._report(text)
        else:
            self._report(self._sentence(f"{self._warm_text()}; {text}" if self._step == _WAITING else text))

    def remember(self, seconds: float) -> None:
        """Keep the duration of this start for the next ones; without a cache folder they go without."""
        known = self._known()
        of_size = [*known.get(str(self._executors), []), round(seconds, 1)][-_KEPT:]
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps({**known, str(self._executors): of_size}))

    def remember_when_running(self, history: History, elapsed: Callable[[], float]) -> None:
        """Remember the start as soon as `history` enters its running phase; `elapsed` gives seconds since its begin."""
        done = False

        def look(changed: History) -> None:
            nonlocal done
            if not done and changed.activity.phase is Phase.RUNNING:
                done = True
                self.remember(elapsed())

        history.listen(look)

    def _begin(self, step: int, text: str) -> None:
        self._step = step
        self._report(self._sentence(text))

    def _sentence(self, text: str) -> str:
        return f"step {self._step} of {STEPS}, usually {self._usual} in all: {text}"

    def _warm_text(self) -> str:
        return f"{self._warm} of {formatting.counted(self._executors, 'executor is', 'executors are')} warm"

    def _usual_text(self) -> str:
        seconds = self._known().get(str(self._executors))
        return formatting.span(min(seconds), max(seconds)) if seconds else _UNKNOWN

    def _known(self) -> dict[str, list[float]]:
        try:
            return {str(size): [float(each) for each in kept] for size, kept in json.loads(self._file.read_text()).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}
