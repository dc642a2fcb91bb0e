"""Generated values of the chart: what each promises holds together with all others."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.kube.processes import ProcessFailed
from support.kube.rendering import CHART, MONITORED, Manifest, only, rendered

SECURE_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
SECURE_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
REMEDY = "--reset-then-reuse-values"

texts = st.dictionaries(st.sampled_from(["example.com/a", "example.com/b", "c"]), st.sampled_from(["x", "7", "true", "é: {"]))
secrets = st.lists(st.sampled_from(["one", "two"]).map(lambda name: {"name": name}), unique_by=str)
budgets = st.sampled_from([1, 2, "50%", "100%"])
peers = [{"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [{"port": 443, "protocol": "TCP"}]}]


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Manifest]:
    """An object with any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


values = optional(
    **{"global": optional(
        imageRegistry=st.sampled_from(["", "r.example.com:5000/team"]),
        imagePullSecrets=st.one_of(secrets, st.lists(st.sampled_from(["one", "three"]), unique=True)),
        commonLabels=texts,
        nodeSelector=texts,
        priorityClassName=st.sampled_from(["", "all"]),
        ofAnotherChart=st.just({"x": 1}),
    )},
    image=optional(registry=st.sampled_from(["", "own.example.com"])),
    imagePullSecrets=secrets,
    commonLabels=texts,
    commonAnnotations=texts,
    deploymentAnnotations=texts,
    podAnnotations=texts,
    podLabels=texts,
    serviceAccount=optional(annotations=texts),
    nodeSelector=texts,
    priorityClassName=st.sampled_from(["", "own"]),
    replicas=st.integers(0, 3),
    revisionHistoryLimit=st.sampled_from(["", 0, 3]),
    podDisruptionBudget=optional(minAvailable=budgets, maxUnavailable=budgets),
    podUser=st.sampled_from(["", 2000]),
    podSecurityContext=optional(runAsUser=st.just(3000), fsGroupChangePolicy=st.just("OnRootMismatch")),
    securityContext=optional(readOnlyRootFilesystem=st.just(False), seLinuxOptions=st.just({"type": "t"})),
    envFrom=st.sampled_from([[], [{"secretRef": {"name": "proxy"}}]]),
    logFormat=st.sampled_from(["text", "json"]),
    dnsConfig=st.sampled_from([{}, {"options": [{"name": "ndots", "value": "2"}]}]),
    hostAliases=st.sampled_from([[], [{"ip": "10.0.0.1", "hostnames": ["registry"]}]]),
    watchNamespaces=st.sampled_from([[], ["a"], ["a", "b"]]),
    networkPolicy=optional(enabled=st.booleans(), egress=st.sampled_from([[], peers])),
    page=optional(enabled=st.booleans()),
    metrics=optional(serviceMonitor=st.booleans(), labels=texts, dashboardAnnotations=texts),
)  # fmt: skip


def of(given_values: Manifest, folder: Path) -> list[Manifest]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(given_values))
    return rendered("--values", str(file), *MONITORED)


def at(values: Manifest, *path: str) -> Any:
    """The value of the path; an empty object where there is none."""
    for name in path:
        values = values.get(name, {})
    return values


@given(chosen=values)
@example(chosen={"global": {"imagePullSecrets": ["one"]}, "imagePullSecrets": [{"name": "one"}]})
@example(chosen={"commonLabels": {"c": "own"}, "podLabels": {"c": "pod"}, "global": {"commonLabels": {"c": "all"}}})
@settings(max_examples=60, deadline=None)
def test_each_value_holds_with_all_others(tmp_path_factory: pytest.TempPathFactory, chosen: Manifest):
    made = of(chosen, tmp_path_factory.mktemp("values"))
    deployment, tester = only(made, "Deployment"), only(made, "Pod", "streamtopology-test")
    common = {**at(chosen, "global", "commonLabels"), **at(chosen, "commonLabels")}
    monitored = at(chosen, "metrics", "labels").keys()
    for one in made:
        labels, annotations = one["metadata"]["labels"], one["metadata"].get("annotations", {})
        assert {**labels, **{key: common[key] for key in common if key not in monitored}} == labels
        assert at(chosen, "commonAnnotations").keys() <= annotations.keys()
    check_pod(chosen, deployment["spec"]["template"], tester)
    own = deployment["metadata"].get("annotations", {})
    assert own == {**at(chosen, "commonAnnotations"), **at(chosen, "deploymentAnnotations")}
    check_budget(chosen, [one for one in made if one["kind"] == "PodDisruptionBudget"])
    check_traffic(chosen, made)


