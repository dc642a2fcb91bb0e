"""The operator without its API server, without a part of it, refused by it: it continues when it can, else reports why."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import LARGE, QUIET, SMALL, an_operator, settled
from support.kube.policy import refusing
from support.kube.running_operator import OperatorThread, Topologies, manifest
from support.waiting import eventually

from streamtopology.k8s.io.api import REQUEST_SECONDS, Api, ApiAway
from streamtopology.k8s.io.metrics import PREFIX
from streamtopology.k8s.names import Kind, labels

AWAY_SECONDS = 60


@pytest.fixture
def operator(api_server: ApiServer, namespace: str, drivers: FakeDrivers) -> OperatorThread:
    return an_operator(api_server, (namespace,), drivers)


@pytest.fixture
def another(api_server: ApiServer) -> Iterator[Topologies]:
    """Those of a second namespace."""
    name = api_server.new_namespace()
    with api_server.client() as api:
        there = Topologies(api, name)
        yield there
        there.let_go()
        client.CoreV1Api(api).delete_namespace(name)


def late(monkeypatch: pytest.MonkeyPatch, namespace: str) -> threading.Event:
    """No list of this namespace is answered until the event is set."""
    answered, really = threading.Event(), Api.pages

    async def listed(self: Api, kind: Kind, of: str | None, selector: str = "") -> AsyncIterator[Any]:
        if of == namespace and not answered.is_set():
            raise ApiAway(f"{of} cannot be listed yet")
        async for page in really(self, kind, of, selector):
            yield page

    monkeypatch.setattr(Api, "pages", listed)
    return answered


def test_a_namespace_that_cannot_be_listed_yet_is_left_alone_and_holds_up_no_other(
    topologies: Topologies, another: Topologies, api_server: ApiServer, drivers: FakeDrivers, monkeypatch: pytest.MonkeyPatch
):
    """Existing objects must not count as missing: the driver would be restarted, the routing recreated without its epoch."""
    both = (topologies, another)
    spaces = (topologies.namespace, another.namespace)
    with an_operator(api_server, spaces, drivers):
        for one in both:
            one.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: all(settled(one, 1) for one in both))
        for one in both:
            one.change("flow", rebalance={**QUIET, "tolerance": 0.2})
        eventually(lambda: all(settled(one, 2) for one in both))
    driver = another.driver_pods("flow")
    answered = late(monkeypatch, another.namespace)
    with an_operator(api_server, spaces, drivers):
        for one in both:
            one.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
        eventually(lambda: settled(topologies, 3))
        assert another.status("flow")["observedGeneration"] == 2
        assert another.routing("flow")["generation"] == "2"
        answered.set()
        eventually(lambda: settled(another, 3))
    assert another.driver_pods("flow") == driver


def test_an_api_server_that_is_away_for_a_minute_and_comes_back(
    topologies: Topologies, api_server: ApiServer, operator: OperatorThread
):
    """Takes one to two minutes: the server is really away, for longer than anybody waits for an answer and than kopf tries
    before it gives a call up. Watches break and have expired when it is back; what is changed then is noticed."""
    with operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1))
        driver = topologies.driver_pods("flow")
        api_server.stop()
        time.sleep(AWAY_SECONDS)
        assert not operator.is_dead
        assert given_up(operator) > 0, "it was noticed"
        api_server.start()
        topologies.core.delete_namespaced_service("flow-driver", topologies.namespace)
        topologies.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
        eventually(lambda: settled(topologies, 2), 120)
        assert topologies.replicas("flow", "large") == 3
        assert topologies.driver_pods("flow") == driver, "that it was away is no reason to restart"
        assert "flow-driver" in topologies.left_of("flow")
        assert not operator.is_dead


def test_an_api_server_that_hangs_for_longer_than_a_call_may_take(
    topologies: Topologies, api_server: ApiServer, operator: OperatorThread
):
    """Takes about a minute: it hangs until the operator has given up a call, which it does after REQUEST_SECONDS."""
    with operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1))
        topologies.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
        with api_server.frozen():
            eventually(lambda: given_up(operator) > 0, 9 * REQUEST_SECONDS)  # events that cannot be posted take their time, too
        topologies.change("flow", executors=[{**LARGE, "replicas": 4}, SMALL])
        eventually(lambda: settled(topologies, 3), 120)
        assert topologies.replicas("flow", "large") == 4


def given_up(operator: OperatorThread) -> float:
    """The number of reconciliations without an answer of the API server, by the operator's metrics."""
    return operator.metrics.registry.get_sample_value(f"{PREFIX}reconcile_seconds_count", {"outcome": "away"}) or 0.0


