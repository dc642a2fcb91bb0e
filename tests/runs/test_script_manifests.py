"""`streamtopology run job.py --to-manifest`: what it prints runs as the script does, and says so where it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamtopology.topology import parse, problems_in_pods

pytestmark = pytest.mark.timeout(600)

STREAMTOPOLOGY = Path(sys.executable).with_name("streamtopology")
SCRIPT = """
import json, sys
from pyspark.sql import Row, SparkSession, functions as F
from pyspark.sql.streaming import StatefulProcessor
from helpers.shouting import shout

class Newest(StatefulProcessor):
    def init(self, handle):
        self.pages = handle.getListState("pages", "page string")

    def handleInputRows(self, key, rows, timerValues):
        self.pages.appendList([(row.page,) for row in rows])
        yield Row(user=key[0], pages=sum(1 for _ in self.pages.get()), last=shout(max(page for page, in self.pages.get())))

    def close(self):
        pass

spark = (SparkSession.builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "2")
         .config("spark.sql.streaming.stateStore.providerClass",
                 "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider").getOrCreate())
visits = (spark.readStream.schema("user bigint, page string, at timestamp").option("maxFilesPerTrigger", 1)
          .json("data").where("user % 7 <> 0"))
shouted = F.udf(shout)

def writes(name):
    def write(rows, number):
        lines = [json.dumps(row.asDict(), default=str) for row in rows.withColumn("batch", F.lit(number)).collect()]
        with open(f"{sys.argv[1]}/{name}-{number}.json", "w") as file:
            file.writelines(f"{line}\\n" for line in lines)
    return write

def start(name, frame):
    return (frame.writeStream.queryName(name).outputMode("update").option("checkpointLocation", f"{sys.argv[1]}/of {name}")
            .foreachBatch(writes(name)).trigger(availableNow=True).start())

queries = [
    start("newest", visits.groupBy("user").transformWithState(
        statefulProcessor=Newest(), outputStructType="user bigint, pages bigint, last string",
        outputMode="Update", timeMode="None").withColumn("half", F.col("pages") / 2)),
    start("by page", visits.withWatermark("at", "1 minute").groupBy(F.window("at", "5 minutes"), shouted("page").alias("page"))
          .agg(F.count("*").alias("n"), F.max("user"))),
]
for query in queries:
    query.awaitTermination()
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with a script, a package beside it, and the data of three batches."""
    (tmp_path / "job.py").write_text(SCRIPT)
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers/shouting.py").write_text("def shout(text):\n    return text.upper()\n")
    for folder in ("data", "ours", "sparks"):
        (tmp_path / folder).mkdir()
    for number in range(3):
        rows = [
            {"user": user * user % 30, "page": "abc"[user % 3], "at": f"2026-01-01T00:{5 * number + user % 9:02}:00Z"}
            for user in range(200)
        ]
        (tmp_path / f"data/{number}.json").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def run(folder: Path, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {**os.environ, "PYSPARK_PYTHON": sys.executable, **environment}
    return subprocess.run(command, cwd=folder, env=inherited, capture_output=True, text=True, check=False)


def manifests(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    printed = run(folder, STREAMTOPOLOGY, "run", "job.py", "--executors", "fast:1:1,slow:1:0.5", "--to-manifest", *arguments)
    assert printed.returncode == 0, printed.stderr[-2000:]
    return list(yaml.safe_load_all(printed.stdout))


def mounted(folder: Path, config_map: dict[str, Any], topology: dict[str, Any]) -> Path:
    """The files of a ConfigMap as a pod of the topology sees them; the manifest is beside them."""
    (volume,) = topology["spec"]["driver"]["pod"]["volumes"]
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    folder.mkdir()
    for item in volume["configMap"]["items"]:
        path = folder / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(config_map["data"][item["key"]])
    manifest = folder / "topology.yaml"
    manifest.write_text(yaml.safe_dump(topology))
    return manifest


def emitted(folder: Path, query: str) -> Counter[str]:
    return Counter(line for file in folder.glob(f"{query}-*.json") for line in file.read_text().splitlines())


def test_manifests_of_a_script_run_as_spark_runs_it(job: Path) -> None:
    code, *topologies = manifests(job, "ours")
    assert [topology["metadata"]["name"] for topology in topologies] == ["newest", "by-page"]
    assert not list((job / "ours").iterdir()), "nothing is run"
    for number, topology in enumerate(topologies):
        assert not list(problems_in_pods(parse(topology)))
        manifest = mounted(job / f"pod-{number}", code, topology)
        ended = run(job, STREAMTOPOLOGY, "run", manifest, PYTHONPATH=str(manifest.parent))
        assert ended.returncode == 0, ended.stderr[-2000:]
    conf = "--master local[2] --conf spark.ui.enabled=false pyspark-shell"
    by_spark = run(job, sys.executable, "job.py", "sparks", PYSPARK_SUBMIT_ARGS=conf)
    assert by_spark.returncode == 0, by_spark.stderr[-2000:]
    for query in ("newest", "by page"):
        assert len(emitted(job / "sparks", query)) > 10
        assert emitted(job / "ours", query) == emitted(job / "sparks", query)


def test_a_driver_refuses_another_script_than_its_manifest_was_made_of(job: Path) -> None:
    code, topology, _ = manifests(job, "ours")
    code["data"]["job.py"] += "\nprint('another')\n"
    manifest = mounted(job / "pod", code, topology)
    ended = run(job, STREAMTOPOLOGY, "run", manifest, PYTHONPATH=str(manifest.parent))
    assert "job.py is not what the manifest of newest was made of" in ended.stderr
    assert ended.returncode == 1


def test_a_query_that_no_driver_could_continue_has_no_manifest(job: Path) -> None:
    (job / "job.py").write_text(SCRIPT.replace('.option("checkpointLocation", f"{sys.argv[1]}/of {name}")', ""))
    printed = run(job, STREAMTOPOLOGY, "run", "job.py", "--to-manifest", "ours")
    assert "it has no checkpointLocation; so it has no manifest" in printed.stderr
    assert "starts no query that becomes a topology" in printed.stderr
    assert (printed.returncode, printed.stdout) == (1, "")
