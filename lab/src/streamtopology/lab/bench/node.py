"""The time of a changed policy on a real node: from the operator's first step to the first batch under it.

A stream of words that never ends, three executors of two classes; the policy of the counting operator is changed back and
forth. The figures are of the operator's own histogram. The files are written by the benchmark, so it runs on the machine of
the node.
"""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kubernetes import client

from streamtopology.jobs.admin.ask_cluster import Unreachable, asking_the_cluster
from streamtopology.jobs.admin.find_run import AskDriver
from streamtopology.lab.bench.cluster import announce, machine
from streamtopology.lab.bench.figures import figure
from streamtopology.lab.bench.kube import Topologies, connect, new_namespace, wait_until

NAME = "words"
OPERATOR_NAMESPACE = "streamtopology"
POLICIES = ("fields", "mixed")
START_SECONDS, CHANGE_SECONDS = 400, 200
WORDS_IN_FILE, AHEAD, LOOK_SECONDS = 6000, 3, 0.2
BUCKET = re.compile(r'^streamtopology_operator_time_to_reconfigure_seconds_bucket\{kind="Routing",le="([^"]+)"\} (\S+)$', re.M)

# Upper bound in seconds, and changes that took no longer.
Histogram = list[tuple[float, float]]


def run(changes: int = 50) -> dict[str, Any]:
    """Quantiles over `changes` changes. The cluster has the operator by its chart, and its node is this machine."""
    with connect() as api, tempfile.TemporaryDirectory() as folder:
        histogram = _measure(api, Path(folder), changes)
    results = [figure("changed policy", f"p{100 * share:.0f}", "s", [quantile(histogram, share)]) for share in (0.5, 0.9, 0.99)]
    counted = [{"le": bound, "changes": count} for bound, count in histogram if bound != float("inf")]
    return {"name": "node", "machine": machine(changes=histogram[-1][1]), "results": results, "histogram": counted}


def quantile(histogram: Histogram, share: float) -> float:
    """Seconds that `share` of the changes took at most, interpolated within a bucket as Prometheus does."""
    rank = share * histogram[-1][1]
    below, lower = 0.0, 0.0
    for bound, count in histogram:
        if count >= rank:
            return lower if bound == float("inf") else lower + (bound - lower) * (rank - below) / (count - below)
        below, lower = count, bound
    raise ValueError("a histogram ends with the bucket of all")


def _measure(api: client.ApiClient, folder: Path, changes: int) -> Histogram:
    namespace = new_namespace(api, "bench")
    topologies, asking = Topologies(api, namespace), asking_the_cluster(NAME, namespace, None)
    given = manifest(folder)
    try:
        with _flowing(folder):
            topologies.create(given)
            wait_until(lambda: _is_settled(topologies), "first batch", START_SECONDS, pause=1.0)
            for number in range(changes):
                policy = POLICIES[number % len(POLICIES)]
                counts = {**given["spec"]["operators"][0], "grouping": {"policy": policy, "key": "word"}}
                topologies.change(NAME, operators=[counts])
                wait_until(
                    lambda policy=policy: _is_settled(topologies) and _policy(asking) == policy,
                    f"batch under {policy}",
                    CHANGE_SECONDS,
                )
                announce(f"{number + 1} of {changes} changes")
        return _histogram(api)
    finally:
        client.CoreV1Api(api).delete_namespace(namespace)


def _is_settled(topologies: Topologies) -> bool:
    """True once the newest generation runs."""
    found = topologies.get(NAME)
    status = found.get("status") or {}
    current = status.get("observedGeneration") == found["metadata"]["generation"]
    return current and status.get("phase") == "Running" and "intent" not in status


def _policy(asking: AskDriver) -> str:
    """The policy that the driver routes by; empty while it is away."""
    try:
        return asking(-1).get("policies", {}).get("counts", "")
    except Unreachable:
        return ""


def _histogram(api: client.ApiClient) -> Histogram:
    core: Any = client.CoreV1Api(api)
    (pod,) = core.list_namespaced_pod(OPERATOR_NAMESPACE).items
    metrics = core.connect_get_namespaced_pod_proxy_with_path(f"{pod.metadata.name}:9091", OPERATOR_NAMESPACE, "metrics")
    return [(float(bound), float(count)) for bound, count in BUCKET.findall(metrics)]


def manifest(folder: Path) -> dict[str, Any]:
    """The topology, with `folder` of the node in its pods. Nothing but a changed manifest re-routes it."""
    pod = {
        "volumes": [{"name": "shared", "hostPath": {"path": str(folder), "type": "Directory"}}],
        "volumeMounts": [{"name": "shared", "mountPath": str(folder)}],
    }
    options = {"path": f"{folder}/words", "maxFilesPerTrigger": 1}
    return {
        "apiVersion": "streamtopology.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": NAME},
        "spec": {
            "imagePullPolicy": "IfNotPresent",
            "sources": [{"name": "words", "format": "parquet", "schema": "word STRING", "options": options}],
            "operators": [
                {
                    "name": "counts",
                    "inputs": ["words"],
                    "grouping": {"policy": "mixed", "key": "word"},
                    "run": "count",
                    "with": {"costPerTuple": "40us"},
                },
            ],
            "sinks": [{"name": "counts", "input": "counts", "format": "parquet", "options": {"path": f"{folder}/counts"}}],
            "driver": {"cpu": "500m", "memory": "1536Mi", "pod": pod},
            "executors": [
                {"name": "large", "replicas": 1, "cpu": "500m", "memory": "1Gi", "pod": pod},
                {"name": "small", "replicas": 2, "cpu": "200m", "memory": "1Gi", "pod": pod},
            ],
            "rebalance": {"mode": "Off"},
            "migration": {"threshold": "1"},
            "trigger": {"interval": "500ms"},
            "checkpoint": f"{folder}/checkpoint",
        },
    }


@contextmanager
def _flowing(folder: Path) -> Iterator[None]:
    """While entered, write a file as soon as fewer than `AHEAD` are still to be counted."""
    folder.chmod(0o777)
    for name in ("words", "counts", "checkpoint"):
        (folder / name).mkdir()
        (folder / name).chmod(0o777)
    ended = threading.Event()

    def flow() -> None:
        written = 0
        while not ended.wait(LOOK_SECONDS):
            while written - len(list((folder / "counts").glob("batch-*.parquet"))) < AHEAD:
                _write(folder / "words", written)
                written += 1

    thread = threading.Thread(target=flow, name="words flow")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _write(folder: Path, number: int) -> None:
    """Write a file that appears whole."""
    drawn = np.random.default_rng(number).zipf(1.4, WORDS_IN_FILE) % 300
    unseen = folder / f".part-{number:04}.parquet"
    pq.write_table(pa.table({"word": [f"w{word}" for word in drawn]}), unseen)
    unseen.rename(folder / f"part-{number:04}.parquet")
