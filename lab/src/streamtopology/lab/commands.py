"""The commands that the lab adds to `streamtopology`, by entry points; imports nothing slow, as `--help` loads it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from streamtopology.contract import formatting
from streamtopology.jobs.cli import parameters
from streamtopology.jobs.cli.command_group import Group
from streamtopology.jobs.cli.parameters import (
    FILE,
    NON_NEGATIVE,
    OUTPUT_FILE,
    OUTPUT_FOLDER,
    POSITIVE,
    WHOLE,
)
from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.bench.catalog import BENCHMARKS, OPTIONS, Benchmark
from streamtopology.lab.nexmark.configuration import NexmarkConfiguration

PerOperatorNumbers = tuple[tuple[str, float], ...]


def stop_on_sigterm() -> None:
    """Have SIGTERM end a run as Ctrl-C does, with everything cleaned up."""

    def interrupt(signum: int, _: object) -> None:
        signal.signal(signum, signal.SIG_DFL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")


class _PerOperator(click.ParamType):
    """`OPERATOR=VALUE`, or `VALUE` alone for all operators that are not named: a pair of name (or "") and value."""

    def __init__(self, value: click.ParamType) -> None:
        self.name = f"[operator=]{value.name}"
        self._value = value

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        name, equals, text = value.rpartition("=")
        if equals and not name:
            self.fail(f"{value!r}: name the operator before =", param, ctx)
        return name, self._value.convert(text, param, ctx)


def _cost(text: str) -> float:
    from streamtopology.topology import parse_duration

    seconds = parse_duration(text)
    if not seconds:
        raise ValueError(f"{text!r}: a row costs more than nothing")
    return seconds


@click.command()
@click.option(
    "--report", type=OUTPUT_FOLDER, default=Path("build/demo"), show_default=True, metavar="DIR", help="Folder of the report."
)
@click.option("--batches", type=POSITIVE, default=40, show_default=True, help="Batches of each run.")
def demo(report: Path, batches: int) -> int:
    """Run the flights demo: fields against live re-routing.

    Runs in a checkout, whose examples/flights.yaml it takes. Both results are checked against a plain group-by.
    """
    from streamtopology.lab.demo.run import run_demo

    stop_on_sigterm()
    return run_demo(report, batches)


@click.command()
@click.argument("folder", type=OUTPUT_FOLDER, metavar="DIR")
@click.option("--files", type=POSITIVE, default=30, show_default=True, help="Number of files.")
@click.option("--rows", type=POSITIVE, default=100_000, show_default=True, help="Flights of each file.")
def sample_data(folder: Path, files: int, rows: int) -> int:
    """Write real flights as Parquet files, to try topologies on.

    They are the 336,776 flights from New York in 2013, again and again. Files of the same names are replaced.

    Example: streamtopology sample-data build/flights
    """
    from streamtopology.lab.bench.flights_data import FLIGHTS_SCHEMA, make_flights

    written = make_flights(folder, files, rows)
    size = formatting.size(sum(path.stat().st_size for path in written))
    click.echo(f"{len(written)} files of {rows:,} flights, {size}, in {folder}: {', '.join(FLIGHTS_SCHEMA.names)}")
    return 0


def _nexmark_options(command: Callable[..., int]) -> Callable[..., int]:
    for each in reversed(fields(NexmarkConfiguration)):
        name = f"--{each.name.replace('_', '-')}"
        command = click.option(name, type=WHOLE, default=each.default, show_default=True, help=each.metadata["help"])(command)
    return command


@click.command()
@click.argument("folder", type=OUTPUT_FOLDER, metavar="DIR")
@click.option("--events", type=WHOLE, default=1_000_000, show_default=True, help="People, auctions and bids in all.")
@click.option("--files", type=POSITIVE, default=10, show_default=True, help="Files in each of the three folders.")
@_nexmark_options
def nexmark(folder: Path, events: int, files: int, **options: int) -> int:
    """Write the stream of the benchmark Nexmark as Parquet files.

    The folders person, auction and bid get the events of nexmark's own generator, which has no seed: here each event has
    one. Options have its names. Times begin on 2015-07-15. Files of the same names are replaced.
    """
    from streamtopology.lab.nexmark.events import write_events

    try:
        written = write_events(folder, NexmarkConfiguration(**options), events, files)
    except ValueError as wrong:
        raise WrongUse(str(wrong)) from None
    size = formatting.size(sum(path.stat().st_size for path in written))
    click.echo(f"{events:,} events, {size}, as {files} files in each of {folder}/person, {folder}/auction and {folder}/bid")
    return 0


def _parameter(text: str) -> tuple[str, Any]:
    """`name=value`, the value as JSON has it; what JSON does not know is a text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not a parameter and its value, such as slot=15000 or instances=[5,15]")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


