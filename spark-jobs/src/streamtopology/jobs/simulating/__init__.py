"""`streamtopology simulate`: the manifest's operators under every policy, on a described stream or a trace, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from streamtopology.jobs import wording
from streamtopology.jobs.failures import WrongUse
from streamtopology.jobs.simulating.arrivals import Arrivals, NotInTrace, Stream, arrivals
from streamtopology.jobs.simulating.picture import draw_comparison
from streamtopology.routing.simulator.comparison import Comparison, Result, Site
from streamtopology.routing.topology import BUILTINS, Operator, Topology, Traits, load

_UNKNOWN = Traits(stateful=True)
"""What a class of one's own is taken for: its state may not be one that can be combined."""


@dataclass(frozen=True)
class Compared:
    """One operator's comparison: `skipped` maps policies to why, `notes` are sentences about the stream."""

    operator: Operator
    site: Site
    seconds_per_row: float
    bound: float
    results: Sequence[Result]
    skipped: dict[str, str]
    notes: tuple[str, ...]


def simulate(manifest: Path, stream: Stream, report_dir: Path | None, console: Console | None = None) -> int:
    """Compare the policies for each operator, print a table each; with `report_dir` also JSON and pictures. Returns 0."""
    console = console or Console()
    topology = load(manifest)
    _check_names(topology, stream)
    compared: list[Compared] = []
    left_out: list[str] = []
    with _bars(console) as bars:
        for operator in topology.operators:
            try:
                compared.append(_compare(topology, operator, arrivals(operator, stream), bars))
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


def site_of(topology: Topology, operator: Operator) -> Site:
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
    )


def _compare(topology: Topology, operator: Operator, rows: Arrivals, bars: Bars | None) -> Compared:
    site = site_of(topology, operator)
    comparison = Comparison(site)
    task = bars.add_task(operator.name, total=rows.batches) if bars else None
    for batch in rows:
        comparison.take(batch)
        if bars and task is not None:
            bars.advance(task)
    return Compared(
        operator, site, rows.seconds_per_row, comparison.bound(), comparison.results(), comparison.skipped, rows.notes
    )  # fmt: skip


def _bars(console: Console) -> AbstractContextManager[Bars | None]:
    """A bar for each operator in a terminal; elsewhere nothing, a simulation takes seconds."""
    if not console.is_terminal:
        return nullcontext()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("batches"),
        TimeRemainingColumn(),
    )
    return Bars(*columns, console=console, transient=True)


def table(compared: Compared) -> str:
    """A line for each policy, the best first; * marks the manifest's own."""
    site = compared.site
    key = ", ".join(compared.operator.grouping.key) or "no key"
    lines = [
        f"{site.operator} ({compared.operator.run} by {key}): {site.parallelism} instances, {site.used_cpu.sum():g} cores, "
        f"{wording.micros(compared.seconds_per_row)} a row, bound {wording.rate(compared.bound)}",
        f"    {'policy':18} {'rows/s':>8} {'of bound':>9}  {'imbalance':>16} {'re-routed':>9} {'keys moved':>10} "
        f"{'bytes':>8} {'entries':>7} {'copies':>6}",
    ]
    lines += [_line(result, result.policy == site.policy) for result in compared.results]
    lines += [f"    skipped: {policy}: {reason}" for policy, reason in compared.skipped.items()]
    if site.stateful and any(result.copies > 1 for result in compared.results):
        lines.append("    note: a policy that splits keys needs a merging half behind it, which is not in these figures")
    return "\n".join([*lines, *(f"    note: {note}" for note in compared.notes), ""])


def _line(result: Result, own: bool) -> str:
    after = wording.percent(result.imbalance_after)
    imbalance = after if result.imbalance_before is None else f"{wording.percent(result.imbalance_before)} -> {after}"
    rerouted = len(result.rerouted_at)
    return (
        f"  {'*' if own else ' '} {result.policy:18} {wording.count(result.rows_per_second):>8} "
        f"{wording.percent(result.share_of_bound):>9}  {imbalance:>16} {rerouted:>9} {wording.count(result.keys_moved):>10} "
        f"{wording.size(result.bytes_moved):>8} {result.entries:>7} {result.copies:>6.2f}"
    )


def _write(folder: Path, topology: Topology, stream: Stream, compared: Sequence[Compared], console: Console) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "simulation.json").write_text(json.dumps(as_json(topology, stream, compared), indent=2, allow_nan=False) + "\n")
    for suffix in ("png", "svg"):
        draw_comparison(topology.name, compared, folder / f"simulation.{suffix}")
    where = f"results: {folder / 'simulation.json'}   picture: {folder / 'simulation.png'}"
    console.print(where, highlight=False, soft_wrap=True)


def as_json(topology: Topology, stream: Stream, compared: Sequence[Compared]) -> dict[str, Any]:
    """What `simulation.json` holds (docs/simulate.md)."""
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
