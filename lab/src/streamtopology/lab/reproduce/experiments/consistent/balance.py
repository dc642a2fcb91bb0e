"""Experiments on balance and memory alone: figures 4, 5, 6 and 9 of Consistent Grouping."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row, Summary
from streamtopology.lab.reproduce.experiments.consistent.messages import PIECE, STAND_IN, Messages, Tally, drawn, wikipedia
from streamtopology.lab.reproduce.experiments.consistent.schemes import (
    Route,
    chosen,
    from_sources,
    key_grouping,
    over_virtual_workers,
    schemes,
)
from streamtopology.lab.reproduce.trace import KEYS
from streamtopology.lab.simulate.streams import zipf_probabilities

Case = tuple[float | int | str, ...]
WIKIPEDIA = {"messages": 22_000_000, "keys": 2_900_000, "top_share": 0.0932, "trace": ""}
QUICK_WIKIPEDIA = {"messages": 1_500_000, "keys": 200_000}
SOURCE = "Consistent Grouping, section"


def tallied(
    messages: Messages,
    seed: int,
    n_workers: Callable[[Case], int],
    routes: Mapping[Case, Route],
    progress: Progress,
) -> dict[Case, Tally]:
    """One stream through every route; a tally of each."""
    tallies = {case: Tally(messages.n_keys, n_workers(case)) for case in routes}
    done = 0
    for keys, hashes in messages.pieces(seed, PIECE):
        for case, route in routes.items():
            tallies[case].add(keys, route(hashes))
        done += len(keys)
        progress(done / messages.count)
    return tallies


def measured(
    columns: tuple[str, ...],
    parameters: Parameters,
    runs: int,
    seed: int,
    progress: Progress,
    one: Callable[..., dict[Case, Tally]],
) -> Measured:
    """The mean over runs as series (columns, imbalance, memory) and as a summary "imbalance of <case>", "memory of <case>"."""
    tallies = [one(parameters, seed + run, _part(progress, run, runs)) for run in range(runs)]
    series: list[Row] = []
    summary: dict[str, float] = {}
    for case in tallies[0]:
        imbalance = float(np.mean([of_run[case].imbalance for of_run in tallies]))
        memory = float(np.mean([of_run[case].memory for of_run in tallies]))
        series.append({**dict(zip(columns, case, strict=True)), "imbalance": imbalance, "memory": memory})
        summary |= {_name("imbalance", case): imbalance, _name("memory", case): memory}
    return Measured(series, summary)


def _part(progress: Progress, run: int, runs: int) -> Progress:
    return lambda share: progress((run + share) / runs)


def _name(what: str, case: Case) -> str:
    return f"{what} of {' '.join(str(part) for part in case)}"


def _imbalance(summary: Summary, *case: float | int | str) -> float:
    return summary[_name("imbalance", case)]


def _memory(summary: Summary, *case: float | int | str) -> float:
    return summary[_name("memory", case)]


def _cases(summary: Summary) -> list[tuple[str, ...]]:
    return [tuple(name.split()[2:]) for name in summary if name.startswith("imbalance of ")]


def _plots(title: str, x: str, line: str, **only: str | int) -> list[Plot]:
    return [Plot(f"{title}: {y}", x, y, line, log_x=True, log_y=True, only=only) for y in ("imbalance", "memory")]


def _eps(parameters: Parameters, seed: int, progress: Progress) -> dict[Case, Tally]:
    n, each = parameters["workers"], parameters["virtual_workers"]
    routes: dict[Case, Route] = {}
    for epsilon in parameters["epsilons"]:
        routes["PoRC", epsilon] = over_virtual_workers("porc", n, each, seed, epsilon)
    routes["SG", 0] = over_virtual_workers("shuffle", n, each, seed)
    routes["KG", 0] = _key_grouping_over(n, each)
    return tallied(wikipedia(parameters), seed, lambda _: n, routes, progress)


def _key_grouping_over(n: int, each: int) -> Route:
    to_virtual = key_grouping(n * each)
    return lambda hashes: to_virtual(hashes) % np.int32(n)


def _series_over_eps(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """KG and SG know no epsilon: their rows are repeated for each, to be drawn as lines."""
    found = measured(("scheme", "epsilon"), parameters, runs, seed, progress, _eps)
    series = [
        {**row, "epsilon": epsilon}
        for row in found.series
        for epsilon in ([row["epsilon"]] if row["scheme"] == "PoRC" else parameters["epsilons"])
    ]
    return Measured(series, found.summary)


def _epsilons(summary: Summary) -> list[str]:
    return sorted((epsilon for scheme, epsilon in _cases(summary) if scheme == "PoRC"), key=float)


def _porc(get: Callable[..., float], summary: Summary) -> list[float]:
    return [get(summary, "PoRC", epsilon) for epsilon in _epsilons(summary)]


CG_EPS = Experiment(
    id="cg-eps",
    title="The trade-off of epsilon: imbalance against memory",
    source=f"{SOURCE} VI-B, figure 5",
    parameters={**WIKIPEDIA, "workers": 10, "virtual_workers": 10, "epsilons": [0.001, 0.01, 0.1, 1.0, 10.0]},
    quick=QUICK_WIKIPEDIA,
    runs=1,
    quick_runs=1,
    measure=_series_over_eps,
    claims=[
        Claim(
            "a smaller epsilon gives less imbalance and a larger one less memory, at every step",
            lambda s: (
                _porc(_imbalance, s) == sorted(_porc(_imbalance, s)) and _porc(_memory, s) == sorted(_porc(_memory, s))[::-1]
            ),
        ),
        Claim(
            "PoRC's memory lies between that of KG and SG at every epsilon (1 % tolerance)",
            lambda s: all(_memory(s, "KG", 0) / 1.01 <= m <= _memory(s, "SG", 0) * 1.01 for m in _porc(_memory, s)),
        ),
        Claim(
            "PoRC's imbalance lies between that of SG and KG at every epsilon (1 % tolerance)",
            lambda s: all(_imbalance(s, "SG", 0) / 1.01 <= i <= _imbalance(s, "KG", 0) * 1.01 for i in _porc(_imbalance, s)),
            why_not="With epsilon = 10 PoRC all but never refuses a worker and is plain hashing, too, by another function than"
            " KG's: which of the two is more even is chance.",
        ),
        Claim(
            "imbalance is bounded by epsilon (a tenth of a percent for whole messages)",
            lambda s: all(_imbalance(s, "PoRC", epsilon) <= float(epsilon) + 1e-3 for epsilon in _epsilons(s)),
        ),
    ],
    plots=_plots("Trade-off of epsilon, 10 workers", "epsilon", "scheme"),
    stand_in=STAND_IN,
    takes=KEYS,
)


def _schemes(parameters: Parameters, seed: int, progress: Progress) -> dict[Case, Tally]:
    each, epsilon = parameters["virtual_workers"], parameters["epsilon"]
    routes: dict[Case, Route] = {
        (symbol, n): route for n in parameters["workers"] for symbol, route in schemes(n, each, epsilon, seed).items()
    }
    return tallied(wikipedia(parameters), seed, lambda case: int(case[1]), routes, progress)


def _measured_schemes(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    return measured(("scheme", "workers"), parameters, runs, seed, progress, _schemes)


def _workers(summary: Summary) -> list[str]:
    return sorted({case[1] for case in _cases(summary)}, key=int)


def _over_workers(holds: Callable[[Summary, str], bool]) -> Callable[[Summary], bool]:
    return lambda summary: all(holds(summary, n) for n in _workers(summary))


CG_SCHEMES = Experiment(
    id="cg-schemes",
    title="Imbalance and memory of all schemes over the number of workers",
    source=f"{SOURCE} VI-B, figure 6",
    parameters={**WIKIPEDIA, "workers": [5, 10, 50, 100], "virtual_workers": 10, "epsilon": 0.01},
    quick=QUICK_WIKIPEDIA,
    runs=1,
    quick_runs=1,
    measure=_measured_schemes,
    claims=[
        Claim(
            "KG has the most imbalance and the least memory, for any number of workers",
            _over_workers(
                lambda s, n: (
                    _imbalance(s, "KG", n) == max(_imbalance(s, symbol, m) for symbol, m in _cases(s) if m == n)
                    and _memory(s, "KG", n) == min(_memory(s, symbol, m) for symbol, m in _cases(s) if m == n)
                )
            ),
        ),
        Claim(
            "PKG is nearly perfect with 5 and 10 workers (imbalance below 1 %) and worse the more there are from then on",
            lambda s: (
                max(_imbalance(s, "PKG", 5), _imbalance(s, "PKG", 10)) < 0.01
                and 0.01 < _imbalance(s, "PKG", 50) < _imbalance(s, "PKG", 100)
            ),
        ),
        Claim(
            "PoTC and SG are nearly perfect (imbalance below 0.1 %)",
            _over_workers(lambda s, n: max(_imbalance(s, "PoTC", n), _imbalance(s, "SG", n)) < 1e-3),
        ),
        Claim(
            "CG and CH are bounded by epsilon = 0.01 (0.1 % more for whole messages)",
            _over_workers(lambda s, n: max(_imbalance(s, "CG", n), _imbalance(s, "CH", n)) <= 0.011),
        ),
        Claim(
            "CG needs less memory than CH",
            _over_workers(lambda s, n: _memory(s, "CG", n) < _memory(s, "CH", n)),
        ),
        Claim(
            "CH needs less memory than PoTC and SG",
            _over_workers(lambda s, n: _memory(s, "CH", n) < min(_memory(s, "PoTC", n), _memory(s, "SG", n))),
        ),
    ],
    plots=_plots("Schemes on equal workers", "workers", "scheme"),
    stand_in=STAND_IN,
    takes=KEYS,
)


def _sources(parameters: Parameters, seed: int, progress: Progress) -> dict[Case, Tally]:
    each, epsilon = parameters["virtual_workers"], parameters["epsilon"]
    routes: dict[Case, Route] = {
        (sources, n): from_sources([over_virtual_workers("porc", n, each, seed, epsilon) for _ in range(sources)])
        for sources in parameters["sources"]
        for n in parameters["workers"]
    }
    return tallied(wikipedia(parameters), seed, lambda case: int(case[1]), routes, progress)


def _memory_factor(summary: Summary, n: str) -> float:
    """Most memory over least, over all numbers of sources."""
    memories = [_memory(summary, *case) for case in _cases(summary) if case[1] == n]
    return max(memories) / min(memories)


def _measured_sources(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Every source rounds up by a message per virtual worker: `rounding <sources> <workers>` is their share of a load."""
    found = measured(("sources", "workers"), parameters, runs, seed, progress, _sources)
    messages = wikipedia(parameters).count
    rounding = {
        f"rounding {sources} {workers}": int(sources) * int(workers) * parameters["virtual_workers"] / messages
        for sources, workers in _cases(found.summary)
    }
    return Measured(found.series, {**found.summary, **rounding})


