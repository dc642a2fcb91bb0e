"""`streamtopology run`: the live view around one run, or around a baseline and the run it is compared with."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from streamtopology.contract.environment import page_hosts
from streamtopology.contract.errors import StreamTopologyError
from streamtopology.contract.phases import Phase
from streamtopology.jobs.connectors.sinks import destination
from streamtopology.jobs.connectors.sinks.registry import gets_frames
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.local.control_socket import ControlServer, refuse_second_run
from streamtopology.jobs.local.executor_room import NoRoom, machine_bytes, refuse_too_many
from streamtopology.jobs.local.interrupts import Interrupts
from streamtopology.jobs.local.manifest_watch import Version, version_of, watching
from streamtopology.jobs.local.start_steps import StartSteps
from streamtopology.jobs.local.user_browser import opened
from streamtopology.jobs.local.worker_cluster import WorkerCluster, purpose_of
from streamtopology.jobs.malloc import collect_garbage_seldom, keep_freed_memory
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.stats import build_stats
from streamtopology.jobs.own_command import on_manifest
from streamtopology.jobs.runtime.checkpoint_fit import check_checkpoint
from streamtopology.jobs.runtime.preflight.checks import examine
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.jobs.runtime.topology_run import RunOptions, TopologyRun, new_history
from streamtopology.jobs.spark.cluster import Cluster, executor_slots
from streamtopology.jobs.spark.history_log import history_log
from streamtopology.jobs.spark.user_settings import user_settings
from streamtopology.jobs.view.event_log import EventLog
from streamtopology.jobs.view.formatting import still_unbalanced
from streamtopology.jobs.view.hidden_keys import hides_keys
from streamtopology.jobs.view.http_server import StatusServer
from streamtopology.jobs.view.live_view import View
from streamtopology.jobs.view.page.record import PageRecord
from streamtopology.jobs.view.prometheus import Metrics
from streamtopology.jobs.view.run_ending import (
    Ending,
    LeftBehind,
    SinkRows,
    ending_text,
)
from streamtopology.jobs.view.run_report import Checked, build_report, summary_text
from streamtopology.topology import ManifestError, Problem, Topology, format_cpu, groupings, load
from streamtopology.tracing.opening import check_traces, traces


@dataclass(frozen=True)
class Ran:
    """One finished run: its history, the capacity bound measured in it (source rows/s), what it left behind, its events.

    `page`: the value behind its page, at its end; None of a run that was broken off.
    """

    topology: Topology
    history: History
    bound: float
    left: LeftBehind
    events: EventLog
    page: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Serving:
    """The page of a run: at `port` (0: any free one), opened in the user's browser where `opens`."""

    port: int = 0
    opens: bool = False


@dataclass(frozen=True)
class Reporting:
    """The report of a run to its user: of which `manifest` and work folder, and in which `folder`, if any.

    `started`: the command's begin, on the monotonic clock.
    """

    manifest: Path
    started: float
    work_dir: Path
    folder: Path | None = None


def run_manifest(until: Until, reporting: Reporting, interrupts: Interrupts, *, serving: Serving, baseline: str | None) -> int:
    """Run the manifest with a live view; with `baseline` the same input first under that policy. Returns the exit code."""
    hides_keys(os.environ)  # wrong values are refused before anything is started
    history_log(os.environ)
    check_traces(os.environ, "streamtopology")
    read = version_of(reporting.manifest)
    findings = examine(reporting.manifest)
    topology = findings.refuse_problems()
    if topology.replicas == 0:
        nobody = "found 0, a run on this machine needs at least one executor: only on Kubernetes do rows start one"
        raise ManifestError([Problem("spec.autoscale.replicas", nobody)], str(reporting.manifest))
    executors = len(executor_slots(topology))
    try:
        refuse_too_many(executors, machine_bytes())
    except NoRoom as error:
        raise ManifestError([Problem("spec.executors", str(error))], str(reporting.manifest)) from None
    if findings.doubts:
        print(findings.warnings(), file=sys.stderr)
    base_dir = reporting.manifest.resolve().parent
    check_checkpoint(topology, reporting.work_dir, base_dir)
    options = RunOptions(until, reporting.work_dir)
    before: Ran | None = None
    session = Session(topology, base_dir, options, Console(), serving, interrupts, reporting.started)
    interrupts.last_words = lambda: _say_last_words(session, reporting, interrupts)
    with session:
        try:
            if baseline is not None:
                before = session.run(as_baseline(topology, baseline))
            ran = before if before and interrupts.received else session.run(topology, reporting.manifest, read)
        except Exception:
            if interrupts.received:  # the run breaks off instead of stopping, for example as the signal went to its JVM, too
                interrupts.leave()
            if death := _jvm_death():
                session.close_screen()
                raise TopologyFailed(_without_jvm(death, session, reporting)) from None
            raise
    interrupts.last_words = lambda: None  # they follow
    if interrupts.received:
        print(f"{interrupts.name}: stopped after the running batch")
    elif by := ran.history.stopped_by:
        print(f"{by}: stopped after the {'last' if '--drain' in by else 'running'} batch")
    print(ending_text(ending_of(ran, reporting)))
    if reporting.folder is not None and ran is not before:
        interrupts.last_words = lambda: print(f"{interrupts.name}: ended before {reporting.folder} was complete", flush=True)
        _report(reporting.folder, ran, before)
        interrupts.last_words = lambda: None
    return interrupts.exit_code


