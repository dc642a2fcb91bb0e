"""`streamtopology run job.py`: a script of PySpark on executors of ours."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.local.embedded_cluster import EmbeddedCluster
from streamtopology.jobs.local.executor_room import NoRoom, machine_bytes, refuse_too_many
from streamtopology.jobs.local.run import Serving
from streamtopology.jobs.local.start_steps import StartSteps
from streamtopology.jobs.malloc import collect_garbage_seldom, keep_freed_memory
from streamtopology.jobs.runtime.topology_run import new_history
from streamtopology.jobs.scripts.as_command import run_as_command
from streamtopology.jobs.scripts.as_manifest import ScriptManifests
from streamtopology.jobs.scripts.executors import shape_of
from streamtopology.jobs.scripts.lifted import name_of
from streamtopology.jobs.scripts.session import ScriptSession
from streamtopology.jobs.spark.cluster import executor_slots
from streamtopology.jobs.spark.user_settings import user_settings
from streamtopology.jobs.view.live_view import View
from streamtopology.topology import ManifestError, Problem, Topology, to_manifest
from streamtopology.topology.yaml_file import yaml_text

# The executors of a script whose queries are planned, and not run.
_TO_PLAN_ON = "main:1:1"


@dataclass(frozen=True)
class Launch:
    """How a script is run.

    executors: as `shape_of` takes them. conf: further settings of Spark. is_strict, policy, report: see `ScriptSession`.
    """

    script: Path
    arguments: tuple[str, ...]
    executors: str | None
    conf: Mapping[str, str]
    is_strict: bool
    policy: str | None
    work_dir: Path
    serving: Serving
    report: Path | None
    started: float


def run_script(launch: Launch) -> int:
    """Run the script to its end; returns its exit code. What it raises is printed as Python does."""
    shape = shape_of(name_of(launch.script.stem), launch.executors, launch.conf, launch.policy)
    try:
        refuse_too_many(len(executor_slots(shape)), machine_bytes())
    except NoRoom as error:
        raise ManifestError([Problem("--executors", str(error))]) from None
    script, executors = launch.script.resolve(), _classes_of(shape)
    with _started_by(launch, shape) as start:
        session = ScriptSession(
            start, script, executors, launch.work_dir, launch.serving, launch.is_strict, launch.policy, launch.report
        )
        with session.taken_over():
            return _exit_code(script, lambda: run_as_command(script, launch.arguments))


def print_manifests(launch: Launch) -> int:
    """Print the script's topologies for `kubectl apply`; returns the script's exit code if it fails before it starts any."""
    name, script = name_of(launch.script.stem), launch.script.resolve()
    executors = _classes_of(shape_of(name, launch.executors, launch.conf, launch.policy))
    manifests = ScriptManifests(script, launch.arguments, executors, launch.conf, launch.is_strict, launch.policy)
    with _started_by(launch, shape_of(name, _TO_PLAN_ON, launch.conf)) as start:
        code = _exit_code(script, lambda: manifests.read(start))
    if not code:
        print("---\n".join(map(yaml_text, manifests.documents())), end="")
    return code


def _classes_of(shape: Topology) -> Sequence[Mapping[str, Any]]:
    manifest: dict[str, Any] = to_manifest(shape)
    return manifest["spec"]["executors"]


@contextmanager
def _started_by(launch: Launch, shape: Topology) -> Iterator[Callable[[Mapping[str, str]], EmbeddedCluster]]:
    """What starts the script's cluster, of this shape, with the settings that the script asks for; it ends with the script."""
    slots = executor_slots(shape)
    _let_executors_import(launch.script.resolve().parent)
    keep_freed_memory()
    collect_garbage_seldom()
    with _terminated_by_exit(), ExitStack() as undo:

        def start(asked: Mapping[str, str]) -> EmbeddedCluster:
            history = new_history(shape)
            steps = StartSteps(len(slots), history.starting)
            settings = {**asked, **user_settings(shape.spark_conf)}
            cluster = EmbeddedCluster(shape.name, slots, launch.work_dir / "cluster", steps, settings)
            steps.cluster()
            with View(history, Console(stderr=True), time.monotonic, launch.started):
                undo.enter_context(cluster)
            return cluster

        yield start


def _let_executors_import(folder: Path) -> None:
    """Have Python processes of executors find the modules beside the script, as its own process does."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


@contextmanager
def _terminated_by_exit() -> Iterator[None]:
    """While entered, SIGTERM ends the script as `sys.exit` does, so that its queries stop after their batches."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit_code(script: Path, run: Callable[[], None]) -> int:
    try:
        run()
    except SystemExit as ended:
        return _code_of(ended)
    except KeyboardInterrupt:
        print("Ctrl-C: the queries stop after their running batches", file=sys.stderr, flush=True)
        return 128 + signal.SIGINT
    except StreamTopologyError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the script raises
        _print_from(script, error)
        return 1
    return 0


def _code_of(ended: SystemExit) -> int:
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    print(ended.code, file=sys.stderr)
    return 1


def _print_from(script: Path, error: Exception) -> None:
    """Print a traceback that begins in the script."""
    trace: Any = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(script):
        trace = trace.tb_next
    traceback.print_exception(error.with_traceback(trace or error.__traceback__))