CG_SOURCES = Experiment(
    id="cg-sources",
    title="Consistent grouping with several sources",
    source=f"{SOURCE} VI-B, figure 9",
    parameters={**WIKIPEDIA, "sources": [1, 10, 50, 100], "workers": [5, 10, 50, 100], "virtual_workers": 10, "epsilon": 0.01},
    quick={**QUICK_WIKIPEDIA, "sources": [1, 10, 100]},
    runs=1,
    quick_runs=1,
    measure=_measured_sources,
    claims=[
        Claim(
            "imbalance stays within epsilon = 0.01 for any number of sources and workers (and one message for each "
            "virtual worker and source)",
            lambda s: all(_imbalance(s, *case) <= 0.01 + s[f"rounding {case[0]} {case[1]}"] for case in _cases(s)),
        ),
        Claim(
            "memory stays almost the same on a log scale (a factor of 2) over the number of sources",
            _over_workers(lambda s, n: _memory_factor(s, n) <= 2.0),
        ),
    ],
    plots=_plots("Several sources", "sources", "workers"),
    stand_in=STAND_IN,
    takes=KEYS,
)


def _skew(parameters: Parameters, seed: int, progress: Progress) -> dict[Case, Tally]:
    """Figure 4 routes straight to what it calls virtual workers."""
    tallies: dict[Case, Tally] = {}
    for step, exponent in enumerate(parameters["exponents"]):
        routes: dict[Case, Route] = {}
        for n in parameters["workers"]:
            routes["KG", n, exponent] = key_grouping(n)
            for symbol, policy in (("PKG", "partial-key"), ("PoTC", "potc"), ("SG", "shuffle")):
                routes[symbol, n, exponent] = chosen(policy, n, seed)
            for symbol, policy in (("PoRC", "porc"), ("CH", "bounded-hash")):
                routes[symbol, n, exponent] = chosen(policy, n, seed, parameters["epsilon"])
        messages = drawn(zipf_probabilities(parameters["keys"], exponent), parameters["messages"])
        part = _part(progress, step, len(parameters["exponents"]))
        tallies |= tallied(messages, seed, lambda case: int(case[1]), routes, part)
    return tallies


