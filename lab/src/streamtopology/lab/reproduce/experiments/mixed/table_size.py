"""mixed-table and mixed-beta: the size of the routing table (figures 17, 18, 20 and 21)."""

from __future__ import annotations

from collections.abc import Iterator

from streamtopology.lab.groupings import planners
from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row
from streamtopology.lab.reproduce.experiments.mixed.adaptation import Setting, adaptations, compile_kernels
from streamtopology.lab.reproduce.experiments.mixed.grid import DEFAULTS, UNBOUNDED, Case, column, measured, only, ratio

# Points of a line of growth.
POINTS = 25


def table(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Figure 18: table size after each adjustment, and figure 17: what N_max makes of migration."""
    lines = [*_lines(parameters)]
    series: list[Row] = []
    for number, (line, planner, setting) in enumerate(lines):
        compile_kernels(planners.get(planner))
        step = max(setting.intervals // POINTS, 1)
        sizes = [
            [len(i.table.entry_hashes) for i in adaptations(planners.get(planner), setting, seed + run)] for run in range(runs)
        ]
        for i in range(step - 1, setting.intervals, step):
            series.append({"figure": "growth", "line": line, "x": i + 1, "y": sum(run[i] for run in sizes) / runs})
        progress((number + 1) / (len(lines) + 1))
    bounds = parameters["over_max_entries"]
    cases = [
        Case({"theta": t, "max_entries": bound}, planners.get("mixed"), Setting.of(parameters, theta=t, max_entries=bound))
        for t in parameters["over_theta"]
        for bound in bounds
    ]
    bounded = measured(cases, runs, seed, lambda share: progress((len(lines) + share) / (len(lines) + 1)))
    for row in bounded:
        series.append({"figure": "bound", "line": f"theta {row['theta']}", "x": row["max_entries"], "y": row["migration"]})
    last = {line: column(series, "y", figure="growth", line=line)[-1] for line, _, _ in lines}
    unbounded = [size for line, size in last.items() if line.startswith("minmig")]
    limit = DEFAULTS["keys"] * (DEFAULTS["instances"] - 1) / DEFAULTS["instances"]
    default = DEFAULTS["theta"]
    tight, ample = (only(bounded, "migration", theta=default, max_entries=at) for at in (min(bounds), max(bounds)))
    return Measured(
        series,
        {
            "smallest_unbounded": min(unbounded),
            "largest_unbounded": max(unbounded),
            "expected_unbounded": limit,
            "largest_bounded": max(column(series, "y", figure="growth", line="mixed")),
            "tight_to_ample_bound_migration": ratio(tight, ample),
        },
    )


def _lines(parameters: Parameters) -> Iterator[tuple[str, str, Setting]]:
    """(name of the line, planner, setting): MinMig without a bound over theta and beta, and Mixed with it."""
    grown = {"intervals": parameters["adjustments"], "max_entries": UNBOUNDED}
    for at in parameters["over_theta"]:
        yield f"minmig, theta {at}", "minmig", Setting.of(parameters, theta=at, **grown)
    for at in parameters["over_beta"]:
        yield f"minmig, beta {at}", "minmig", Setting.of(parameters, beta=at, **grown)
    yield "mixed", "mixed", Setting.of(parameters, intervals=parameters["adjustments"])


def beta(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Figures 20 and 21: MinMig over beta, averages over 10 adjustments."""
    cases = [
        Case(
            {"beta": at, "window": window, "line": f"w = {window}"},
            planners.get("minmig"),
            Setting.of(parameters, beta=at, window=window, max_entries=UNBOUNDED),
        )
        for window in parameters["over_windows"]
        for at in parameters["over_beta"]
    ]
    rows = measured(cases, runs, seed, progress)
    longest, betas = max(parameters["over_windows"]), parameters["over_beta"]

    def at(name: str, value: float) -> float:
        return only(rows, name, beta=value, window=longest)

    return Measured(
        rows,
        {
            "entries_largest_to_smallest_beta": ratio(at("entries", betas[-1]), at("entries", betas[0])),
            "entries_largest_to_default_beta": ratio(at("entries", betas[-1]), at("entries", DEFAULTS["beta"])),
            "migration_largest_to_smallest_beta": ratio(at("migration", betas[-1]), at("migration", betas[0])),
        },
    )


MIXED_TABLE = Experiment(
    id="mixed-table",
    title="Growth of the routing table over adjustments, and migration over its bound",
    source="mixed-routing, appendix B, figures 17 and 18",
    parameters={
        **{name: value for name, value in DEFAULTS.items() if name not in ("theta", "beta")},
        "adjustments": 3000,
        "over_theta": [0.02, 0.08, 0.15],
        "over_beta": [1.0, 2.0],
        "over_max_entries": [100, 300, 1000, 3000],
    },
    quick={
        "adjustments": 200,
        "over_theta": [0.02, 0.08],
        "over_beta": [1.0],
        "over_max_entries": [100, 3000],
        "intervals": 10,
    },
    runs=1,
    quick_runs=1,
    measure=table,
    claims=(
        Claim(
            "Without a bound the table settles at |K| (N_D - 1) / N_D = 9,333 entries whatever theta and beta (within 5 %)",
            lambda s: (
                0.95 * s["expected_unbounded"] <= s["smallest_unbounded"] <= s["largest_unbounded"]
                and s["largest_unbounded"] <= 1.05 * s["expected_unbounded"]
            ),
            {"smallest_unbounded": 9350.0, "largest_unbounded": 9350.0},
        ),
        Claim(
            "Mixed's table keeps to N_max",
            lambda s: s["largest_bounded"] <= DEFAULTS["max_entries"],
            by_construction="The planner ends with a table of at most N_max entries, whatever balance that leaves.",
        ),
        Claim(
            "With an N_max below what balance needs, Mixed migrates more than with an ample one",
            lambda s: s["tight_to_ample_bound_migration"] > 1,
        ),
    ),
    plots=(
        Plot("Entries over adjustments", "x", "y", "line", only={"figure": "growth"}),
        Plot("State moved by a plan of Mixed (%) over N_max", "x", "y", "line", log_x=True, only={"figure": "bound"}),
    ),
)

MIXED_BETA = Experiment(
    id="mixed-beta",
    title="Table size and migration of MinMig over beta",
    source="mixed-routing, appendix C, figures 20 and 21",
    parameters={
        **{name: value for name, value in DEFAULTS.items() if name not in ("beta", "window", "intervals")},
        "intervals": 10,
        "over_beta": [1.0, 1.25, 1.5, 1.75, 2.0],
        "over_windows": [1, 5],
    },
    quick={"over_beta": [1.0, 1.5, 2.0]},
    runs=10,
    quick_runs=2,
    measure=beta,
    claims=(
        Claim("A larger beta makes a smaller table", lambda s: s["entries_largest_to_smallest_beta"] < 1),
        Claim(
            "From beta 1.5 on the size of the table is stable (within 20 % up to beta 2)",
            lambda s: abs(s["entries_largest_to_default_beta"] - 1) <= 0.2,
        ),
        Claim("A larger beta costs more migration", lambda s: s["migration_largest_to_smallest_beta"] > 1),
    ),
    plots=(
        Plot("Entries", "beta", "entries", "line"),
        Plot("State moved by a plan (%)", "beta", "migration", "line"),
    ),
)
