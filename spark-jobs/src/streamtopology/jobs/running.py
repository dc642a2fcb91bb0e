"""`streamtopology run`: the live view around one run, or around a baseline and the run it is compared with."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from streamtopology.jobs.cluster import executor_slots
from streamtopology.jobs.embedded import EmbeddedCluster
from streamtopology.jobs.following import following
from streamtopology.jobs.history import History
from streamtopology.jobs.memory import keep_freed_memory
from streamtopology.jobs.picture import draw_run
from streamtopology.jobs.query import Until
from streamtopology.jobs.report import Checked, build_report, summary_text
from streamtopology.jobs.runner import RunOptions, TopologyRun, check_before_start, new_history
from streamtopology.jobs.view import View
from streamtopology.routing import groupings
from streamtopology.routing.topology import Topology, load


@dataclass(frozen=True)
class Ran:
    """One finished run: what happened, and the capacity bound measured in it (source rows/s)."""

    history: History
    bound: float


def run_manifest(
    manifest: Path, until: Until, *, work_dir: Path, port: int, report_dir: Path | None, baseline: str | None
) -> int:
    """Run `manifest` with a live view; with `baseline` the same input first under that policy. Returns the exit code."""
    topology = load(manifest)
    base_dir = manifest.resolve().parent
    check_before_start(topology, base_dir)
    options = RunOptions(until, work_dir, port)
    before: Ran | None = None
    with Session(topology, base_dir, options, Console()) as session:
        if baseline is not None:
            before = session.run(as_baseline(topology, baseline))
        ran = session.run(topology, manifest)
    if report_dir is not None:
        write_report(report_dir, ran, before)
    return 0


class Session:
    """A cluster and a screen, for one run after the other on the same executors."""

    def __init__(self, topology: Topology, base_dir: Path, options: RunOptions, console: Console) -> None:
        self._topology = topology
        self._base_dir = base_dir
        self._options = options
        self._console = console
        self._screen = ExitStack()
        self._undo = ExitStack()

    def __enter__(self) -> Session:
        keep_freed_memory()  # plans are made in this process
        with ExitStack() as undo:
            undo.push(self._screen)
            starting = new_history(self._topology)
            self._show(starting)
            cluster = EmbeddedCluster(
                self._topology.name, executor_slots(self._topology), self._options.work_dir / "cluster", starting.enter
            )
            self._embedded = undo.enter_context(cluster)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._undo.close()

    def run(self, topology: Topology, manifest: Path | None = None) -> Ran:
        """Run `topology` until the session's options say so; a changed `manifest` is applied while it runs."""
        history = new_history(topology)
        self._show(history)
        with ExitStack() as undo:
            run = TopologyRun(self._embedded, topology, self._base_dir, history, self._options)
            if manifest is not None:
                undo.enter_context(following(run.apply_file, manifest, run.tell))
            run.process()
        history.enter("done")
        return Ran(history, run.bound())

    def _show(self, history: History) -> None:
        self._screen.close()
        self._screen.enter_context(View(history, self._console, time.monotonic))


def as_baseline(topology: Topology, policy: str) -> Topology:
    """The same topology under `policy` wherever tuples are routed by a table, never re-routed, in a checkpoint of its own."""
    operators = tuple(
        replace(operator, grouping=replace(operator.grouping, policy=policy, options={}))
        if groupings.get(operator.grouping.policy).kind != "chooser"
        else operator
        for operator in topology.operators
    )
    sinks = tuple(
        replace(sink, options={**sink.options, "path": f"{sink.options['path']}-{policy}"}) if "path" in sink.options else sink
        for sink in topology.sinks
    )
    rebalance = replace(topology.rebalance, mode="Off")
    checkpoint = None if topology.checkpoint is None else f"{topology.checkpoint}-{policy}"
    return replace(
        topology, name=f"{topology.name}-{policy}", operators=operators, sinks=sinks, rebalance=rebalance, checkpoint=checkpoint
    )


def write_report(folder: Path, ran: Ran, before: Ran | None, checks: Sequence[Checked] = ()) -> dict:
    """Write report.json and the picture into `folder`; print the summary. Returns the report."""
    folder.mkdir(parents=True, exist_ok=True)
    baseline = before.history if before else None
    report = build_report(ran.history, baseline=baseline, bound=ran.bound, checks=checks)
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    for suffix in ("png", "svg"):
        draw_run(ran.history, baseline, folder / f"run.{suffix}", bound=ran.bound)
    print(summary_text(report))
    print(f"report: {folder / 'report.json'}   picture: {folder / 'run.png'}")
    return report