def check_pod(chosen: Manifest, template: Manifest, tester: Manifest) -> None:
    pod, container = template["spec"], template["spec"]["containers"][0]
    common = {**at(chosen, "global", "commonLabels"), **at(chosen, "commonLabels"), **at(chosen, "podLabels")}
    assert common.items() <= template["metadata"]["labels"].items()
    user = chosen.get("podUser", 10001)
    by_user = {"runAsUser": user, "runAsGroup": user, "fsGroup": user} if user else {}
    assert pod["securityContext"] == {**SECURE_POD, **by_user, **at(chosen, "podSecurityContext")}
    assert container["securityContext"] == {**SECURE_CONTAINER, **at(chosen, "securityContext")}
    named = [*chosen.get("imagePullSecrets", [])]
    shared = chosen.get("global", {}).get("imagePullSecrets", [])
    named += [{"name": one} if isinstance(one, str) else one for one in shared]
    assert pod.get("imagePullSecrets", []) == [one for number, one in enumerate(named) if one not in named[:number]]
    assert pod.get("nodeSelector", {}) == {**at(chosen, "global", "nodeSelector"), **at(chosen, "nodeSelector")}
    priority = chosen.get("priorityClassName") or chosen.get("global", {}).get("priorityClassName")
    assert pod.get("priorityClassName") == (priority or None)
    for field in ("dnsConfig", "hostAliases"):
        assert pod.get(field) == (chosen.get(field) or None)
    registry = chosen.get("global", {}).get("imageRegistry") or chosen.get("image", {}).get("registry") or ""
    assert container["image"] == f"{registry}/streamtopology/operator:0.1.0".removeprefix("/")
    assert container.get("envFrom", []) == chosen.get("envFrom", [])
    form = next(one["value"] for one in container["env"] if one["name"] == "STREAMTOPOLOGY_LOG_FORMAT")
    assert form == chosen.get("logFormat", "text")
    for field in ("securityContext", "imagePullSecrets", "nodeSelector", "priorityClassName"):
        assert tester["spec"].get(field) == pod.get(field)
    for field in ("image", "securityContext", "envFrom"):
        assert tester["spec"]["containers"][0].get(field) == container.get(field)


def check_budget(chosen: Manifest, budgets: list[Manifest]) -> None:
    """Kubernetes refuses a budget of both kinds."""
    assert len(budgets) == (1 if chosen.get("replicas", 1) > 1 else 0)
    for budget in budgets:
        asked = chosen.get("podDisruptionBudget", {})
        kinds = {field: budget["spec"][field] for field in ("minAvailable", "maxUnavailable") if field in budget["spec"]}
        least = asked.get("minAvailable")
        assert kinds == ({"minAvailable": least} if least else {"maxUnavailable": asked.get("maxUnavailable", 1)})


def check_traffic(chosen: Manifest, made: list[Manifest]) -> None:
    policies = [one["spec"] for one in made if one["kind"] == "NetworkPolicy"]
    asked = chosen.get("networkPolicy", {})
    assert len(policies) == (1 if asked.get("enabled", True) else 0)
    for policy in policies:
        assert policy.get("egress", []) == asked.get("egress", [])
        assert ("Egress" in policy["policyTypes"]) is bool(asked.get("egress"))
    by_service = chosen.get("metrics", {}).get("serviceMonitor", False)
    kinds = [one["kind"] for one in made if one["kind"].endswith("Monitor")]
    assert kinds == ["ServiceMonitor" if by_service else "PodMonitor"] * 2
    services = {one["metadata"]["name"]: one for one in made if one["kind"] == "Service"}
    assert ("streamtopology-metrics" in services) is by_service
    if by_service:
        selected = only(made, "ServiceMonitor")["spec"]["selector"]["matchLabels"].items()
        assert [name for name, one in services.items() if selected <= one["metadata"]["labels"].items()] == [
            "streamtopology-metrics"
        ]


def without(path: str) -> Callable[[Path], Path]:
    """A copy of the chart whose own values lack the path, as with `--reuse-values` from a chart before it."""

    def copy(folder: Path) -> Path:
        chart = Path(shutil.copytree(CHART, folder / "streamtopology"))
        values = yaml.safe_load((chart / "values.yaml").read_text())
        *above, name = path.split(".")
        del at(values, *above)[name]
        (chart / "values.yaml").write_text(yaml.safe_dump(values))
        return chart

    return copy


def objects(made: list[Manifest]) -> set[tuple[str, str]]:
    return {(one["kind"], one["metadata"]["name"]) for one in made}


def paths(values: Manifest, above: str = "") -> list[str]:
    found = [f"{above}{name}" for name in values]
    return found + [
        path for name, value in values.items() if isinstance(value, dict) for path in paths(value, f"{above}{name}.")
    ]


@pytest.mark.parametrize("path", paths(yaml.safe_load((CHART / "values.yaml").read_text())))
def test_values_of_an_older_chart_are_taken_or_refused_with_the_remedy(path: str, tmp_path: Path):
    complaint, made = "", list[Manifest]()
    try:
        made = rendered(*MONITORED, chart=without(path)(tmp_path))
    except ProcessFailed as refused:
        complaint = str(refused)
    if complaint:
        assert re.search(rf"the value {re.escape(path)}(\.\S+)? is missing", complaint)
        assert REMEDY in complaint
    else:
        assert objects(made) == objects(rendered(*MONITORED))


def test_chart_of_charts_gives_its_globals(tmp_path: Path):
    parent = tmp_path / "platform"
    (parent / "charts").mkdir(parents=True)
    shutil.copytree(CHART, parent / "charts" / "streamtopology")
    (parent / "Chart.yaml").write_text("apiVersion: v2\nname: platform\nversion: 1.0.0\n")
    shared = {"imagePullSecrets": ["registry"], "imageRegistry": "r.example.com", "commonLabels": {"team": "a"}, "tls": True}
    (parent / "values.yaml").write_text(json.dumps({"global": shared, "streamtopology": {"podUser": 2000}}))
    deployment = only(rendered(chart=parent, release="platform"), "Deployment", "platform-streamtopology")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["containers"][0]["image"] == "r.example.com/streamtopology/operator:0.1.0"
    assert deployment["metadata"]["labels"]["team"] == "a"