def _jvm_death() -> str | None:
    """As `driver_jvm_death`, without loading what starts a JVM."""
    session = sys.modules.get("streamtopology.jobs.spark.session")
    return None if session is None else session.driver_jvm_death()


def _report(folder: Path, ran: Ran, before: Ran | None) -> None:
    """Write the report, unless the run had no rows and a previous one's would be lost."""
    if (folder / "report.json").exists() and not ran.history.totals.rows:
        print(f"report: no rows came, so {folder} keeps the one that is there")
    else:
        write_report(folder, ran, before)


def ending_of(ran: Ran, reporting: Reporting) -> Ending:
    """Return the ending of a run for its last lines."""
    totals = ran.history.totals
    return Ending(
        topology=ran.topology.name,
        arguments=on_manifest(reporting.manifest, reporting.work_dir),
        seconds=time.monotonic() - reporting.started,
        batch_seconds=totals.seconds,
        batches=totals.batches,
        rows_in=totals.rows,
        sinks=[SinkRows(sink.name, destination(sink), totals.rows_out.get(sink.name, 0)) for sink in ran.topology.sinks],
        late=totals.late_rows,
        set_aside=totals.bad_rows,
        left=ran.left,
        skipped=totals.skipped_rows,
        filtered=totals.filtered_rows,
        has_report=reporting.folder is not None,
        events=ran.events.written,
        event_log=str(ran.events.path),
        imbalance=still_unbalanced(ran.history, ran.topology.rebalance.tolerance),
    )


def _without_jvm(death: str, session: Session, reporting: Reporting) -> str:
    """The end of a run whose driver JVM is gone."""
    ran = session.ran_so_far()
    done = "" if ran is None else f"\n{ending_text(ending_of(ran, reporting))}"
    return (
        f"{death}; the kernel does that when memory runs out (see dmesg). The running batch is not committed, and the next run "
        f"reads it again.{done}"
    )


def _say_last_words(session: Session, reporting: Reporting, interrupts: Interrupts) -> None:
    """Say what a run that ends at once has done, whatever its other threads do now."""
    session.close_screen()
    ran = session.ran_so_far()
    if ran is None:
        print(f"{interrupts.name}: ended before the first batch; nothing was read", flush=True)
        return
    print(f"{interrupts.name}: ended at once; the running batch is not committed, and the next run reads it again")
    print(ending_text(ending_of(ran, reporting)), flush=True)


