"""The progress of the experiments: a live line in a terminal, a line now and then everywhere else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from streamtopology.contract import formatting
from streamtopology.jobs.view.live_view import HEARTBEAT_SECONDS, REFRESHES_PER_SECOND

# Before this share of an experiment is done, how long it will take is not guessed from it: kernels compile first.
_TELLING_SHARE = 0.02


class Progress:
    """Entered while experiments run: `begin`, `advance` to the share done any number of times, `end`, the next one.

    `expected`: for each of them, in their order, the seconds that it takes; None: about as long as the others of which that is
    not known beforehand. `clock` gives seconds on any monotonic scale.
    """

    def __init__(self, expected: Sequence[float | None], console: Console, clock: Callable[[], float]) -> None:
        self._expected = expected
        self._console = console
        self._clock = clock
        self._started = clock()
        self._begun = self._started
        self._printed_at = self._started
        self._name = ""
        self._share = 0.0
        self._durations: list[float] = []
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                console=self._console,
                refresh_per_second=REFRESHES_PER_SECOND,
                transient=True,
                get_renderable=lambda: Text(self.line(), "cyan", no_wrap=True, overflow="ellipsis"),
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, name: str) -> None:
        self._name, self._share, self._begun = name, 0.0, self._clock()

    def advance(self, share: float) -> None:
        """The share of the present experiment that is done, 0..1."""
        self._share = min(max(share, 0.0), 1.0)
        if self._live is None and self._clock() - self._printed_at >= HEARTBEAT_SECONDS:
            self._print([self.line()])

    def end(self, lines: Sequence[str]) -> None:
        """End the current experiment; `lines` report on it and stay on the screen."""
        self._durations.append(self._clock() - self._begun)
        self._name = ""
        self._print(lines)

    def line(self) -> str:
        """`[ 41.2 s] cg-eps 40 %, 3 of 37 done, about 12 min 00 s left`."""
        elapsed = self._clock() - self._started
        left = self.seconds_left()
        parts = [f"{self._name} {formatting.percent(self._share)}"] if self._name else []
        parts.append(f"{len(self._durations)} of {len(self._expected)} done")
        parts += [f"about {formatting.duration(left)} left"] if left is not None else []
        return f"[{elapsed:6.1f} s] {', '.join(parts)}"

    def seconds_left(self) -> float | None:
        """The rest of the present experiment and the others: by its share done, by what is expected, else at the mean of those
        of which nothing was expected; None while that is not known.
        """
        elapsed = self._clock() - self._begun
        done = len(self._durations)
        takes = [*self._durations, *self._expected[done:]]
        if self._name and self._share > _TELLING_SHARE:
            takes[done] = elapsed / self._share
        known = [
            seconds for seconds, stated in zip(takes, self._expected, strict=True) if stated is None and seconds is not None
        ]
        mean = fmean(known) if known else None
        left = [mean if seconds is None else seconds for seconds in takes[done:]]
        if self._name and left[0] is not None:
            left[0] = max(left[0] - elapsed, 0.0)
        return None if None in left else sum(seconds for seconds in left if seconds is not None)

    def _print(self, lines: Sequence[str]) -> None:
        self._printed_at = self._clock()
        for line in lines:
            self._console.print(line, soft_wrap=True, markup=False, highlight=False)
