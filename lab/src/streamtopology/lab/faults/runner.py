"""`simulate-faults`: histories from consecutive seeds, until one fails or there were enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow as pa

from streamtopology.lab.faults.outcome import NO_END, Outcome
from streamtopology.lab.faults.record import digest_of_code, open_record
from streamtopology.lab.faults.shrink import shrunk
from streamtopology.lab.faults.story import Story
from streamtopology.lab.faults.tally import Tally
from streamtopology.lab.faults.verdict import play

_LINE_SECONDS = 30.0


@dataclass(frozen=True)
class Amount:
    """The amount to play: `histories`, or for `seconds` of this process's CPU; None: no end to that."""

    histories: int | None
    seconds: float | None

    def is_reached(self, tally: Tally) -> bool:
        return (self.histories is not None and tally.histories >= self.histories) or (
            self.seconds is not None and tally.seconds >= self.seconds
        )


def simulate_faults(
    seed: int,
    amount: Amount,
    show: Callable[[str], None],
    file: Path | None = None,
    concerns: Callable[[Story], bool] | None = None,
    real_time: bool = False,
) -> int:
    """Play histories from `seed` on; 0 if all held, 1 after the first that did not, with its story made short.

    `file`: a record to continue (`record.py`), whose next seed is taken in place of `seed`; it gets what held.
    `concerns`: other stories are passed over; None: none is. `real_time`: the same stories by long-lived workers.
    """
    mode = " in real time" if real_time else ""
    record = None if file is None else open_record(file, seed, f"{digest_of_code()}{mode}")
    tally, first = Tally(), seed if record is None else record.next_seed
    show(f"seed {first}")

    def report() -> None:
        show(tally.line())
        if file is not None and record is not None:
            record.plus(tally).write(file)

    told = stories(first, real_time)
    failed = first_wrong(filter(concerns, told) if concerns else told, amount, tally, report)
    if failed is not None:
        story, wrong = failed
        show(f"seed {story.seed}: {wrong}")
        show(tally.line())
        show_story(story, show)
        show(f"again: streamtopology simulate-faults --seed {story.seed} --histories 1{' --real-time' if real_time else ''}")
        return 1
    for line in tally.coverage():
        show(line)
    report()
    if record is not None:
        show(record.plus(tally).line())
    show(f"0 wrong: {tally.line()}")
    return 0


def stories(seed: int, real_time: bool = False) -> Iterable[Story]:
    """The stories from `seed` on, without end."""
    return (Story.draw(number, real_time) for number in count(seed))


def first_wrong(stories: Iterable[Story], amount: Amount, tally: Tally, report: Callable[[], None]) -> tuple[Story, str] | None:
    """Play `stories`; return the first that fails and what is wrong with it, None if all of that amount hold.

    `report` is called every half a minute of CPU, when all histories in `tally` held.
    """
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    shown_at = 0.0
    for story in stories:
        if amount.is_reached(tally):
            break
        outcome = played(story, tally)
        if outcome.wrong is not None:
            return story, outcome.wrong
        if tally.seconds - shown_at >= _LINE_SECONDS:
            shown_at = tally.seconds
            report()
    return None


def played(story: Story, tally: Tally) -> Outcome:
    """Play `story` and add it to `tally`."""
    started = time.process_time()
    outcome, _ = play(story)
    tally.add(outcome, time.process_time() - started)
    return outcome


def show_story(story: Story, show: Callable[[str], None]) -> None:
    """Make a failing story short, and show it. One that ends stays one that ends: without any file there is never an end."""
    ends = not _is_endless(play(story)[0])
    short = shrunk(story, lambda shorter: (outcome := play(shorter)[0]).wrong is not None and ends != _is_endless(outcome))
    outcome, _ = play(short)
    shape = short.shape
    show(
        f"the story: {' and '.join(shape.operators)} on {shape.replicas} executors, {len(short.files)} files, "
        f"{shape.files_per_batch} a batch, {len(short.faults)} faults, {len(short.events)} events"
    )
    for line in outcome.journal:
        show(f"  {line}")
    show(f"  in the end: {outcome.wrong}")


def _is_endless(outcome: Outcome) -> bool:
    return outcome.wrong is not None and outcome.wrong.startswith(NO_END)