def _measured_skew(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    found = measured(("scheme", "workers", "exponent"), parameters, runs, seed, progress, _skew)
    return Measured(found.series, {**found.summary, "a message each": 1 / parameters["messages"]})


def _rises(summary: Summary, symbol: str) -> bool:
    """True if imbalance at the steepest skew is larger than at the gentlest, and larger with more workers."""
    found = {(int(n), float(z)): _imbalance(summary, s, n, z) for s, n, z in _cases(summary) if s == symbol}
    ns, zs = sorted({n for n, _ in found}), sorted({z for _, z in found})
    return all(found[n, zs[-1]] > found[n, zs[0]] for n in ns) and all(found[ns[-1], z] > found[ns[0], z] for z in zs)


def _every(holds: Callable[[Summary, str, str], bool]) -> Callable[[Summary], bool]:
    return lambda summary: all(holds(summary, n, z) for symbol, n, z in _cases(summary) if symbol == "KG")


CG_SKEW = Experiment(
    id="cg-skew",
    title="Imbalance and memory over skew, on 10, 100 and 1000 virtual workers",
    source=f"{SOURCE} IV-A, figure 4",
    parameters={
        "messages": 10_000_000,
        "keys": 100_000,
        "exponents": [0.1, 0.5, 1.0, 1.5, 2.0],
        "workers": [10, 100, 1000],
        "epsilon": 0.01,
    },
    quick={"messages": 1_000_000, "exponents": [0.5, 1.0, 2.0], "workers": [10, 100]},
    runs=1,
    quick_runs=1,
    measure=_measured_skew,
    claims=[
        Claim(
            "the imbalance of KG and of PKG grows with the skew and with the number of virtual workers",
            lambda s: _rises(s, "KG") and _rises(s, "PKG"),
        ),
        Claim(
            "PoTC, SG, PoRC and CH stay within 1 % of balance (and one message each)",
            _every(
                lambda s, n, z: (
                    max(_imbalance(s, symbol, n, z) for symbol in ("PoTC", "SG", "PoRC", "CH"))
                    <= 0.01 + s["a message each"] * int(n)
                )
            ),
        ),
        Claim(
            "balance costs memory: PKG's and PoRC's lie between KG's and SG's (1 % tolerance)",
            _every(
                lambda s, n, z: all(
                    _memory(s, "KG", n, z) <= _memory(s, symbol, n, z) * 1.01 <= _memory(s, "SG", n, z) * 1.0201
                    for symbol in ("PKG", "PoRC")
                )
            ),
        ),
    ],
    plots=[
        plot
        for n in (10, 100, 1000)
        for plot in _plots(f"Schemes over skew, {n} virtual workers", "exponent", "scheme", workers=n)
    ],
)

BALANCE = (CG_EPS, CG_SCHEMES, CG_SOURCES, CG_SKEW)
