"""cg-change: capacities that change while running, over the length of the time slot (figure 11 of Consistent Grouping)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from streamtopology.lab.reproduce.experiment import (
    Claim,
    Experiment,
    ExperimentError,
    Measured,
    Parameters,
    Plot,
    Progress,
    Row,
    Summary,
)
from streamtopology.lab.reproduce.experiments.consistent.balance import SOURCE, WIKIPEDIA
from streamtopology.lab.reproduce.experiments.consistent.messages import STAND_IN, wikipedia
from streamtopology.lab.reproduce.experiments.consistent.queues import (
    LINES,
    METRICS,
    Simulated,
    capacities,
    consistent,
    of_scheme,
    over_runs,
    plain,
)
from streamtopology.lab.reproduce.trace import KEYS

# Spread of utilisation that counts as balanced: the thresholds are 0.1 apart, and a virtual worker is coarse.
BALANCED = 0.15

# Messages in a time slot t0, by how long they take in the log's day. Workloads that change within hours ask for one "on the
# order of minutes" (section IV-B); these change after six hours.
SLOTS = {"8 s": 2_000, "1 minute": 15_000, "5 minutes": 76_000}

TOO_FEW_SLOTS = (
    "A busy worker gives up one virtual worker a slot, and an idle one takes one: a phase has fewer slots than a worker has to"
    " get virtual workers (`slots` and `most moves` of the summary), so that it ends before they are dealt out."
)
QUEUES_STAY = (
    "While virtual workers move, one a slot, the queues of overloaded workers grow; what is left of the phase is too short to"
    " work them off with a fifth of the capacity to spare (`longest queue`)."
)


def _measure(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """The phases lie at the same shares of the stream whatever its length."""
    if missing := sorted(set(SLOTS) - set(parameters["slots"])):
        raise ExperimentError(f"cg-change: slots: its claims need {missing}, too; found {parameters['slots']}")
    n, each, messages = parameters["workers"], parameters["virtual_workers"], wikipedia(parameters).count
    slots: Mapping[str, int] = parameters["slots"]
    phases = [capacities(n, faster, times) for faster, times in parameters["phases"]]
    starts = [round(share * messages) for share in parameters["changes_at"]]
    ends = [*starts, messages]

    def start(seed: int) -> dict[str, Simulated]:
        by_slot = {_scheme(name): consistent(parameters, phases[0], each, seed, slot) for name, slot in slots.items()}
        return {**plain(n, phases[0], seed, "KG", "SG"), **by_slot}

    series = over_runs(parameters, runs, seed, progress, start, dict(zip(starts, phases[1:], strict=True)))
    summary: dict[str, float] = {}
    for number, (phase, of, begin, end) in enumerate(zip(phases, [phases[0], *phases], [0, *starts], ends, strict=False), 1):
        summary[f"most moves to a worker in phase {number}"] = _most_moves(of, phase, each * n)
        for name, slot in slots.items():
            summary[f"slots of {name} in phase {number}"] = (end - begin) / slot
    for name in slots:
        summary |= _phases(series, _scheme(name), ends)
    return Measured(series, summary)


def _scheme(slot: str) -> str:
    return f"CG, slot of {slot}"


def _most_moves(before: np.ndarray, after: np.ndarray, virtual: int) -> float:
    """Virtual workers that the worker which gains most has to get, when shares follow the capacities."""
    return float((virtual * (after / after.sum() - before / before.sum())).max())


def _phases(series: Sequence[Row], scheme: str, ends: Sequence[int]) -> dict[str, float]:
    """Of a scheme, per phase: the longest queue, the queue and the spread of utilisation at its end; and what SG has there."""
    at = np.array([float(row["messages"]) for row in series if row["scheme"] == scheme])
    summary: dict[str, float] = {}
    start = 0
    for number, end in enumerate(ends, 1):
        phase = np.flatnonzero((at > start) & (at <= end * (1 + 1e-9)))
        queue, used = of_scheme(series, scheme, "queue")[phase], of_scheme(series, scheme, "utilisation")[phase]
        summary[f"longest queue of {scheme} in phase {number}"] = float(queue.max())
        summary[f"queue of {scheme} after phase {number}"] = float(queue[-1])
        summary[f"utilisation of {scheme} after phase {number}"] = float(used[-1])
        if used[-1] <= BALANCED:
            summary[f"messages until {scheme} is balanced in phase {number}"] = _settled(at[phase], used) - start
        summary[f"queue of SG after phase {number}"] = float(of_scheme(series, "SG", "queue")[phase][-1])
        start = end
    return summary


def _settled(at: np.ndarray, utilisation: np.ndarray) -> float:
    """From when on the spread of utilisation stays within BALANCED, as it is at the end."""
    off = np.flatnonzero(utilisation > BALANCED)
    return float(at[off[-1] + 1] if len(off) else at[0])


def _claims(slot: str) -> list[Claim]:
    def balances(summary: Summary, phase: int) -> bool:
        return summary[f"utilisation of {_scheme(slot)} after phase {phase}"] <= BALANCED

    def works_off(summary: Summary, phase: int) -> bool:
        return summary[f"queue of {_scheme(slot)} after phase {phase}"] < 0.1 * summary[f"queue of SG after phase {phase}"]

    return [
        *(
            Claim(
                f"slot of {slot}: after change {number}, CG balances the utilisations again (spread at most {BALANCED} at the"
                " end of the phase)",
                lambda s, phase=number + 1: balances(s, phase),
                why_not=TOO_FEW_SLOTS,
            )
            for number in (1, 2)
        ),
        *(
            Claim(
                f"slot of {slot}: after change {number}, CG works its queues off (at the end of the phase below 10 % of SG's)",
                lambda s, phase=number + 1: works_off(s, phase),
                why_not=QUEUES_STAY,
            )
            for number in (1, 2)
        ),
    ]


CG_CHANGE = Experiment(
    id="cg-change",
    title="Capacities that change while running: {3, 5}, then {5, 4}, then {2, 10}; over the time slot",
    source=f"{SOURCE} VI-B, figure 11",
    parameters={
        **WIKIPEDIA,
        **{name: value for name, value in LINES.items() if name != "slot"},
        "slots": SLOTS,
        "virtual_workers": 100,
        "phases": [[3, 5.0], [5, 4.0], [2, 10.0]],
        "changes_at": [6 / 22, 12 / 22],
    },
    quick={"messages": 3_000_000, "keys": 200_000, "slots": {"8 s": 300, "1 minute": 2_000, "5 minutes": 10_000}},
    runs=1,
    quick_runs=1,
    measure=_measure,
    claims=[claim for slot in SLOTS for claim in _claims(slot)],
    plots=[
        Plot(f"Changing capacities: {metric}, max - min", "messages", metric, "scheme", log_y=metric != "utilisation")
        for metric in METRICS
    ],
    stand_in=STAND_IN,
    takes=KEYS,
)
