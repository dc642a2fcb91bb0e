"""The CRD on a real API server: what is valid is accepted and comes back as it was meant, what is not is refused in words."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kubernetes import client
from support.kube.apiserver import ApiServer
from support.kube.processes import ProcessFailed
from support.kube.running_operator import install_crd
from support.mistakes import MISTAKES, VALID, changed, complete_manifest
from support.quantities import quantities
from support.waiting import eventually

from streamtopology.topology import BUILTINS, ManifestError, Topology, parse, parse_quantity
from streamtopology.topology.groupings import GROUPINGS
from streamtopology.topology.yaml_file import read_yaml

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "examples").rglob("*.yaml"))
EXAMPLES = [path for path in SHIPPED if "kind: StreamTopology\nmetadata" in path.read_text(encoding="utf-8")]
FOR_PODS = [path for path in EXAMPLES if "\n  checkpoint:" in path.read_text(encoding="utf-8")]
COMPLETE = complete_manifest()
FUZZED = 200

# Values of `schema`, whose DDL is beyond an API server, and a policy that no package has installed.
ONLY_THE_OPERATOR_REFUSES = (
    "mixd",
    "a INT, b STRUCT<x: INT",
    "a INT, b",
    [{"name": "a"}],
    [{"name": "a", "type": "INT"}, {"name": "A", "type": "INT"}],
)

# Sentences of mistakes that are rare or hard to see in CEL: the operator refuses them when it reads the object.
LEFT_TO_THE_OPERATOR = re.compile(
    "form a cycle|found the alias|columns, grouping.key has|with emit: tuples|as late|expected a sink whose input"
    "|the schema is empty|expected a column or `expression AS name`|takes 2 or more"
    "|found 1, expected columns|expected a text, number, true or false|only a shell|installed: |each column of the key once"
    "|a day that one of its months has"
)

# Messages of the schema itself are the API server's own; the policy has one message for a whole list or mapping.
IN_KUBERNETES_WORDS = (
    "Unsupported value: ", "Required value", "Duplicate value: ", "should be ", "should have at ", "must be of type ",
    "unknown field ", "must consist of lower case", "does not match the expected API version", "Object 'Kind' is missing",
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """The API server's answer to a manifest: HTTP status, the object as it would be kept, or each objection."""

    status: int
    kept: dict[str, Any] | None
    output: tuple[str, ...] = ()


