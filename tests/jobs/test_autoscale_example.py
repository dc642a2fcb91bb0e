"""The KEDA example asks for what there is: of a group, topic or metric that does not exist KEDA says nothing.

It would scale wrongly, and nobody would know why.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.histories import run

from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.kafka.stream import group_of
from streamtopology.jobs.view.prometheus import Metrics
from streamtopology.topology import Topology, load

EXAMPLE = Path(__file__).parents[2] / "examples" / "autoscale-keda.yaml"
# Labels that the chart's PodMonitor adds.
BY_PROMETHEUS = {"namespace", "topology"}


@pytest.fixture(scope="module")
def topology() -> Topology:
    return load(EXAMPLE)


@pytest.fixture(scope="module")
def scaled() -> dict[str, Any]:
    (found,) = (each for each in yaml.safe_load_all(EXAMPLE.read_text()) if each["kind"] == "ScaledObject")
    return found["spec"]


def trigger(scaled: dict[str, Any], kind: str) -> dict[str, str]:
    (found,) = (each["metadata"] for each in scaled["triggers"] if each["type"] == kind)
    return found


def test_scaled_object_names_its_topology_and_stays_within_its_bounds(topology: Topology, scaled: dict[str, Any]) -> None:
    assert topology.autoscale is not None
    assert (scaled["scaleTargetRef"]["kind"], scaled["scaleTargetRef"]["name"]) == ("StreamTopology", topology.name)
    bounds = topology.autoscale.min_replicas, topology.autoscale.max_replicas
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == bounds


def test_the_lag_is_that_of_the_topologys_source(topology: Topology, scaled: dict[str, Any]) -> None:
    lag = trigger(scaled, "kafka")
    (source,) = topology.sources
    assert lag["topic"] == source.options["subscribe"]
    assert lag["bootstrapServers"] == source.options["kafka.bootstrap.servers"]
    assert lag["consumerGroup"] == group_of(SourceSpec.of(source, topology.name))


def test_the_utilisation_is_that_of_the_scaled_class_by_metrics_that_exist(topology: Topology, scaled: dict[str, Any]) -> None:
    assert topology.autoscale is not None
    samples = [sample for family in Metrics(run(1)).registry.collect() for sample in family.samples]
    exposed = {sample.name: set(sample.labels) for sample in samples}
    asked = re.findall(r"(streamtopology_\w+)\{([^}]*)\}", trigger(scaled, "prometheus")["query"])
    assert asked
    for metric, selector in asked:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', selector))
        assert labels["class"] == topology.autoscale.executor_class
        assert labels["topology"] == topology.name
        assert labels.keys() - BY_PROMETHEUS <= exposed[metric]
