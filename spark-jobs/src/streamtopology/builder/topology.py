"""A topology in Python: its streams, its manifest, and its run by what runs a manifest's file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from streamtopology.builder.options import ExecutorOptions, RunSettings, SpecOptions
from streamtopology.builder.own_code import name_whole_paths
from streamtopology.builder.streams import Flow, StreamReader
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.own_command import DEFAULT_WORK_DIR
from streamtopology.jobs.users_code.modules import is_loading
from streamtopology.topology import API_VERSION, KIND, parse
from streamtopology.topology.yaml_file import yaml_text

if TYPE_CHECKING:
    import pyarrow as pa

_INTERRUPTED = 130


class TopologyBuilder:
    """A manifest that calls put together; `streamtopology.Topology` is this class.

    `spec`: the fields of `spec` that stand beside streams and executors, as a manifest has them. Files of own code and of
    lookups are relative to the folder of the script that makes it, in a notebook to the working directory.

    >>> from streamtopology import Topology
    >>> topology = Topology("words", trigger={"availableNow": True}).executors("large", replicas=2, cpu="500m")
    >>> words = topology.read.text("lines", "data/*.txt").map("words", select=["unnest(string_split(value, ' ')) AS word"])
    >>> words.key_by("word").count("counts").write.parquet("out", "build/counts")
    >>> topology.to_manifest()["spec"]["operators"][1]
    {'name': 'counts', 'inputs': ['words'], 'grouping': {'key': ['word']}, 'run': 'count'}
    """

    def __init__(self, name: str, **spec: Unpack[SpecOptions]) -> None:
        file = sys._getframe(1).f_globals.get("__file__")
        self._flow = Flow((Path(file).parent if file else Path()).resolve(), [], [], [])
        self._name, self._spec = name, dict(spec)
        self._executors: list[dict[str, Any]] = []

    def executors(self, name: str, **options: Unpack[ExecutorOptions]) -> Self:
        """Add a class of executors; returns the topology."""
        self._executors.append({"name": name, **options})
        return self

    @property
    def read(self) -> StreamReader:
        """Sources: `topology.read.csv(...)`."""
        return StreamReader(self._flow)

    def to_manifest(self) -> dict[str, Any]:
        """The manifest, of plain dicts, lists and scalars."""
        flow = {"sources": self._flow.sources, "operators": self._flow.operators, "sinks": self._flow.sinks}
        spec = {**flow, "executors": self._executors, **self._spec}
        return _plain({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": self._name}, "spec": spec})

    def to_yaml(self) -> str:
        """The manifest as the text of a file, as for `streamtopology run FILE` or `kubectl apply -f FILE`."""
        return yaml_text(self.to_manifest())

    def validate(self) -> list[str]:
        """Check what `streamtopology validate` checks; returns warnings. Raises ManifestError with every mistake."""
        from streamtopology.jobs.runtime.checkpoint_fit import check_checkpoint
        from streamtopology.jobs.runtime.preflight.checks import examine_value

        findings = examine_value(self.to_manifest(), self._where, self._flow.folder)
        check_checkpoint(findings.refuse_problems(), DEFAULT_WORK_DIR, self._flow.folder)
        return [str(doubt) for doubt in findings.doubts]

    def run(self, **settings: Unpack[RunSettings]) -> None:
        """Run it as `streamtopology run` does, to its end. `settings`: the options of that command.

        The manifest is in the work folder: `build/streamtopology/NAME.yaml`. Other commands take it, and a change of the file
        changes the run. Raises what refuses or ends the run (StreamTopologyError); KeyboardInterrupt after Ctrl-C, SystemExit
        after SIGTERM, each when the running batch is done.
        """
        if is_loading(sys._getframe(1).f_globals["__name__"]):
            raise WrongUse('executors load this file for a class in it: call run() below `if __name__ == "__main__":`')
        from streamtopology.jobs.cli.run import run
        from streamtopology.jobs.malloc import share_one_heap

        share_one_heap()
        arguments = [f"--{name.replace('_', '-')}{'' if value is True else f'={value}'}" for name, value in _given(settings)]
        file = self._write(Path(settings.get("work_dir", DEFAULT_WORK_DIR)))
        with run.make_context("run", [str(file), *arguments]) as context:
            code = run.invoke(context)
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        if code:
            raise SystemExit(code)

    def rows(self, sink: str) -> pa.Table:
        """The rows that runs of this process have written to a sink of format memory. KeyError: there is no such sink."""
        from streamtopology.jobs.connectors.sinks.memory import memory_rows

        return memory_rows(sink)

    @property
    def _where(self) -> str:
        return f"topology {self._name!r}"

    def _write(self, work_dir: Path) -> Path:
        """Write the manifest into the work folder. Raises ManifestError for one that cannot be read."""
        manifest = self.to_manifest()
        parse(manifest, self._where)
        name_whole_paths(manifest, self._flow.folder)
        work_dir.mkdir(parents=True, exist_ok=True)
        file = work_dir / f"{self._name}.yaml"
        file.write_text(yaml_text(manifest), encoding="utf-8")
        return file


def _given(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in settings.items() if value is not None and value is not False]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value
