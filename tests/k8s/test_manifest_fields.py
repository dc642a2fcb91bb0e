"""The field of the manifest that a refused object comes of."""

from __future__ import annotations

import pytest
from support.operator_world import World, manifest

from streamtopology.k8s.decide.manifest_fields import manifest_fields
from streamtopology.k8s.decide.steps import Apply, Delete
from streamtopology.k8s.names import POD

POD_OF_STATEFUL_SET = "spec.template.spec"
LARGE, DRIVER = ("StatefulSet", "flow-large"), ("Deployment", "flow-driver")


@pytest.fixture
def steps() -> dict[tuple[str, str], Apply]:
    return {step.place: step for step in World(manifest()).decide().steps if isinstance(step, Apply)}


@pytest.mark.parametrize(
    ("place", "refused", "ours"),
    [
        (LARGE, f"{POD_OF_STATEFUL_SET}.volumes[3].name", "spec.executors, large: pod.volumes"),
        (LARGE, f"{POD_OF_STATEFUL_SET}.tolerations[0].key", "spec.executors, large: pod.tolerations"),
        (LARGE, f"{POD_OF_STATEFUL_SET}.containers[0].volumeMounts[4].mountPath", "spec.executors, large: pod.volumeMounts"),
        (LARGE, f"{POD_OF_STATEFUL_SET}.containers[0].resources.limits[memory]", "spec.executors, large: memory"),
        (LARGE, f"{POD_OF_STATEFUL_SET}.containers[0].resources.limits[ephemeral-storage]", "spec.executors, large: storage"),
        (LARGE, "spec.template.labels", "spec.executors, large: pod.labels"),
        (LARGE, "spec.template.metadata.labels", "spec.executors, large: pod.labels"),
        (LARGE, "metadata.labels", "spec.executors, large: pod.labels"),
        (DRIVER, f"{POD_OF_STATEFUL_SET}.initContainers[0].image", "spec.driver.pod.initContainers"),
        (DRIVER, f"{POD_OF_STATEFUL_SET}.containers[0].env[9].valueFrom", "spec.driver.pod.env"),
        (DRIVER, f"{POD_OF_STATEFUL_SET}.containers[0].ports[0]", None),
        (("Service", "flow-driver"), "spec.ports[0].port", None),
    ],
)
def test_refused_field_is_one_of_the_manifest(
    steps: dict[tuple[str, str], Apply], place: tuple[str, str], refused: str, ours: str | None
) -> None:
    assert manifest_fields(steps[place], [refused, refused]) == (() if ours is None else (ours,))


def test_a_step_without_a_pod_of_the_manifest_names_no_field() -> None:
    assert manifest_fields(Delete(POD, "flow-large-0", "uid", "replaced"), ["metadata.labels"]) == ()