@click.command()
@click.argument("experiment", metavar="ID|all")
@click.option("--quick", is_flag=True, help="Smaller sizes and fewer runs.")
@click.option("--runs", type=POSITIVE, help="Repetitions with each seed (default: the paper's, shared out over the seeds).")
@click.option("--seed", type=WHOLE, default=1, show_default=True, help="The first seed; the next are each 10,000 more.")
@click.option("--seeds", type=POSITIVE, help="Number of seeds that a claim is judged over (default: 5, with --spark 1).")
@click.option(
    "--set",
    "given",
    type=parameters.Parsed("name=value", _parameter),
    multiple=True,
    help="Another value of a parameter of this experiment: JSON, e.g. slot=15000.",
)
@click.option(
    "--trace",
    type=FILE,
    metavar="FILE",
    help="A real stream in place of the stand-in: Parquet or CSV with the columns time, key and, for pairs, second_key.",
)
@click.option("--spark", is_flag=True, help="Also the experiments that are measured on an embedded cluster.")
@click.option("--json", "json_file", type=OUTPUT_FILE, metavar="FILE", help="Write the measurements; a list for all.")
@click.option("--report", type=OUTPUT_FOLDER, metavar="DIR", help="Write a page with each figure next to the paper's.")
def reproduce(
    experiment: str,
    quick: bool,
    runs: int | None,
    seed: int,
    seeds: int | None,
    given: tuple[tuple[str, Any], ...],
    trace: Path | None,
    spark: bool,
    json_file: Path | None,
    report: Path | None,
) -> int:
    """Run the papers' experiments in the simulator, or on Spark.

    ID is an experiment such as dkg-k. A claim holds, does not, or depends on the seed. The exit code is 0 when every claim
    holds with every seed, else 1.
    """
    from streamtopology.lab.reproduce import runner

    stop_on_sigterm()
    request = runner.Request(quick, runs, json_file, report, seed, seeds, dict(given), trace)
    return runner.reproduce(experiment, request, runner.to_run(on_spark=spark), processes=len(os.sched_getaffinity(0)))


@click.command()
@parameters.manifest
@click.option("--keys", type=_PerOperator(POSITIVE), multiple=True, help="Distinct keys (default: 100000).")
@click.option(
    "--zipf",
    type=_PerOperator(NON_NEGATIVE),
    multiple=True,
    help="Zipf exponent of the keys; 0 is uniform (default: 1.2).",
)
@click.option(
    "--cost",
    type=_PerOperator(parameters.Parsed("time", _cost)),
    multiple=True,
    help="Time of a row on one core (default: the manifest's costPerTuple, else 10us).",
)
@click.option("--rows", type=POSITIVE, default=0, help="Rows of a batch (default: 200000).")
@click.option("--batches", type=POSITIVE, default=30, show_default=True, help="Batches of the stream.")
@click.option("--trace", type=FILE, metavar="FILE", help="Take keys from this parquet file or folder instead.")
@click.option("--report", type=OUTPUT_FOLDER, metavar="DIR", help="Write simulation.json and a picture.")
def simulate(
    manifest: Path,
    keys: PerOperatorNumbers,
    zipf: PerOperatorNumbers,
    cost: PerOperatorNumbers,
    rows: int,
    batches: int,
    trace: Path | None,
    report: Path | None,
) -> int:
    """Compare the policies for each operator, without Spark.

    --keys, --zipf and --cost may be given several times: for an operator by name, or for all others.
    """
    from streamtopology.lab.simulate import runner

    if trace is not None and (keys or zipf):
        raise WrongUse("--trace has keys of its own: leave out --keys and --zipf")
    stream = runner.Stream(dict(keys), dict(zipf), dict(cost), rows, batches, trace)
    return runner.simulate(manifest, stream, report)


@click.command()
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the first history; each has the next (default: any).")
@click.option("--histories", type=POSITIVE, help="Number of histories (default: 100).")
@click.option("--hours", type=NON_NEGATIVE, help="Hours of CPU, instead of a number of histories.")
@click.option("--mutant", type=FILE, metavar="FILE", help="Put a fault into the code first: tests/mutants/NAME.toml.")
@click.option("--record", type=OUTPUT_FILE, metavar="FILE", help="Continue where FILE ends, and add to its count.")
@click.option("--real-time", is_flag=True, help="By long-lived workers and a network, as `trigger.realTime` has them.")
def simulate_faults(
    seed: int | None, histories: int | None, hours: float | None, mutant: Path | None, record: Path | None, real_time: bool
) -> int:
    """Play whole lives of topologies in this process, with faults at every operation.

    Driver, workers, checkpoint, sinks and re-routing are the real ones; disk, Spark, clocks and threads are
    simulated, all from one seed. The exit code is 1 if a row was lost or counted twice; its story is made short
    and printed.
    """
    import random

    from streamtopology.lab.faults.mutants import Mutant

    if mutant is not None and record is not None:
        raise WrongUse("--record counts histories of the code as it is: leave out --mutant")
    changed = None if mutant is None else Mutant.read(mutant)
    if changed is not None:
        changed.install()
        real_time = real_time or changed.real_time
    from streamtopology.lab.faults.runner import Amount, simulate_faults

    first = random.SystemRandom().randrange(10**9) if seed is None else seed
    limited = Amount(histories or (None if hours else 100), None if hours is None else hours * 3600)
    return simulate_faults(first, limited, click.echo, record, None if changed is None else changed.concerns, real_time)


