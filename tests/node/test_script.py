"""`streamtopology run job.py --to-manifest | kubectl apply -f -`: a script of PySpark in pods, as its user has it there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.kube.applied import START_SECONDS, AppliedTopology
from support.kube.node import Node
from support.waiting import eventually

pytestmark = pytest.mark.timeout(2400)  # with the images' build, where they have changed

STREAMTOPOLOGY = Path(sys.executable).with_name("streamtopology")
SCRIPT = """
import json, sys
from pyspark.sql import Row, SparkSession, functions as F
from pyspark.sql.streaming import StatefulProcessor
from shouting import shout

class Visits(StatefulProcessor):
    def init(self, handle):
        self.visits = handle.getValueState("visits", "n bigint")

    def handleInputRows(self, key, rows, timerValues):
        n = sum(1 for _ in rows) + (self.visits.get()[0] if self.visits.exists() else 0)
        self.visits.update((n,))
        yield Row(page=shout(key[0]), n=n)

    def close(self):
        pass

spark = SparkSession.builder.getOrCreate()
shared = sys.argv[1]
visits = spark.readStream.schema("page string").option("maxFilesPerTrigger", 1).json(f"{shared}/data")

def write(rows, batch):
    with open(f"{shared}/counts/{batch}.json", "w") as file:
        json.dump([row.asDict() for row in rows.collect()], file)

counts = visits.where(F.udf(shout)("page") != "NOBODY").groupBy("page").transformWithState(
    statefulProcessor=Visits(), outputStructType="page string, n bigint", outputMode="Update", timeMode="None")
(counts.writeStream.queryName("visits").outputMode("update").option("checkpointLocation", f"{shared}/checkpoint")
 .foreachBatch(write).trigger(availableNow=True).start().awaitTermination())
"""


@pytest.fixture
def visits(node: Node, operator: None, namespace: str) -> Iterator[AppliedTopology]:
    """Nothing is applied."""
    applied = AppliedTopology(node, namespace, "visits")
    yield applied
    applied.kubectl("delete", "stopo", "--all", "--wait=true", "--timeout=120s")


def printed(folder: Path) -> list[dict[str, Any]]:
    """What the command prints, with the storage that pods of the node share."""
    storage = {
        "volumes": [{"name": "shared", "hostPath": {"path": str(folder), "type": "Directory"}}],
        "volumeMounts": [{"name": "shared", "mountPath": str(folder)}],
    }
    classes = [
        {"name": "large", "cpu": "500m", "memory": "1Gi", "pod": storage},
        {"name": "small", "cpu": "200m", "memory": "1Gi", "pod": storage},
    ]
    (folder / "classes.yaml").write_text(yaml.safe_dump(classes))
    command = [STREAMTOPOLOGY, "run", "job.py", "--executors", "classes.yaml", "--to-manifest", str(folder)]
    text = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    code, topology = yaml.safe_load_all(text)
    spec = topology["spec"]
    spec["imagePullPolicy"] = "Never"
    spec["driver"] |= {"cpu": "500m", "memory": "1536Mi"}
    for name, values in storage.items():
        spec["driver"]["pod"][name] += values
    return [code, topology]


def test_a_script_runs_in_pods(visits: AppliedTopology, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for folder in ("data", "counts", "checkpoint"):
        (tmp_path / folder).mkdir(mode=0o777)
        (tmp_path / folder).chmod(0o777)
    (tmp_path / "job.py").write_text(SCRIPT)
    (tmp_path / "shouting.py").write_text("def shout(text):\n    return text.upper()\n")
    expected: Counter[str] = Counter()
    for number in range(3):
        pages = ["nobody", *("abc"[(page * page + number) % 3] for page in range(50))]
        expected.update(page.upper() for page in pages[1:])
        (tmp_path / f"data/{number}.json").write_text("\n".join(json.dumps({"page": page}) for page in pages))
    for document in printed(tmp_path):
        visits.kubectl("apply", "-f", "-", stdin=json.dumps(document))
    eventually(lambda: visits.resource().get("status", {}).get("phase") == "Completed", START_SECONDS)
    last: dict[str, int] = {}
    for file in sorted((tmp_path / "counts").glob("*.json"), key=lambda file: int(file.stem)):
        last |= {row["page"]: row["n"] for row in json.loads(file.read_text())}
    assert last == dict(expected)
