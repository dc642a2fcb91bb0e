"""`simulate-faults`: histories from consecutive seeds, until one fails or there were enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from streamtopology.lab.faults.outcome import Outcome
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


def simulate_faults(seed: int, amount: Amount, show: Callable[[str], None]) -> int:
    """Play histories from `seed` on; 0 if all held, 1 after the first that did not, with its story made short."""
    tally = Tally()
    failed = first_wrong(seed, amount, tally, show)
    if failed is not None:
        story, wrong = failed
        show(f"seed {story.seed}: {wrong}")
        show(tally.line())
        show_story(story, show)
        show(f"again: streamtopology simulate-faults --seed {story.seed} --histories 1")
        return 1
    for line in tally.coverage():
        show(line)
    show(f"0 wrong: {tally.line()}")
    return 0


def first_wrong(seed: int, amount: Amount, tally: Tally, show: Callable[[str], None]) -> tuple[Story, str] | None:
    """Play histories from `seed` on; return the first story that fails and what is wrong with it, None if all hold."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    shown_at = 0.0
    while not amount.is_reached(tally):
        story = Story.draw(seed + tally.histories)
        outcome = played(story, tally)
        if outcome.wrong is not None:
            return story, outcome.wrong
        if tally.seconds - shown_at >= _LINE_SECONDS:
            shown_at = tally.seconds
            show(tally.line())
    return None


def played(story: Story, tally: Tally) -> Outcome:
    """Play `story` and add it to `tally`."""
    started = time.process_time()
    outcome, _ = play(story)
    tally.add(outcome, time.process_time() - started)
    return outcome


def show_story(story: Story, show: Callable[[str], None]) -> None:
    """Make a failing story short, and show it."""
    short = shrunk(story, lambda shorter: play(shorter)[0].wrong is not None)
    outcome, _ = play(short)
    shape = short.shape
    show(
        f"the story: {' and '.join(shape.operators)} on {shape.replicas} executors, {len(short.files)} files, "
        f"{shape.files_per_batch} a batch, {len(short.faults)} faults, {len(short.events)} events"
    )
    for line in outcome.journal:
        show(f"  {line}")
    show(f"  in the end: {outcome.wrong}")
