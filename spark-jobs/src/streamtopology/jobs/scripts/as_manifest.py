"""`streamtopology run job.py --to-manifest`: the topologies of a script, for `kubectl apply`, and the script in a ConfigMap."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql import SparkSession

from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.scripts.as_command import run_as_command
from streamtopology.jobs.scripts.held import HeldScript
from streamtopology.jobs.scripts.lifted import WriterSettings, manifest_of, name_of, policy_of
from streamtopology.jobs.scripts.parts import Cut, NotCut
from streamtopology.jobs.scripts.prepared import NO_CHECKPOINT, checkpoint_of, fingerprint, prepare
from streamtopology.jobs.spark.cluster import MEBIBYTE, Cluster
from streamtopology.topology import parse
from streamtopology.topology.spark_conf import is_free

CODE_FOLDER = "/opt/streamtopology/code"
_QUERY = '''\
"""What topology {name} takes of {script}, whose manifest was made by option --to-manifest."""

from pathlib import Path

from streamtopology.api.scripts import ScriptQuery

_QUERY = ScriptQuery(Path(__file__).with_name({script!r}), {name!r}, {arguments!r}, made_of={made_of!r})
{rows}
result = _QUERY.result
'''


class ScriptManifests:
    """The manifests of the queries that `script` starts until it first waits for one.

    conf: further settings of Spark. The others as of `ScriptSession`.
    """

    def __init__(
        self,
        script: Path,
        arguments: Sequence[str],
        executors: Sequence[Mapping[str, Any]],
        conf: Mapping[str, str],
        is_strict: bool,
        policy: str | None,
    ) -> None:
        self._script = script
        self._arguments = list(arguments)
        self._executors = executors
        self._is_strict = is_strict
        self._policy = policy
        self._manifests: list[dict[str, Any]] = []
        self._files: dict[str, str] = {}
        self._spark_conf = dict(conf)
        self._zone = ""

    def read(self, start: Callable[[Mapping[str, str]], Cluster]) -> None:
        """Run the script, up to its end or its first wait. Raises TopologyFailed, or what the script raises.

        start: starts the cluster where the script plans its queries, with the settings that it gives.
        """

        def open_session(asked: Mapping[str, str]) -> tuple[SparkSession, int]:
            cluster = start({name: text for name, text in asked.items() if is_free(name)})
            conf = cluster.spark.conf
            jvm: Any = cluster.spark.sparkContext._jvm
            fixed = {name: text for name, text in asked.items() if is_free(name) and not conf.isModifiable(name)}
            self._spark_conf = {**fixed, **self._spark_conf}
            self._zone = jvm.java.util.TimeZone.getDefault().getID()
            return cluster.spark, len(cluster.slots)

        held = HeldScript(self._script, open_session, self._found, self._left, _enough)
        try:
            with held.taken_over(), redirect_stdout(sys.stderr):  # our own stdout is the manifests
                run_as_command(self._script, self._arguments)
        except _Enough:
            pass

    def documents(self) -> list[dict[str, Any]]:
        """The ConfigMap and the topologies. Raises TopologyFailed if there are none, or the code is too large."""
        if not self._manifests:
            raise TopologyFailed(
                f"{self._script.name} starts no query that becomes a topology, before it waits for one or ends"
            )
        files = {self._script.name: self._script.read_text(encoding="utf-8"), **self._modules(), **self._files}
        size = sum(map(len, files.values()))
        if size > MEBIBYTE:
            raise TopologyFailed(f"{self._script.name} and its modules have {size:,} characters, a ConfigMap at most 1 MiB")
        name = f"{name_of(self._script.stem)}-code-{hashlib.sha256(json.dumps(files).encode()).hexdigest()[:8]}"
        data = {path.replace("/", "."): text for path, text in files.items()}
        code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        pod = self._pod(name, files)
        for manifest in self._manifests:
            spec = manifest["spec"]
            spec["executors"] = [{**each, "pod": _joined(each.get("pod", {}), pod)} for each in spec["executors"]]
            spec["driver"] = {"pod": pod}
            if self._spark_conf:
                spec["sparkConf"] = self._spark_conf
            parse(manifest)
        return [code, *self._manifests]

    def _found(self, name: str, made: Cut, asked: WriterSettings, spark: SparkSession) -> None:
        checkpoint = checkpoint_of(asked, spark)
        if checkpoint is None:
            raise NotCut(NO_CHECKPOINT)
        file = f"{name.replace('-', '_')}_query.py"
        policy = self._policy or policy_of(made.part)
        manifest = manifest_of(made.part, asked, name, checkpoint, self._executors, file, policy)
        prepared = prepare(made, asked, parse(manifest), self._script.parent, spark)
        self._manifests.append(manifest)
        self._files[file] = _QUERY.format(
            name=name,
            script=self._script.name,
            arguments=self._arguments,
            made_of=fingerprint(self._script, prepared.topology),
            rows="\n".join(f"{source} = _QUERY.rows({source!r})" for source in prepared.frames),
        )

    def _left(self, why: str) -> None:
        if self._is_strict:
            raise TopologyFailed(f"{why}. --strict refuses a query that Spark would run itself")
        print(f"streamtopology: {why}; so it has no manifest, and is left to spark-submit", file=sys.stderr, flush=True)

    def _modules(self) -> dict[str, str]:
        """The modules beside the script that it has imported: path below its folder -> text."""
        folder, found = self._script.parent, dict[str, str]()
        for module in list(sys.modules.values()):
            path = Path(getattr(module, "__file__", None) or "/")
            if path.suffix == ".py" and path.is_relative_to(folder) and not {"site-packages", ".venv"} & set(path.parts):
                found[path.relative_to(folder).as_posix()] = path.read_text(encoding="utf-8")
        return found

    def _pod(self, config_map: str, files: Mapping[str, str]) -> dict[str, Any]:
        volume: dict[str, Any] = {"name": config_map}
        if any("/" in path for path in files):
            volume["items"] = [{"key": path.replace("/", "."), "path": path} for path in files]
        variables = [{"name": "PYTHONPATH", "value": CODE_FOLDER}]
        if self._zone not in ("UTC", "Etc/UTC", "GMT"):
            variables.append({"name": "TZ", "value": self._zone})
        return {
            "volumes": [{"name": "code", "configMap": volume}],
            "volumeMounts": [{"name": "code", "mountPath": CODE_FOLDER, "readOnly": True}],
            "env": variables,
        }


def _joined(given: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    return {**given, **{name: [*given.get(name, []), *values] for name, values in ours.items()}}


class _Enough(SystemExit):
    """The script waits for a query, or stops one."""


def _enough() -> NoReturn:
    raise _Enough