@click.group(cls=Group)
def arena() -> None:
    """Measure other engines beside StreamTopology.

    Each has an environment of its own in build/arena, with pinned versions; needs uv, Maven and git. What has been measured
    stays in build/arena/results, and is not measured again. An engine that fails has a row that says so.
    """


@arena.command("nexmark")
@click.option("--events", type=POSITIVE, default=10_000_000, show_default=True, help="Events of the stream.")
@click.option("--runs", type=POSITIVE, default=3, show_default=True, help="Runs of each query, after one that is checked.")
@click.option("--query", "queries", multiple=True, metavar="NAME", help="Only this query, such as q5; may be repeated.")
@click.option("--engine", "engines", multiple=True, metavar="NAME", help="Only this engine; may be repeated.")
@click.option("--unequal", is_flag=True, help="Four workers of half a core, one of which has 30 % of it.")
@click.option("--datagen", is_flag=True, help="Flink reads nexmark's own generator, whose results cannot be checked.")
@click.option(
    "--nexmark",
    "repository",
    default="https://github.com/nexmark/nexmark",
    show_default=True,
    metavar="URL|DIR",
    help="Where nexmark's repository is, for its queries.",
)
@click.option("--fresh", is_flag=True, help="Measure again what has been measured.")
def arena_nexmark(
    events: int,
    runs: int,
    queries: tuple[str, ...],
    engines: tuple[str, ...],
    unequal: bool,
    datagen: bool,
    repository: str,
    fresh: bool,
) -> int:
    """Run Nexmark's queries by each engine in turns, on the same events.

    Each has two workers of one core, unless they are to be unequal. The exit
    code is 1 when a result of StreamTopology is missing or wrong.
    """
    from streamtopology.lab.arena.nexmark import ENGINES_OF_NEXMARK, EQUAL, UNEQUAL, Nexmark
    from streamtopology.lab.arena.run import run_nexmark
    from streamtopology.lab.nexmark.sql import SQL

    stop_on_sigterm()
    cpus = UNEQUAL if unequal else EQUAL
    asked = Nexmark(events, runs, queries or tuple(SQL), engines or ENGINES_OF_NEXMARK, datagen, cpus)
    return run_nexmark(asked, repository, fresh=fresh)


