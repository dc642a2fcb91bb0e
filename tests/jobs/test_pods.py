"""Decisions of a driver in a pod without Spark or an API server: slots, patience, and its reading of the ConfigMap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.config_maps import config_map
from support.manifests import counting, files, manifest, memory_sink
from support.reasons import BY_TEST

from streamtopology.contract.routing_configmap import RoutingMapError
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.plan.dag import compile_dag
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.initial_routes import first_routes
from streamtopology.jobs.pods.cluster import LONG_PATIENCE_SECONDS, PATIENCE_SECONDS, KubernetesCluster, enough
from streamtopology.jobs.pods.driver import check_for_pods
from streamtopology.jobs.pods.environment import DriverEnvironment
from streamtopology.jobs.pods.routing_configmap import PlannedEpoch, RoutingMap
from streamtopology.jobs.pods.spark_settings import driver_settings
from streamtopology.jobs.runtime.preflight.checks import source_schemas
from streamtopology.jobs.spark.cluster import ExecutorSlot, executor_slots
from streamtopology.jobs.spark.executors import ExecutorInfo
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.epochs.rescaling import most_instances, slot_names
from streamtopology.topology import ManifestError, Topology, load, parse

EXAMPLES = Path(__file__).parents[2] / "examples"
# Examples that are topologies and say that they are for Kubernetes.
APPLIED = [
    path
    for path in sorted(EXAMPLES.rglob("*.yaml"))
    if "kubectl apply" in (text := path.read_text("utf-8")) and "kind: StreamTopology\nmetadata" in text
]

ENVIRONMENT = {
    "STREAMTOPOLOGY_NAME": "flights", "STREAMTOPOLOGY_NAMESPACE": "air", "POD_NAME": "flights-driver-5d", "POD_IP": "10.1.2.3",
}  # fmt: skip


def topology(policy: str = "mixed", data: Path = Path("/data"), **spec: object) -> Topology:
    return parse(manifest("flights", [files(data)], [counting(policy=policy)], [memory_sink("out", "counts")], **spec))


def plan(of: Topology, number: int = 1) -> ExecutionPlan:
    dag = compile_dag(of, source_schemas(of, {}), Path())
    names = slot_names(of)
    placement = Placement.first(names, most_instances(of, len(names)))
    routes = first_routes(dag, of, {}, placement, len(names))
    return ExecutionPlan(of, Epoch(number, routes, (0.5, 0.3, 0.2), BY_TEST, placement), source_schemas(of, {}), Path())


def executor(class_name: str, pod: str) -> ExecutorInfo:
    return ExecutorInfo("7", "10.1.2.4", {"CLASS": class_name, "POD_NAME": pod})


def test_an_executor_fills_the_slot_that_its_class_and_ordinal_say() -> None:
    cluster = KubernetesCluster(DriverEnvironment.read(ENVIRONMENT), topology(), print, print, lambda: False)
    slots = [slot.name for slot in cluster.slots]
    assert slots == ["large-0", "large-1", "small-0"]
    assert cluster.slot_of(executor("large", "flights-large-1")) == "large-1"
    assert cluster.slot_of(executor("small", "flights-small-10")) == "small-10"
    assert cluster.slot_of(executor("odd-name", "flights-odd-name-0")) == "odd-name-0"
    assert cluster.slot_of(ExecutorInfo("7", "10.1.2.4", {})) not in slots


def test_slots_come_and_go_and_are_resized_as_the_topology_says() -> None:
    cluster = KubernetesCluster(DriverEnvironment.read(ENVIRONMENT), topology(), print, print, lambda: False)
    cluster.start([ExecutorSlot("small-1", "small", 0.3, 1 << 30)])
    cluster.resize("small", 0.5)
    assert [(slot.name, slot.cpu) for slot in cluster.slots] == [
        ("large-0", 1.0), ("large-1", 1.0), ("small-0", 0.5), ("small-1", 0.5),
    ]  # fmt: skip
    cluster.release(["large-1"])
    assert [slot.name for slot in cluster.slots] == ["large-0", "small-0", "small-1"]
    with pytest.raises(ValueError, match="no executor class 'huge'; there are: large, small"):
        cluster.resize("huge", 1.0)


@given(st.sets(st.sampled_from(["large-0", "large-1", "small-0", "small-7"])), st.floats(0, 200))
def test_it_begins_with_all_then_with_one_of_each_class_then_with_any(there: set[str], waited: float) -> None:
    slots = executor_slots(topology())
    filled = there - {"small-7"}  # beyond the class's replicas: no slot of this topology
    if len(filled) == 3:
        patience = 0.0
    elif len(filled) == 2 and "small-0" in filled:
        patience = PATIENCE_SECONDS
    elif filled:
        patience = LONG_PATIENCE_SECONDS
    else:
        patience = float("inf")
    assert enough(slots, there, waited) == (waited >= patience)


@pytest.mark.parametrize("state", ["ready", "prepared", None])
def test_a_config_map_is_read_as_it_was_written(state: str | None) -> None:
    written = topology()
    planned = None if state is None else PlannedEpoch(plan(written, 7).epoch, 3, state)  # type: ignore[arg-type]
    routing = RoutingMap(written, 4, planned, former_checkpoint="" if state is None else "/former")
    content = config_map(routing)
    assert RoutingMap.read("flights-routing", content.data, content.binary_data) == routing


def test_every_damage_of_a_config_map_is_named() -> None:
    whole = config_map(RoutingMap(topology(), 4, PlannedEpoch(plan(topology(), 7).epoch, 4, "ready")))
    damages: list[tuple[dict[str, str | None], dict[str, str], str]] = [
        ({"topology": None}, {}, "has no data.topology"),
        ({"topology": "{"}, {}, "data.topology is not JSON"),
        ({"generation": "four"}, {}, "data.generation is 'four', not a whole number"),
        ({"epochNumber": "8"}, {}, "data.epochNumber is 8, binaryData.epoch holds epoch 7"),
        ({"epochGeneration": None}, {}, "has no data.epochGeneration"),
        ({"epochState": "done"}, {}, "data.epochState is 'done', neither 'prepared' nor 'ready'"),
        ({}, {"epoch": "AAAA"}, "binaryData.epoch is not gzip"),
        ({}, {"epoch": "no base64!"}, "binaryData.epoch is not gzip"),
        ({}, {"epoch": whole.binary_data["epoch"][:40]}, "binaryData.epoch is not gzip"),
    ]
    for changed, binary, output in damages:
        data = {key: value for key, value in {**whole.data, **changed}.items() if value is not None}
        with pytest.raises(RoutingMapError, match=output):
            RoutingMap.read("flights-routing", data, {**whole.binary_data, **binary})


def test_a_topology_that_is_wrong_is_reported_as_a_manifest_is() -> None:
    content = config_map(RoutingMap(topology(), 4, None))
    data = {**content.data, "topology": content.data["topology"].replace('"mixed"', '"mixd"')}
    with pytest.raises(ManifestError, match=r"generation 4 in ConfigMap flights-routing[\s\S]*policy"):
        RoutingMap.read("flights-routing", data, {})


def test_an_epoch_that_does_not_fit_the_run_is_distinguished_from_one_that_does() -> None:
    ours = plan(topology())
    fits, counts = ours.epoch, ours.epoch.routes["counts"]
    assert ours.misfit(fits) is None
    assert ours.misfit(replace(fits, source_shares=(), placement=None)) is None, "placement is not the operator's to say"
    by_fields = {"counts": plan(topology("fields")).epoch.routes["counts"]}
    fewer = {"counts": replace(counts, table=counts.table.rescaled([0, 2]), instances=(0, 2))}
    elsewhere = Placement.first(["large-0", "large-1", "huge-0"], 3)
    for wrong, output in (
        (replace(fits, source_shares=(0.5, 0.5), placement=None), "source shares of 2 slots; the topology has 3"),
        (replace(fits, routes=by_fields), "routes counts by fields; its policy is mixed"),
        (replace(fits, routes={"other": counts}), "routes other; the topology has counts"),
        (replace(fits, routes=fewer), r"over the instances [0, 2]; active are [0, 1, 2]"),
        (replace(fits, placement=elsewhere), "was planned for"),
    ):
        assert output in str(ours.misfit(wrong))


def test_pods_need_a_checkpoint_that_they_share_and_the_topology_they_were_made_for(tmp_path: Path) -> None:
    check_for_pods(topology(data=tmp_path, checkpoint="/shared/checkpoint"), "flights")
    with pytest.raises(ManifestError, match=r"spec\.checkpoint: a pod's own storage is lost with it"):
        check_for_pods(topology(data=tmp_path), "flights")
    with pytest.raises(WrongUse, match="this driver is of topology 'trains', the ConfigMap holds 'flights'"):
        check_for_pods(topology(data=tmp_path, checkpoint="/shared"), "trains")


@pytest.mark.parametrize("path", APPLIED, ids=lambda path: path.name)
def test_an_example_that_says_kubectl_apply_is_taken_by_a_driver_in_a_pod(path: Path) -> None:
    """And its checkpoint is on a volume that every pod of it mounts, or in a bucket for which each has credentials."""
    example = load(path)
    check_for_pods(example, example.name)
    pods = [example.driver.pod, *(one.pod for one in example.executors)]
    checkpoint = example.checkpoint or ""
    for pod in pods:
        mounted = any(Path(checkpoint).is_relative_to(one["mountPath"]) for one in pod.volume_mounts)
        assert pod.env_from if checkpoint.startswith("s3://") else mounted


def test_the_driver_starts_no_executors_and_keeps_its_secret_in_a_file() -> None:
    settings = driver_settings(DriverEnvironment.read({**ENVIRONMENT, "STREAMTOPOLOGY_MEMORY": "700"}))
    assert "-Dspark.executor.instances=0" in settings["spark.driver.extraJavaOptions"]
    assert "spark.executor.instances" not in settings, "Spark refuses it as a setting"
    assert settings["spark.driver.host"] == "flights-driver.air.svc"
    assert settings["spark.driver.memory"] == "700m"
    assert settings["spark.authenticate.secret.file"] == "/etc/streamtopology/spark/secret"
    assert "spark.authenticate.secret" not in settings
