"""The whole of it, as a user has it: the chart, a manifest, unequal executors, changes and losses; every word counted once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kube.applied import NAME, START_SECONDS, STEP_SECONDS, AppliedTopology, condition, is_balanced, slots, word_count
from support.kube.chart import NAMESPACE as OPERATOR
from support.kube.node import Node
from support.kube.processes import ProcessFailed
from support.waiting import eventually
from support.word_stream import WordStream

pytestmark = pytest.mark.timeout(2400)  # with the images' build, where they have changed


@pytest.fixture
def cluster(node: Node, operator: None, namespace: str) -> Iterator[AppliedTopology]:
    """Nothing is applied."""
    made = AppliedTopology(node, namespace)
    yield made
    made.kubectl("delete", "stopo", "--all", "--wait=true", "--timeout=120s")


def quota(cluster: AppliedTopology, pod: str) -> str:
    return cluster.pods()[pod]["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"]


def gone(cluster: AppliedTopology) -> bool:
    kinds = "stopo,deployments,statefulsets,pods,configmaps,secrets,services,roles,rolebindings,serviceaccounts,jobs,pdb,netpol"
    left = cluster.kubectl("get", kinds, "-l", f"app.kubernetes.io/instance={NAME}", "-o", "name")
    return left.strip() == ""


@pytest.mark.parametrize("real_time", [False, True], ids=["Spark's jobs", "real time"])
def test_topology_counts_every_word_once_through_changes_and_losses(
    cluster: AppliedTopology, tmp_path: Path, real_time: bool
) -> None:
    stream = WordStream(tmp_path)
    manifest = word_count(tmp_path)
    manifest["spec"]["trigger"] = {**manifest["spec"].get("trigger", {}), "realTime": real_time}
    cluster.apply(manifest)
    with stream.flowing():
        # It starts, and its work leaves the small executors by itself.
        cluster.settles(lambda status: condition(status, "Ready") == ("True", "Running"), START_SECONDS)
        status = cluster.settles(lambda status: bool(status.get("reroutings")) and is_balanced(status))
        assert status["imbalance"] <= 0.25
        assert slots(cluster.stats()) == {"large-0": 0.5, "small-0": 0.2, "small-1": 0.2}
        cluster.posts("Rerouting", "imbalance", "saves")
        cluster.posts("Rerouted", "moved")
        pods = cluster.uids()

        # A policy is changed while batches run.
        cluster.patch(("operators/1/grouping/policy", "fields"))
        cluster.settles(lambda _: cluster.policy("counts") == "fields")
        cluster.posts("Routing", "policy")
        cluster.patch(("operators/1/grouping/policy", "mixed"))
        cluster.settles(lambda _: cluster.policy("counts") == "mixed")

        # A class gets more CPU in place; its share of the work follows. By now there is state to move, and with a threshold of
        # one byte a Job copies it first. (The first re-routing of all may have found none.)
        before = cluster.settles()["epoch"]
        cluster.patch(("executors/1/cpu", "350m"))
        cluster.settles(lambda _: quota(cluster, "words-small-0") == quota(cluster, "words-small-1") == "350m")
        cluster.settles(lambda status: status.get("epoch", 0) > before and is_balanced(status))
        assert slots(cluster.stats()) == {"large-0": 0.5, "small-0": 0.35, "small-1": 0.35}
        eventually(lambda: any(f"epoch {one}: " in cluster.copies_logged() for one in cluster.copied_epochs()), STEP_SECONDS)
        cluster.patch(("migration/threshold", "64Mi"))
        cluster.patch(("executors/1/cpu", "200m"))
        cluster.settles(lambda _: quota(cluster, "words-small-0") == quota(cluster, "words-small-1") == "200m")

        # More executors, and fewer.
        cluster.kubectl("scale", f"stopo/{NAME}", "--replicas=3")
        cluster.settles(lambda _: "small-2" in slots(cluster.stats()), START_SECONDS)
        cluster.kubectl("scale", f"stopo/{NAME}", "--replicas=2")
        cluster.settles(lambda _: "words-small-2" not in cluster.pods())
        assert cluster.uids() == pods, "nothing was restarted"

        # An executor, the operator and the driver are lost, one after the other.
        cluster.kubectl("delete", "pod", "words-large-0", "--wait=false")
        cluster.settles(lambda _: cluster.uids().get("words-large-0") not in (None, pods["words-large-0"]), START_SECONDS)
        cluster.settles(lambda _: "words-large-0" in cluster.admitted_pods(), START_SECONDS)
        cluster.node.kubectl("-n", OPERATOR, "delete", "pod", "--all", "--wait=false")
        driver = cluster.driver()
        cluster.kubectl("delete", "pod", driver, "--wait=false", "--grace-period=0", "--force")
        eventually(lambda: driver not in cluster.pods(), STEP_SECONDS)
        cluster.settles(lambda _: cluster.stats().get("phase") == "running", START_SECONDS)
        cluster.settles(lambda _: cluster.admitted_pods() == {"words-large-0", "words-small-0", "words-small-1"}, START_SECONDS)
    stream.feed(1)
    assert stream.counted() == stream.expected

    # Nothing is left of it.
    cluster.kubectl("delete", "stopo", NAME, "--timeout=120s")
    eventually(lambda: gone(cluster), STEP_SECONDS)
    with pytest.raises(ProcessFailed, match="NotFound"):
        cluster.kubectl("get", "stopo", NAME)
