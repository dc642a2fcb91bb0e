"""`streamtopology run job.py`: a script of PySpark on executors of ours."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
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
from streamtopology.jobs.malloc import keep_freed_memory
from streamtopology.jobs.runtime.topology_run import new_history
from streamtopology.jobs.scripts.executors import shape_of
from streamtopology.jobs.scripts.lifted import name_of
from streamtopology.jobs.scripts.session import ScriptSession
from streamtopology.jobs.spark.cluster import executor_slots
from streamtopology.jobs.spark.user_settings import user_settings
from streamtopology.jobs.view.live_view import View
from streamtopology.topology import ManifestError, Problem, to_manifest


@dataclass(frozen=True)
class Launch:
    """How a script is run.

    executors: as `shape_of` takes them. conf: further settings of Spark. is_strict, policy: see `ScriptSession`.
    """

    script: Path
    arguments: tuple[str, ...]
    executors: str | None
    conf: Mapping[str, str]
    is_strict: bool
    policy: str | None
    work_dir: Path
    serving: Serving
    started: float


def run_script(launch: Launch) -> int:
    """Run the script to its end; returns its exit code. What it raises is printed as Python does."""
    shape = shape_of(name_of(launch.script.stem), launch.executors, launch.conf, launch.policy)
    slots = executor_slots(shape)
    try:
        refuse_too_many(len(slots), machine_bytes())
    except NoRoom as error:
        raise ManifestError([Problem("--executors", str(error))]) from None
    script = launch.script.resolve()
    _let_executors_import(script.parent)
    keep_freed_memory()
    manifest: dict[str, Any] = to_manifest(shape)
    executors = manifest["spec"]["executors"]
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

        session = ScriptSession(start, script, executors, launch.work_dir, launch.serving, launch.is_strict, launch.policy)
        with session.taken_over():
            return _exit_code(script, launch.arguments)


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


def _exit_code(script: Path, arguments: Sequence[str]) -> int:
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
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
    finally:
        sys.argv, sys.path[:] = argv, path
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