class Session:
    """A cluster and a screen, for one run after the other on the same executors.

    `started`: the command's begin, on the monotonic clock, from which the screen counts (default: now).
    """

    def __init__(
        self,
        topology: Topology,
        base_dir: Path,
        options: RunOptions,
        console: Console,
        serving: Serving = Serving(),
        interrupts: Interrupts | None = None,
        started: float | None = None,
    ) -> None:
        self._started = time.monotonic() if started is None else started
        self._interrupts = interrupts or Interrupts()
        self._running: tuple[TopologyRun, History, EventLog] | None = None
        self._topology = topology
        self._base_dir = base_dir
        self._options = options
        self._console = console
        self._serving = serving
        self._screen = ExitStack()
        self._view: View | None = None
        self._undo = ExitStack()

    def __enter__(self) -> Session:
        keep_freed_memory()  # plans are made in this process
        collect_garbage_seldom()
        with ExitStack() as undo:
            undo.push(self._screen)
            self._history = history = new_history(self._topology)
            slots = executor_slots(self._topology)
            self._steps = StartSteps(len(slots), self._report)
            self._steps.cluster(has_spark=needs_spark(self._topology))
            self._show(history)
            settings = user_settings(self._topology.spark_conf)
            folder = self._options.work_dir / "cluster"
            if needs_spark(self._topology):
                from streamtopology.jobs.local.embedded_cluster import EmbeddedCluster  # loads PySpark: a second

                cluster = EmbeddedCluster(self._topology.name, slots, folder, self._steps, settings)
            else:
                purpose = purpose_of(self._topology, self._options.work_dir, self._base_dir, settings)
                cluster = WorkerCluster(slots, folder, self._steps, settings, purpose)
            self._embedded = undo.enter_context(cluster)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._undo.close()

    def run(self, topology: Topology, manifest: Path | None = None, read: Version | None = None) -> Ran:
        """Run `topology`, of the version `read` of `manifest`, until the session's options say so; a changed one is applied."""
        (ran,) = in_turns(self._turns(topology, manifest, read))
        return ran

    def run_in_turns(self, baseline: Topology, topology: Topology, manifest: Path) -> tuple[Ran, Ran]:
        """Run both, in turns as the session's options have them, so that other programs slow both alike."""
        before, ran = in_turns(self._turns(baseline), self._turns(topology, manifest))
        return before, ran

    def _turns(
        self, topology: Topology, manifest: Path | None = None, read: Version | None = None
    ) -> Generator[None, None, Ran]:
        history = new_history(topology, hides_keys(os.environ))
        if self._running is None:
            self.close_screen()
            self._steps.remember_when_running(history, lambda: time.monotonic() - self._started)
        events = EventLog(self._options.work_dir / topology.name / "events.log")
        history.listen(events)
        self._history = history  # which the step is told to
        self._steps.query()
        self._show(history)
        options = replace(self._options, warming_up=self._steps.warm_up())
        with ExitStack() as undo:
            trace = undo.enter_context(traces(os.environ, {"service.name": topology.name}, self._report))
            run = open_run(self._embedded, topology, self._base_dir, history, replace(options, trace=trace))
            if manifest is not None:
                undo.enter_context(watching(run.apply_file, manifest, run.notify, read))
            undo.enter_context(self._interrupts.stopping(lambda: self._interrupted(run, history)))
            self._running = run, history, events
            serving = replace(self._serving, opens=self._serving.opens and manifest is not None)  # not the baseline's page
            record = undo.enter_context(processing(run, history, serving, manifest))
            for _ in run.turns():
                yield
                self._show(history)
        history.enter(Phase.DONE)
        self.close_screen()
        page = record.page(run.standing(), since=-1)
        return Ran(run.router.topology, history, run.bound(), run.left_behind(), events, page)

    def ran_so_far(self) -> Ran | None:
        """Return what the current run has done; None before its first batch can have begun."""
        if self._running is None or not self._running[1].is_ready():
            return None
        run, history, events = self._running
        return Ran(run.router.topology, history, run.bound(), run.left_behind(), events)

    def close_screen(self) -> None:
        """End the live view, so that lines can be printed."""
        self._screen.close()
        self._view = None

    def _interrupted(self, run: TopologyRun, history: History) -> None:
        """Stop `run` after its batch, or end at once if there is none yet."""
        if not history.is_ready():
            self._interrupts.leave()
        run.stop()
        run.notify(f"{self._interrupts.name}: stopping after the running batch; once more ends at once")

    def _report(self, text: str) -> None:
        """Show a step of the start, or news of the cluster once batches run."""
        history = self._history
        if history.activity.phase is Phase.STARTING:
            history.starting(text)
        else:
            history.event(time.time(), history.newest, text)

    def _show(self, history: History) -> None:
        self._history = history
        if self._view is None:
            self._view = self._screen.enter_context(View(history, self._console, time.monotonic, self._started))
        self._view.turn_to(history)


def needs_spark(topology: Topology) -> bool:
    """True if anything of a run on this machine is Spark's: its attempts, or a sink that gets Spark's frames."""
    return not topology.trigger.real_time or any(gets_frames(sink) for sink in topology.sinks)


def open_run(cluster: Cluster, topology: Topology, base_dir: Path, history: History, options: RunOptions) -> TopologyRun:
    """Open a run whose commands come over the control socket. Raises Refused if one of that name runs here already."""
    if options.decides:
        refuse_second_run(topology.name)  # before the checkpoint is touched: it belongs to the other run
    return TopologyRun(cluster, topology, base_dir, history, options)


def in_turns(*runs: Generator[None, None, Ran]) -> list[Ran]:
    """Run each to its next `yield`, one after the other, until all have ended; return what they return."""
    ended: dict[int, Ran] = {}
    with ExitStack() as undo:
        for run in runs:
            undo.callback(run.close)
        while len(ended) < len(runs):
            for number, run in enumerate(runs):
                try:
                    next(run)
                except StopIteration as end:
                    ended.setdefault(number, end.value)
    return [ended[number] for number in range(len(runs))]


def process(run: TopologyRun, history: History, serving: Serving = Serving()) -> PageRecord:
    """Run the stream as `run.stream` does, with a control socket and a status server. Returns what is behind its page."""
    with processing(run, history, serving) as page:
        run.stream()
    return page


