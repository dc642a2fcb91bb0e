"""`streamtopology run` and `validate`: a manifest on this machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.cli import parameters
from streamtopology.jobs.cli.leftovers import delete_leftovers
from streamtopology.jobs.cli.parameters import DURATION, FILE, OUTPUT_FOLDER, PORT, POSITIVE, SUCCESS
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.interrupts import Interrupts

if TYPE_CHECKING:
    from streamtopology.topology import Topology

_CONTINUES = "without --fresh the run continues from the checkpoint"


@click.command()
@parameters.manifest
@click.argument("arguments", nargs=-1)
@click.option("--executors", metavar="CLASSES", help="Of a script: NAME:REPLICAS:CPU,... or a YAML file of classes.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Of a script: a setting of Spark, such as its jars.")
@click.option("--strict", is_flag=True, help="Of a script: refuse queries that Spark would have to run itself.")
@click.option(
    "--policy", metavar="NAME", help="Of a script: the grouping's policy in place of the one that emits as Spark does."
)
@click.option("--to-manifest", "to_manifest", is_flag=True, help="Of a script: print its topologies, and run nothing.")
@click.option("--batches", type=POSITIVE, help="Stop after this many batches.")
@click.option("--duration", type=DURATION, help="Stop after this time, e.g. 90s or 10m.")
@click.option("--drain", is_flag=True, help="Read what the sources hold, then close all windows and end.")
@click.option("--fresh", is_flag=True, help="Start over: delete the checkpoint and what it gave to sinks; asks first.")
@click.option("--yes", is_flag=True, help="With --fresh: do not ask.")
@click.option(
    "--report",
    type=OUTPUT_FOLDER,
    metavar="DIR",
    help="Write a report and a picture of the run, or of each query.",
)
@click.option("--baseline", metavar="POLICY", help="Run the same input under this policy first, and compare.")
@click.option("--port", type=PORT, default=0, help="Port of the page, /metrics and /stats (default: any free one).")
@click.option("--open", "opens", is_flag=True, help="Open the page of the run in a browser.")
@parameters.own_work_dir
def run(
    manifest: Path,
    arguments: tuple[str, ...],
    executors: str | None,
    conf: tuple[str, ...],
    strict: bool,
    policy: str | None,
    to_manifest: bool,
    batches: int | None,
    duration: float | None,
    drain: bool,
    fresh: bool,
    yes: bool,
    report: Path | None,
    baseline: str | None,
    port: int,
    opens: bool,
    work_dir: Path,
) -> int:
    """Run a topology on an embedded Spark cluster, or a PySpark script (FILE.py) as it is.

    A script's stateful queries become topologies. What follows FILE.py and `--` are the script's own arguments.

    The run of a topology ends with its input, after --batches or --duration, with `streamtopology stop`, or with Ctrl-C:
    after the running batch, or at once with a second Ctrl-C. The same command continues from the last committed batch.
    """
    started = time.monotonic()
    if manifest.suffix == ".py":
        for name, given in {"batches": batches, "duration": duration, "drain": drain, "fresh": fresh}.items():
            if given:
                raise WrongUse(f"--{name} is for manifests: a script says itself how long its queries run, and where")
        if baseline is not None:
            raise WrongUse("--baseline is for manifests: run the script with spark-submit to compare")
        return _run_script(
            manifest, arguments, executors, conf, strict, policy, to_manifest, report, work_dir, port, opens, started
        )
    if arguments or executors is not None or conf or strict or policy is not None or to_manifest:
        options = "--executors, --conf, --strict, --policy and --to-manifest"
        raise WrongUse(f"arguments, {options} are for scripts; {manifest} is a manifest")
    interrupts = Interrupts()
    interrupts.last_words = lambda: print(f"{interrupts.name}: ended before the first batch; nothing was read", flush=True)
    with interrupts.caught():
        from streamtopology.jobs.local.control_socket import claim

        topology = _read(manifest)
        with claim(topology.name):  # before Spark is loaded, and long before its cluster is up
            if fresh:
                delete_leftovers(topology, work_dir, "Delete it and start over?", _CONTINUES, yes=yes, starts=True)

            from streamtopology.jobs.local.run import Reporting, Serving, run_manifest
            from streamtopology.jobs.runtime.streaming_query import Until
            from streamtopology.jobs.view.http_server import refuse_taken_port

            refuse_taken_port(port)
            until, reporting = Until(batches, duration, drain), Reporting(manifest, started, work_dir, report)
            serving = Serving(port, opens)
            return run_manifest(until, reporting, interrupts, serving=serving, baseline=baseline)


def _run_script(
    script: Path,
    arguments: tuple[str, ...],
    executors: str | None,
    conf: tuple[str, ...],
    strict: bool,
    policy: str | None,
    to_manifest: bool,
    report: Path | None,
    work_dir: Path,
    port: int,
    opens: bool,
    started: float,
) -> int:
    settings = dict(setting.split("=", 1) for setting in conf if "=" in setting)
    if len(settings) < len(conf):
        raise WrongUse("--conf takes NAME=VALUE, each name once")
    from streamtopology.jobs.local.run import Serving
    from streamtopology.jobs.scripts.launch import Launch, print_manifests, run_script
    from streamtopology.jobs.view.http_server import refuse_taken_port

    refuse_taken_port(port)
    serving = Serving(port, opens)
    launch = Launch(script, arguments, executors, settings, strict, policy, work_dir, serving, report, started)
    return print_manifests(launch) if to_manifest else run_script(launch)


def _read(manifest: Path) -> Topology:
    """The topology. Raises ManifestError with every mistake, also those that reading alone does not find."""
    from streamtopology.topology import read, read_yaml

    reading = read(read_yaml(manifest))
    if not reading.problems:
        return reading.topology
    from streamtopology.jobs.runtime.preflight.checks import examine

    return examine(manifest).refuse_problems()


@click.command()
@click.argument("manifests", metavar="MANIFEST...", type=FILE, nargs=-1, required=True)
@parameters.work_dir
def validate(manifests: tuple[Path, ...], work_dir: Path) -> int:
    """Check manifests and name all mistakes in them.

    Each mistake has its path in the file, what was found, and what to do. One file of each source is read, and brokers
    are asked for their topics. A checkpoint in a folder is compared with the manifest. Warnings are about values that are
    rarely meant; they refuse nothing.
    """
    return max(_validate(manifest, work_dir) for manifest in manifests)


def _validate(manifest: Path, work_dir: Path) -> int:
    from streamtopology.jobs.runtime.checkpoint_fit import check_checkpoint
    from streamtopology.jobs.runtime.preflight.checks import amounts, examine

    try:
        findings = examine(manifest)
        if findings.doubts:
            print(findings.warnings(), file=sys.stderr)
        topology = findings.refuse_problems()
        check_checkpoint(topology, work_dir, manifest.resolve().parent)
    except StreamTopologyError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"streamtopology: cannot read {manifest}: {error.strerror}", file=sys.stderr)
        return WrongUse.exit_code
    print(f"{manifest}: topology {topology.name!r} is valid")
    for line in amounts(topology):
        print(f"  {line}")
    return SUCCESS
