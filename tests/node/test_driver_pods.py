"""A topology in pods of a real node: unequal executors, live changes by ConfigMap, lost pods; the result equals a count."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.config_maps import config_map
from support.kube.binaries import binary
from support.kube.node import Node
from support.reasons import BY_TEST
from support.topology_pods import as_list, objects, routing_map, this_machine
from support.waiting import eventually
from support.word_stream import WordStream

from streamtopology.jobs.admin.ask_cluster import Unreachable, asking_the_cluster
from streamtopology.jobs.pods.routing_configmap import PlannedEpoch, RoutingMap
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology import Topology, parse

pytestmark = pytest.mark.timeout(900)

NAME = "words"
START_SECONDS, STEP_SECONDS = 400, 200
TAGGED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z batch=(\d+|-) instance=(\S+/\d+|-) ")


def manifest(shared: Path, policy: str = "mixed", small: int = 2) -> dict[str, Any]:
    return {
        "apiVersion": "streamtopology.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": NAME},
        "spec": {
            "sources": [{"name": "lines", "format": "text", "options": {"path": f"{shared}/lines", "maxFilesPerTrigger": 1}}],
            "operators": [
                {"name": "split", "inputs": ["lines"], "run": "map",
                 "with": {"select": ["unnest(string_split(value, ' ')) AS word"]}},
                {"name": "counts", "inputs": ["split"], "grouping": {"policy": policy, "key": "word"}, "run": "count"},
            ],
            "sinks": [{"name": "counts", "input": "counts", "format": "parquet", "options": {"path": f"{shared}/counts"}}],
            "executors": [
                {"name": "large", "replicas": 1, "cpu": "400m", "memory": "896Mi"},
                {"name": "small", "replicas": small, "cpu": "200m", "memory": "896Mi"},
            ],
            "trigger": {"interval": "200ms"},
            "checkpoint": f"{shared}/checkpoint",
        },
    }  # fmt: skip


class Words:
    """The topology in its pods, the lines it is fed, and what a plain count says of them."""

    def __init__(self, node: Node, namespace: str, shared: Path) -> None:
        self.node = node
        self.namespace = namespace
        self.shared = shared
        self.stream = WordStream(shared)
        self._ask = asking_the_cluster(NAME, namespace, None)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.node.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def tell(self, topology: Topology, generation: int, planned: PlannedEpoch | None = None) -> None:
        """Write the ConfigMap, as the operator does."""
        written = routing_map(NAME, config_map(RoutingMap(topology, generation, planned)))
        self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(written))

    def stats(self) -> Mapping[str, Any]:
        """The driver's current answer; empty while it is away."""
        try:
            return self._ask(-1)
        except Unreachable:
            return {}

    def wait_for(self, condition: Callable[[Mapping[str, Any]], bool], seconds: float = STEP_SECONDS) -> Mapping[str, Any]:
        """Wait until the driver's answer meets `condition`, and return it."""
        stats: Mapping[str, Any] = {}

        def met() -> bool:
            nonlocal stats
            stats = self.stats()
            return bool(stats) and condition(stats)

        try:
            eventually(met, seconds)
        except AssertionError:
            pytest.fail(f"waited in vain; stats {self._short(stats)}\n{self.picture()}")
        return stats

    def pods(self) -> dict[str, str]:
        """Pods and their uids."""
        items = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}

    def driver(self) -> str:
        (name,) = (pod for pod in self.pods() if pod.startswith(f"{NAME}-driver"))
        return name

    def restarts(self) -> int:
        items = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        return sum(each["restartCount"] for item in items for each in item["status"].get("containerStatuses", []))

    def picture(self) -> str:
        """Logs and objects to look at after a failure."""
        logs = [f"--- {pod}\n{self.kubectl('logs', pod, '--tail=25')}" for pod in self.pods()]
        return "\n".join([self.kubectl("get", "pods", "-o", "wide"), *logs])

    @staticmethod
    def _short(stats: Mapping[str, Any]) -> dict[str, Any]:
        return {name: stats.get(name) for name in ("phase", "batch", "epoch", "newest_epoch", "refused", "executors")}


@pytest.fixture
def words(node: Node, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Words]:
    """The topology applied by hand, its driver running batches."""
    monkeypatch.setenv("KUBECONFIG", str(node.kubeconfig))
    running = Words(node, namespace, tmp_path)
    topology = parse(manifest(tmp_path))
    running.kubectl("apply", "-f", "-", stdin=as_list(objects(topology, namespace, this_machine(), str(tmp_path))))
    running.tell(topology, 1)
    running.wait_for(lambda stats: stats["phase"] == "running", START_SECONDS)
    yield running
    running.kubectl("delete", "deployment,statefulset", "--all", "--wait=false")


@contextmanager
def log_of(words: Words, pod: str) -> Iterator[list[str]]:
    """All lines of a pod's log; complete when the pod has ended, which is waited for on leaving."""
    command = [str(binary("kubectl")), f"--kubeconfig={words.node.kubeconfig}", "-n", words.namespace, "logs", "-f", pod]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        yield lines
        assert following.stdout is not None
        lines += following.stdout.read().splitlines()


