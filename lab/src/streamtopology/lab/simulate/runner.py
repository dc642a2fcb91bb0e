"""`streamtopology simulate`: the manifest's operators under every policy, on a described stream or a trace, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from streamtopology.contract import formatting
from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.simulate.advice import recommendation
from streamtopology.lab.simulate.arrivals import Arrivals, NotInTrace, Stream, arrivals
from streamtopology.lab.simulate.comparison import Compared, Comparison, Result, Site
from streamtopology.lab.simulate.picture import draw_comparison
from streamtopology.lab.simulate.progress import Progress, progress_on
from streamtopology.topology import BUILTINS, OperatorSpec, Topology, Traits, load

# The traits assumed of a user's own class: its state may not be combinable.
_UNKNOWN = Traits(stateful=True)


def simulate(manifest: Path, stream: Stream, report_dir: Path | None, console: Console | None = None) -> int:
    """Compare the policies for each operator, print a table each; with `report_dir` also JSON and pictures. Returns 0."""
    console = console or Console()
    topology = load(manifest)
    _check_names(topology, stream)
    compared: list[Compared] = []
    left_out: list[str] = []
    with progress_on(console, [operator.name for operator in topology.operators], stream.batches) as progress:
        for operator in topology.operators:
            try:
                progress.begin(operator.name)
                compared.append(_compare(topology, operator, arrivals(operator, stream, topology.sources), progress))
            except NotInTrace as reason:
                left_out.append(str(reason))
    if not compared:
        raise WrongUse("; ".join(left_out))
    for sentence in left_out:
        console.print(f"left out: {sentence}", highlight=False, markup=False, soft_wrap=True)
    for one in compared:
        console.print(table(one), highlight=False, markup=False, soft_wrap=True)
    if report_dir is not None:
        _write(report_dir, topology, stream, compared, console)
    return 0


def _check_names(topology: Topology, stream: Stream) -> None:
    known = {operator.name for operator in topology.operators} | {""}
    strangers = {name for given in (stream.keys, stream.zipf, stream.cost_seconds) for name in given} - known
    if strangers:
        names = ", ".join(operator.name for operator in topology.operators)
        raise WrongUse(f"{topology.name!r} has no operator {', '.join(sorted(strangers))}; it has {names}")


def site_of(topology: Topology, operator: OperatorSpec) -> Site:
    """The operator as it would run on the manifest's executors at their declared CPU."""
    traits = BUILTINS.get(operator.run, _UNKNOWN)
    return Site(
        operator=operator.name,
        parallelism=operator.parallelism,
        cpu=tuple(executor.cpu for executor in topology.executors for _ in range(executor.replicas)),
        policy=operator.grouping.policy,
        options=operator.grouping.options,
        has_key=bool(operator.grouping.key),
        stateful=traits.stateful,
        combinable=traits.combinable,
        rebalance=topology.rebalance,
        aggregate_every=operator.aggregate_every,
    )


def _compare(topology: Topology, operator: OperatorSpec, rows: Arrivals, progress: Progress) -> Compared:
    site = site_of(topology, operator)
    comparison = Comparison(site)
    for number, batch in enumerate(rows, start=1):
        comparison.take(batch)
        progress.advance(number, rows.batches)
    return Compared(
        operator, site, rows.seconds_per_row, comparison.bound(), comparison.results(), comparison.skipped, rows.notes
    )


def table(compared: Compared) -> str:
    """A line for each policy, the best first; * marks the manifest's own."""
    site = compared.site
    key = ", ".join(compared.operator.grouping.key) or "no key"
    lines = [
        f"{site.operator} ({compared.operator.run} by {key}): {site.parallelism} instances, {site.used_cpu.sum():g} cores, "
        f"{formatting.micros(compared.seconds_per_row)} a row, bound {formatting.rate(compared.bound)}",
        f"    {'policy':18} {'rows/s':>8} {'of bound':>9}  {'imbalance':>16} {'re-routed':>9} {'keys moved':>10} "
        f"{'bytes':>8} {'entries':>7} {'copies':>6} {'merging':>7}",
    ]
    lines += [_line(result, result.policy == site.policy) for result in compared.results]
    lines += [f"    skipped: {policy}: {reason}" for policy, reason in compared.skipped.items()]
    lines += [f"    note: {note}" for note in compared.notes]
    return "\n".join([*lines, f"  {recommendation(compared)}", ""])


def _line(result: Result, own: bool) -> str:
    after = formatting.percent(result.imbalance_after)
    imbalance = after if result.imbalance_before is None else f"{formatting.percent(result.imbalance_before)} -> {after}"
    rerouted = len(result.rerouted_at)
    return (
        f"  {'*' if own else ' '} {result.policy:18} {formatting.count(result.rows_per_second):>8} "
        f"{formatting.percent(result.share_of_bound):>9}  {imbalance:>16} {rerouted:>9} "
        f"{formatting.count(result.keys_moved):>10} "
        f"{formatting.size(result.bytes_moved):>8} {result.entries:>7} {result.copies:>6.2f} "
        f"{formatting.percent(result.merging):>7}"
    )


def _write(folder: Path, topology: Topology, stream: Stream, compared: Sequence[Compared], console: Console) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "simulation.json").write_text(json.dumps(as_json(topology, stream, compared), indent=2, allow_nan=False) + "\n")
    for suffix in ("png", "svg"):
        draw_comparison(topology.name, compared, folder / f"simulation.{suffix}")
    where = f"results: {folder / 'simulation.json'}   picture: {folder / 'simulation.png'}"
    console.print(where, highlight=False, soft_wrap=True)


def as_json(topology: Topology, stream: Stream, compared: Sequence[Compared]) -> dict[str, Any]:
    """The content of `simulation.json` (docs/guide/simulate.md)."""
    return {
        "topology": topology.name,
        "trace": None if stream.trace is None else str(stream.trace),
        "operators": [
            {
                "name": one.site.operator,
                "policy": one.site.policy,
                "instances": one.site.parallelism,
                "cores": float(one.site.used_cpu.sum()),
                "seconds_per_row": one.seconds_per_row,
                "bound": one.bound,
                "policies": [asdict(result) for result in one.results],
                "skipped": one.skipped,
                "notes": list(one.notes),
            }
            for one in compared
        ],
    }