class Topologies:
    """StreamTopologies of one namespace, as a user who applies them sees the API."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._custom = client.CustomObjectsApi(api)
        self._where = ("streamtopology.dev", "v1alpha1", namespace, "streamtopologies")

    def tried(self, manifest: dict[str, Any]) -> Answer:
        """The answer to a dry run with unknown fields refused, as kubectl asks for."""
        try:
            kept: Any = self._custom.create_namespaced_custom_object(
                *self._where, manifest, dry_run="All", field_validation="Strict"
            )
            return Answer(201, kept)
        except client.ApiException as refusal:
            status = json.loads(refusal.body or "{}")
            causes = status.get("details", {}).get("causes", [])
            output = [f"{cause.get('field', '')}: {cause['message']}" for cause in causes] or [status["message"]]
            return Answer(status["code"], None, tuple(output))

    def create(self, manifest: dict[str, Any]) -> None:
        self._custom.create_namespaced_custom_object(*self._where, manifest)


@pytest.fixture(scope="module")
def definitions(api_server: ApiServer) -> Iterator[None]:
    """The CRD and the admission policy are there, and the API server goes by both; the policy only for these tests."""
    install_crd(api_server)
    api_server.kubectl("apply", "--server-side", "-f", str(ROOT / "crds" / "admission-policy.yaml"))
    eventually(lambda: "stopo" in api_server.kubectl("api-resources", "--cached=false"))  # kubectl remembers what there was
    namespace = api_server.new_namespace()
    unknown_input = changed(("spec.operators[1].inputs", ["claen"]))
    with api_server.client() as api:
        eventually(lambda: Topologies(api, namespace).tried(unknown_input).kept is None)  # the policy takes a moment
    yield
    api_server.kubectl("delete", "-f", str(ROOT / "crds" / "admission-policy.yaml"), "--timeout=30s")


@pytest.fixture
def topologies(api_server: ApiServer, namespace: str, definitions: None) -> Iterator[Topologies]:
    with api_server.client() as api:
        yield Topologies(api, namespace)


def test_an_example_without_a_checkpoint_is_refused_in_words(topologies: Topologies) -> None:
    """Pods have no folder of the run, which is the default elsewhere."""
    [local, *_] = [path for path in EXAMPLES if path not in FOR_PODS]
    refusal = topologies.tried(read_yaml(local))  # type: ignore[arg-type]
    assert refusal.kept is None
    assert any("spec.checkpoint" in one and "a pod's own storage is lost with it" in one for one in refusal.output)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_accepted_and_comes_back_the_same(path: Path, topologies: Topologies) -> None:
    manifest: Any = read_yaml(path)
    manifest["spec"].setdefault("checkpoint", "s3://bucket/checkpoint")
    kept = topologies.tried(manifest).kept
    assert kept is not None
    assert kept["spec"] != manifest["spec"], "no default was filled in"
    assert parse(kept) == parse(manifest)


def test_the_complete_manifest_of_the_reference_is_accepted_and_comes_back_the_same(topologies: Topologies) -> None:
    assert parse(topologies.tried(COMPLETE).kept) == parse(COMPLETE)


@pytest.mark.parametrize(("path", "value", "problem_path", "sentence"), MISTAKES)
def test_api_server_refuses_manifests_that_the_parser_refuses(
    path: str, value: object, problem_path: str, sentence: str, topologies: Topologies
) -> None:
    manifest = changed((path, value))
    answer = topologies.tried(manifest)
    output = answer.output
    with pytest.raises(ManifestError) as raised:
        parse(manifest)
    [problem] = raised.value.problems
    is_other_language = path.endswith((".schema", ".policy")) and value in ONLY_THE_OPERATOR_REFUSES
    if is_other_language or LEFT_TO_THE_OPERATOR.search(problem.message):
        assert answer.kept is not None
        return
    assert answer.status in (400, 422), answer
    own_words = any(words in one for one in output for words in IN_KUBERNETES_WORDS)
    assert own_words or any(_head(problem.message) in one.replace("metadata.name: ", "") for one in output), output
    assert any("spec" in one for one in output) or not problem.path.startswith("spec"), output


def _head(sentence: str) -> str:
    """Without what the API server does not know: the nearest word, the names of a list in just that form."""
    ends = r",? allowed: |; allowed: |; of the built-ins |: spaces are not allowed|; did you mean|: \S+ -> "
    return re.split(ends, sentence)[0]


def test_most_of_the_sentences_are_the_parsers(topologies: Topologies) -> None:
    same = 0
    for path, value, _, _ in MISTAKES:
        manifest = changed((path, value))
        with pytest.raises(ManifestError) as raised:
            parse(manifest)
        same += any(_head(raised.value.problems[0].message) in one for one in topologies.tried(manifest).output)
    assert same >= 40, f"{same} of {len(MISTAKES)}"


# Quantities -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pods(api_server: ApiServer) -> Iterator[Callable[[object], bool]]:
    """A function that returns True if a Deployment takes this as a limit of memory of its pods."""
    namespace = api_server.new_namespace()

    def is_accepted(amount: object) -> bool:
        container = {"name": "a", "image": "a", "resources": {"limits": {"memory": amount}}}
        template = {"metadata": {"labels": {"a": "a"}}, "spec": {"containers": [container]}}
        body = {"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "a"}}, "template": template}}
        try:
            custom.create_namespaced_custom_object("apps", "v1", namespace, "deployments", body, dry_run="All")
        except client.ApiException as refusal:
            if refusal.status in (400, 422):
                return False
            raise
        return True

    with api_server.client() as api:
        custom = client.CustomObjectsApi(api)
        yield is_accepted


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(0.5)
@example(1e9)
@example(1e-9)
@example("1e9")
@example(".5")
@example("5.")
@example("+1")
@example("1E")
@example("1Pi")
@example("0.1")
@example(".")
@example("1e")
@example("00000000000000000000000000000000000000000000000000000000000000001")
@example("1 Gi")
@example("0x1")
@given(
    st.one_of(quantities().map(lambda one: one.text), st.text("0123.eEinumkKMG+-", min_size=1, max_size=6), st.floats(0, 1e6))
)
def test_amounts_that_a_pod_takes_are_taken(
    topologies: Topologies, pods: Callable[[object], bool], written: str | float
) -> None:
    """As memory: all of them that have a digit. As CPU: those that are neither 0 nor more than 1024 cores."""
    kept = topologies.tried(changed(("spec.migration.threshold", written))).kept
    assert (kept is not None) == (re.search("[0-9]", str(written)) is not None and pods(written))
    if kept is None:
        return
    assert parse(kept) == parse(changed(("spec.migration.threshold", written)))
    answer = topologies.tried(changed(("spec.executors[0].cpu", written)))
    assert (answer.kept is not None) == (0 < (parse_quantity(written) or 0) <= 1024), answer.output


# Fuzzed manifests -----------------------------------------------------------------------------------------------------

_ANYTHING: list[object] = [
    0, 1, -1, 0.5, "", " ", "x", "X!", "clean", True, False, None, [], {}, ["x"], [1], [None], [[]], [{}], {"x": 1},
    {"name": "x"}, {"from": 1}, {"from": "rides"}, [{"name": "x", "type": 1}], {"x": {"y": [None, 1.5, "é" * 50]}}, "é", 2**40,
    "9" * 45,
]  # fmt: skip
_DURATIONS: list[object] = ["10s", "0s", "0", 0, "1h30m", "5 m", "1e3s", "250ms", "0.5us", "3µs", "9000h", "0.0000001s", "7d"]
_AMOUNTS: list[object] = [
    0.5,
    "1e9",
    1e9,
    "1E",
    ".5Gi",
    "1Gi",
    "1.5Gi",
    "512Mi",
    "1.0001k",
    "1.5",
    "-1Gi",
    2**30,
    "2000000000",
    "2T",
    "1Pi",
    "1 Gi",
]
_COUNTS: list[object] = [0, 1, 3, 64, 1024, 1025, 5000, -1]
# By the name of a field: what people might well write there, right or wrong.
_LIKELY: dict[str, list[object]] = {
    "cpu": [0.5, ".5", 1e-9, "1E", "500m", "0.5", "0.0001", 2, 0, "1e3", "1025", "0m", "1.500"],
    "memory": _AMOUNTS, "threshold": _AMOUNTS,
    **dict.fromkeys(("delay", "idleTimeout", "interval", "stabilisation"), _DURATIONS),
    **dict.fromkeys(("replicas", "minReplicas", "maxReplicas", "parallelism", "aggregateEvery", "windowIntervals"), _COUNTS),
    "policy": list(GROUPINGS), "run": [*BUILTINS, "a.py:B", "a b:C", "m.n:C", "countt"], "mode": ["Off", "Auto", "off"],
    "by": ["Operator", "External", "Nobody"], "class": ["large", "small", "tiny"],
    "key": ["city", ["city"], ["id", "city"], []],
    "format": ["csv", "CSV", "kafka", "text", "rate", "memory", "json"],
    "checkpoint": ["s3://b/c", "s3://b", "s3://id:key@b/c", "s3://b/../c", "s3://b/.c/d.", "gs://b", "a/b", "file:/x"],
    "schema": ["a INT", [{"name": "a", "type": "INT"}], "a", "a INT, A INT"], "select": ["*", ["id"], ["fare * 2"], "a AS b"],
    "inputs": [["rides"], ["clean"], ["rides", "clean"], [{"from": "rides", "as": "x"}], ["rides", "rides"]],
    "name": ["a", "b", "clean", "rides", "large", "x" * 60, "x" * 64, "9", "A"], "image": ["a/b:1"],
    "tolerance": [0, 0.2, 1, 1.1],
    "with": [{"emit": "tuples"}, {}], "availableNow": [True, False], "watermark": [{"column": "at"}, {}], "suspend": [True],
}  # fmt: skip


def _paths(value: Any, path: str) -> list[str]:
    if isinstance(value, dict):
        return [below for name, item in value.items() for below in [f"{path}.{name}", *_paths(item, f"{path}.{name}")]]
    if isinstance(value, list):
        return [below for index, item in enumerate(value) for below in [f"{path}[{index}]", *_paths(item, f"{path}[{index}]")]]
    return []


def _fuzzed(number: int) -> dict[str, Any]:
    """A manifest in which one to three fields are others, mostly such as somebody might write there."""
    chance = random.Random(number)
    manifest = deepcopy(chance.choice([VALID, COMPLETE]))
    for _ in range(chance.randint(1, 3)):
        path = chance.choice([one for one in _paths(manifest["spec"], "spec") if "example.com" not in one])
        likely = _LIKELY.get(path.rsplit(".", 1)[-1], _ANYTHING)
        value = chance.choice(likely if chance.random() < 0.8 else _ANYTHING)
        try:
            manifest = changed((path, deepcopy(value)), of=manifest)
        except (TypeError, AttributeError, IndexError):  # an earlier change took the place away
            continue
    return manifest


def _judged(manifest: object) -> Topology | ManifestError:
    try:
        return parse(manifest)
    except ManifestError as refusal:
        return refusal


def test_fuzzed_manifests_are_accepted_or_refused_with_a_sentence(topologies: Topologies) -> None:
    outcomes = dict.fromkeys(("accepted by both", "refused by the API server", "refused by the operator alone"), 0)
    for number in range(FUZZED):
        manifest = _fuzzed(number)
        judged = _judged(manifest)
        answer = topologies.tried(manifest)
        if answer.kept is None:
            assert answer.status in (400, 422), (number, answer)
            assert all(len(one) > 20 for one in answer.output), (number, answer)
            outcomes["refused by the API server"] += 1
            continue
        after = _judged(answer.kept)  # raises what is not a ManifestError: a crash
        if isinstance(after, Topology):
            assert judged == after, number
            outcomes["accepted by both"] += 1
        else:
            assert all(problem.path and problem.message for problem in after.problems), number
            outcomes["refused by the operator alone"] += 1
    assert sum(outcomes.values()) == FUZZED
    assert min(outcomes["accepted by both"], outcomes["refused by the API server"]) >= 20, outcomes
    assert outcomes["refused by the operator alone"] <= FUZZED / 10, outcomes


# kubectl --------------------------------------------------------------------------------------------------------------


def test_kubectl_explains_every_field(api_server: ApiServer, definitions: None) -> None:
    output = api_server.kubectl("explain", "stopo.spec.executors.cpu")
    assert "CPU of each: request and limit." in output
    assert "<empty>" not in api_server.kubectl("explain", "stopo.spec.operators.grouping")
    assert "measuredGain" in api_server.kubectl("explain", "stopo.status.lastRerouting")


STATUS = {
    "phase": "Running",
    "epoch": 3,
    "imbalance": 0.034,
    "throughput": 91800,
    "executors": {"ready": 3, "wanted": 4, "summary": "3/4"},
    "policy": "per-city: mixed",
    "lastRerouting": {"epoch": 3, "reason": "per-city is out of balance", "at": "2026-11-22T02:00:00Z"},
    "autoscale": {"replicas": 3, "selector": "streamtopology.dev/class=large", "desired": 3, "reason": "3 executors are right"},
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Running", "message": "", "lastTransitionTime": "2026-11-22T02:00:00Z"}
    ],
}


def test_kubectl_get_shows_the_columns(api_server: ApiServer, namespace: str, topologies: Topologies) -> None:
    topologies.create(VALID)
    patch = json.dumps({"status": STATUS})
    api_server.kubectl("patch", "stopo", "trips", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    header, row = api_server.kubectl("get", "stopo", "-n", namespace).strip().splitlines()
    assert header.split() == ["NAME", "PHASE", "EPOCH", "IMBALANCE", "THROUGHPUT", "EXECUTORS", "AGE"]
    assert row.split()[:6] == ["trips", "Running", "3", "0.034", "91800", "3/4"]
    wide = api_server.kubectl("get", "stopo", "-n", namespace, "-o", "wide")
    assert "POLICY" in wide and "LAST RE-ROUTING" in wide and "per-city: mixed" in wide  # noqa: PT018
    assert "streamtopology.streamtopology.dev/trips" in api_server.kubectl("get", "all", "-n", namespace)


def test_kubectl_scale_asks_for_replicas_of_the_class(api_server: ApiServer, namespace: str, topologies: Topologies) -> None:
    topologies.create(changed(("spec.autoscale", {"class": "small", "maxReplicas": 9})))
    api_server.kubectl("scale", "stopo/trips", "--replicas=5", "-n", namespace)
    kept = json.loads(api_server.kubectl("get", "stopo", "trips", "-n", namespace, "-o", "json"))
    assert kept["spec"]["autoscale"]["replicas"] == 5
    assert parse(kept).executor_class("small").replicas == 5
    patch = json.dumps({"status": STATUS})
    api_server.kubectl("patch", "stopo", "trips", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    scale = json.loads(api_server.kubectl("get", "stopo", "trips", "-n", namespace, "--subresource=scale", "-o", "json"))
    assert scale["status"] == {"replicas": 3, "selector": "streamtopology.dev/class=large"}


def test_a_topology_without_autoscale_cannot_be_scaled(api_server: ApiServer, namespace: str, topologies: Topologies) -> None:
    topologies.create(VALID)
    with pytest.raises(ProcessFailed, match=r"spec\.autoscale\.class: .*is missing, expected the name of an executor class"):
        api_server.kubectl("scale", "stopo/trips", "--replicas=5", "-n", namespace)
    named = {"spec": {"autoscale": {"class": "small"}}}
    api_server.kubectl("patch", "stopo", "trips", "-n", namespace, "--type=merge", "-p", json.dumps(named))
    api_server.kubectl("scale", "stopo/trips", "--replicas=5", "-n", namespace)
