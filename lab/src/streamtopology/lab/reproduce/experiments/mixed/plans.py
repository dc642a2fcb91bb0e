"""mixed-instances, mixed-theta, mixed-keys, mixed-window: what plans take and move (figures 8, 9, 10 and 19)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from streamtopology.lab.groupings import planners
from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row
from streamtopology.lab.reproduce.experiments.mixed.adaptation import Setting
from streamtopology.lab.reproduce.experiments.mixed.grid import DEFAULTS, KEYS, UNBOUNDED, Case, column, measured, only, ratio

# Planners that the paper bounds by N_max; it has no figures of the others because they cannot be bounded.
BOUNDED = ("mixed", "mintable")


def instances(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Figure 8: over N_D; and over |K|, which the text has lost, at the default N_D and at the most."""
    default, most, usual = Setting.instances, max(parameters["over_instances"]), parameters["keys"]
    windows: list[int] = parameters["over_windows"]
    others = [keys for keys in parameters["over_keys"] if keys != usual]
    points = [{"instances": n, "keys": usual, "window": w} for n, w in product(parameters["over_instances"], windows)]
    points += [{"instances": n, "keys": keys, "window": 1} for keys, n in product(others, (default, most))]
    rows = _rows(points, parameters, runs, seed, progress)
    usually = {"instances": default, "keys": usual, "window": 1}
    return Measured(
        rows,
        {
            "mintable_to_mixed": _to_mixed(rows, "migration", **usually),
            "mintable_to_mixed_most_instances": _to_mixed(rows, "migration", **{**usually, "instances": most}),
            "entries_most_instances": only(rows, "entries", planner="mixed", **{**usually, "instances": most}),
            "time_of_mixed_to_mintable": 1 / max(_to_mixed(rows, "plan_ms", **usually), 1e-9),
            "window_5_to_1": _window_5_to_1(rows, instances=default, keys=usual),
            "plans_as_minmig": only(rows, "as_minmig", planner="mixed", **usually),
            **_over_keys(rows, others, default, "mintable_to_mixed"),
            **_over_keys(rows, others, most, "mintable_to_mixed_most_instances"),
        },
    )


def theta(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Figure 9: over theta_max."""
    rows = _rows(_points("theta", parameters["over_theta"], parameters), parameters, runs, seed, progress)
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
            "plans_as_minmig": only(rows, "as_minmig", planner="mixed", theta=DEFAULTS["theta"], window=1),
        },
    )


def keys(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Figure 10: over |K|."""
    sizes = parameters["over_keys"]
    rows = _rows(_points("keys", sizes, parameters), parameters, runs, seed, progress)
    return Measured(
        rows,
        {
            "least_mintable_to_mixed": min(_to_mixed(rows, "migration", keys=size, window=1) for size in sizes),
            "least_time_of_mixed_to_mintable": min(
                1 / max(_to_mixed(rows, "plan_ms", keys=size, window=1), 1e-9) for size in sizes
            ),
            "most_window_5_to_1": max(_window_5_to_1(rows, keys=size) for size in sizes),
            "least_plans_as_minmig": min(column(rows, "as_minmig", planner="mixed", window=1)),
        },
    )


def window(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Figure 19: over w."""
    at = parameters["over_windows"]
    rows = _rows([{"window": w} for w in at], parameters, runs, seed, progress)
    shares = {name: [only(rows, "migration", planner=name, window=w) for w in at] for name in parameters["planners"]}
    return Measured(
        rows,
        {
            "longest_to_shortest_mixed": ratio(shares["mixed"][-1], shares["mixed"][0]),
            "most_mixed_to_mintable": max(ratio(*pair) for pair in zip(shares["mixed"], shares["mintable"], strict=True)),
        },
    )


def _points(name: str, values: list[float], parameters: Parameters) -> list[dict[str, float]]:
    """Every value of one field of the setting with every window."""
    return [{name: value, "window": w} for value, w in product(values, parameters["over_windows"])]


def _rows(points: Sequence[Mapping[str, float]], parameters: Parameters, runs: int, seed: int, progress: Progress) -> list[Row]:
    """A row for every point, fields of the setting by name, and every planner."""
    names: list[str] = parameters["planners"]
    cases = [
        Case(
            {**point, "planner": planner, "line": f"{planner}, w = {point['window']}{_domain(point, parameters)}"},
            planners.get(planner),
            Setting.of(parameters, **point, **({} if planner in BOUNDED else {"max_entries": UNBOUNDED})),
        )
        for point in points
        for planner in names
    ]
    return measured(cases, runs, seed, progress)


def _domain(point: Mapping[str, float], parameters: Parameters) -> str:
    """For the name of a line: |K| where it is not the usual one of a row that is not about |K|."""
    keys = point.get("keys", parameters.get("keys"))
    return "" if "keys" not in parameters or keys == parameters["keys"] else f", {keys} keys"


def _over_keys(rows: list[Row], sizes: Sequence[int], instances: int, name: str) -> dict[str, float]:
    """MinTable's migration over Mixed's for other |K|: `name`_at_`keys`."""
    return {f"{name}_at_{size}_keys": _to_mixed(rows, "migration", instances=instances, keys=size, window=1) for size in sizes}


def _to_mixed(rows: list[Row], name: str, **where: float) -> float:
    """MinTable's figure over Mixed's."""
    return ratio(*(only(rows, name, planner=planner, **where) for planner in ("mintable", "mixed")))


def _window_5_to_1(rows: list[Row], **where: float) -> float:
    """Migration of Mixed with w = 5 over that with w = 1."""
    return ratio(*(only(rows, "migration", planner="mixed", window=w, **where) for w in (5, 1)))


SETTING = {**{name: value for name, value in DEFAULTS.items() if name != "window"}, "keys": KEYS}

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
        "over_instances": [5, 10, 15, 25, 40],
        "over_keys": [10_000, 100_000, KEYS, 500_000],
        "over_windows": [1, 5],
        "planners": list(BOUNDED),
    },
    quick={"over_instances": [5, 15, 40], "over_keys": [10_000], "intervals": 6},
    runs=1,
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
        "over_theta": [0.0, 0.02, 0.08, 0.15, 0.3],
        "over_windows": [1, 5],
        "planners": list(BOUNDED),
    },
    quick={"over_theta": [0.0, 0.08, 0.3], "intervals": 6},
    runs=1,
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
        "over_keys": [5_000, 10_000, 100_000, KEYS, 1_000_000],
        "intervals": 6,
        "over_windows": [1, 5],
        "planners": [*BOUNDED, "minmig", "simple"],
    },
    quick={"over_keys": [5_000, 100_000], "intervals": 6},
    runs=1,
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
        **{name: value for name, value in DEFAULTS.items() if name not in ("window", "intervals")},
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