@arena.command("switch")
@click.option("--bootstrap", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT", help="A broker of Kafka.")
@click.option("--keys", type=POSITIVE, default=1_000_000, show_default=True, help="Keys in state.")
@click.option("--rate", type=POSITIVE, default=1_000, show_default=True, help="Rows a second.")
@click.option("--lives", type=POSITIVE, default=3, show_default=True, help="Lives of each engine, through all events.")
@click.option("--event", "events", multiple=True, metavar="NAME", help="Only this event, such as kill; may be repeated.")
@click.option("--engine", "engines", multiple=True, metavar="NAME", help="Only this engine; may be repeated.")
@click.option("--fresh", is_flag=True, help="Measure again what has been measured.")
def arena_switch(
    bootstrap: str, keys: int, rate: int, lives: int, events: tuple[str, ...], engines: tuple[str, ...], fresh: bool
) -> int:
    """Measure latency over time through a switch, Kafka to Kafka.

    Keys move, a worker joins, leaves, and is killed. The exit code is 1 when a row of StreamTopology is lost or counted twice.
    """
    from streamtopology.lab.arena.switch import CONTESTANTS, EVENTS, Switch
    from streamtopology.lab.arena.switch_run import run_switch

    stop_on_sigterm()
    asked = Switch(keys, rate, lives, events or tuple(EVENTS), engines or tuple(CONTESTANTS))
    return run_switch(asked, bootstrap, fresh=fresh)


_CHANGE = "Only this change, slowed (a worker) or moved (the hot keys); may be repeated."
_SKEW = "Zipf's exponent of the keys, 0 for uniform ones; may be repeated (default: 0, 1 and 1.2)."


@arena.command("keyed")
@click.option("--runs", type=POSITIVE, default=1, show_default=True, help="Runs of each engine, in turns; four minutes each.")
@click.option("--skew", "skews", type=click.FloatRange(min=0), multiple=True, metavar="NUMBER", help=_SKEW)
@click.option("--change", "changes", multiple=True, metavar="NAME", help=_CHANGE)
@click.option("--engine", "engines", multiple=True, metavar="NAME", help="Only this engine; may be repeated.")
@click.option("--fresh", is_flag=True, help="Measure again what has been measured.")
def arena_keyed(runs: int, skews: tuple[float, ...], changes: tuple[str, ...], engines: tuple[str, ...], fresh: bool) -> int:
    """Count rows by key with each engine in turns, while one of its four workers is slowed down to 30 %, or the hot keys move.

    The page has rows/s, the share of the paid CPU that works, and a picture of both over time. The exit code is 1 when a result
    of StreamTopology is missing or wrong.
    """
    from streamtopology.lab.arena.engines import Place
    from streamtopology.lab.arena.keyed import CHANGES, COUNT, SKEWS, Keyed
    from streamtopology.lab.arena.run import FOLDER, run_keyed

    stop_on_sigterm()
    asked = Keyed(COUNT, skews or SKEWS, changes or tuple(CHANGES), runs, engines or tuple(COUNT.peers))
    return run_keyed(asked, Place(FOLDER), fresh=fresh)


@arena.command("shufflebench")
@click.option("--runs", type=POSITIVE, default=1, show_default=True, help="Runs of each engine, in turns; four minutes each.")
@click.option("--skew", "skews", type=click.FloatRange(min=0), multiple=True, metavar="NUMBER", help=_SKEW)
@click.option("--engine", "engines", multiple=True, metavar="NAME", help="Only this engine; may be repeated.")
@click.option(
    "--shufflebench",
    "repository",
    default="https://github.com/dynatrace-research/ShuffleBench",
    show_default=True,
    metavar="URL|DIR",
    help="Where ShuffleBench's repository is, for its Java.",
)
@click.option("--fresh", is_flag=True, help="Measure again what has been measured.")
def arena_shufflebench(runs: int, skews: tuple[float, ...], engines: tuple[str, ...], repository: str, fresh: bool) -> int:
    """Run ShuffleBench's job with each engine in turns, while one of its four workers is slowed down to 30 %.

    Records of 1,024 bytes go to the consumers whose rules they fit, of a million; a consumer has a state of 128 bytes. The exit
    code is 1 when a result of StreamTopology is missing or wrong.
    """
    from streamtopology.lab.arena.engines import Place
    from streamtopology.lab.arena.keyed import SKEWS, Keyed
    from streamtopology.lab.arena.run import FOLDER, run_keyed
    from streamtopology.lab.arena.shufflebench import SHUFFLEBENCH_CASE

    stop_on_sigterm()
    asked = Keyed(SHUFFLEBENCH_CASE, skews or SKEWS, ("slowed",), runs, engines or tuple(SHUFFLEBENCH_CASE.peers))
    return run_keyed(asked, Place(FOLDER, shufflebench=repository), fresh=fresh)


class _Bench(Group):
    """The group of the benchmarks, which have the options: before the benchmark's name there is none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as wrong:
            if wrong.option_name.removeprefix("--") not in (*OPTIONS, "json"):
                raise
            message = f"write {wrong.option_name} after the benchmark's name: bench NAME {wrong.option_name} VALUE"
            raise click.UsageError(message, ctx) from None


class _BenchCommand(click.Command):
    """A benchmark, whose errors name the options that it has."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as wrong:
            known = ", ".join(option for parameter in self.params for option in parameter.opts)
            message = f"No such option {wrong.option_name!r}; {self.name} has: {known}."
            raise click.UsageError(message, ctx) from None


@click.group(cls=_Bench)
def bench() -> None:
    """Run a benchmark."""


def _command(name: str, benchmark: Benchmark) -> click.Command:
    def run(json_file: Path | None, **options: int | str | tuple[int, ...]) -> int:
        from streamtopology.lab.bench.runner import run_bench

        return run_bench(name, json_file, options)

    options = [
        click.Option([f"--{option.replace('_', '-')}"], is_flag=True, help=OPTIONS[option])
        if default is False
        else click.Option(
            [f"--{option}"],
            type=str if isinstance(default, str) else POSITIVE,
            default=default,
            multiple=isinstance(default, tuple),
            show_default=True,
            help=OPTIONS[option],
        )
        for option, default in benchmark.options.items()
    ]
    file = click.Option(["--json", "json_file"], type=OUTPUT_FILE, metavar="FILE", help="Write the results as JSON.")
    return _BenchCommand(name, callback=run, params=[*options, file], help=benchmark.summary)


for _name, _benchmark in BENCHMARKS.items():
    bench.add_command(_command(_name, _benchmark))
