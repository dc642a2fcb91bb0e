"""Runs a peer's script, and keeps what it found: one process a measurement, so that one that dies takes no other along.

A script gets its request as JSON, the only argument, with the folder `work` for what it writes and, for `cpus` of the request,
`join`: the files of each worker's cgroup. It prints JSON objects, one a line. Their fields together are what it
has found. A text `progress` is shown. Other lines, and its stderr, go to a log. With `change` in the request, samples are
taken while it runs (`timeline.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.lab.arena.engines import Engine, EngineMissing, Place, python_of
from streamtopology.lab.arena.limits import WorkerGroups, limited
from streamtopology.lab.arena.timeline import Timeline, change_of

SCRIPTS = Path(__file__).parent / "peers"
# Longer than any measurement should take: a peer that hangs is ended then.
MINUTES = 30


@dataclass(frozen=True)
class Measurement:
    """Of `engine` in `case`, by `script` with `request`; a change of either makes an earlier result another one's."""

    engine: str
    case: str
    script: Path
    request: Mapping[str, Any]

    def digest(self) -> str:
        """Of the script, and of those beside it that it may import: they begin with the same word."""
        scripts = {self.script, *self.script.parent.glob(f"{self.script.stem.partition('_')[0]}_*.py")}
        return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(scripts))).hexdigest()[:16]


class Arena:
    """Measures what has not been measured; results are below `place`/results, logs beside them.

    A failure is kept as a row that says so in `failed`, and is tried again the next time.
    """

    def __init__(
        self, engines: Mapping[str, Engine], place: Place, announce: Callable[[str], None], *, fresh: bool = False
    ) -> None:
        self._engines = engines
        self._place = place
        self._announce = announce
        self._fresh = fresh
        self._missing: dict[str, str] = {}

    def cannot_have(self, engine: str, reason: EngineMissing) -> None:
        """Take note that something of the engine's is missing: its rows say so."""
        self._missing[engine] = str(reason)

    def row(self, measurement: Measurement) -> dict[str, Any]:
        """What was found: of this run, or of an earlier one that asked the same of the same versions."""
        engine = self._engines[measurement.engine]
        file = self._place.folder / "results" / measurement.case / f"{measurement.engine}.json"
        asked = {"pins": engine.pins, "script": measurement.digest(), "request": dict(measurement.request)}
        asked = json.loads(json.dumps(asked))  # as a file has it
        known = None if self._fresh else done(file, asked)
        label = f"{measurement.case}: {engine.title}"
        if known is not None:
            self._announce(f"{label}: done before, in {file}")
            return known
        row = {"engine": measurement.engine, "case": measurement.case, "load": os.getloadavg()[0], **asked}
        try:
            python = self._python(measurement.engine, engine)
            row |= self._run(python, measurement, file.with_suffix(".log"))
        except (EngineMissing, PeerDied) as reason:
            row["failed"] = str(reason)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(row, indent=2) + "\n")
        self._announce(f"{label}: {row.get('failed') or 'done'}")
        return row

    def _python(self, name: str, engine: Engine) -> Path:
        """That of the engine's environment. Raises EngineMissing, the second time without another try."""
        if name in self._missing:
            raise EngineMissing(self._missing[name])
        try:
            return python_of(name, engine, self._place, self._announce)
        except EngineMissing as reason:
            self.cannot_have(name, reason)
            raise

    def _run(self, python: Path, measurement: Measurement, log: Path) -> dict[str, Any]:
        work = self._place.folder / "work" / f"{measurement.case}-{measurement.engine}".replace("/", "-")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        engine = self._engines[measurement.engine]
        request = {**measurement.request, "work": str(work.absolute())}
        label = f"{measurement.case}: {engine.title}"
        with ExitStack() as entered:
            entered.callback(shutil.rmtree, work, ignore_errors=True)
            groups: WorkerGroups | None = None
            if engine.packages and "cpus" in request:  # our own executors have their limits from our own cluster
                groups, request["join"] = entered.enter_context(limited(f"arena-{os.getpid()}", request["cpus"]))
            timeline = entered.enter_context(Timeline(change_of(request["change"]), groups)) if "change" in request else None

            def heard(line: Mapping[str, Any]) -> None:
                if "progress" in line:
                    self._announce(f"{label}: {line['progress']}")
                if timeline is not None:
                    timeline.heard(line)

            command = [str(python), str(measurement.script), json.dumps(request)]
            found = run_script(command, log, heard, MINUTES * 60)
        return found if timeline is None else {**found, **timeline.found()}


def done(file: Path, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """The row of `file`, if it answers what is asked now and is no failure."""
    try:
        row = json.loads(file.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return row if "failed" not in row and all(row.get(name) == value for name, value in asked.items()) else None


class PeerDied(StreamTopologyError):
    """A peer's script ended without a result; the message says how, and where its log is."""


def run_script(command: list[str], log: Path, heard: Callable[[dict[str, Any]], None], seconds: float) -> dict[str, Any]:
    """What the script found; `heard` gets each of its objects. One that fails takes along what it started. Raises PeerDied."""
    found: dict[str, Any] = {}
    with log.open("w") as written:
        script = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=written, text=True, start_new_session=True)
        assert script.stdout is not None
        limit = threading.Timer(seconds, _end, [script.pid])
        limit.start()
        try:
            for line in script.stdout:
                object_of = _object(line)
                if object_of is None:
                    written.write(line)
                    written.flush()
                    continue
                heard(object_of)
                found |= {name: value for name, value in object_of.items() if name != "progress"}
            script.wait()
        except BaseException:
            _end(script.pid)
            script.wait()
            raise
        finally:
            in_time = limit.is_alive()
            limit.cancel()
    if code := script.returncode:
        _end(script.pid)
    if not in_time:
        raise PeerDied(f"took more than {seconds / 60:g} minutes and was ended; its log: {log}")
    if code or not found:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise PeerDied(f"ended with {how}: {_reason(log)}; its log: {log}")
    return found


def _end(group: int) -> None:
    """End all processes of a script, its own children included."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _reason(log: Path) -> str:
    """The last line that names an error, else the last one."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"(Caused by: )?[\w.$]+(Error|Exception)\b", line)]
    return (named or lines or ["it said nothing"])[-1][:300]
