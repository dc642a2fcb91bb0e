"""mixed-instances, mixed-theta, mixed-keys, mixed-window: what plans take and move (figures 8, 9, 10 and 19)."""

from __future__ import annotations

from itertools import product

from streamtopology.routing import planners
from streamtopology.routing.simulator.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row
from streamtopology.routing.simulator.experiments.mixed.adaptation import Setting
from streamtopology.routing.simulator.experiments.mixed.grid import DEFAULTS, UNBOUNDED, Case, measured, only, ratio

BOUNDED = ("mixed", "mintable")
"""Planners that the paper bounds by N_max; it has no figures of the others because they cannot be bounded."""

ALL_PLANNERS = [*BOUNDED, "minmig", "simple"]


def instances(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Figure 8: over N_D."""
    rows = _rows("instances", parameters["over_instances"], parameters, runs, seed, progress)
    default, most = DEFAULTS["instances"], max(parameters["over_instances"])
    return Measured(
        rows,
        {
            "mintable_to_mixed": _to_mixed(rows, "migration", instances=default, window=1),
            "mintable_to_mixed_most_instances": _to_mixed(rows, "migration", instances=most, window=1),
            "time_of_mixed_to_mintable": 1 / max(_to_mixed(rows, "plan_ms", instances=default, window=1), 1e-9),
            "window_5_to_1": _window_5_to_1(rows, instances=default),
        },
    )


def theta(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Figure 9: over theta_max."""
    rows = _rows("theta", parameters["over_theta"], parameters, runs, seed, progress)
    least, most = min(parameters["over_theta"]), max(parameters["over_theta"])
    return Measured(
        rows,
        {
            "mintable_to_mixed": _to_mixed(rows, "migration", theta=DEFAULTS["theta"], window=1),
            "plan_seconds_strictest": only(rows, "plan_ms_max", planner="mixed", theta=least, window=1) / 1e3,
            "imbalance_strictest": only(rows, "imbalance", planner="mixed", theta=least, window=1),
            "strictest_to_loosest_time": ratio(
                *(only(rows, "plan_ms", planner="mixed", theta=at, window=1) for at in (least, most))
            ),
            "strictest_to_loosest_migration": ratio(
                *(only(rows, "migration", planner="mixed", theta=at, window=1) for at in (least, most))
            ),
            "window_5_to_1": _window_5_to_1(rows, theta=DEFAULTS["theta"]),
        },
    )


def keys(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Figure 10: over |K|."""
    rows = _rows("keys", parameters["over_keys"], parameters, runs, seed, progress)
    sizes = parameters["over_keys"]
    return Measured(
        rows,
        {
            "least_mintable_to_mixed": min(_to_mixed(rows, "migration", keys=size, window=1) for size in sizes),
            "least_time_of_mixed_to_mintable": min(
                1 / max(_to_mixed(rows, "plan_ms", keys=size, window=1), 1e-9) for size in sizes
            ),
            "most_window_5_to_1": max(_window_5_to_1(rows, keys=size) for size in sizes),
        },
    )


def window(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Figure 19: over w."""
    rows = _rows("zipf", [parameters["zipf"]], parameters, runs, seed, progress)
    at = parameters["over_windows"]
    shares = {name: [only(rows, "migration", planner=name, window=w) for w in at] for name in parameters["planners"]}
    return Measured(
        rows,
        {
            "longest_to_shortest_mixed": ratio(shares["mixed"][-1], shares["mixed"][0]),
            "most_mixed_to_mintable": max(ratio(*pair) for pair in zip(shares["mixed"], shares["mintable"], strict=True)),
        },
    )


def _rows(name: str, values: list[float], parameters: Parameters, runs: int, seed: int, progress: Progress) -> list[Row]:
    """A row for every value of one field of the setting, every window and every planner."""
    names: list[str] = parameters["planners"]
    windows: list[int] = parameters["over_windows"]
    cases = [
        Case(
            {name: value, "window": w, "planner": planner, "line": f"{planner}, w = {w}"},
            planners.get(planner),
            Setting.of(parameters, **{name: value, "window": w}, **({} if planner in BOUNDED else {"max_entries": UNBOUNDED})),
        )
        for value, w, planner in product(values, windows, names)
    ]
    return measured(cases, runs, seed, progress)


def _to_mixed(rows: list[Row], name: str, **where: float) -> float:
    """MinTable's figure over Mixed's."""
    return ratio(*(only(rows, name, planner=planner, **where) for planner in ("mintable", "mixed")))


def _window_5_to_1(rows: list[Row], **where: float) -> float:
    """Migration of Mixed with w = 5 over that with w = 1."""
    return ratio(*(only(rows, "migration", planner="mixed", window=w, **where) for w in (5, 1)))


SETTING = {name: value for name, value in DEFAULTS.items() if name != "window"}

LESS_WITH_WINDOW = "With w = 5 Mixed migrates a smaller share of the state than with w = 1"

MINTABLE_MOVES_MORE = Claim(
    "MinTable incurs three times the migration cost of Mixed at theta_max 0.08 (at least twice)",
    lambda s: s["mintable_to_mixed"] >= 2,
    {"mintable_to_mixed": 3.0},
)


def _plots(x: str, log_x: bool = False) -> tuple[Plot, ...]:
    return (
        Plot("Plan time (CPU ms)", x, "plan_ms", "line", log_x=log_x, log_y=True),
        Plot("State moved by a plan (%)", x, "migration", "line", log_x=log_x),
    )


MIXED_INSTANCES = Experiment(
    id="mixed-instances",
    title="Plan time and migration over the number of instances",
    source="mixed-routing, section 5, figure 8",
    parameters={
        **{name: value for name, value in SETTING.items() if name != "instances"},
        "over_instances": [5, 10, 15, 20, 25, 30, 35, 40],
        "over_windows": [1, 5],
        "planners": ALL_PLANNERS,
    },
    quick={"over_instances": [5, 15, 40], "intervals": 10},
    runs=5,
    quick_runs=1,
    measure=instances,
    claims=(
        Claim(
            "MinTable's migration cost is much higher than Mixed's at the default 15 instances (at least twice)",
            lambda s: s["mintable_to_mixed"] >= 2,
        ),
        Claim(
            "With 40 instances Mixed's cost almost reaches MinTable's, as the smallest table exceeds N_max (within 20 %)",
            lambda s: s["mintable_to_mixed_most_instances"] <= 1.2,
            why_not="Here no table exceeds N_max: with 40 instances the heaviest key is above their mean load, so that balance"
            " cannot be had and less is moved for it; Mixed's table has 158 of the 3,000 entries allowed.",
        ),
        Claim("Mixed takes longer to plan than MinTable", lambda s: s["time_of_mixed_to_mintable"] > 1),
        Claim(LESS_WITH_WINDOW, lambda s: s["window_5_to_1"] < 1),
    ),
    plots=_plots("instances"),
)

MIXED_THETA = Experiment(
    id="mixed-theta",
    title="Plan time and migration over the tolerance of imbalance",
    source="mixed-routing, section 5, figure 9",
    parameters={
        **{name: value for name, value in SETTING.items() if name != "theta"},
        "over_theta": [0.0, 0.02, 0.05, 0.08, 0.15, 0.2, 0.3],
        "over_windows": [1, 5],
        "planners": ALL_PLANNERS,
    },
    quick={"over_theta": [0.0, 0.08, 0.3], "intervals": 10},
    runs=5,
    quick_runs=1,
    measure=theta,
    claims=(
        MINTABLE_MOVES_MORE,
        Claim(
            "Even for theta_max 0 a plan takes no more than 1 s (the slowest, CPU)",
            lambda s: s["plan_seconds_strictest"] <= 1,
            {"plan_seconds_strictest": 1.0},
        ),
        Claim(
            "theta_max 0 is planned: no instance is left more than 1 % above the mean load, on average",
            lambda s: s["imbalance_strictest"] <= 1,
        ),
        Claim("Plans take less time for a larger theta_max", lambda s: s["strictest_to_loosest_time"] > 1),
        Claim("A smaller theta_max costs more migration", lambda s: s["strictest_to_loosest_migration"] > 1),
        Claim(LESS_WITH_WINDOW, lambda s: s["window_5_to_1"] < 1),
    ),
    plots=_plots("theta"),
)

MIXED_KEYS = Experiment(
    id="mixed-keys",
    title="Plan time and migration over the number of keys",
    source="mixed-routing, section 5, figure 10",
    parameters={
        **{name: value for name, value in SETTING.items() if name not in ("keys", "intervals")},
        "over_keys": [5_000, 10_000, 100_000, 1_000_000],
        "intervals": 6,
        "over_windows": [1, 5],
        "planners": ALL_PLANNERS,
    },
    quick={"over_keys": [5_000, 100_000], "intervals": 6},
    runs=2,
    quick_runs=1,
    measure=keys,
    claims=(
        Claim("Mixed migrates less than MinTable for every |K|", lambda s: s["least_mintable_to_mixed"] > 1),
        Claim("Mixed takes longer to plan than MinTable for every |K|", lambda s: s["least_time_of_mixed_to_mintable"] > 1),
        Claim(f"{LESS_WITH_WINDOW}, for every |K|", lambda s: s["most_window_5_to_1"] < 1),
    ),
    plots=_plots("keys", log_x=True),
)

MIXED_WINDOW = Experiment(
    id="mixed-window",
    title="Migration over the window of state",
    source="mixed-routing, appendix C, figure 19",
    parameters={
        **{name: value for name, value in SETTING.items() if name != "intervals"},
        "over_windows": [1, 5, 10, 15, 20],
        "intervals": 40,
        "planners": list(BOUNDED),
    },
    quick={"over_windows": [1, 20], "intervals": 25},
    runs=5,
    quick_runs=1,
    measure=window,
    claims=(
        Claim(
            "Mixed migrates a smaller share with the longest window than with w = 1",
            lambda s: s["longest_to_shortest_mixed"] < 1,
        ),
        Claim("Mixed migrates less than MinTable for every w", lambda s: s["most_mixed_to_mintable"] < 1),
    ),
    plots=_plots("window"),
)
