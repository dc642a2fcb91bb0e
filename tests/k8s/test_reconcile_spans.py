"""The trace of a reconciliation: what was done to which object, how long it took, and how it ended."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from support.fake_api import NAME, NAMESPACE, FakeCluster
from support.operator_world import manifest
from support.virtual_operator import VirtualRelease
from support.virtual_time import run_virtual

from streamtopology.k8s.io.metrics import OperatorMetrics
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.io.reconcile_spans import LONGEST_FAILURE, ReconcileSpans
from streamtopology.k8s.settings import Settings
from streamtopology.tracing.settings import ENDPOINT
from streamtopology.tracing.span import TraceSpan

OUTCOME = "streamtopology.outcome"


def looks_of(seconds: float, meanwhile: Callable[[FakeCluster], Awaitable[None]] | None = None) -> list[TraceSpan]:
    """The spans of a release that serves a new topology for this virtual time."""
    spans: list[TraceSpan] = []

    async def story() -> None:
        cluster = FakeCluster()
        release = VirtualRelease(cluster, "first", lambda make: spans.append(make()))
        playing = asyncio.create_task(cluster.run())
        release.start()
        cluster.create(manifest(NAME))
        if meanwhile is not None:
            await meanwhile(cluster)
        await asyncio.sleep(seconds)
        await release.stop()
        playing.cancel()

    run_virtual(story())
    return spans


def test_new_topology_is_reconciled_in_traces_that_name_each_object() -> None:
    looks = looks_of(30)
    assert {look.name for look in looks} == {"reconcile"}
    assert {(look.attributes["k8s.namespace.name"], look.attributes["streamtopology.topology"]) for look in looks} == {
        (NAMESPACE, NAME)
    }
    assert {look.attributes[OUTCOME] for look in looks} == {"done"}
    assert {look.failure for look in looks} == {None}
    parts = [part for look in looks for part in look.children]
    steps = [part.name for part in parts]
    for step in ("finalizer", "make Secret", "apply ConfigMap", "apply Deployment", "apply StatefulSet", "write status"):
        assert step in steps
    deployments = [part.attributes for part in parts if part.name == "apply Deployment"]
    assert {"k8s.deployment.name": "flow-driver"} in deployments
    assert {"streamtopology.object": "ConfigMap/flow-routing"} in [part.attributes for part in parts]
    assert any(part.name == "post event" and "streamtopology.reason" in part.attributes for part in parts)


def test_parts_of_a_reconciliation_follow_each_other_within_it() -> None:
    for look in looks_of(30):
        instants = [look.began_at, *(at for part in look.children for at in (part.began_at, part.ended_at)), look.ended_at]
        assert all(before <= after for before, after in pairwise(instants))


def test_refusal_of_the_api_server_is_on_the_step_and_on_the_whole() -> None:
    async def refuse(cluster: FakeCluster) -> None:
        cluster.refused_statuses = [422]

    looks = looks_of(30, refuse)
    refused = [look for look in looks if look.attributes[OUTCOME] == "refused"]
    assert len(refused) == 1
    assert refused[0].failure == "refused"
    (step,) = [part for part in refused[0].children if part.name == "write status"]
    assert step.attributes == {"error.type": "ApiError", "http.response.status_code": 422}
    assert step.failure is not None
    assert "not now" in step.failure
    assert looks[-1].attributes[OUTCOME] == "done"


def test_long_error_is_cut_in_a_span() -> None:
    spans: list[TraceSpan] = []
    looks = ReconcileSpans(OperatorMetrics(), lambda: 1.0, lambda make: spans.append(make()))
    with looks.at(TopologyKey("a", "b")) as look:
        with pytest.raises(ValueError, match="x"), looks.part("step", {}):
            raise ValueError("x" * 5000)
        look.outcome = "error"
    (part,) = spans[0].children
    assert part.failure == "x" * LONGEST_FAILURE
    assert part.attributes == {"error.type": "ValueError"}


def test_workers_at_once_keep_their_parts_apart() -> None:
    spans: list[TraceSpan] = []
    looks = ReconcileSpans(OperatorMetrics(), lambda: 1.0, lambda make: spans.append(make()))

    async def worker(name: str) -> None:
        with looks.at(TopologyKey("space", name)) as look:
            for number in range(3):
                with looks.part(f"{name} {number}", {}):
                    await asyncio.sleep(0)
            look.outcome = "done"

    async def both() -> None:
        await asyncio.gather(worker("a"), worker("b"))

    asyncio.run(both())
    found = {span.attributes["streamtopology.topology"]: [part.name for part in span.children] for span in spans}
    assert found == {"a": ["a 0", "a 1", "a 2"], "b": ["b 0", "b 1", "b 2"]}


def test_operator_names_itself_to_collectors() -> None:
    named = Settings(namespace="operators", identity="pod-1").resource
    assert named["service.name"] == "streamtopology-operator"
    assert (named["k8s.namespace.name"], named["service.instance.id"]) == ("operators", "pod-1")


def test_operator_whose_traces_cannot_be_made_does_not_start() -> None:
    command = [sys.executable, "-m", "streamtopology.k8s"]
    ended = subprocess.run(command, env={ENDPOINT: "collector:4318"}, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr == (
        f"streamtopology-operator: {ENDPOINT}: expected the URL of a collector, such as http://collector:4318\n"
    )
