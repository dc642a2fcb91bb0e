"""A query of a script in a driver that has its manifest: the script runs again, for its frames and its writer."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.scripts.as_command import run_as_command
from streamtopology.jobs.scripts.held import HeldScript
from streamtopology.jobs.scripts.lifted import WriterSettings, manifest_of, policy_of
from streamtopology.jobs.scripts.parts import Cut
from streamtopology.jobs.scripts.prepared import Prepared, fingerprint, prepare
from streamtopology.topology import parse

# Not in the fingerprint, and not read: what runs where is said by the manifest.
_NOWHERE, _ANYWHERE = "/nowhere", [{"name": "any", "cpu": 1}]


class ScriptQuery:
    """The query of `script` whose topology is `name`.

    The script runs once, in a thread of its own, when its frames are asked for; where it waits for a query, it stays. Its other
    queries are not started. made_of: tells the script that the manifest was made of from another.
    """

    def __init__(self, script: Path, name: str, arguments: Sequence[str], made_of: str) -> None:
        self._script = script.resolve()
        self._name = name
        self._arguments = tuple(arguments)
        self._made_of = made_of
        self._prepared: Prepared | None = None
        self._failure: BaseException | None = None
        self._is_known = threading.Event()

    def rows(self, source: str) -> Callable[[SparkSession], DataFrame]:
        """The function that makes the frame of a source. It raises what the script raises, or TopologyFailed."""

        def make(spark: SparkSession) -> DataFrame:
            return self._of_script(spark).frames[source]

        return make

    def result(self, rows: pa.Table, batch: int) -> None:
        """Do what the script does with the rows of a batch."""
        assert self._prepared is not None, "its sources came first"
        self._prepared.take(rows, batch)

    def _of_script(self, spark: SparkSession) -> Prepared:
        if not self._is_known.is_set():
            executors = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
            held = HeldScript(self._script, lambda _: (spark, executors), self._found, print, _stay)
            held.engine.is_here = True  # this thread's calls are not the script's
            threading.Thread(target=self._run, args=(held,), name=f"script {self._script.name}", daemon=True).start()
            self._is_known.wait()
        if self._failure is not None:
            raise self._failure
        if self._prepared is None:
            raise TopologyFailed(f"{self._script.name} ends without a query {self._name!r}")
        return self._prepared

    def _run(self, held: HeldScript) -> None:
        try:
            with held.taken_over():
                run_as_command(self._script, self._arguments)
        except SystemExit:
            pass  # the end of a script, too
        except BaseException as error:  # noqa: BLE001 - whatever the script raises, in a thread of its own
            if self._prepared is None:
                self._failure = error
            else:
                traceback.print_exception(error)  # after its query was started: as on Spark, that does not end the query
        finally:
            self._is_known.set()

    def _found(self, name: str, made: Cut, asked: WriterSettings, spark: SparkSession) -> None:
        if name != self._name:
            return
        manifest = manifest_of(made.part, asked, name, _NOWHERE, _ANYWHERE, self._script.name, policy_of(made.part))
        prepared = prepare(made, asked, parse(manifest), self._script.parent, spark)
        if fingerprint(self._script, prepared.topology) != self._made_of:
            raise TopologyFailed(
                f"{self._script.name} is not what the manifest of {name} was made of: the script, its arguments or its data "
                "have changed; make the manifest again by --to-manifest"
            )
        self._prepared = prepared
        self._is_known.set()


def _stay() -> NoReturn:
    """The topology runs as long as the process, whatever the script waits for."""
    while True:
        threading.Event().wait()
