"""Round robin, Full Knowledge, POSG, POSG with merged sketches and the project's own, on the same streams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.lab.reproduce.experiment import Measured, Parameters, Progress, Row
from streamtopology.lab.reproduce.experiments.posg import scheduling
from streamtopology.lab.reproduce.experiments.posg.queues import Stream
from streamtopology.lab.reproduce.experiments.posg.scheduling import Schedule

Floats = npt.NDArray[np.float64]

ROUND_ROBIN, FULL_KNOWLEDGE = "round-robin", "full-knowledge"
POSG, MERGED, OURS = "posg", "posg-merged", "earliest-finish"
ALGORITHMS = (ROUND_ROBIN, POSG, MERGED, OURS, FULL_KNOWLEDGE)

MakeStream = Callable[[Parameters, np.random.Generator], Stream]


def schedule(algorithm: str, stream: Stream, parameters: Parameters) -> Schedule:
    """The stream under one algorithm, with the parameters that this one knows."""
    sketch = {"eps": parameters["eps"], "delta": parameters["delta"], "window": int(parameters["window"])}
    if algorithm == ROUND_ROBIN:
        return scheduling.round_robin(stream)
    if algorithm == FULL_KNOWLEDGE:
        return scheduling.full_knowledge(stream)
    if algorithm == OURS:
        return scheduling.earliest_finish(
            stream, keys=int(parameters["keys"]), tolerated_drift=parameters["tolerated_drift"], **sketch
        )
    return scheduling.posg(stream, tolerance=parameters["tolerance"], merged=algorithm == MERGED, **sketch)


def compare(
    parameters: Parameters, x: str, values: Sequence[float], make: MakeStream, runs: int, seed: int, progress: Progress
) -> dict[tuple[float, str], list[Schedule]]:
    """(value of the parameter x, algorithm) -> a schedule for each run. Run r has the same random numbers everywhere."""
    schedules: defaultdict[tuple[float, str], list[Schedule]] = defaultdict(list)
    for done, value in enumerate(values):
        varied = {**parameters, x: value}
        for run in range(runs):
            stream = make(varied, np.random.default_rng([seed, run]))
            for algorithm in ALGORITHMS:
                schedules[value, algorithm].append(_without_series(schedule(algorithm, stream, varied)))
            progress((done + (run + 1) / runs) / len(values))
    return dict(schedules)


def series(schedules: dict[tuple[float, str], list[Schedule]], x: str) -> list[Row]:
    """Mean, least and largest over runs of the completion time and of the speed-up over round robin."""
    rows: list[Row] = []
    for (value, algorithm), of_runs in schedules.items():
        completion = means(of_runs) * 1e3
        gains = speed_up(schedules, value, algorithm)
        rows.append(
            {
                x: value,
                "algorithm": algorithm,
                "completion_ms": float(completion.mean()),
                "completion_min_ms": float(completion.min()),
                "completion_max_ms": float(completion.max()),
                "speed_up": float(gains.mean()),
                "speed_up_min": float(gains.min()),
                "speed_up_max": float(gains.max()),
                "messages": float(np.mean([one.messages for one in of_runs])),
            }
        )
    return rows


def means(schedules: Sequence[Schedule]) -> Floats:
    """float64[runs], seconds: each run's mean completion time."""
    return np.array([one.mean for one in schedules])


def speed_up(schedules: dict[tuple[float, str], list[Schedule]], value: float, algorithm: str) -> Floats:
    """float64[runs]: the paper's S_L, of whatever algorithm."""
    return means(schedules[value, ROUND_ROBIN]) / means(schedules[value, algorithm])


def measured(
    parameters: Parameters, x: str, values: Sequence[float], make: MakeStream, runs: int, seed: int, progress: Progress
) -> tuple[Measured, dict[tuple[float, str], Floats]]:
    """The comparison with what every row of POSG sums up, and the speed-ups float64[runs] for what is a row's own."""
    schedules = compare(parameters, x, values, make, runs, seed, progress)
    gains = {point: speed_up(schedules, *point) for point in schedules}
    summary: dict[str, Any] = {
        f"{short}_speed_up": float(np.mean([gains[value, algorithm].mean() for value in values]))
        for short, algorithm in (("posg", POSG), ("merged", MERGED), ("ours", OURS), ("full_knowledge", FULL_KNOWLEDGE))
    }
    ours_to_merged = [means(schedules[value, MERGED]).mean() / means(schedules[value, OURS]).mean() for value in values]
    gaps = [means(schedules[value, OURS]).mean() / means(schedules[value, FULL_KNOWLEDGE]).mean() - 1 for value in values]
    summary["ours_over_merged_min"] = float(min(ours_to_merged))
    summary["gap_to_full_knowledge_mean"] = float(np.mean(gaps))
    summary["gap_to_full_knowledge_max"] = float(max(gaps))
    for short, algorithm in (("posg", POSG), ("ours", OURS)):
        messages = [one.messages for value in values for one in schedules[value, algorithm]]
        summary[f"{short}_messages"] = float(np.mean(messages))
    return Measured(series(schedules, x), summary), gains


def _without_series(full: Schedule) -> Schedule:
    """The mean alone: the completion times of all tuples of all runs would not fit into memory."""
    return Schedule(np.array([full.mean]), full.messages, full.runs_from)