def test_refusal_of_the_api_server_is_reported_and_stops_nothing_else(topologies: Topologies, operator: OperatorThread):
    """Pod settings are Kubernetes' own: only the API server knows that these do not hold."""
    bad = {"volumes": [{"name": "data", "hostPath": {"path": "/data"}, "emptyDir": {}}]}
    with operator:
        topologies.create(manifest("flow", rebalance=QUIET, executors=[{**LARGE, "pod": bad}, SMALL]))
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "ApplyRefused"))
        message = next(one["message"] for one in topologies.status("flow")["conditions"] if one["type"] == "Degraded")
        assert "StatefulSet flow-large" in message
        eventually(lambda: ("Warning", "ApplyRefused") in {event[:2] for event in topologies.events("flow")})
        eventually(lambda: topologies.replicas("flow", "small") == 1)
        topologies.change("flow", executors=[LARGE, SMALL])
        eventually(lambda: settled(topologies, 2), 90)
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")


def test_refused_status_is_an_event_with_the_words_of_the_api_server(topologies: Topologies, operator: OperatorThread):
    with operator:
        with refusing(topologies, "streamtopology.dev", ["streamtopologies/status"]):
            topologies.create(manifest("flow", rebalance=QUIET))
            eventually(lambda: "WriteRefused" in topologies.reasons("flow"), 60)
            [message] = {text for _, reason, text in topologies.events("flow") if reason == "WriteRefused"}
            assert "frozen by the cluster's owner" in message
        eventually(lambda: settled(topologies, 1), 120)


@contextmanager
def without_an_answer(api_server: ApiServer, namespace: str) -> Iterator[None]:
    """Inside, a webhook of the cluster that nobody serves is asked about each StatefulSet: writes of one end with 500."""
    name = f"away-{namespace}"
    hook = {
        "name": "away.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["statefulsets"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    with api_server.client() as api:
        admission = client.AdmissionregistrationV1Api(api)
        admission.create_validating_webhook_configuration({"metadata": {"name": name}, "webhooks": [hook]})
        yield
        admission.delete_validating_webhook_configuration(name)


def test_error_500_to_three_writes_in_a_row_is_reported_and_stops_nothing_else(
    topologies: Topologies, api_server: ApiServer, operator: OperatorThread
):
    with operator:
        with without_an_answer(api_server, topologies.namespace):
            topologies.create(manifest("flow", rebalance=QUIET))
            eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "ApplyRefused"), 120)
            message = next(one["message"] for one in topologies.status("flow")["conditions"] if one["type"] == "Degraded")
            assert "StatefulSet flow-" in message
            assert "away.example.com" in message
            eventually(lambda: ("Warning", "ApplyRefused") in {event[:2] for event in topologies.events("flow")})
            eventually(lambda: topologies.driver_pods("flow"))
        eventually(lambda: settled(topologies, 1), 120)
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")


