"""The `streamtopology` command. Exit codes: 0 it held, 1 it ran but a check or the run failed, 2 wrong use."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from streamtopology.jobs.failures import WrongUse
from streamtopology.routing.topology import ManifestError, QuantityError, load, parse_duration

HELD, FAILED, WRONG_USE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        return parsed.command(parsed)
    except ManifestError as error:
        print(error, file=sys.stderr)
        return WRONG_USE
    except WrongUse as error:
        print(f"streamtopology: {error}", file=sys.stderr)
        return WRONG_USE
    except OSError as error:
        if "manifest" not in parsed or error.filename != str(parsed.manifest):
            raise
        print(f"streamtopology: cannot read {error.filename}: {error.strerror}", file=sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return FAILED
    except tuple(_told_errors()) as error:
        print(f"streamtopology: {error}", file=sys.stderr)
        return FAILED


def _told_errors() -> list[type[Exception]]:
    """Errors whose message is written for people; anything else is our mistake and shows its traceback."""
    from streamtopology.jobs.checkpoint import CheckpointError
    from streamtopology.jobs.control import NotRunning, Refused
    from streamtopology.jobs.executors import ExecutorsUnusable
    from streamtopology.jobs.failures import TopologyFailed
    from streamtopology.jobs.local.cluster import ClusterError
    from streamtopology.jobs.local.java import JavaMissing
    from streamtopology.jobs.migrate import GivenUp
    from streamtopology.jobs.server import AddressError
    from streamtopology.jobs.sinks import SinkError
    from streamtopology.jobs.sources.descriptors import SourceError
    from streamtopology.jobs.state import StateFileError
    from streamtopology.jobs.top import Unreachable

    return [
        AddressError, CheckpointError, ClusterError, ExecutorsUnusable, GivenUp, JavaMissing, NotRunning, Refused, SinkError,
        SourceError, StateFileError, TopologyFailed, Unreachable,
    ]  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="streamtopology", description="Skewed streams on unequal machines, re-routed live.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run a topology on an embedded Spark cluster")
    run.add_argument("manifest", type=Path)
    run.add_argument("--batches", type=_positive, help="stop after so many batches")
    run.add_argument("--duration", type=_duration, metavar="TIME", help="stop after this time, e.g. 90s or 10m")
    run.add_argument("--drain", action="store_true", help="at the end of the input close all windows (availableNow)")
    run.add_argument("--report", type=Path, metavar="DIR", help="write report.json and a picture of the run")
    run.add_argument("--baseline", metavar="POLICY", help="run the same input under this policy first, and compare")
    run.add_argument("--port", type=_port, default=0, help="port of /metrics and /stats (default: any free one)")
    run.add_argument("--work-dir", type=Path, default=Path("build/streamtopology"))
    run.set_defaults(command=_run)

    validate = commands.add_parser("validate", help="name every mistake of a manifest")
    validate.add_argument("manifest", type=Path)
    validate.set_defaults(command=_validate)

    apply = commands.add_parser("apply", help="change a running topology: routing, executors, limits")
    apply.add_argument("manifest", type=Path)
    apply.set_defaults(command=_apply)

    resize = commands.add_parser("resize", help="change the CPU of a class of executors while they run")
    resize.add_argument("executor_class", metavar="CLASS")
    resize.add_argument("--cpu", required=True, help="cores per executor, e.g. 300m or 1.5")
    resize.add_argument("--topology", help="which topology, when several run")
    resize.set_defaults(command=_resize)

    scale = commands.add_parser("scale", help="change the number of executors of a class while the topology runs")
    scale.add_argument("executor_class", metavar="CLASS")
    scale.add_argument("--replicas", required=True, type=_whole)
    scale.add_argument("--topology", help="which topology, when several run")
    scale.set_defaults(command=_scale)

    stop = commands.add_parser("stop", help="stop a running topology after its batch at work")
    stop.add_argument("topology")
    stop.add_argument(
        "--drain", action="store_true", help="the input is complete: publish what is held back, close all windows"
    )
    stop.set_defaults(command=_stop)

    state = commands.add_parser("state", help="look into a topology's state").add_subparsers(required=True)
    get = state.add_parser("get", help="a key's state and the instance that owns it")
    get.add_argument("manifest", type=Path)
    get.add_argument("key", nargs="+", help="the key's value, or one value for each of its columns; NULL for NULL")
    get.add_argument("--operator", help="which operator (default: the only one that has state)")
    get.add_argument("--work-dir", type=Path, default=Path("build/streamtopology"))
    get.set_defaults(command=_state_get)

    for name, what in (
        ("clone", "copy the checkpoint, as its newest commit has it"),
        ("rollback", "go back to an earlier batch"),
        ("check", "read every state file and say which are damaged or gone"),
    ):
        kept = state.add_parser(name, help=what)
        kept.add_argument("manifest", type=Path)
        kept.add_argument("--work-dir", type=Path, default=Path("build/streamtopology"))
        if name == "clone":
            kept.add_argument("target", metavar="URI", help="where the copy goes; there must be nothing yet")
            kept.add_argument("--topology", metavar="NAME", help="the topology that will use the copy (default: the same)")
        if name == "rollback":
            kept.add_argument("--to", type=_batch_number, required=True, metavar="BATCH")
        kept.set_defaults(command=_state_kept, action=name)

    copy = commands.add_parser("migrate", help="copy ahead the state that a prepared epoch moves (the driver starts this)")
    copy.add_argument("--checkpoint", required=True, metavar="URI", help="the topology's checkpoint")
    copy.add_argument("--epoch", required=True, type=_positive, metavar="N", help="the epoch, as the driver has prepared it")
    copy.set_defaults(command=_migrate)

    demo = commands.add_parser("demo", help="the flights demo: fields against live re-routing")
    demo.add_argument("--report", type=Path, default=Path("build/demo"), metavar="DIR")
    demo.add_argument("--batches", type=_positive, default=40)
    demo.set_defaults(command=_demo)

    reproduce = commands.add_parser("reproduce", help="run the papers' experiments in the simulator, or on Spark")
    reproduce.add_argument("id", metavar="ID|all", help="an experiment such as dkg-k, or all")
    reproduce.add_argument("--quick", action="store_true", help="smaller sizes and fewer runs")
    reproduce.add_argument("--runs", type=_positive, help="how often each is repeated (default: as docs/papers.md says)")
    reproduce.add_argument("--spark", action="store_true", help="also those that are measured on an embedded cluster")
    reproduce.add_argument("--json", type=Path, metavar="FILE", help="write what was measured; a list for all")
    reproduce.add_argument("--report", type=Path, metavar="DIR", help="write a page with each figure beside the paper's")
    reproduce.set_defaults(command=_reproduce)

    simulate = commands.add_parser("simulate", help="compare the policies for each operator, without Spark")
    simulate.add_argument("manifest", type=Path)
    simulate.add_argument(
        "--keys", action="append", type=_per_operator(_positive), metavar="[OPERATOR=]N", help="distinct keys (default: 100000)"
    )
    simulate.add_argument(
        "--zipf",
        action="append",
        type=_per_operator(_not_negative),
        metavar="[OPERATOR=]Z",
        help="exponent of their shares, 0 is uniform (default: 1.2)",
    )
    simulate.add_argument(
        "--cost",
        action="append",
        type=_per_operator(_cost),
        metavar="[OPERATOR=]TIME",
        help="what a row costs on one core (default: the manifest's costPerTuple, else 10us)",
    )
    simulate.add_argument("--rows", type=_positive, default=0, help="rows of a batch (default: 200000)")
    simulate.add_argument("--batches", type=_positive, default=30)
    simulate.add_argument("--trace", type=Path, metavar="FILE", help="take keys from this parquet file or folder instead")
    simulate.add_argument("--report", type=Path, metavar="DIR", help="write simulation.json and a picture")
    simulate.set_defaults(command=_simulate)

    plan = commands.add_parser("plan", help="what would be re-routed now, why and at what cost")
    plan.add_argument("manifest", type=Path)
    plan.add_argument("--stats", type=Path, required=True, metavar="FILE", help="what the driver serves at /stats; - reads it")
    plan.add_argument("--json", type=Path, metavar="FILE")
    plan.set_defaults(command=_plan)

    top = commands.add_parser("top", help="watch the instances of a topology that runs on a cluster")
    top.add_argument("topology", metavar="NAME")
    top.add_argument("-n", "--namespace", help="where the topology is (default: the kubeconfig's)")
    top.add_argument("--context", help="which of the kubeconfig's clusters (default: the current one)")
    top.add_argument("--here", action="store_true", help="one that `streamtopology run` runs on this machine")
    top.set_defaults(command=_top)

    driver = commands.add_parser("driver", help="run a topology in a pod that the operator made")
    driver.set_defaults(command=_driver)

    executor = commands.add_parser("executor", help="run an executor in a pod that the operator made")
    executor.set_defaults(command=_executor)

    bench = commands.add_parser("bench", help="run a benchmark")
    bench.add_argument("name")
    bench.add_argument("--json", type=Path, metavar="FILE")
    bench.add_argument("--runs", type=_positive, help="how often (each bench has a default)")
    bench.add_argument("--seed", type=_positive, help="chaos: the first seed; --runs tries the next ones, too")
    bench.add_argument("--kills", type=_positive, help="chaos: how many processes are killed")
    bench.add_argument("--keys", type=_positive, help="recovery, migrate: keys with state")
    bench.set_defaults(command=_bench)
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _whole(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _batch_number(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a batch")
    return int(text)


def _not_negative(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return number


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except QuantityError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _cost(text: str) -> float:
    seconds = _duration(text)
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r}: a row costs more than nothing")
    return seconds


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a number from 1 to 65535, or 0 for any free one")
    return int(text)


def _per_operator(read: Callable[[str], float]) -> Callable[[str], tuple[str, float]]:
    """Reads `OPERATOR=VALUE`, or `VALUE` alone for all operators that are not named: ("" , value)."""

    def read_named(text: str) -> tuple[str, float]:
        name, equals, value = text.rpartition("=")
        if equals and not name:
            raise argparse.ArgumentTypeError(f"{text!r}: name the operator before =")
        return name, read(value)

    return read_named


def _run(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs.control import refuse_second_run
    from streamtopology.jobs.query import Until
    from streamtopology.jobs.running import run_manifest
    from streamtopology.jobs.server import refuse_taken_port

    topology = load(parsed.manifest)
    if parsed.drain and not topology.trigger.available_now:
        raise WrongUse(
            "--drain closes windows at the end of the input; without trigger.availableNow there is none: end the run with "
            "`streamtopology stop NAME --drain`"
        )
    refuse_second_run(topology.name)  # not after the minute that a cluster takes to start
    refuse_taken_port(parsed.port)
    _stop_on_signals()
    return run_manifest(
        parsed.manifest, Until(parsed.batches, parsed.duration, parsed.drain), work_dir=parsed.work_dir, port=parsed.port,
        report_dir=parsed.report, baseline=parsed.baseline,
    )  # fmt: skip


def _validate(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs.runner import check_before_start

    topology = load(parsed.manifest)
    check_before_start(topology, parsed.manifest.resolve().parent)
    print(f"{parsed.manifest}: topology {topology.name!r} is valid")
    return HELD


def _apply(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs.control import ask

    topology = load(parsed.manifest)
    print(ask(topology.name, "apply", path=str(parsed.manifest.resolve())))
    return HELD


def _resize(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs.control import ask, the_running

    print(ask(parsed.topology or the_running(), "resize", class_name=parsed.executor_class, cpu=parsed.cpu))
    return HELD


def _scale(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs.control import ask, the_running

    print(ask(parsed.topology or the_running(), "scale", class_name=parsed.executor_class, replicas=parsed.replicas))
    return HELD


def _stop(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs.control import ask

    print(ask(parsed.topology, "stop", drain=parsed.drain))
    return HELD


def _state_get(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs.inspect_state import describe_key

    print(describe_key(parsed.manifest, parsed.operator, parsed.key, parsed.work_dir))
    return HELD


def _state_kept(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs import keeping
    from streamtopology.jobs.control import ControlServer
    from streamtopology.jobs.runner import checkpoint_uri, declared_state

    topology = load(parsed.manifest)
    uri = checkpoint_uri(topology, parsed.work_dir)
    if parsed.action == "clone":
        print(keeping.clone(uri, parsed.target, parsed.topology))
    elif parsed.action == "rollback":
        with ControlServer(topology.name, {}):  # refused while the topology runs on this machine
            print(keeping.rollback(uri, parsed.to))
    else:
        schemas = declared_state(topology, parsed.manifest.parent)
        found = keeping.check(uri, schemas)
        print(keeping.told(found, () if found else keeping.written_before(uri, schemas)))
        return FAILED if found else HELD
    return HELD


def _migrate(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs import migrate

    migrate.run(parsed.checkpoint, parsed.epoch)
    return HELD


def _demo(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs.demo import run_demo

    _stop_on_signals()
    return run_demo(parsed.report, parsed.batches)


def _reproduce(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs.reproducing import Request, reproduce, to_run

    _stop_on_signals()
    request = Request(parsed.quick, parsed.runs, parsed.json, parsed.report)
    return reproduce(parsed.id, request, to_run(on_spark=parsed.spark))


def _simulate(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs.simulating import Stream, simulate

    if parsed.trace is not None and (parsed.keys or parsed.zipf):
        raise WrongUse("--trace has keys of its own: leave out --keys and --zipf")
    keys, zipf, cost = (dict(given or []) for given in (parsed.keys, parsed.zipf, parsed.cost))
    stream = Stream(keys, zipf, cost, parsed.rows, parsed.batches, parsed.trace)
    return simulate(parsed.manifest, stream, parsed.report)


def _plan(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs.planning import plan

    return plan(parsed.manifest, parsed.stats, parsed.json)


def _top(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs.top import top

    return top(parsed.topology, parsed.namespace, parsed.context, parsed.here)


def _driver(_: argparse.Namespace) -> int:
    from streamtopology.jobs.pods.driver import run_driver

    return run_driver(os.environ)


def _executor(_: argparse.Namespace) -> int:
    from streamtopology.jobs.pods.executor import run_executor

    return run_executor(os.environ)


def _bench(parsed: argparse.Namespace) -> int:
    from streamtopology.jobs.bench import run_bench

    given = {name: getattr(parsed, name) for name in ("runs", "seed", "kills", "keys")}
    return run_bench(parsed.name, parsed.json, {name: value for name, value in given.items() if value is not None})


def _stop_on_signals() -> None:
    """TERM ends a run as Ctrl-C does: everything is cleaned up."""

    def interrupt(signum: int, _: object) -> None:
        signal.signal(signum, signal.SIG_DFL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")


if __name__ == "__main__":
    sys.exit(main())
