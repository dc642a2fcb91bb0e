"""Fields of an object that are still as we wrote them: by the API server's account of who wrote what."""

from __future__ import annotations

import copy
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operator_world import Object, World, manifest, reasons, written_by_us
from support.quantities import Quantity, quantities

from streamtopology.contract import environment as variables
from streamtopology.k8s import names
from streamtopology.k8s.decide.own_fields import Differences, differences, own_values

CONTAINER = "spec.template.spec.containers.executor"


@pytest.fixture
def world() -> World:
    """A topology that runs and has settled."""
    world = World(manifest())
    world.settle()
    world.events.clear()
    return world


def mirror(body: Object) -> None:
    """Lets images come from a mirror."""
    if body["kind"] in ("Deployment", "StatefulSet"):
        body["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror.example/spark:1"


def condition(world: World, kind: str) -> tuple[str, str, str]:
    known = next(one for one in world.manifest["status"]["conditions"] if one["type"] == kind)
    return known["status"], known["reason"], known["message"]


@pytest.mark.parametrize(
    ("kind", "name", "place", "value"),
    [
        ("StatefulSet", "flow-large", f"{CONTAINER}.env", []),
        ("StatefulSet", "flow-large", f"{CONTAINER}.securityContext", None),
        ("StatefulSet", "flow-large", "spec.template.spec.volumes", []),
        ("Deployment", "flow-driver", "spec.template.spec.serviceAccountName", "default"),
        ("Role", "flow-driver", "rules", []),
        ("Service", "flow-driver", "spec.selector", {"app": "mine"}),
        ("NetworkPolicy", "flow", "spec.ingress", []),
        ("ServiceAccount", "flow-driver", "automountServiceAccountToken", False),
    ],
)
def test_a_field_that_somebody_has_changed_is_written_again(world: World, kind: str, name: str, place: str, value: Any):
    before = copy.deepcopy(world.objects[kind, name])
    world.edit(kind, name, place, value)
    (step,) = reasons(world.decide().steps)
    assert step.startswith(f"apply {kind} {name}: changed by others: {place}")
    world.settle()
    versions = {"resourceVersion": None}
    assert world.objects[kind, name]["metadata"] | versions == before["metadata"] | versions
    assert {**world.objects[kind, name], "metadata": None} == {**before, "metadata": None}


def test_a_field_that_admission_changes_is_written_once_and_reported():
    world = World(manifest(), admission=mirror)
    world.settle()
    assert world.decide().steps == ()
    status, reason, message = condition(world, "MutatedByAdmission")
    assert (status, reason) == ("True", "Mutated")
    changed = '"registry.example/spark:1" became "mirror.example/spark:1"'
    assert f"Deployment flow-driver: spec.template.spec.containers.driver.image: {changed}" in message
    assert "Mutated" in dict(world.events)
    assert condition(world, "Degraded")[:2] == ("False", "AsExpected")
    world.admission = lambda body: None
    world.change(image="registry.example/spark:2")
    world.settle()
    assert condition(world, "MutatedByAdmission")[:2] == ("False", "AsWritten")


def altering(body: Object) -> None:
    """Changes pods as they are made."""
    if body["kind"] == "Pod":
        container = body["spec"]["containers"][0]
        container["image"] = "mirror.example/spark:1"
        container["env"] = [
            {**one, "value": "secret"} if one["name"] == variables.TOPOLOGY else one for one in container["env"]
        ]
        body["spec"]["nodeSelector"] = {"zone": "b"}
        body["spec"]["containers"].insert(0, {"name": "mesh", "image": "mesh:1"})


def test_what_admission_changes_in_pods_is_said_once_for_all_of_them():
    zone = {"pod": {"nodeSelector": {"zone": "a"}}}
    executors = [{"name": "large", "replicas": 3, "cpu": "400m", "memory": "1Gi", **zone}]
    world = World(manifest(executors=executors), admission=altering)
    world.settle()
    world.objects["StatefulSet", "flow-large"]["status"] = {"updateRevision": "flow-large-1"}
    for name in world.pod_names("executor"):
        world.objects["Pod", name]["metadata"]["labels"][names.POD_REVISION] = "flow-large-1"
    world.settle()
    assert world.decide().steps == ()
    assert [reason for reason, _ in world.events].count("Mutated") == 1
    assert condition(world, "MutatedByAdmission")[2].split("; ") == [
        'Pod flow-large-0: image: "registry.example/spark:1" became "mirror.example/spark:1" (and 3 more pods)',
        'Pod flow-large-0: nodeSelector.zone: "a" became "b" (and 2 more pods)',
        f"Pod flow-large-0: env.{variables.TOPOLOGY} is another (and 3 more pods)",
    ]


def capping(body: Object) -> None:
    """Gives no pod more than 2Gi."""
    if body["kind"] == "Pod" and "driver" in body["metadata"]["name"]:
        body["spec"]["containers"][0]["resources"]["limits"]["memory"] = "2Gi"


def test_other_resources_of_the_driver_are_said():
    world = World(manifest(), admission=capping)
    world.settle()
    assert 'limits.memory: "3Gi" became "2Gi"' in condition(world, "MutatedByAdmission")[2]


def test_a_fight_over_a_field_is_fought_less_and_less_often_and_reported(world: World):
    written = 0
    for _ in range(200):
        world.edit("StatefulSet", "flow-large", "spec.replicas", 7)
        decision = world.decide()
        written += len(decision.steps)
        assert decision.again_seconds is not None, "it comes back to it by itself"
        world.carry_out(decision)
        if not decision.steps:
            world.now += 1
    assert written < 12, "in three minutes"
    status, reason, message = condition(world, "Degraded")
    assert (status, reason) == ("True", "Contested")
    assert "apply StatefulSet flow-large: changed by others: spec.replicas" in message
    assert condition(world, "Reconfiguring")[0] == "True"


def test_a_fight_over_an_epoch_is_fought_less_and_less_often(world: World):
    """It is applied and patched in turns, and each would make the other look like something new."""
    damaged, written = {"epochNumber": "0", "epochState": "ready"}, 0
    for _ in range(200):
        world.held_by_others |= damaged
        world.objects["ConfigMap", "flow-routing"]["data"] |= damaged
        decision = world.decide()
        written += len(decision.steps)
        world.carry_out(decision)
        if not decision.steps:
            world.now += 1
    assert written < 24, "in three minutes"


def test_fields_that_others_add_to_an_object_are_theirs(world: World):
    pod = world.objects["StatefulSet", "flow-large"]["spec"]["template"]["spec"]
    pod["containers"].append({"name": "mesh", "image": "mesh:1"})
    pod["containers"][0]["env"].append({"name": "OTHER", "value": "1"})
    world.objects["Service", "flow-driver"]["metadata"]["labels"]["team"] = "streams"
    assert world.decide().steps == ()
    assert condition(world, "MutatedByAdmission")[0] == "False"


@given(quantities(), st.sampled_from(["text", "number"]))
def test_quantities_are_the_same_however_they_are_written(written: Quantity, form: str):
    """The API server writes quantities in its own way; that must not look like a change."""

    def body(size: object) -> Object:
        return {"metadata": {"labels": {"a": "b"}}, "spec": {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": size}}]}}

    thousandths = min(ceil(written.amount * 1000), (2**63 - 1) * 1000)
    live = body(f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000))
    ours = body(written.text if form == "text" or thousandths > 10**12 else thousandths / 1000)
    live["metadata"]["managedFields"] = [written_by_us(ours)]
    assert differences(ours, own_values(live)) == Differences()


def test_an_object_without_an_account_of_its_writers_is_not_ours():
    body = {"metadata": {}, "spec": {"replicas": 1}}
    assert differences(body, own_values(body)) == Differences(taken=("spec",))