def test_immutable_routing_is_told_once_with_the_way_out(
    topologies: Topologies, operator: OperatorThread, drivers: FakeDrivers
):
    key = (topologies.namespace, "flow")
    with operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        topologies.core.patch_namespaced_config_map("flow-routing", topologies.namespace, {"immutable": True})
        topologies.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "ApplyRefused"), 120)
        asked = drivers.asked[key]
        eventually(lambda: drivers.asked[key] > asked + 20, 120)
        assert counted(topologies, "Scaling") == 1
        [message] = {text for _, reason, text in topologies.events("flow") if reason == "ApplyRefused"}
        assert message.endswith("somebody has made it immutable; delete the ConfigMap flow-routing, it is written anew")
        topologies.core.delete_namespaced_config_map("flow-routing", topologies.namespace)
        eventually(lambda: settled(topologies, 2), 120)
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")


def counted(topologies: Topologies, reason: str) -> int:
    """How often an event of this reason was posted."""
    events: Any = topologies.core.list_namespaced_event(topologies.namespace, field_selector=f"reason={reason}")
    return sum(event.count for event in events.items)


@pytest.mark.parametrize("kind", ["deployment", "service"])
def test_object_that_a_foreign_finalizer_holds_is_named_and_made_again_when_it_is_gone(
    topologies: Topologies, operator: OperatorThread, api_server: ApiServer, kind: str
):
    def kubectl(*arguments: str) -> str:
        return api_server.kubectl("-n", topologies.namespace, *arguments)

    def hold(finalizers: str) -> None:
        kubectl("patch", kind, "flow-driver", "--type=merge", "-p", f'{{"metadata": {{"finalizers": {finalizers}}}}}')

    with operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        hold('["example.com/hold"]')
        kubectl("delete", kind, "flow-driver", "--wait=false")
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "BeingDeleted"), 120)
        [message] = {text for _, reason, text in topologies.events("flow") if reason == "BeingDeleted"}
        assert message.endswith("flow-driver is being deleted and waits for example.com/hold")
        hold("null")
        eventually(lambda: topologies.condition("flow", "Degraded") == ("False", "AsExpected"), 120)
        eventually(lambda: settled(topologies, 1), 120)
        assert not {"Contested"} & topologies.reasons("flow")


def labels_of_driver(topologies: Topologies) -> dict[str, str]:
    found: Any = topologies.apps.read_namespaced_deployment("flow-driver", topologies.namespace)
    return found.metadata.labels


@pytest.mark.parametrize("label", ["instance=else", "instance-", "managed-by=else"])
def test_label_of_ours_that_somebody_changes_is_put_back_without_another_list(
    topologies: Topologies, operator: OperatorThread, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, label: str
):
    with operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        driver = topologies.driver_pods("flow")
        late(monkeypatch, topologies.namespace)
        change = ("label", "deployment", "flow-driver", f"app.kubernetes.io/{label}", "--overwrite")
        api_server.kubectl("-n", topologies.namespace, *change)
        eventually(lambda: labels("flow", "driver").items() <= labels_of_driver(topologies).items(), 120)
        eventually(lambda: settled(topologies, 1), 120)
        assert topologies.driver_pods("flow") == driver


def test_two_operators_at_once_do_the_same_and_not_twice(topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers):
    """The effect of a lost lease for a moment: both act, by server-side apply under the same name."""
    with an_operator(api_server, (topologies.namespace,), drivers), an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1))
        topologies.change("flow", executors=[{**LARGE, "cpu": "600m"}, SMALL])
        eventually(lambda: settled(topologies, 2))
    eventually(lambda: len(topologies.driver_pods("flow")) == 1)
    eventually(lambda: set(topologies.executor_pods("flow", "large").values()) == {"600m"})


def test_routing_that_another_manager_has_overwritten_is_corrected(topologies: Topologies, operator: OperatorThread):
    """As after `kubectl replace`: another manager holds each field, and what is left out of an apply would stay."""
    with operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        wrong = {"epochNumber": "many", "epochState": "prepared", "generation": "first"}
        topologies.core.patch_namespaced_config_map("flow-routing", topologies.namespace, {"data": wrong})
        eventually(lambda: "epochNumber" not in topologies.routing("flow"), 120)
        eventually(lambda: settled(topologies, 1), 120)
        assert topologies.routing("flow")["generation"] == "1"
