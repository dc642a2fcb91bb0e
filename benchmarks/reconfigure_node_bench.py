"""How long a changed policy takes on a real node: from the operator seeing it to the first batch under it, by its histogram.

python benchmarks/reconfigure_node_bench.py [--changes 50] [--json FILE]     (make bench-node; needs root, Debian or Ubuntu)

The chart, a stream of words that never ends, three executors of two classes; the policy of its counting operator goes back and
forth. API server, kubelet, driver, executors and operator share the machine's cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.kube.applied import START_SECONDS, AppliedTopology, word_count
from support.kube.chart import NAMESPACE as OPERATOR
from support.kube.chart import installed
from support.kube.node import Node
from support.word_stream import WordStream

ROOT = Path(__file__).parents[1]
POLICIES = ("fields", "mixed")
BUCKET = re.compile(r'^streamtopology_operator_time_to_reconfigure_seconds_bucket\{kind="Routing",le="([^"]+)"\} (\S+)$', re.M)


def buckets(node: Node) -> list[tuple[float, float]]:
    """The histogram of changed policies: (upper bound in seconds, changes that took no longer)."""
    (pod,) = node.kubectl("-n", OPERATOR, "get", "pods", "-o", "name").split()
    path = f"/api/v1/namespaces/{OPERATOR}/pods/{pod.removeprefix('pod/')}:9091/proxy/metrics"
    return [(float(bound), float(count)) for bound, count in BUCKET.findall(node.kubectl("get", "--raw", path))]


def quantile(histogram: list[tuple[float, float]], share: float) -> float:
    """Seconds within which `share` of the changes came through, interpolated within a bucket as Prometheus does."""
    rank = share * histogram[-1][1]
    below, lower = 0.0, 0.0
    for bound, count in histogram:
        if count >= rank:
            return lower if bound == float("inf") else lower + (bound - lower) * (rank - below) / (count - below)
        below, lower = count, bound
    raise ValueError("a histogram ends with the bucket of all")


def measure(node: Node, folder: Path, changes: int) -> list[tuple[float, float]]:
    manifest = word_count(folder)
    manifest["spec"]["rebalance"]["mode"] = "Off"  # nothing else is to re-route meanwhile
    topology = AppliedTopology(node, node.new_namespace())
    topology.apply(manifest)
    with WordStream(folder).flowing():
        topology.settles(seconds=START_SECONDS)
        for number in range(changes):
            policy = POLICIES[number % len(POLICIES)]
            topology.patch(("operators/1/grouping/policy", policy))
            topology.settles(lambda _, policy=policy: topology.policy("counts") == policy)
            print(f"\r{number + 1} of {changes} changes", end="", flush=True)
    print()
    measured = buckets(node)
    topology.kubectl("delete", "stopo", "--all", "--timeout=120s")
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "reconfigure-node.json")
    given = parser.parse_args()
    build = [sys.executable, str(ROOT / "images" / "build.py"), "operator", "spark", "--archive"]
    archives = subprocess.run(build, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    with tempfile.TemporaryDirectory() as folder, Node() as node:
        Path(folder).chmod(0o777)
        for archive in archives:
            node.import_image(Path(archive))
        os.environ["KUBECONFIG"] = str(node.kubeconfig)
        with installed(node):
            histogram = measure(node, Path(folder), given.changes)
    results = [
        {"case": "changed policy", "metric": name, "unit": "s", "median": round(quantile(histogram, share), 3)}
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    ]
    counted = [{"le": bound, "changes": count} for bound, count in histogram if bound != float("inf")]
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}
    told = {
        "name": "reconfigure-node",
        "machine": machine,
        "changes": histogram[-1][1],
        "results": results,
        "histogram": counted,
    }
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(told, indent=2) + "\n")
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