@contextmanager
def processing(run: TopologyRun, history: History, serving: Serving, manifest: Path | None = None) -> Iterator[PageRecord]:
    """The surroundings of a stream on this machine: a control socket, and a status server, of whose page it gives the record.

    `manifest`: the watched file, which a command that changes the run beside it names.
    """
    metrics = Metrics(history, run.standing)
    page = PageRecord(history, lambda: run.router.topology, uuid.uuid4().hex, time.time)
    status = StatusServer(
        metrics.registry,
        lambda asked: build_stats(history, run.standing(), asked),
        lambda since: page.page(run.standing(), since),
        history.is_ready,
        port=serving.port,
        names=page_hosts(os.environ),
    )
    handlers = {
        "apply": lambda path: _announced(run, run.apply_file(path)),
        "resize": lambda class_name, cpu: run.resize(class_name, cpu) + _in_file(manifest, class_name, "cpu"),
        "scale": lambda class_name, replicas: (
            _announced(run, run.scale(class_name, replicas)) + _in_file(manifest, class_name, "replicas")
        ),
        "stop": lambda drain=False, now=False: stop_by_command(run, history, drain, now),
        "address": lambda: status.url,
    }
    with ControlServer(run.router.topology.name, handlers), status:
        history.served_at(f"{status.url}/")
        if serving.opens and not opened(history.address):
            run.notify("there is no browser here to open the page with")
        yield page


def _announced(run: TopologyRun, answer: str) -> str:
    """The answer to a command of another terminal, shown in the run's own, too."""
    run.notify(answer)
    return answer


def stop_by_command(run: TopologyRun, history: History, drain: bool, now: bool) -> str:
    """Stop `run` for a command of another terminal, and show that in its own; return the answer."""
    answer = run.stop(drain, now)
    history.stopped_by = f"streamtopology stop{' --drain' if drain else ''}{' --now' if now else ''}"
    run.notify(f"{history.stopped_by}: {answer}")
    return answer


def _in_file(manifest: Path | None, class_name: str, field: str) -> str:
    """Return a clause on what the watched file says of a class, and what its next save will do."""
    if manifest is None:
        return ""
    try:
        stated = {executor.name: executor for executor in load(manifest).executors}
    except (StreamTopologyError, OSError) as error:
        return f"; {manifest} cannot be read now: {error}"
    if class_name not in stated:
        return f"; {manifest} has no class {class_name}: its next save removes the class"
    executor = stated[class_name]
    value = format_cpu(executor.cpu) if field == "cpu" else executor.replicas
    return f"; {manifest} says {field}: {value}, and its next save goes back to that: change it there, too, to keep this"


def rows_made_per_second(topology: Topology) -> float | None:
    """The rows/s that the sources make by the clock; None if others have rows of their own."""
    if any(source.format != "rate" for source in topology.sources):
        return None
    return float(sum(int(source.options.get("rowsPerSecond", 1)) for source in topology.sources))


def as_baseline(topology: Topology, policy: str) -> Topology:
    """The same topology under `policy` wherever tuples are routed by a table, never re-routed, in a checkpoint of its own."""
    operators = tuple(
        replace(operator, grouping=replace(operator.grouping, policy=policy, options={}))
        if groupings.get(operator.grouping.policy).kind != "chooser"
        else operator
        for operator in topology.operators
    )
    sinks = tuple(
        replace(sink, options={**sink.options, "path": _next_to(sink.options["path"], policy)})
        if "path" in sink.options
        else sink
        for sink in topology.sinks
    )
    rebalance = replace(topology.rebalance, mode="Off")
    checkpoint = None if topology.checkpoint is None else _next_to(topology.checkpoint, policy)
    return replace(
        topology, name=f"{topology.name}-{policy}", operators=operators, sinks=sinks, rebalance=rebalance, checkpoint=checkpoint
    )


def _next_to(place: str, policy: str) -> str:
    return f"{place.rstrip('/')}-{policy}"


def write_report(
    folder: Path, ran: Ran, before: Ran | None, checks: Sequence[Checked] = (), say: Callable[[str], object] = print
) -> dict:
    """Write report.json and the picture into `folder`; `say` the summary. Returns the report."""
    from streamtopology.jobs.view.plot import draw_run  # a second of CPU that no start should wait for

    folder.mkdir(parents=True, exist_ok=True)
    baseline = before.history if before else None
    offered = rows_made_per_second(ran.topology)
    report = build_report(ran.history, baseline=baseline, bound=ran.bound, offered=offered, checks=checks)
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    if ran.page is not None:
        (folder / "page.json").write_text(json.dumps(ran.page))
    for suffix in ("png", "svg"):
        draw_run(ran.history, baseline, folder / f"run.{suffix}", bound=ran.bound)
    say(summary_text(report, rerouted=ran.history.was_rerouted))
    say(f"report: {folder / 'report.json'}   picture: {folder / 'run.png'}   page: streamtopology ui --report {folder}")
    return report