def test_a_topology_lives_through_changes_and_losses_and_counts_every_word_once(words: Words) -> None:
    # Unequal executors work, and a controller gets its input.
    words.stream.feed(5)
    stats = words.wait_for(lambda stats: len([each for each in stats["executors"] if each["admitted"]]) == 3)
    assert {each["pod"]: each["slot"] for each in stats["executors"]} == {
        "words-large-0": 0, "words-small-0": 1, "words-small-1": 2,
    }  # fmt: skip
    assert (stats["generation"], stats["refused"], stats["checkpoint"]) == (1, None, f"{words.shared}/checkpoint")
    first = stats["epoch"]
    assert stats["newest_epoch"] == first, "the driver does not decide"
    assert stats["phase"] == "running"
    assert stats["batches"][-1]["number"] == stats["batch"]
    assert words.stream.counted() == words.stream.expected
    pods = words.pods()

    # A policy changes by ConfigMap alone.
    words.tell(parse(manifest(words.shared, policy="fields")), 2)
    words.wait_for(lambda stats: stats["generation"] == 2)
    words.stream.feed()
    stats = words.wait_for(lambda stats: stats["epoch"] == stats["newest_epoch"] == first + 1)
    assert stats["policies"]["counts"] == "fields"

    # An epoch of the operator's own, and one that does not fit.
    words.tell(parse(manifest(words.shared)), 3)
    stats = words.wait_for(lambda stats: stats["newest_epoch"] == first + 2)
    words.stream.feed()
    stats = words.wait_for(lambda stats: stats["epoch"] == first + 2)
    ours = first + 3
    words.tell(parse(manifest(words.shared)), 3, PlannedEpoch(all_at(Epoch.from_wire(stats["routing"]), ours, 0), 3, "ready"))
    words.wait_for(lambda stats: stats["newest_epoch"] == ours)
    words.stream.feed()
    stats = words.wait_for(lambda stats: stats["epoch"] == ours and has_moved(stats, ours))
    counts = [report for report in stats["last_batch"]["reports"] if report["operator"] == "counts" and report["rows"]]
    assert [report["instance"] for report in counts] == [0]
    words.tell(
        parse(manifest(words.shared)), 3, PlannedEpoch(all_at(Epoch.from_wire(stats["routing"]), ours + 5, 7), 3, "ready")
    )
    stats = words.wait_for(lambda stats: stats["refused"] is not None)
    assert stats["refused"]["epoch"] == ours + 5
    assert words.stream.counted() == words.stream.expected
    assert (words.pods(), words.restarts()) == (pods, 0), "nothing was restarted"

    # An executor's pod is lost.
    before = {each["executor"] for each in stats["executors"]}
    words.kubectl("delete", "pod", "words-large-0", "--wait=false")
    words.stream.feed()
    stats = words.wait_for(
        lambda stats: any(
            each["slot"] == 0 and each["admitted"] and each["executor"] not in before for each in stats["executors"]
        )
    )
    words.stream.feed()

    # More executors join without a restart, and leave again with their keys handed over.
    words.tell(parse(manifest(words.shared, small=3)), 4)
    words.kubectl("scale", "statefulset", f"{NAME}-small", "--replicas=3")
    words.wait_for(lambda stats: any(each["pod"] == "words-small-2" and each["admitted"] for each in stats["executors"]))
    with words.stream.flowing():
        words.wait_for(
            lambda stats: (
                {slot["executor"] for slot in present(stats)} >= {"small-2"}
                and any(report["slot"] == 3 and report["rows"] for report in stats["last_batch"]["reports"])
            )
        )
    words.tell(parse(manifest(words.shared)), 5)
    words.stream.feed()
    words.wait_for(lambda stats: {slot["executor"] for slot in present(stats)} == {"large-0", "small-0", "small-1"})
    words.kubectl("scale", "statefulset", f"{NAME}-small", "--replicas=2")
    words.stream.feed()
    assert words.stream.counted() == words.stream.expected

    # The driver's pod is lost.
    words.kubectl("delete", "pod", words.driver(), "--wait=false", "--grace-period=0", "--force")
    words.wait_for(lambda stats: stats["phase"] == "running" and stats["batch"] is None, START_SECONDS)
    words.stream.feed()
    stats = words.wait_for(lambda stats: stats["epoch"] is not None and stats["epoch"] >= ours)
    assert words.stream.counted() == words.stream.expected

    # It ends as requested, and every line of the logs is of some batch.
    driver = words.driver()
    executors = [line for pod in words.pods() if pod != driver for line in words.kubectl("logs", pod).splitlines()]
    with log_of(words, driver) as lines:
        words.kubectl("scale", "deployment", f"{NAME}-driver", "--replicas=0")
    assert [line for line in [*lines, *executors] if not TAGGED.match(line)] == []
    assert any(re.search(r"batch=\d+ .* committed: ", line) for line in lines)
    assert words.stream.counted() == words.stream.expected


def has_moved(stats: Mapping[str, Any], epoch: int) -> bool:
    return any(change["epoch"] == epoch and change["keys_moved"] > 0 for change in stats["reconfigurations"])


def present(stats: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [slot for slot in stats["slots"] if slot["present"]]


def all_at(epoch: Epoch, number: int, instance: int) -> Epoch:
    """Every word at one instance, as no planner would have it."""
    route = epoch.routes["counts"]
    assert route.table is not None
    buckets = np.full(len(route.table.buckets), instance, np.int32)
    table = RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), buckets)
    instances = route.instances if instance in route.instances else (*route.instances, instance)
    routes = {**epoch.routes, "counts": replace(route, table=table, instances=instances)}
    return Epoch(number, routes, epoch.source_shares, BY_TEST)
